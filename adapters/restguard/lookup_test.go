package restguard_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/restguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func condition(t testing.TB, source string) *registry.Expression {
	t.Helper()
	x, err := registry.CompileExpression(source, registry.KindAnswer)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestLookUp(t *testing.T) {
	d := newDownstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("ref") == "K1" {
			says(200, `{"data":[{"id":"re_1"}]}`)(w, r)
			return
		}
		says(200, `{"data":[]}`)(w, r)
	})
	look := func(r restguard.Request) *registry.Entry {
		t.Helper()
		lookup, err := restguard.LookUp(r)
		if err != nil {
			t.Fatal(err)
		}
		lookup.Applied, lookup.Absent, lookup.Settle = condition(t, `size(result.json.data) == 1`), condition(t, `result.status == 200 && size(result.json.data) == 0`), time.Second
		e, err := restguard.Compile(write(registry.Policy{Lookups: []registry.Lookup{lookup}, DownstreamID: condition(t, `result.json.data[0].id`)}),
			restguard.Request{Method: "POST", URL: d.URL})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := look(restguard.Request{Method: "GET", URL: d.URL + "/{{context.tenant}}/{{args.deep.er}}", Query: map[string]string{"ref": "{{key}}", "all": "{{args.deep}}", "n": "{{args.list.1}}"}})
	if !e.Policy.Lookups[0].Keyed() {
		t.Error("it asks for the key, and does not say so")
	}
	args, err := keyderive.Parse([]byte(`{"deep":"a/b","list":[1,2]}`))
	if err != nil {
		t.Fatal(err)
	}
	values := registry.Values{Key: "K1", Arguments: args, Facts: keyderive.Facts{Tenant: "acme corp"}}
	e = look(restguard.Request{Method: "GET", URL: d.URL + "/{{context.tenant}}/{{args.deep}}", Query: map[string]string{"ref": "{{key}}", "n": "{{args.list.1}}"}})
	if found := e.Look(t.Context(), 0, values); found.Finding != registry.Applied || found.DownstreamID != "re_1" {
		t.Errorf("%+v", found)
	}
	if want := "GET /acme%20corp/a%2Fb?n=2&ref=K1"; d.requests()[0] != want {
		t.Errorf("asked %s, want %s", d.requests()[0], want)
	}
	values.Key = "K2"
	if found := e.Look(t.Context(), 0, values); found.Finding != registry.Absent {
		t.Errorf("%+v", found)
	}
	values.Facts.Tenant = ""
	if found := e.Look(t.Context(), 0, values); found.Finding != registry.Unclear || len(d.requests()) != 2 {
		t.Errorf("without a value: %+v", found)
	}
	d.Close()
	values.Facts.Tenant = "acme corp"
	if found := e.Look(t.Context(), 0, values); found.Finding != registry.Unclear {
		t.Errorf("nobody there: %+v", found)
	}
	if look(restguard.Request{Method: "GET", URL: d.URL + "/{{args.id}}"}).Policy.Lookups[0].Keyed() {
		t.Error("it does not ask for the key, and says so")
	}
}

func TestUnfitLookUps(t *testing.T) {
	if _, err := restguard.LookUp(restguard.Request{Method: "GET", URL: "x"}); !errors.Is(err, registry.ErrPolicy) {
		t.Errorf("no address: %v", err)
	}
	lookup, err := restguard.LookUp(restguard.Request{Method: "GET", URL: "https://example.org/{{args.name}}"})
	if err != nil {
		t.Fatal(err)
	}
	lookup.Applied = condition(t, "true")
	_, err = restguard.Compile(write(registry.Policy{Lookups: []registry.Lookup{lookup}}), restguard.Request{Method: "POST", URL: "https://example.org"})
	if !errors.Is(err, registry.ErrPolicy) || !strings.Contains(err.Error(), "{{args.name}}") {
		t.Errorf("an unknown argument: %v", err)
	}
}

func TestVersionFollowsTheRequest(t *testing.T) {
	hash := func(r restguard.Request) string {
		r.Method = "POST"
		e, err := restguard.Compile(write(registry.Policy{}), r)
		if err != nil {
			t.Fatal(err)
		}
		return e.PolicyHash
	}
	one := restguard.Request{URL: "https://example.org/a", Header: map[string]string{"Authorization": "x"}, JSON: json.RawMessage(`{"a":1}`)}
	other := one
	other.Header = map[string]string{"Authorization": "renewed"}
	if hash(one) != hash(other) {
		t.Error("a renewed token makes approvals void")
	}
	other.JSON = json.RawMessage(`{"a":2}`)
	if hash(one) == hash(other) {
		t.Error("another body leaves approvals standing")
	}
}
