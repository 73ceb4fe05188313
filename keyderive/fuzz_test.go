package keyderive_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

// seedTexts are the texts that the fuzz targets begin with.
var seedTexts = []string{
	`{}`, `[]`, `null`, `"x"`, `-0`, `{"a":1,"b":[1.0,1e0,100e-2]}`, `{"b":1,"a":{"d":null,"c":[true,false]}}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\ud83d\ude00"`, `"\ud800"`, "\"\xff\"", `{"\ufb33":1,"\ud83d\ude00":2}`,
	`1e400`, `9007199254740993`, `9007199254740992`, `0.1`, `1E-7`, `123456789012345678901234567890.5`, `1e999999999999999999999`,
	`" \u2028\u0000\/"`, benchArguments, benchSchema, `{"to":["b@X "," a@x"],"child":{"child":{"weight":1}},"key":"k"}`,
}

func FuzzCanonical(f *testing.F) {
	for i, a := range seedTexts {
		f.Add([]byte(a), []byte(seedTexts[(i+1)%len(seedTexts)]), uint64(i))
		f.Add([]byte(a), []byte(a), uint64(i))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, seed uint64) {
		formA, errA := keyderive.Canonical(a)
		if refuse := oracleRefuses(a); refuse != (errA != nil) {
			t.Fatalf("%q: error %v, the oracle refuses: %t", a, errA, refuse)
		}
		if errA != nil {
			return
		}
		again, err := keyderive.Canonical(formA)
		if err != nil || string(again) != string(formA) {
			t.Fatalf("%q has the form %q, and that %q, %v", a, formA, again, err)
		}
		v := must(keyderive.Parse(a))
		if !reflect.DeepEqual(v, must(keyderive.Parse(formA))) {
			t.Fatalf("%q and %q are other values", a, formA)
		}
		respelt := newSource(seed).respell(v)
		if form, err := keyderive.Canonical([]byte(respelt)); err != nil || string(form) != string(formA) {
			t.Fatalf("%q, respelt %q, has the form %q, not %q: %v", a, respelt, form, formA, err)
		}
		formB, err := keyderive.Canonical(b)
		if err != nil {
			return
		}
		same, ok := oracleEqual(oracleDecode(t, a), oracleDecode(t, b))
		if ok && same != (string(formA) == string(formB)) {
			t.Fatalf("%q and %q are the same value: %t; forms %q and %q", a, b, same, formA, formB)
		}
		differ := keyderive.Differ(v, must(keyderive.Parse(b)), 1)
		if (len(differ) == 0) != (string(formA) == string(formB)) {
			t.Fatalf("%q and %q differ at %q", a, b, differ)
		}
		_ = keyderive.CheckNumbers(v)
	})
}

func FuzzPointer(f *testing.F) {
	for i, p := range []string{"", "/", "/a", "/a~1b/~0", "/0/01/-", "/~2", "a", "/to/*", "/é/\u0000", "/b/1"} {
		f.Add(p, []byte(seedTexts[i]))
	}
	f.Fuzz(func(t *testing.T, text string, doc []byte) {
		p, err := keyderive.ParsePointer(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Fatalf("%q gives back %q", text, p)
		}
		v, err := keyderive.Parse(doc)
		if err != nil {
			return
		}
		check := unchanged(t, v)
		_, found := p.Lookup(v)
		if found != slices.Contains(places(v), text) {
			t.Fatalf("%q is found in %s: %t", text, doc, found)
		}
		without := canonical(keyderive.Remove(v, []keyderive.Pointer{p}))
		if changed := without != canonical(v); changed != found && text != "" {
			t.Fatalf("%s without %q is %s", doc, text, without)
		}
		with, err := keyderive.Set(v, p, "new value")
		if got, ok := p.Lookup(with); err == nil && (!ok || got != "new value") {
			t.Fatalf("%s with %q is %s", doc, text, canonical(with))
		}
		leaves := 0
		keyderive.Leaves(v, func(at string, x any) bool {
			leaves++
			got, ok := pointerTo(at).Lookup(v)
			if !ok || got != x {
				t.Fatalf("leaf %q of %s is %v, not %v", at, doc, got, x)
			}
			return leaves < 1000
		})
		check()
	})
}

