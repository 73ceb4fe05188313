package registry_test

import (
	"encoding/json"
	"fmt"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func Example() {
	limit, err := registry.CompileExpression(`result.text.contains("over the limit")`, registry.KindAnswer)
	if err != nil {
		fmt.Println(err)
		return
	}
	entry, err := registry.Compile(registry.Tool{
		Server: "books", Name: "pay_invoice", Effect: registry.Write, EffectSource: "declared",
		InputSchema: json.RawMessage(`{"type":"object","required":["invoice_id"],
			"properties":{"invoice_id":{"type":"string"},"amount":{"type":"number"}}}`),
		Policy: registry.Policy{OncePer: []string{"source_event", "/invoice_id"}, NotApplied: []*registry.Expression{limit}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	args, _ := keyderive.Parse([]byte(`{"invoice_id":17}`))
	fmt.Println(entry.Validate(args))

	for _, result := range []string{
		`{"content":[{"type":"text","text":"paid"}]}`,
		`{"content":[{"type":"text","text":"over the limit"}],"isError":true}`,
		`{"content":[{"type":"text","text":"upstream timed out"}],"isError":true}`,
	} {
		fmt.Println(entry.Classify(registry.Answer{Result: json.RawMessage(result)}, nil, "").Outcome)
	}
	// Output:
	// arguments: /invoice_id must be of type string, not number
	// succeeded
	// failed
	// unknown
}
