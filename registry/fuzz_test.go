package registry_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// FuzzCompile: whatever a server sends as a schema, nothing panics, and what is listed is JSON.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{invoiceSchema, `true`, `false`, `{"$ref":"#"}`, `{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","properties":{"a":{"items":[{}]}}}`, `{"$dynamicRef":"#a"}`,
		`{"type":"object","oneOf":[{"properties":{"key":{}}},true],"patternProperties":{"(":1}}`, `{"multipleOf":0}`,
		`{"properties":{"a":{"enum":[1,[2],{"a":1e999}]}},"unevaluatedProperties":false}`} {
		f.Add(s, `{"key":1,"a":[1e3,"x",null]}`)
	}
	f.Fuzz(func(t *testing.T, schema, args string) {
		x := tool(schema, registry.Policy{MayDiffer: []string{"/a"}, DownstreamKey: registry.DownstreamKey{Argument: "/key"}})
		x.OutputSchema = json.RawMessage(schema)
		e, err := registry.Compile(x)
		if err != nil {
			if !errors.Is(err, registry.ErrSchema) && !errors.Is(err, registry.ErrPolicy) {
				t.Fatal(err)
			}
			plain(t, err.Error())
			return
		}
		if !json.Valid(e.ListedInput()) {
			t.Fatalf("listed %s", e.ListedInput())
		}
		if out, _ := e.ListedOutput(); out != nil && !json.Valid(out) {
			t.Fatalf("listed %s", out)
		}
		v, err := keyderive.Parse([]byte(args))
		if err != nil {
			return
		}
		if err := e.Validate(v); err != nil {
			if !errors.Is(err, registry.ErrArguments) {
				t.Fatal(err)
			}
			plain(t, err.Error())
		}
		e.Shared(v, v)
		e.Reads(registry.Input{Arguments: v})
	})
}

// FuzzClassify: whatever a tool answers, nothing panics, and doubt never makes it failed.
func FuzzClassify(f *testing.F) {
	f.Add("not found", `{"content":[],"isError":true}`, 200)
	f.Add("1 of 3 failed: not found", `{"task":{"taskId":"x"},"structuredContent":{"id":1}}`, 0)
	f.Add("'a' created/\"sent x\" camelCase: could not be, or \u201cpaid\u201d; {\"sent\": 3}", `{"structuredContent":{"result":"{\"error\":1e9}"}}`, -32602)
	f.Add("Error: HTTP/1.1 503 \xff", `{"resultType":"complete"`, 503)
	e := compile(f, ``, registry.Policy{DownstreamID: expression(f, `result.json.id`, registry.KindAnswer),
		DownstreamKey: registry.DownstreamKey{Meta: "key"}})
	f.Fuzz(func(t *testing.T, text, raw string, status int) {
		for _, a := range []registry.Answer{errorAnswer(text), textAnswer(text), {Result: json.RawMessage(raw), Status: status},
			protocolError(status, text)} {
			got := e.Classify(a, nil, "k")
			switch got.Outcome {
			case registry.Succeeded, registry.Failed, registry.Unknown, registry.Incomplete:
			default:
				t.Fatalf("got %+v", got)
			}
			if !utf8.ValidString(got.Says) || len(got.Says) > 500 || !utf8.ValidString(got.DownstreamID) || len(got.DownstreamID) > 1024 {
				t.Fatalf("says %q, id %q", got.Says, got.DownstreamID)
			}
		}
		if got := e.Classify(errorAnswer(text+"\ntimed out"), nil, "k"); got.Outcome != registry.Unknown {
			t.Fatalf("%q: got %s", text, got.Outcome)
		}
		if got := e.Classify(errorAnswer("The card was charged.\n"+text), nil, "k"); got.Outcome != registry.Unknown {
			t.Fatalf("charged, %q: got %s", text, got.Outcome)
		}
	})
}

// FuzzExpression: whatever stands in a policy or in the arguments, nothing panics.
func FuzzExpression(f *testing.F) {
	f.Add(`args.a > 1.0 && result.text.contains("x")`, `{"a":1e400}`)
	f.Add(`args.?a.orValue(result.json) == context.tenant`, `{"a":9007199254740993}`)
	f.Add(`[1,2].map(x, x * args.a)[0] == result.status`, `[{}]`)
	f.Add(`args.matches("(a*)*b") || size(string(args)) > 0`, `"aaaaaaaa"`)
	f.Fuzz(func(t *testing.T, source, args string) {
		x, err := registry.CompileExpression(source, registry.KindAnswer)
		if err != nil {
			if !errors.Is(err, registry.ErrPolicy) {
				t.Fatal(err)
			}
			return
		}
		v, err := keyderive.Parse([]byte(args))
		if err != nil {
			return
		}
		in := registry.Input{Arguments: v, Answer: &registry.Answer{Result: json.RawMessage(args)}}
		_, _ = x.Bool(in)
		if text, err := x.Text(in); err == nil && x.String() != source {
			t.Fatal(text)
		}
	})
}