func FuzzDefaults(f *testing.F) {
	for i, schema := range []string{
		benchSchema, `{"properties":{"child":{"$ref":"#","default":{"child":{}}},"weight":{"default":1}}}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"a":{"default":{},"properties":{"b":{"default":1.0}}}}}},"properties":{"b":{"default":null}}}`,
		`{"properties":{"o":{"default":{"b":{"a":1}},"properties":{"b":{"default":{"a":1},"properties":{"a":{"default":1}}}}}}}`,
		`{"properties":{"a":{"$ref":"#/properties/b","default":{"a":{"b":{}}}},"b":{"$ref":"#","default":{"a":{},"b":{}}}}}`,
	} {
		f.Add([]byte(schema), []byte(`{"child":{"weight":1,"child":{}},"o":{"b":{}},"a":{}}`), uint64(i))
	}
	f.Fuzz(func(t *testing.T, schemaText, doc []byte, seed uint64) {
		schema, err := keyderive.Parse(schemaText)
		if err != nil {
			return
		}
		r := newSource(seed)
		if seed%2 == 1 {
			schema = r.schema(3)
		}
		v, err := keyderive.Parse(doc)
		if err != nil {
			v = r.object(3)
		}
		checkSchema, checkValue := unchanged(t, schema), unchanged(t, v)
		d := keyderive.SchemaDefaults(schema)
		roundTrip(t, d)
		dropped := d.Drop(v)
		if again := d.Drop(dropped); canonical(again) != canonical(dropped) {
			t.Fatalf("%s: %s became %s, and that %s", canonical(schema), canonical(v), canonical(dropped), canonical(again))
		}
		text := must(json.Marshal(d))
		for range 3 {
			spelt := spellOut(r, text, v)
			if got := d.Drop(spelt); canonical(got) != canonical(dropped) {
				t.Fatalf("%s\nspelt out as %s\ngives %s\nnot %s; defaults %s", canonical(v), canonical(spelt), canonical(got), canonical(dropped), text)
			}
		}
		checkSchema()
		checkValue()
	})
}

// spellOut adds, now and then, an absent member with its default to an object
// of v, following the JSON form of defaults.
func spellOut(r source, defaults []byte, v any) any {
	var kinds []map[string]map[string]any
	list, _ := parse(string(defaults)).([]any)
	for _, k := range list {
		kind := map[string]map[string]any{}
		for name, m := range k.(map[string]any) {
			kind[name] = m.(map[string]any)
		}
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		return v
	}
	var spell func(kind, levels int, v any) any
	spell = func(kind, levels int, v any) any {
		m, ok := v.(map[string]any)
		if !ok || levels == 0 {
			return v
		}
		m = maps.Clone(m)
		for _, name := range slices.Sorted(maps.Keys(kinds[kind])) {
			member := kinds[kind][name]
			x, present := m[name]
			if def, has := member["default"]; !present && has && r.IntN(2) == 0 {
				x, present = def, true
			}
			if !present {
				continue
			}
			if n, ok := member["object"].(json.Number); ok {
				i := must(n.Int64())
				x = spell(int(i), levels-1, x)
			}
			m[name] = x
		}
		return m
	}
	return spell(0, 6, v)
}

// schema makes a random schema with defaults, objects and references.
func (r source) schema(levels int) map[string]any {
	properties := map[string]any{}
	for range r.IntN(4) {
		sub := map[string]any{}
		if levels > 0 && r.IntN(2) == 0 {
			sub = r.schema(levels - 1)
		}
		if r.IntN(2) == 0 {
			sub["default"] = r.value(3)
		}
		if r.IntN(3) == 0 {
			sub["$ref"] = []string{"#", "#/properties/a", "#/properties/to", "#/properties/a/properties/b", "#/x"}[r.IntN(5)]
		}
		properties[sampleNames[r.IntN(4)]] = sub
	}
	return map[string]any{"properties": properties}
}

