package registry

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

// TestPlainlyFittingFits compares what is taken without the validator with what the validator says, over random schemas
// and values of a small vocabulary.
func TestPlainlyFittingFits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	plain, taken := 0, 0
	for range 3000 {
		schema := randomSchema(random, 3)
		if random.IntN(3) == 0 {
			schema = strings.Replace(schema, "{", `{"$schema":"http://json-schema.org/draft-07/schema#",`, 1)
			schema = strings.Replace(schema, `,}`, `}`, 1)
		}
		e, err := Compile(Tool{Server: "s", Name: "t", InputSchema: json.RawMessage(schema)})
		if err != nil {
			continue
		}
		if e.plain == nil {
			continue
		}
		plain++
		for range 20 {
			text := randomValue(random, 3)
			v, err := keyderive.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if !e.plain.takes(v) {
				continue
			}
			taken++
			if err := e.validator.Validate(v); err != nil {
				t.Fatalf("%s takes %s, and the validator says %v", schema, text, err)
			}
		}
	}
	if plain < 300 || taken < 1000 {
		t.Errorf("%d schemas were plain, %d values were taken", plain, taken)
	}
}

func TestPlainSchemas(t *testing.T) {
	for _, c := range []struct {
		schema, args string
		plain, takes bool
	}{
		{`{"type":"object"}`, `{"a":1}`, true, true},
		{`{"type":"object","properties":{"a":{"type":"string","description":"an a","default":"x"}},"required":["a"]}`, `{"a":"b"}`, true, true},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, `{}`, true, false},
		{`{"properties":{"a":{"type":"string"}},"additionalProperties":false}`, `{"b":1}`, true, false},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":-12}`, true, true},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":1.5}`, true, false},
		{`{"properties":{"a":{"type":"number","exclusiveMinimum":0}}}`, `{"a":0}`, true, false},
		{`{"properties":{"a":{"type":"number","exclusiveMinimum":0}}}`, `{"a":0.1}`, true, true},
		{`{"properties":{"a":{"type":["string","null"],"enum":["x",null]}}}`, `{"a":null}`, true, true},
		{`{"properties":{"a":{"type":"array","items":{"type":"string"}}}}`, `{"a":["x",1]}`, true, false},
		{`{"properties":{"a":{"enum":[{"b":1}]}}}`, `{"a":{"b":1}}`, false, false},
		{`{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}`, `{"a":"b"}`, false, false},
		{`{"properties":{"a":{"type":"array","uniqueItems":true}}}`, `{"a":[1,1]}`, false, false},
		{`{"properties":{"a":true}}`, `{"a":[1]}`, true, true},
		{`{"minProperties":1}`, `{}`, false, false},
		{`{"not":{"required":["a"]}}`, `{"a":1}`, false, false},
		{`{"properties":{"a":false}}`, `{"a":1}`, false, false},
	} {
		e, err := Compile(Tool{Server: "s", Name: "t", InputSchema: json.RawMessage(c.schema)})
		if err != nil {
			t.Fatalf("%s: %v", c.schema, err)
		}
		v, err := keyderive.Parse([]byte(c.args))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.plain != nil; got != c.plain {
			t.Errorf("%s: plain is %v", c.schema, got)
		}
		if got := e.plain != nil && e.plain.takes(v); got != c.takes {
			t.Errorf("%s takes %s: %v", c.schema, c.args, got)
		}
		if fits, said := e.validator.Validate(v) == nil, e.Validate(v) == nil; fits != said {
			t.Errorf("%s with %s: the validator says %v, Validate %v", c.schema, c.args, fits, said)
		}
	}
}

func randomSchema(r *rand.Rand, depth int) string {
	var members []string
	add := func(format string, a ...any) {
		if r.IntN(4) == 0 {
			members = append(members, fmt.Sprintf(format, a...))
		}
	}
	types := []string{`"string"`, `"number"`, `"integer"`, `"boolean"`, `"null"`, `"array"`, `"object"`, `["string","null"]`, `["object","array"]`, `["integer","string"]`}
	if r.IntN(3) > 0 {
		members = append(members, `"type":`+types[r.IntN(len(types))])
	}
	add(`"enum":[%s,%s]`, randomValue(r, 1), randomValue(r, 0))
	add(`"minimum":%d`, r.IntN(3))
	add(`"maxLength":%d`, r.IntN(3))
	add(`"required":["%c"]`, 'a'+rune(r.IntN(3)))
	add(`"format":"date"`)
	add(`"description":"x"`)
	if depth > 0 {
		add(`"items":%s`, randomSchema(r, depth-1))
		add(`"additionalProperties":%s`, []string{"true", "false", randomSchema(r, depth-1)}[r.IntN(3)])
		if r.IntN(2) == 0 {
			members = append(members, fmt.Sprintf(`"properties":{"a":%s,"b":%s}`, randomSchema(r, depth-1), randomSchema(r, depth-1)))
		}
		if r.IntN(20) == 0 {
			members = append(members, fmt.Sprintf(`"anyOf":[%s,{}]`, randomSchema(r, depth-1)))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func randomValue(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return []string{`null`, `true`, `"x"`, `"xyz"`, `"2020-01-01"`, `0`, `-3`, `2.5`, `1e2`, `12e30`}[r.IntN(10)]
	}
	if r.IntN(3) == 0 {
		return fmt.Sprintf(`[%s,%s]`, randomValue(r, depth-1), randomValue(r, depth-1))
	}
	var members []string
	for _, name := range []string{"a", "b", "c"} {
		if r.IntN(2) == 0 {
			members = append(members, fmt.Sprintf(`%q:%s`, name, randomValue(r, depth-1)))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// What is taken without the validator keeps the bounds, however close to them a fraction is written.
func TestPlainBounds(t *testing.T) {
	for _, bound := range []string{"0", "0.1", "-0.3", "9007199254740993", "1e300", "1e-320", "0.30000000000000004"} {
		for _, keyword := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
			e, err := Compile(Tool{Server: "s", Name: "t", InputSchema: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"n":{"type":"number",%q:%s}}}`, keyword, bound))})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []string{"0", "0.1", "0.10000000000000000555", "0.1000000000000000055", "0.09999999999999999", "-0.3", "-0.29999999999999999", "9007199254740992", "9007199254740993", "9007199254740994",
				"1e300", "1.0000000000000001e300", "9.999999999999999999e299", "1e-320", "1e-400", "0.30000000000000004", "0.3000000000000000444", "5", "-5"} {
				v, err := keyderive.Parse([]byte(`{"n":` + n + `}`))
				if err != nil {
					t.Fatal(err)
				}
				if e.plain.takes(v) != (e.validator.Validate(v) == nil) {
					t.Errorf("%s %s: %s is taken: %v", keyword, bound, n, e.plain.takes(v))
				}
			}
		}
	}
	e, err := Compile(Tool{Server: "s", Name: "t", InputSchema: json.RawMessage(`{"properties":{"n":{"type":"number","minimum":0}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if !e.plain.members["n"].between.hold("0.5") || e.plain.members["n"].between.hold("0") {
		t.Error("bounds do not tell what lies within them")
	}
}
