package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func TestTemplate(t *testing.T) {
	args, err := keyderive.Parse([]byte(`{"amount":12.50,"big":9007199254740993,"to":["a","b"],"who":{"name":"Ann \"x\""},"empty":"","no":null,"off":false}`))
	if err != nil {
		t.Fatal(err)
	}
	values := registry.Values{Key: "K", Arguments: args, Facts: keyderive.Facts{Tenant: "acme", Run: "r1"}, DownstreamID: "d1"}
	for _, c := range []struct{ template, want string }{
		{`{"a":"{{args.amount}}","b":"for {{args.amount}}","c":"{{ key }}"}`, `{"a":12.5,"b":"for 12.5","c":"K"}`},
		{`{"big":"{{args.big}}","list":"{{args.to}}","second":"{{args.to.1}}","in":"x{{args.to}}"}`, `{"big":9007199254740993,"in":"x[\"a\",\"b\"]","list":["a","b"],"second":"b"}`},
		{`{"who":"{{args.who.name}}","t":"{{context.tenant}}/{{context.run}}","d":["{{downstream_id}}"]}`, `{"d":["d1"],"t":"acme/r1","who":"Ann \"x\""}`},
		{`{"off":"{{args.off}}","plain":"{{","n":1,"x":null}`, `{"n":1,"off":false,"plain":"{{","x":null}`},
		// What has no value is no empty text: such a read would find everything.
		{`{"a":"{{args.empty}}"}`, ""}, {`{"a":"{{args.no}}"}`, ""}, {`{"a":"{{args.missing}}"}`, ""}, {`{"a":"x{{context.step}}"}`, ""}, {`{"a":"{{args.to.2}}"}`, ""},
	} {
		tmpl, err := registry.ParseTemplate(json.RawMessage(c.template))
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		got, err := tmpl.Expand(values)
		if (err != nil) != (c.want == "") || string(got) != c.want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", c.template, got, err, c.want)
		}
	}
	for _, bad := range []string{`{"a":"{{keys}}"}`, `{"a":"{{args}}"}`, `{"a":"{{args.}}"}`, `{"a":"{{context.password}}"}`, `{"a":"{{key.x}}"}`, `{"a":"{{}}"}`, `{"a":1,"a":2}`, `{`} {
		if _, err := registry.ParseTemplate(json.RawMessage(bad)); !errors.Is(err, registry.ErrPolicy) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if big := strings.Repeat("x", 1<<19); true {
		tmpl, _ := registry.ParseTemplate(json.RawMessage(`{"a":["{{key}}","{{key}}","{{key}}"]}`))
		if _, err := tmpl.Expand(registry.Values{Key: big}); err == nil {
			t.Error("a template may come to any size")
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add(`{"a":"{{args.x}} {{key}}","b":["{{context.tenant}}"]}`, `{"x":[1,"{{key}}"]}`)
	f.Fuzz(func(t *testing.T, template, arguments string) {
		tmpl, err := registry.ParseTemplate(json.RawMessage(template))
		if err != nil {
			return
		}
		args, err := keyderive.Parse([]byte(arguments))
		if err != nil {
			return
		}
		out, err := tmpl.Expand(registry.Values{Key: "k", Arguments: args, Facts: keyderive.Facts{Tenant: "t"}})
		if err == nil && !json.Valid(out) {
			t.Errorf("%s", out)
		}
	})
}

func TestLook(t *testing.T) {
	expression := func(s string) *registry.Expression { return conditions(t, s)[0] }
	for name, c := range map[string]struct {
		answer  string
		err     error
		applied string
		absent  string
		want    registry.Finding
	}{
		"found":                       {`{"structuredContent":{"n":1},"content":[]}`, nil, "result.json.n == 1", "result.json.n == 0", registry.Applied},
		"absent":                      {`{"structuredContent":{"n":0},"content":[]}`, nil, "result.json.n == 1", "result.json.n == 0", registry.Absent},
		"two":                         {`{"structuredContent":{"n":2},"content":[]}`, nil, "result.json.n == 1", "result.json.n == 0", registry.Unclear},
		"both at once":                {`{"structuredContent":{"n":1},"content":[]}`, nil, "result.json.n == 1", "result.json.n < 5", registry.Unclear},
		"an error answer":             {`{"content":[{"type":"text","text":"busy"}],"isError":true}`, nil, "result.json.n == 1", "result.json.n == 0", registry.Unclear},
		"not found, marked":           {`{"content":[{"type":"text","text":"no such payment"}],"isError":true}`, nil, "", `result.is_error && result.text.contains("no such payment")`, registry.Absent},
		"not found, in so many words": {`{"content":[{"type":"text","text":"no such payment"}],"isError":true}`, nil, "", `result.text.contains("no such payment")`, registry.Absent},
		"not there, says an error":    {`{"content":[{"type":"text","text":"rate limited"}],"isError":true}`, nil, "", `!result.text.contains("INV-1")`, registry.Unclear},
		"there, says an error":        {`{"content":[{"type":"text","text":"time-out looking for INV-1"}],"isError":true}`, nil, `result.text.contains("INV-1")`, "", registry.Unclear},
		"unmarked error":              {`{"content":[{"type":"text","text":"Error: rate limited"}]}`, nil, `result.text.contains("INV-1")`, `!result.text.contains("INV-1")`, registry.Unclear},
		"not there, in plain words":   {`{"content":[{"type":"text","text":"0 payments"}]}`, nil, `result.text.contains("INV-1")`, `!result.text.contains("INV-1")`, registry.Absent},
		"an error that is asked for":  {`{"content":[{"type":"text","text":"gone"}],"isError":true}`, nil, "", `result.is_error`, registry.Absent},
		"no bool":                     {`{"structuredContent":{"n":1},"content":[]}`, nil, "result.json.n", "", registry.Unclear},
		"unreadable":                  {`[1]`, nil, "true", "", registry.Unclear},
		"not complete":                {`{"resultType":"input_required","content":[]}`, nil, "true", "", registry.Unclear},
		"failed":                      {``, errors.New("down"), "true", "", registry.Unclear},
	} {
		l := registry.Lookup{Settle: time.Second, Handler: func(context.Context, *registry.Dispatch) (registry.Answer, error) {
			return registry.Answer{Result: json.RawMessage(c.answer)}, c.err
		}}
		if c.applied != "" {
			l.Applied = expression(c.applied)
		}
		if c.absent != "" {
			l.Absent = expression(c.absent)
		}
		e := compile(t, ``, registry.Policy{Lookups: []registry.Lookup{l}})
		if got := e.Look(t.Context(), 0, registry.Values{}); got.Finding != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	e := compile(t, ``, registry.Policy{Lookups: []registry.Lookup{{Applied: expression("true"), Handler: func(context.Context, *registry.Dispatch) (registry.Answer, error) { panic("x") }}}})
	if got := e.Look(t.Context(), 0, registry.Values{}); got.Finding != registry.Unclear || !strings.Contains(got.Says, "panicked") {
		t.Errorf("a panic: %+v", got)
	}
}

func TestNeedsApproval(t *testing.T) {
	when, err := registry.CompileExpression("args.amount > 1000", registry.KindArguments)
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]bool{`{"amount":1000}`: false, `{"amount":1000.01}`: true, `{}`: true, `{"amount":"9"}`: true} {
		parsed, _ := keyderive.Parse([]byte(args))
		e := compile(t, ``, registry.Policy{Approval: &registry.Approval{When: when}})
		if got := e.NeedsApproval(registry.Input{Arguments: parsed}); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
	if compile(t, ``, registry.Policy{}).NeedsApproval(registry.Input{}) || !compile(t, ``, registry.Policy{Approval: &registry.Approval{}}).NeedsApproval(registry.Input{}) {
		t.Error("none declared, or always")
	}
}