func FuzzNormalize(f *testing.F) {
	f.Add("/to/*", "trim lower", "/to", "sort unique", []byte(`{"to":["b@X "," a@x","A@X"]}`))
	f.Add("", "unique", "/*/*", "sort collapse upper", []byte(`[[2,1,"\u00a0\u00a0x"],[],2,2.0]`))
	f.Add("/a/0/b", "lower", "/a/*", "nfc", []byte(`{"a":[{"b":"İſK"}]}`))
	f.Fuzz(func(t *testing.T, p1, steps1, p2, steps2 string, doc []byte) {
		n := keyderive.Normalize{p1: strings.Fields(steps1), p2: strings.Fields(steps2)}
		valid := n.Validate() == nil
		v, err := keyderive.Parse(doc)
		if err != nil {
			return
		}
		check := unchanged(t, v)
		got := n.Apply(v)
		if again := n.Apply(v); canonical(again) != canonical(got) {
			t.Fatalf("%v makes of %s both %s and %s", n, doc, canonical(got), canonical(again))
		}
		if back, err := keyderive.Parse([]byte(canonical(got))); err != nil || !reflect.DeepEqual(back, got) {
			t.Fatalf("%v makes of %s no JSON value: %#v, %v", n, doc, got, err)
		}
		spelt := newSource(uint64(len(doc))).respell(v)
		if other := n.Apply(parse(spelt)); canonical(other) != canonical(got) {
			t.Fatalf("%v makes of %s, respelt, %s, not %s", n, doc, canonical(other), canonical(got))
		}
		for pattern, steps := range n {
			for _, step := range steps {
				one := keyderive.Normalize{pattern: {step}}
				if once := one.Apply(v); canonical(one.Apply(once)) != canonical(once) {
					t.Fatalf("%v is not idempotent on %s", one, doc)
				}
			}
		}
		if def := (keyderive.Definition{Version: 1, Normalize: n}); valid {
			derive(t, def, "s/t", someFacts, v)
		} else if _, err := def.Compile(); err == nil {
			t.Fatalf("%v compiles", n)
		}
		check()
	})
}

func FuzzDerive(f *testing.F) {
	f.Add([]byte(`{"v":1,"declared":true,"facts":["run"],"target":["/invoice_id"],"may_differ":["/memo"],"key_argument":"/key","defaults":[{"currency":{"default":"USD"}}]}`),
		[]byte(`{"tenant":"acme","workflow":"w","run":"r"}`), "s/t", []byte(benchArguments))
	f.Add([]byte(`{"v":1,"normalize":{"/to/*":["lower"],"/to":["sort"]},"defaults":[{"o":{"object":0,"default":{"o":{}}}}]}`),
		[]byte(`{"tenant":"a\"","workflow":"w","request":"r"}`), "me|x:s/t", []byte(`{"to":["B","a"],"o":{"o":{"o":{}}}}`))
	f.Add([]byte(`{"v":1,"defaults":null}`), []byte(`{}`), "", []byte(`null`))
	f.Fuzz(func(t *testing.T, defText, factText []byte, action string, doc []byte) {
		var def keyderive.Definition
		var facts keyderive.Facts
		if json.Unmarshal(defText, &def) != nil || json.Unmarshal(factText, &facts) != nil {
			return
		}
		args, err := keyderive.Parse(doc)
		if err != nil {
			return
		}
		d, err := def.Compile()
		if err != nil {
			return
		}
		check := unchanged(t, args)
		id, err := d.Derive(action, facts, args)
		check()
		if err != nil {
			return
		}
		key, material := id.Key(1)
		respelt, err := d.Derive(action, facts, parse(newSource(uint64(len(doc))).respell(args)))
		if err != nil {
			t.Fatal(err)
		}
		if other, _ := respelt.Key(1); other != key || canonical(respelt.Payload) != canonical(id.Payload) || respelt.Subject != id.Subject {
			t.Fatalf("%s respelt is another call", doc)
		}
		if next, _ := id.Key(2); next == key {
			t.Fatal("two occurrences have one key")
		}
		form, err := keyderive.Canonical(material)
		if strings.ToValidUTF8(action, "") == action && (err != nil || string(form) != string(material)) {
			t.Fatalf("material %s is not canonical: %v", material, err)
		}
	})
}
