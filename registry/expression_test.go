package registry_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func result(text string) *registry.Answer { return &registry.Answer{Result: json.RawMessage(text)} }

func TestExpressionBool(t *testing.T) {
	structured := result(`{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}],
		"structuredContent":{"status":"denied","n":9007199254740993,"u":18446744073709551615,"list":[{"x":1},{"x":2.5}],"none_yet":null}}`)
	text := result(`{"content":[{"type":"text","text":"{\"status\":\"denied\"}"}],"isError":true}`)
	two := result(`{"content":[{"type":"text","text":"{}"},{"type":"text","text":"{}"}]}`)
	args := `{"amount":1000.5,"n":1000,"e":1e2,"big":1e400,"s":"ü","o":{"a":[1,"2",null]},"huge":123456789012345678901234567890}`
	facts := keyderive.Facts{Tenant: "acme", SourceEvent: "e1"}
	for _, c := range []struct {
		source string
		answer *registry.Answer
		want   any // true, false, or nil for an error
	}{
		{`args.amount > 1000`, nil, true},
		{`args.n > 999.5 && args.n == 1000.0 && args.n < 1000.1`, nil, true},
		{`args.e == 100 && type(args.e) == int && type(args.amount) == double`, nil, true},
		{`args.big > 1000`, nil, true},
		{`args.huge > 1000`, nil, true},
		{`args.s == "ü" && size(args.o.a) == 3 && args.o.a[1] == "2" && args.o.a[2] == null`, nil, true},
		{`args.?dry_run.orValue(false)`, nil, false},
		{`has(args.dry_run)`, nil, false},
		{`args.dry_run`, nil, nil},
		{`args.n`, nil, nil},
		{`args.s > 5`, nil, nil},
		{`context.tenant == "acme" && context.source_event == "e1" && !has(context.run)`, nil, true},
		{`context.run == ""`, nil, nil},
		{`tool == "books/pay"`, nil, true},
		{`result.json.status == "denied" && result.text == "a\nb" && !result.is_error && result.status == 0`, structured, true},
		{`result.json.n == 9007199254740993 && result.json.n != 9007199254740992`, structured, true},
		{`result.json.u > 9223372036854775807`, structured, true},
		{`result.json.list.exists(i, i.x == 2.5) && result.json.list.map(i, i.x)[0] == 1`, structured, true},
		{`result.json.none == 1`, structured, nil},
		{`has(result.json.none)`, structured, false},
		{`result.json.none_yet == null && has(result.json) && result.?json.hasValue()`, structured, true},
		{`result.json.status == "denied" && result.is_error && result.text.contains("denied")`, text, true},
		{`result.json == null`, two, true},
		{`result.json == null && result.is_error && result.text == "no"`, &registry.Answer{Error: &registry.ProtocolError{Message: "no"}}, true},
		{`result.status == 503 && result.is_error`, &registry.Answer{Status: 503}, true},
		{`result.text == ""`, nil, nil},
		{`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))`, nil, nil},
	} {
		x := expression(t, c.source, registry.KindAnswer)
		got, err := x.Bool(registry.Input{Arguments: parse(t, args), Facts: facts, Tool: "books/pay", Answer: c.answer})
		if c.want == nil {
			if err == nil {
				t.Errorf("%s: got %v, want an error", c.source, got)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %v %v", c.source, got, err)
		}
	}
}

func TestExpressionText(t *testing.T) {
	in := registry.Input{Answer: result(`{"structuredContent":{"s":"p1","i":12345678901234567,"u":18446744073709551615,"f":1.5,"whole":1e3,
		"huge":123456789012345678901234567890,"b":true,"l":[]}}`)}
	for source, want := range map[string]string{
		`result.json.s`: "p1", `result.json.i`: "12345678901234567", `result.json.u`: "18446744073709551615",
		`result.json.f`: "1.5", `result.json.whole`: "1000", `result.json.?s`: "p1",
		`result.json.huge`: "-", `result.json.b`: "-", `result.json.l`: "-", `result.json.none`: "-", `result.json.?none`: "-",
	} {
		got, err := expression(t, source, registry.KindAnswer).Text(in)
		if (err != nil) != (want == "-") || err == nil && got != want {
			t.Errorf("%s: got %q %v", source, got, err)
		}
	}
	// Without arguments there are none.
	if ok, err := expression(t, `size(args) == 0`, registry.KindArguments).Bool(registry.Input{}); !ok || err != nil {
		t.Errorf("got %v %v", ok, err)
	}
	var none *registry.Expression
	if _, err := none.Bool(registry.Input{}); err == nil {
		t.Error("no expression gave a value")
	}
}

func TestCompileExpressionErrors(t *testing.T) {
	for source, want := range map[string]string{
		`  `:                            "empty",
		`args.amount >`:                 "1:14",
		"true &&\n  foo":                "2:3: undeclared reference to 'foo'",
		`result.text == "x"`:            "result",
		`context.tennant == "a"`:        "context has no tennant",
		`args.x + `:                     "Syntax error",
		`"a" > 1`:                       "no matching overload",
		strings.Repeat("(", 10_000):     "expression",
		strings.Repeat("true||", 20000): "",
		"\xff\xfe":                      "",
	} {
		_, err := registry.CompileExpression(source, registry.KindArguments)
		if !errors.Is(err, registry.ErrPolicy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", source, err, want)
			continue
		}
		plain(t, err.Error())
	}
	if _, err := registry.CompileExpression(`result.txet == ""`, registry.KindAnswer); !errors.Is(err, registry.ErrPolicy) {
		t.Errorf("got %v", err)
	}
	if _, err := registry.CompileExpression(`true`, 0); !errors.Is(err, registry.ErrPolicy) {
		t.Errorf("got %v", err)
	}
}

func TestExpressionIsConcurrent(t *testing.T) {
	x := expression(t, `args.n == 1 && result.json.n == 1`, registry.KindAnswer)
	in := registry.Input{Arguments: parse(t, `{"n":1}`), Answer: result(`{"structuredContent":{"n":1}}`)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if ok, err := x.Bool(in); !ok || err != nil {
					t.Error(ok, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
