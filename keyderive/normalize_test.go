package keyderive_test

import (
	"errors"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

func TestNormalize(t *testing.T) {
	type rules = keyderive.Normalize
	tests := []struct {
		name    string
		n       rules
		v, want string
	}{
		{"strings", rules{"/a": {"trim", "lower"}, "/b": {"upper"}, "/c": {"collapse"}}, `{"a":" Ab\u00a0\n","b":"é","c":"a \t\u2003 b","d":" D "}`, `{"a":"ab","b":"É","c":"a b","d":" D "}`},
		{"order of steps", rules{"/a": {"collapse", "trim"}, "/b": {"trim", "collapse"}}, `{"a":"  x  y ","b":"  x  y "}`, `{"a":"x y","b":"x y"}`},
		{"other kinds", rules{"/a": {"trim", "sort"}, "/b": {"unique"}, "/c": {"lower"}}, `{"a":1,"b":"x","c":["A"]}`, `{"a":1,"b":"x","c":["A"]}`},
		{"elements before their array", rules{"/to": {"sort", "unique"}, "/to/*": {"lower"}}, `{"to":["b@X","C@x","a@x","B@x"]}`, `{"to":["a@x","b@x","c@x"]}`},
		{"deeper first", rules{"/l/*": {"sort"}, "/l": {"unique", "sort"}, "/l/*/*": {"trim"}}, `{"l":[[" b","a"],["a","b "]]}`, `{"l":[["a","b"]]}`},
		{"unique keeps the first", rules{"/l": {"unique"}}, `{"l":[2,1,2.0,{"a":1,"b":2},{"b":2,"a":1e0}]}`, `{"l":[2,1,{"a":1,"b":2}]}`},
		{"canonical order", rules{"/l": {"sort"}}, `{"l":[{},"b",10,9,null,"a",[]]}`, `{"l":["a","b",10,9,[],null,{}]}`},
		{"through members of elements", rules{"/l/*/name": {"lower"}}, `{"l":[{"name":"A"},{"n":"A"},"A"]}`, `{"l":[{"name":"a"},{"n":"A"},"A"]}`},
		{"one index", rules{"/l/1": {"lower"}}, `{"l":["A","B"]}`, `{"l":["A","b"]}`},
		{"a member named *", rules{"/*": {"lower"}}, `{"*":"A","b":"B"}`, `{"*":"a","b":"B"}`},
		{"the root", rules{"": {"sort"}}, `[2,1]`, `[1,2]`},
		{"absent", rules{"/x/y/*": {"lower"}}, `{"x":1}`, `{"x":1}`},
		{"no rules", nil, `{"x":" 1"}`, `{"x":" 1"}`},
		{"no steps", rules{"/x": nil}, `{"x":" 1"}`, `{"x":" 1"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := test.n.Validate(); err != nil {
				t.Fatal(err)
			}
			v := parse(test.v)
			check := unchanged(t, v)
			for range 3 { // map order
				if got := canonical(test.n.Apply(v)); got != test.want {
					t.Errorf("%s became %s, want %s", test.v, got, test.want)
				}
			}
			check()
		})
	}
	for _, bad := range []rules{{"a": {"trim"}}, {"/a~": {"trim"}}, {"/a": {"nfc"}}, {"/ok": {"trim"}, "/b": {"trim", ""}}} {
		if err := bad.Validate(); !errors.Is(err, keyderive.ErrNormalize) {
			t.Errorf("%v: error %v", bad, err)
		}
	}
	if err := (rules{"/a": {"nfc"}}).Validate(); !strings.Contains(err.Error(), `"/a"`) || !strings.Contains(err.Error(), `"nfc"`) {
		t.Error(err)
	}
	if got := canonical(rules{"/a": {"nfc"}, "/b": {"trim"}}.Apply(parse(`{"a":" ","b":" "}`))); got != `{"a":" ","b":""}` {
		t.Error(got)
	}
}
