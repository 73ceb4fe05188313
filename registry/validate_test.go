package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func TestValidate(t *testing.T) {
	key := registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: "/key"}}
	keySchema := `{"properties":{"a":{},"key":{"type":"integer"}},"required":["key"],"additionalProperties":false}`
	for name, c := range map[string]struct {
		schema string
		policy registry.Policy
		args   string
		want   string // "" is valid
	}{
		"valid":             {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","amount":1.5}`, ""},
		"any":               {``, registry.Policy{}, `{"x":[1,{"y":null}]}`, ""},
		"no object":         {``, registry.Policy{}, `[]`, "must be an object, not an array"},
		"null":              {``, registry.Policy{}, `null`, "not null"},
		"required":          {invoiceSchema, registry.Policy{}, `{}`, "the top level lacks 'invoice_id'"},
		"type":              {invoiceSchema, registry.Policy{}, `{"invoice_id":7}`, "/invoice_id must be of type string, not number"},
		"minimum":           {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","amount":-1}`, "/amount: must be >= 0 but found -1"},
		"enum":              {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","unit":"%d"}`, `/unit must be one of "EUR", "USD"`},
		"additional":        {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","card":{"x":1}}`, "/card has 'x', which the tool does not take"},
		"element":           {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","to":["a",1]}`, "/to/1 must be of type string"},
		"const":             {`{"properties":{"a":{"const":5}}}`, registry.Policy{}, `{"a":6}`, "/a must be 5"},
		"const of an array": {`{"properties":{"a":{"const":[5]}}}`, registry.Policy{}, `{"a":6}`, "/a must be [5]"},
		"alternatives":      {`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, registry.Policy{}, `{"a":6}`, "/a must be of type null or string, not number"},
		"meant alternative": {`{"properties":{"a":{"oneOf":[{"type":"null"},{"type":"object","properties":{"b":{"type":"string"}}}]}}}`, registry.Policy{}, `{"a":{"b":1}}`, "/a/b must be"},
		"strange name":      {`{"properties":{"a/b ü":{"type":"string"}}}`, registry.Policy{}, `{"a/b ü":1}`, "/a~1b ü must be"},
		"percent":           {`{"properties":{"a":{"enum":["%s%n","%"]}}}`, registry.Policy{}, `{"a":1}`, `"%s%n"`},
		"huge exponent":     {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","amount":1e999999999}`, "/amount"},
		"tiny exponent":     {invoiceSchema, registry.Policy{}, `{"invoice_id":"i","amount":1e-999999999}`, "/amount"},
		"format":            {`{"properties":{"a":{"format":"email"}}}`, registry.Policy{}, `{"a":"x"}`, ""},
		"format in draft 7": {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"date-time","contentEncoding":"base64","contentMediaType":"application/json","contentSchema":{"type":"string"}}}}`, registry.Policy{}, `{"a":"?"}`, ""},
		"old tuple":         {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"items":[{"type":"string"}]}}}`, registry.Policy{}, `{"a":[1]}`, "/a/0"},
		"exact number":      {`{"properties":{"a":{"maximum":9007199254740992}}}`, registry.Policy{}, `{"a":9007199254740993}`, "/a"},
		"key not asked for": {keySchema, key, `{"a":1}`, ""},
		"key written":       {keySchema, key, `{"a":1,"key":"x"}`, ""},
		"key and a fault":   {keySchema, key, `{"b":1}`, "has 'b'"},
		"nested key":        {`{"properties":{"o":{"$ref":"#/$defs/o"}},"$defs":{"o":{"properties":{"key":{"maxLength":1}},"required":["key"]}}}`, registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: "/o/key"}}, `{}`, ""},
		"no room for it":    {`{"properties":{"o":true}}`, registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: "/o/key"}}, `{"o":[]}`, "does not fit"},
		"huge enum":         {`{"properties":{"a":{"enum":[` + strings.Repeat(`"xxxxxxxxxxxxxxx",`, 5000) + `"y"]}}}`, registry.Policy{}, `{"a":1}`, "/a must be one of"},
		"hostile name":      {`{"additionalProperties":false}`, registry.Policy{}, `{"` + strings.Repeat(`\n<b>`, 200) + `":1}`, "the top level has"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "huge enum") {
				c.schema = strings.ReplaceAll(c.schema, "xxxxxxxxxxxxxxx", "x")
				for i := 0; strings.Contains(c.schema, `"x"`); i++ {
					c.schema = strings.Replace(c.schema, `"x"`, fmt.Sprintf(`"v%d"`, i), 1)
				}
			}
			e := compile(t, c.schema, c.policy)
			for range 5 { // always the same
				err := e.Validate(parse(t, c.args))
				if c.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if !errors.Is(err, registry.ErrArguments) || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				plain(t, err.Error())
			}
		})
	}
}

