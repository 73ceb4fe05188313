package toolguard

import (
	"reflect"
	"testing"
	"time"
)

// What Link hashes is the canonical JSON of the event, whichever members are set.
func TestLinkHashesTheCanonicalForm(t *testing.T) {
	full := Event{Time: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC), Detail: map[string]any{"b": []string{"/x"}, "a": true}}
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case !f.CanSet():
		case f.Kind() == reflect.String:
			f.SetString("<\"é\u2028> " + v.Type().Field(i).Name)
		case f.Kind() == reflect.Int:
			f.SetInt(int64(i) + 1)
		}
	}
	check := func(name string, e Event) {
		t.Helper()
		if err := e.Link("chain", 7, "prev"); err != nil {
			t.Fatal(err)
		}
		if sum, err := e.sum(); err != nil || sum != e.Hash {
			t.Errorf("%s: the hash is not that of the canonical form (%v)", name, err)
		}
	}
	check("full", full)
	check("empty", Event{})
	check("invalid UTF-8", Event{Actor: "a\xff\xfeb"})
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Name != "Seq" {
			e := full
			reflect.ValueOf(&e).Elem().Field(i).SetZero()
			check("without "+f.Name, e)
		}
	}
	first := full
	if err := first.Link("chain", 1, ""); err != nil {
		t.Fatal(err)
	}
	if sum, _ := first.sum(); sum != first.Hash {
		t.Error("the first of a chain")
	}
}
