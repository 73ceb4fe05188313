package restguard_test

import (
	"testing"

	"toolguard.dev/adapters/restguard"
	"toolguard.dev/registry"
)

// Another request of a lookup is another policy: an approval given under the one before does not fit any more.
func TestLookUpIsPartOfThePolicy(t *testing.T) {
	token := "Bearer of the first month"
	hash := func(url string) string {
		l, err := restguard.LookUp(restguard.Request{Method: "GET", URL: url, Query: map[string]string{"a": "{{args.a}}", "b": "{{args.b}}"}, Header: map[string]string{"Authorization": token}})
		if err != nil {
			t.Fatal(err)
		}
		if l.Applied, err = registry.CompileExpression("true", registry.KindAnswer); err != nil {
			t.Fatal(err)
		}
		e, err := registry.Compile(registry.Tool{Server: "s", Name: "pay", Policy: registry.Policy{Lookups: []registry.Lookup{l}}})
		if err != nil {
			t.Fatal(err)
		}
		return e.PolicyHash
	}
	first, again, moved := hash("http://127.0.0.1/a/{{key}}"), hash("http://127.0.0.1/a/{{key}}"), hash("http://127.0.0.1/b/{{key}}")
	if first != again {
		t.Error("the same lookup request has two hashes")
	}
	if first == moved {
		t.Error("another lookup request leaves the policy's hash as it was")
	}
	if token = "Bearer of the second month"; hash("http://127.0.0.1/a/{{key}}") != first {
		t.Error("a renewed token makes approvals void")
	}
}