// A small schema must not make validation take for ever.
func TestValidateElaborateSchemas(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	b.WriteString(`"d40":{}}}`)
	recursive := `{"allOf":[{"properties":{"x":{"$ref":"#"}}},{"properties":{"x":{"$ref":"#"}}}]}`
	deep := strings.Repeat(`{"x":`, 100) + "1" + strings.Repeat("}", 100)
	for _, schema := range []string{b.String(), recursive} {
		e := compile(t, schema, registry.Policy{})
		start := time.Now()
		err := e.Validate(parse(t, deep))
		if !errors.Is(err, registry.ErrArguments) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if err := e.Validate(parse(t, `{"y":1}`)); err != nil {
			t.Error(err)
		}
	}
	for _, loop := range []string{`{"$recursiveRef":"#"}`, `{"$dynamicRef":"#"}`, `{"$dynamicAnchor":"a","$dynamicRef":"#a"}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"allOf":[{"$recursiveRef":"#"}]}`,
		`{"$dynamicAnchor":"a","allOf":[{"$ref":"#/$defs/b"}],"$defs":{"b":{"$dynamicRef":"#a"}}}`} {
		if e, err := registry.Compile(tool(loop, registry.Policy{})); err == nil {
			_ = e.Validate(parse(t, deep))
		} else if !errors.Is(err, registry.ErrSchema) {
			t.Errorf("%s: %v", loop, err)
		}
	}
	tree := compile(t, `{"properties":{"child":{"$ref":"#"},"name":{"type":"string"}}}`, registry.Policy{})
	if err := tree.Validate(parse(t, strings.Repeat(`{"child":`, 100)+`{"name":"x"}`+strings.Repeat("}", 100))); err != nil {
		t.Error(err)
	}
}

