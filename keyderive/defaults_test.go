package keyderive_test

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

func TestDefaults(t *testing.T) {
	const options = `{"properties":{"options":{"properties":{"retries":{"default":3},"tag":{"default":null}},"default":{"retries":3}}}}`
	const tree = `{"properties":{"weight":{"default":1},"child":{"$ref":"#"}}}`
	const refs = `{"$defs":{"currency":{"default":"USD"},"a b/c":{"properties":{"x":{"default":1},"y":{"default":2}}}},
		"properties":{"c":{"$ref":"#/$defs/currency"},"d":{"$ref":"#/$defs/currency","default":"EUR"},
		"o":{"$ref":"#/$defs/a%20b~1c","properties":{"x":{"default":9},"z":{"default":3}}}}}`
	tests := []struct{ name, schema, v, want string }{
		{"equal as numbers", `{"properties":{"a":{"default":3}}}`, `{"a":3.0,"b":3}`, `{"b":3}`},
		{"another kind", `{"properties":{"a":{"default":3}}}`, `{"a":"3"}`, `{"a":"3"}`},
		{"null", `{"properties":{"a":{"default":null},"b":{"default":0}}}`, `{"a":null,"b":null}`, `{"b":null}`},
		{"array", `{"properties":{"a":{"default":[1,{"x":[]}]}}}`, `{"a":[1e0,{"x":[]}]}`, `{}`},
		{"object equal to its default", options, `{"options":{"retries":3}}`, `{}`},
		{"object equal to it when filled", options, `{"options":{}}`, `{}`},
		{"another object", options, `{"options":{"retries":4,"tag":null}}`, `{"options":{"retries":4}}`},
		{"object that is none", options, `{"options":"x"}`, `{"options":"x"}`},
		{"emptied object", `{"properties":{"o":{"properties":{"a":{"default":1}}}}}`, `{"o":{"a":1}}`, `{"o":{}}`},
		{"recursion", tree, `{"weight":1,"child":{"weight":1,"child":{"weight":2,"child":{"weight":1}}}}`, `{"child":{"child":{"child":{},"weight":2}}}`},
		{"references", refs, `{"c":"USD","d":"EUR"}`, `{}`},
		{"the nearest default", refs, `{"d":"USD"}`, `{"d":"USD"}`},
		{"reference beside properties", refs, `{"o":{"x":9,"y":2,"z":3}}`, `{"o":{}}`},
		{"the nearest default of a member", refs, `{"o":{"x":1}}`, `{"o":{"x":1}}`},
		{"root reference", `{"$ref":"#/$defs/r","$defs":{"r":{"properties":{"a":{"default":1}}}}}`, `{"a":1}`, `{}`},
		{"loop", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a","properties":{"x":{"default":1}}}}}`, `{"x":1}`, `{}`},
		{"loop of one", `{"properties":{"x":{"$ref":"#/properties/x"}}}`, `{"x":1}`, `{"x":1}`},
		{"remote references", `{"properties":{"a":{"$ref":"https://x/y#/z"},"b":{"$ref":"other.json"},"c":{"$ref":"#anchor"},"d":{"$ref":7},"e":{"$ref":"#/%zz"}}}`, `{"a":1}`, `{"a":1}`},
		{"embedded resource", `{"properties":{"a":{"$id":"https://x/y","default":1}}}`, `{"a":1}`, `{"a":1}`},
		{"root with an id", `{"$id":"https://x/y","properties":{"a":{"default":1},"o":{"$ref":"#"}}}`, `{"a":1,"o":{"a":1}}`, `{"o":{}}`},
		{"allOf and its like", `{"allOf":[{"properties":{"a":{"default":1}}}],"if":{"properties":{"a":{"default":1}}},"properties":{"l":{"items":{"properties":{"a":{"default":1}}}},"o":{"anyOf":[{"default":1}]}}}`, `{"a":1,"l":[{"a":1}],"o":1}`, `{"a":1,"l":[{"a":1}],"o":1}`},
		{"true", `true`, `{"a":1}`, `{"a":1}`},
		{"no object", `[{"properties":{"a":{"default":1}}}]`, `{"a":1}`, `{"a":1}`},
		{"odd properties", `{"properties":[1]}`, `{"a":1}`, `{"a":1}`},
		{"boolean property", `{"properties":{"a":true,"b":false,"c":null}}`, `{"a":true}`, `{"a":true}`},
		{"a default that holds itself", `{"properties":{"child":{"$ref":"#","default":{"child":{}}}}}`, `{"child":{"child":{}}}`, `{"child":{"child":{}}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := keyderive.SchemaDefaults(parse(test.schema))
			v := parse(test.v)
			check := unchanged(t, v)
			if got := canonical(d.Drop(v)); got != test.want {
				t.Errorf("%s became %s, want %s", test.v, got, test.want)
			}
			check()
			roundTrip(t, d)
		})
	}
}

func roundTrip(t *testing.T, d keyderive.Defaults) {
	t.Helper()
	text := must(json.Marshal(d))
	var back keyderive.Defaults
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, d) {
		t.Errorf("%s gives back %+v, want %+v", text, back, d)
	}
}

func TestDefaultsJSON(t *testing.T) {
	var schema any // by another decoder: float64 numbers
	if err := json.Unmarshal([]byte(`{"properties":{"a":{"default":1},"z":{},"o":{"properties":{"b":{"default":null}}}}}`), &schema); err != nil {
		t.Fatal(err)
	}
	d := keyderive.SchemaDefaults(schema)
	const want = `[{"a":{"default":1},"o":{"object":1}},{"b":{"default":null}}]`
	if got := must(json.Marshal(d)); string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := canonical(d.Drop(parse(`{"a":1.0,"o":{"b":null}}`))); got != `{"o":{}}` {
		t.Error(got)
	}
	if got := must(json.Marshal(keyderive.Defaults{})); string(got) != "[]" {
		t.Errorf("no defaults are %s", got)
	}
	for _, bad := range []string{`{}`, `[1]`, `[{"a":1}]`, `[{"a":{"object":1}}]`, `[{"a":{"object":-1}}]`, `[{"a":{"object":"0"}}]`, `7`} {
		if err := json.Unmarshal([]byte(bad), &d); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if got := must(json.Marshal(d)); string(got) != want {
		t.Errorf("a refused text changed the defaults to %s", got)
	}
}

// TestDefaultsDeepest: whatever is collected can be read back, though it
// stands deeper in the JSON of Defaults than in a schema made by hand.
func TestDefaultsDeepest(t *testing.T) {
	for levels := range 130 {
		var v any
		for range levels {
			v = []any{v}
		}
		schema := map[string]any{"properties": map[string]any{"a": map[string]any{"default": v}}}
		roundTrip(t, keyderive.SchemaDefaults(schema))
	}
}

// TestDefaultsHostile: schemas made to blow up stay cheap.
func TestDefaultsHostile(t *testing.T) {
	many := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(f(i))
		}
		return b.String()
	}
	name := func(i int) string { return `"n` + strings.Repeat("x", i) + `":` }
	schemas := map[string]string{
		// 2^60 paths, 60 kinds.
		"doubling": `{"$ref":"#/$defs/n","$defs":{` + many(60, func(i int) string {
			next := `{"$ref":"#/$defs/n` + strings.Repeat("x", i+1) + `"}`
			return name(i) + `{"properties":{"a":` + next + `,"b":` + next + `,"c":{"default":1}}}`
		}) + `}}`,
		// Each member describes its object by another set of subschemas.
		"subsets": `{"$ref":"#/$defs/n","$defs":{` + many(40, func(i int) string {
			next := `{"$ref":"#/$defs/n` + strings.Repeat("x", (i+1)%40) + `"`
			other := `,"properties":{"a":{"$ref":"#/$defs/n` + strings.Repeat("x", (i*7+3)%40) + `"},"k":{"default":"` + strings.Repeat("k", 500) + `"}}}`
			return name(i) + `{"properties":{"a":` + next + other + `,"b":` + next + `}},"$ref":"#/$defs/n` + strings.Repeat("x", (i*3+1)%40) + `"}`
		}) + `}}`,
	}
	// One large default, named by many members.
	schemas["repeated"] = `{"$defs":{"d":{"default":"` + strings.Repeat("d", 2000) + `"}},"properties":{` + many(1500, func(i int) string {
		return `"m` + strconv.Itoa(i) + `":{"$ref":"#/$defs/d"}`
	}) + `}}`
	for what, text := range schemas {
		d := keyderive.SchemaDefaults(parse(text))
		if size := len(must(json.Marshal(d))); size == 2 || size > 1<<20 {
			t.Errorf("%s makes %d bytes of defaults", what, size)
		}
		roundTrip(t, d)
	}
}
