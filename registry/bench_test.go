package registry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolguard.dev/registry"
)

const benchArgs = `{"invoice_id":"inv-2024-000017","amount":1250.75,"memo":"` +
	`Quarterly maintenance, second instalment, agreed by phone with accounts payable on the twelfth of this month` +
	`","unit":"EUR","dry_run":false,"to":["dana@example.com","lee@example.com"],"card":{"number":"4242424242424242"}}`

func BenchmarkValidateAndClassify(b *testing.B) {
	e := compile(b, invoiceSchema, registry.Policy{})
	args := parse(b, benchArgs)
	answer := registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("paid ", 50) + `"}]}`)}
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Validate(args); err != nil {
			b.Fatal(err)
		}
		if c := e.Classify(answer, nil, "key"); c.Outcome != registry.Succeeded {
			b.Fatal(c)
		}
	}
}

func BenchmarkClassifyError(b *testing.B) {
	e := compile(b, ``, registry.Policy{})
	answer := errorAnswer("invoice not found " + strings.Repeat("here is more about it, ", 10))
	b.ReportAllocs()
	for b.Loop() {
		if c := e.Classify(answer, nil, "key"); c.Outcome != registry.Failed {
			b.Fatal(c)
		}
	}
}

func BenchmarkExpression(b *testing.B) {
	x := expression(b, `args.amount > 1000`, registry.KindArguments)
	in := registry.Input{Arguments: parse(b, benchArgs)}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := x.Bool(in); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkShared(b *testing.B) {
	e := compile(b, invoiceSchema, registry.Policy{})
	one, other := parse(b, benchArgs), parse(b, strings.NewReplacer("1250", "9", "-", "_", "Q", "q", "@", "-", "42", "3").Replace(benchArgs))
	b.ReportAllocs()
	for b.Loop() {
		if at, ok := e.Shared(one, other); ok {
			b.Fatal(at)
		}
	}
}

// BenchmarkCompileLarge is about the largest schema that is taken.
func BenchmarkCompileLarge(b *testing.B) {
	var s strings.Builder
	s.WriteString(`{"properties":{`)
	for i := range 4_900 {
		fmt.Fprintf(&s, `"p%d":{"type":"string"},`, i)
	}
	s.WriteString(`"q":{}}}`)
	x := tool(s.String(), registry.Policy{})
	for b.Loop() {
		if _, err := registry.Compile(x); err != nil {
			b.Fatal(err)
		}
	}
}