func TestReads(t *testing.T) {
	dry := expression(t, `has(args.dry_run) && args.dry_run`, registry.KindArguments)
	nested := expression(t, `args.?o.?dry_run.orValue(false)`, registry.KindArguments)
	number := expression(t, `args.dry_run`, registry.KindArguments)
	o := `{"properties":{"o":{"properties":{"a":{}}}}}`
	free := `{"properties":{"o":{"type":"object"}}}`
	for name, c := range map[string]struct {
		schema string
		when   *registry.Expression
		args   string
		want   bool
	}{
		"no condition":       {invoiceSchema, nil, `{"dry_run":true}`, false},
		"reads":              {invoiceSchema, dry, `{"dry_run":true}`, true},
		"writes":             {invoiceSchema, dry, `{"dry_run":false}`, false},
		"absent":             {invoiceSchema, dry, `{}`, false},
		"no bool":            {invoiceSchema, number, `{"dry_run":"yes"}`, false},
		"not declared":       {`{"properties":{"a":{}}}`, dry, `{"dry_run":true}`, false},
		"nothing declared":   {`{}`, dry, `{"dry_run":true}`, false},
		"forbidden":          {`{"properties":{"dry_run":false}}`, dry, `{"dry_run":true}`, false},
		"through reference":  {`{"$ref":"#/$defs/x","$defs":{"x":{"properties":{"dry_run":{}}}}}`, dry, `{"dry_run":true}`, true},
		"nested, undeclared": {o, nested, `{"o":{"dry_run":true}}`, false},
		"nested, free":       {free, nested, `{"o":{"dry_run":true}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := compile(t, c.schema, registry.Policy{ReadsWhen: c.when})
			if got := e.Reads(registry.Input{Arguments: parse(t, c.args)}); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestShared(t *testing.T) {
	schema := `{"properties":{"a":{},"n":{"default":10},"unit":{"enum":["EUR","USD"]},"kind":{"const":"x"},
		"opt":{"anyOf":[{"$ref":"#/$defs/e"},{"type":"null"}]},"free":{"anyOf":[{"type":"string"},{"enum":["q"]}]},
		"l":{"items":{"properties":{"u":{"$ref":"#/$defs/e"},"v":{}}}},"memo":{},"key":{}},"$defs":{"e":{"enum":["q","r"]}}}`
	e := compile(t, schema, registry.Policy{MayDiffer: []string{"/memo"}, DownstreamKey: registry.DownstreamKey{Argument: "/key"}})
	for name, c := range map[string]struct{ a, b, want string }{
		"string":             {`{"a":"x","n":1}`, `{"a":"x","n":2}`, "/a"},
		"number":             {`{"a":1}`, `{"a":1.0}`, "/a"},
		"the first":          {`{"n":1,"a":2}`, `{"n":1,"a":2}`, "/a"},
		"other values":       {`{"a":"x"}`, `{"a":"y"}`, "-"},
		"other place":        {`{"a":"x"}`, `{"n":"x"}`, "-"},
		"other type":         {`{"a":"1"}`, `{"a":1}`, "-"},
		"default":            {`{"n":10}`, `{"n":10}`, "-"},
		"no default":         {`{"n":11}`, `{"n":11}`, "/n"},
		"enum":               {`{"unit":"EUR"}`, `{"unit":"EUR"}`, "-"},
		"const":              {`{"kind":"x"}`, `{"kind":"x"}`, "-"},
		"optional enum":      {`{"opt":"q"}`, `{"opt":"q"}`, "-"},
		"enum or any string": {`{"free":"q"}`, `{"free":"q"}`, "/free"},
		"boolean":            {`{"a":true}`, `{"a":true}`, "-"},
		"null":               {`{"a":null}`, `{"a":null}`, "-"},
		"empty":              {`{"a":""}`, `{"a":""}`, "-"},
		"in a list":          {`{"l":[{"u":"q"},{"v":7}]}`, `{"l":[{"u":"q"},{"v":7},1]}`, "/l/1/v"},
		"in a list, enum":    {`{"l":[{"u":"q"}]}`, `{"l":[{"u":"q"}]}`, "-"},
		"may differ":         {`{"memo":"x"}`, `{"memo":"x"}`, "-"},
		"key":                {`{"key":"x"}`, `{"key":"x"}`, "-"},
		"undeclared":         {`{"z~/":{"y":"x"}}`, `{"z~/":{"y":"x"}}`, "/z~0~1/y"},
		"object and array":   {`{"a":{"0":1}}`, `{"a":[1]}`, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := e.Shared(parse(t, c.a), parse(t, c.b))
			if ok != (c.want != "-") || ok && got != c.want {
				t.Errorf("got %q %v", got, ok)
			}
		})
	}
}

func TestEntity(t *testing.T) {
	p := registry.Policy{Entity: []string{"/path", "/host"}, Normalize: keyderive.Normalize{"/host": {"lower"}}}
	e := compile(t, ``, p)
	want := e.Entity(parse(t, `{"path":"/a","host":"h","x":1}`))
	if len(want) != 64 {
		t.Fatalf("got %q", want)
	}
	if got := e.Entity(parse(t, `{"host":"H","path":"/a","x":2}`)); got != want {
		t.Errorf("normalised: got %q", got)
	}
	if got := e.Entity(parse(t, `{"host":"h","path":"/b"}`)); got == want || got == "" {
		t.Errorf("another path: got %q", got)
	}
	for _, args := range []string{`{}`, `{"path":"/a"}`, `{"path":"/a","host":null}`, `{"path":"","host":"h"}`, `[]`} {
		if got := e.Entity(parse(t, args)); got != "" {
			t.Errorf("%s: got %q", args, got)
		}
	}
	if got := compile(t, ``, registry.Policy{}).Entity(parse(t, `{"path":"/a"}`)); got != "" {
		t.Errorf("not declared: got %q", got)
	}
}

func TestWithKey(t *testing.T) {
	text := []byte(`{ "b": 9007199254740993, "a": 1.10 }`)
	e := compile(t, ``, registry.Policy{})
	if got, err := e.WithKey(text, parse(t, string(text)), "k"); err != nil || string(got) != string(text) {
		t.Errorf("got %s %v", got, err)
	}
	for pointer, want := range map[string]string{
		"/key":   `{"a":1.1,"b":9007199254740993,"key":"k"}`,
		"/b":     `{"a":1.1,"b":"k"}`,
		"/o/x~1": `{"a":1.1,"b":9007199254740993,"o":{"x/":"k"}}`,
	} {
		e := compile(t, ``, registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: pointer}})
		parsed := parse(t, string(text))
		if got, err := e.WithKey(text, parsed, "k"); err != nil || string(got) != want {
			t.Errorf("%s: got %s %v", pointer, got, err)
		}
		if len(parsed.(map[string]any)) != 2 {
			t.Error("the arguments were changed")
		}
	}
	e = compile(t, ``, registry.Policy{DownstreamKey: registry.DownstreamKey{Argument: "/a/key"}})
	if _, err := e.WithKey(text, parse(t, string(text)), "k"); !errors.Is(err, registry.ErrArguments) {
		t.Errorf("got %v", err)
	}
}
