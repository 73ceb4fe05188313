package keyderive_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

func TestPointer(t *testing.T) {
	v := parse(`{"foo":["bar","baz",{"x":1}],"":0,"a/b":1,"m~n":8,"~1":9,"01":{"":null},"-":2}`)
	tests := []struct{ pointer, want string }{
		{"", canonical(v)}, {"/foo/0", `"bar"`}, {"/foo/2/x", "1"}, {"/", "0"}, {"/a~1b", "1"}, {"/m~0n", "8"},
		{"/~01", "9"}, {"/01/", "null"}, {"/-", "2"},
		{"/foo/3", ""}, {"/foo/01", ""}, {"/foo/-", ""}, {"/foo/-1", ""}, {"/foo/+1", ""}, {"/foo/", ""}, {"/foo/99999999999999999999", ""},
		{"/foo/4294967296", ""}, {"/foo/0/x", ""}, {"/x", ""}, {"//", ""},
	}
	for _, test := range tests {
		p := pointerTo(test.pointer)
		if p.String() != test.pointer {
			t.Errorf("%q gives back %q", test.pointer, p.String())
		}
		got, ok := p.Lookup(v)
		if ok != (test.want != "") || ok && canonical(got) != test.want {
			t.Errorf("%q: %v, %t; want %s", test.pointer, got, ok, test.want)
		}
	}
	for _, bad := range []string{"a", "#/a", "/~", "/a~2", "/~~01", "/~0~", "/\xff", " /a"} {
		if _, err := keyderive.ParsePointer(bad); !errors.Is(err, keyderive.ErrPointer) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

func TestRemove(t *testing.T) {
	tests := []struct {
		v, ptrs, want string
	}{
		{`{"a":1,"b":2}`, "/a", `{"b":2}`},
		{`{"a":1}`, "/a", `{}`},
		{`{"a":{"b":1,"c":2}}`, "/a/b /a/x /y /a/b/z", `{"a":{"c":2}}`},
		{`{"a":{"b":1}}`, "/a/b /a", `{}`},
		{`[0,1,2,3]`, "/2 /0 /0 /9", `[1,3]`},
		{`{"to":["a",{"x":1,"y":2},"c"]}`, "/to/0 /to/1/x", `{"to":[{"y":2},"c"]}`},
		{`{"a":1}`, "", `null`},
		{`"s"`, "/a", `"s"`},
	}
	for _, test := range tests {
		v := parse(test.v)
		check := unchanged(t, v)
		ptrs := pointersTo(strings.Split(test.ptrs, " ")...)
		if got := canonical(keyderive.Remove(v, ptrs)); got != test.want {
			t.Errorf("%s without %s: %s, want %s", test.v, test.ptrs, got, test.want)
		}
		check()
	}
}

func TestSet(t *testing.T) {
	tests := []struct{ v, at, want string }{
		{`{"a":1}`, "/a", `{"a":"x"}`}, {`{}`, "/k", `{"k":"x"}`}, {`{"a":{"b":{}}}`, "/a/b/c", `{"a":{"b":{"c":"x"}}}`},
		{`{"l":[{},{"a":1}]}`, "/l/1/k", `{"l":[{},{"a":1,"k":"x"}]}`}, {`[1]`, "", `"x"`}, {`{}`, "/", `{"":"x"}`},
		{`{}`, "/a/b", ""}, {`{"a":1}`, "/a/b", ""}, {`[1]`, "/0", ""}, {`[1]`, "/-", ""}, {`null`, "/a", ""}, {`{"a":null}`, "/a/b", ""},
	}
	for _, test := range tests {
		v := parse(test.v)
		check := unchanged(t, v)
		got, err := keyderive.Set(v, pointerTo(test.at), "x")
		switch {
		case test.want == "" && !errors.Is(err, keyderive.ErrPointer):
			t.Errorf("%s at %s: error %v", test.v, test.at, err)
		case test.want != "" && (err != nil || canonical(got) != test.want):
			t.Errorf("%s at %s: %v, %v; want %s", test.v, test.at, got, err, test.want)
		}
		check()
	}
}

func TestLeaves(t *testing.T) {
	v := parse(`{"b":[1,{"x/y":null},[]],"a":{"~":true},"":"s"}`)
	want := []string{"/=s", "/a/~0=true", "/b/0=1", "/b/1/x~1y=<nil>"}
	for n := range len(want) {
		var got []string
		keyderive.Leaves(v, func(pointer string, x any) bool {
			got = append(got, fmt.Sprintf("%s=%v", pointer, x))
			return len(got) <= n
		})
		if !slices.Equal(got, want[:n+1]) {
			t.Errorf("got %v, want %v", got, want[:n+1])
		}
	}
}

func TestDiffer(t *testing.T) {
	tests := []struct {
		a, b  string
		limit int
		want  []string
	}{
		{`{"a":1}`, `{"a":1.0}`, 9, nil},
		{`{"a":1,"b":{"c":1,"d":2},"e":[1,2]}`, `{"b":{"c":2,"f":0},"e":[1,3],"g":null}`, 9, []string{"/a", "/b/c", "/b/d", "/b/f", "/e/1", "/g"}},
		{`{"a":1,"b":{"c":1,"d":2}}`, `{"b":{}}`, 2, []string{"/a", "/b/c"}},
		{`{"a":[1,2]}`, `{"a":[1]}`, 9, []string{"/a"}},
		{`{"a":{}}`, `{"a":[]}`, 9, []string{"/a"}},
		{`{"a":"1"}`, `{"a":1}`, 9, []string{"/a"}},
		{`{"a":null}`, `{}`, 9, []string{"/a"}},
		{`1`, `2`, 9, []string{""}},
		{`{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, 9, []string{"/a~1b/~0"}},
		{`1`, `2`, 0, nil},
		{`1`, `2`, -1, nil},
	}
	for _, test := range tests {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			if got := keyderive.Differ(parse(pair[0]), parse(pair[1]), test.limit); !slices.Equal(got, test.want) {
				t.Errorf("%s and %s differ at %q, want %q", pair[0], pair[1], got, test.want)
			}
		}
	}
}

// TestEditProperties: on random values, Set and Lookup agree, Remove undoes
// what Set added, Differ names exactly the place that was touched, and nothing
// is mutated.
func TestEditProperties(t *testing.T) {
	for seed := range uint64(3000) {
		r := newSource(seed)
		v := any(r.object(4))
		check := unchanged(t, v)
		all := places(v)

		for _, p := range all {
			if _, ok := pointerTo(p).Lookup(v); !ok {
				t.Fatalf("%q is not found in %s", p, canonical(v))
			}
		}
		into := all[r.IntN(len(all))]
		added := pointerTo(into + "/new member")
		container, _ := pointerTo(into).Lookup(v)
		if _, isObject := container.(map[string]any); isObject {
			x := r.value(2)
			with := must(keyderive.Set(v, added, x))
			if got, ok := added.Lookup(with); !ok || canonical(got) != canonical(x) {
				t.Fatalf("set %q to %v, found %v", added, x, got)
			}
			if got := keyderive.Differ(v, with, 9); !slices.Equal(got, []string{added.String()}) {
				t.Fatalf("differs at %q, set was %q", got, added)
			}
			if back := keyderive.Remove(with, []keyderive.Pointer{added}); canonical(back) != canonical(v) {
				t.Fatalf("removing %q gives %s, want %s", added, canonical(back), canonical(v))
			}
		} else if _, err := keyderive.Set(v, added, 1); err == nil {
			t.Fatalf("set %q in %s", added, canonical(v))
		}

		var some []string
		for range r.IntN(4) {
			some = append(some, all[r.IntN(len(all))], "/absent")
		}
		without := keyderive.Remove(v, pointersTo(some...))
		if again := keyderive.Remove(without, pointersTo("/absent", "/absent/0")); canonical(again) != canonical(without) {
			t.Fatal("removing nothing changes something")
		}
		if slices.Max(append(some, "-")) == "-" && canonical(without) != canonical(v) {
			t.Fatal("removing no pointer changes something")
		}
		slices.Reverse(some)
		if other := keyderive.Remove(v, pointersTo(some...)); canonical(other) != canonical(without) {
			t.Fatalf("the order of %q matters: %s, %s", some, canonical(without), canonical(other))
		}

		w := any(r.object(4))
		same := canonical(v) == canonical(w)
		if diff := keyderive.Differ(v, w, 1000); (len(diff) == 0) != same || !slices.Equal(diff, keyderive.Differ(w, v, 1000)) || !slices.IsSorted(diff) {
			t.Fatalf("%s and %s differ at %q", canonical(v), canonical(w), diff)
		}
		check()
	}
}
