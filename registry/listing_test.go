package registry_test

import (
	"encoding/json"
	"testing"

	"toolguard.dev/registry"
)

func TestListedInput(t *testing.T) {
	key := func(p string) registry.Policy {
		return registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: p}}
	}
	for name, c := range map[string]struct {
		schema string
		policy registry.Policy
		want   string // "=" is the same bytes
	}{
		"empty":     {``, registry.Policy{}, `{"type":"object"}`},
		"null":      {`null`, registry.Policy{}, `{"type":"object"}`},
		"true":      {`true`, registry.Policy{}, `{"type":"object"}`},
		"unchanged": {` {"type" : "object", "x-vendor": 1.0, "properties":{"b":{},"a":{"oneOf":[{}]}}}`, registry.Policy{}, "="},
		"not there": {`{"type":"object","additionalProperties":{"type":"string"}}`, key("/k"), "="},
		"hidden": {`{"type":"object","properties":{"b":{},"k":{"type":"string"},"a":{"default":1.0}},"required":["k","b"]}`, key("/k"),
			`{"type":"object","properties":{"b":{},"a":{"default":1.0}},"required":["b"]}`},
		"hidden, alone required": {`{"properties":{"k":{}},"required":["k"]}`, key("/k"), `{"properties":{}}`},
		"hidden, nested": {`{"properties":{"o":{"properties":{"k":{},"a":{}},"required":["k","a"]}},"required":["o"]}`, key("/o/k"),
			`{"properties":{"o":{"properties":{"a":{}},"required":["a"]}},"required":["o"]}`},
		"hidden, through a reference": {`{"properties":{"o":{"$ref":"#/$defs/o"},"p":{"$ref":"#/$defs/o"}},"$defs":{"o":{"properties":{"k":{},"a":{}}}}}`, key("/o/k"),
			`{"properties":{"o":{"properties":{"a":{}}},"p":{"$ref":"#/$defs/o"}},"$defs":{"o":{"properties":{"k":{},"a":{}}}}}`},
		"anyOf": {`{"type":"object","description":"d","properties":{"a":{}},"required":["a"],"anyOf":[{"properties":{"b":{"type":"string"}},"required":["b","c"]},{"properties":{"b":{"type":"number"},"c":{}},"required":["c"]}]}`, registry.Policy{},
			`{"type":"object","description":"d","properties":{"a":{},"b":{"anyOf":[{"type":"string"},{"type":"number"}]},"c":{}},"required":["a","c"]}`},
		"allOf": {`{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"$ref":"#/$defs/x"}],"$defs":{"x":{"properties":{"a":{"minLength":1},"b":{}},"required":["b"]}}}`, registry.Policy{},
			`{"$defs":{"x":{"properties":{"a":{"minLength":1},"b":{}},"required":["b"]}},"type":"object","properties":{"a":{"allOf":[{"type":"string"},{"minLength":1}]},"b":{}},"required":["a","b"]}`},
		"oneOf, nested": {`{"oneOf":[{"anyOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]},{"properties":{"a":{}},"required":["a"]}]}`, registry.Policy{},
			`{"type":"object","properties":{"a":{},"b":{}}}`},
		"closed": {`{"properties":{"a":{}},"additionalProperties":false,"oneOf":[{"properties":{"b":{}}},{"required":["a"]}]}`, registry.Policy{},
			`{"properties":{"a":{}},"additionalProperties":false,"type":"object"}`},
		"three alternatives": {`{"oneOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"const":2}}},{"properties":{"k":{"const":1}}},{"properties":{"k":{"const":3}}}]}`, registry.Policy{},
			`{"type":"object","properties":{"k":{"anyOf":[{"const":1},{"const":2},{"const":3}]}}}`},
		"endless":                     {`{"properties":{"x":{"allOf":[{"$ref":"#"}]}},"anyOf":[true,{"properties":{"y":{"$ref":"#"}}}]}`, registry.Policy{}, `{"properties":{"x":{"allOf":[{"$ref":"#"}]},"y":{"$ref":"#"}},"type":"object"}`},
		"hidden in an alternative":    {`{"anyOf":[{"required":["k"]},{"properties":{"k":{},"a":{}},"required":["k","a"]}]}`, key("/k"), `{"type":"object","properties":{"a":{}}}`},
		"escaped name, kept in place": {`{"properties":{"<&>":{},"k":{}}}`, key("/k"), `{"properties":{"<&>":{}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := compile(t, c.schema, c.policy)
			if c.want == "=" {
				c.want = c.schema
			}
			got := e.ListedInput()
			if string(got) != c.want || !json.Valid(got) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			got[0] = 'x'
			if string(e.ListedInput()) != c.want {
				t.Error("the caller changed it")
			}
		})
	}
}

func TestListedOutput(t *testing.T) {
	for name, c := range map[string]struct {
		schema  string
		want    string // "=" is the same bytes
		widened bool
	}{
		"none":                 {``, ``, false},
		"null":                 {`null`, ``, false},
		"no schema":            {`7`, ``, false},
		"open":                 {`{"type":"object","properties":{"a":{}}}`, "=", true},
		"open, said":           {`{"type":"object","additionalProperties":true}`, "=", true},
		"closed":               {`{"type":"object","properties":{"a":{}},"additionalProperties":false}`, `{"type":"object","properties":{"a":{},"_toolguard":{"type":"object"}},"additionalProperties":false}`, true},
		"closed, empty":        {`{"type":"object","additionalProperties":false}`, `{"type":"object","additionalProperties":false,"properties":{"_toolguard":{"type":"object"}}}`, true},
		"others described":     {`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","additionalProperties":{"type":"string"},"properties":{"_toolguard":{"type":"object"}}}`, true},
		"no type":              {`{"properties":{}}`, "=", false},
		"array":                {`{"type":"array"}`, "=", false},
		"reference":            {`{"type":"object","$ref":"#/$defs/x","$defs":{"x":{}}}`, "=", false},
		"oneOf":                {`{"type":"object","oneOf":[{}]}`, "=", false},
		"anyOf":                {`{"type":"object","anyOf":[{}]}`, "=", false},
		"allOf":                {`{"type":"object","allOf":[{}]}`, "=", false},
		"not":                  {`{"type":"object","not":{}}`, "=", false},
		"if":                   {`{"type":"object","if":{}}`, "=", false},
		"unevaluated":          {`{"type":"object","unevaluatedProperties":false}`, "=", false},
		"unevaluated, open":    {`{"type":"object","unevaluatedProperties":true}`, "=", true},
		"propertyNames":        {`{"type":"object","propertyNames":{}}`, "=", false},
		"maxProperties":        {`{"type":"object","maxProperties":3}`, "=", false},
		"patterns":             {`{"type":"object","patternProperties":{"^x":{}}}`, "=", true},
		"patterns that fit":    {`{"type":"object","patternProperties":{"^_":{}}}`, "=", false},
		"patterns, unreadable": {`{"type":"object","patternProperties":{"(?=x)":{}}}`, "=", false},
		"taken":                {`{"type":"object","properties":{"_toolguard":{}}}`, "=", false},
		"twice a member":       {`{"type":"object","type":"object"}`, "=", false},
		"properties is a list": {`{"type":"object","properties":[]}`, "=", false},
	} {
		t.Run(name, func(t *testing.T) {
			x := tool(``, registry.Policy{})
			x.OutputSchema = json.RawMessage(c.schema)
			e, err := registry.Compile(x)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "=" {
				c.want = c.schema
			}
			got, widened := e.ListedOutput()
			if string(got) != c.want || widened != c.widened || e.HasOutput != (c.want != "") {
				t.Errorf("got %s %v %v", got, widened, e.HasOutput)
			}
		})
	}
}
