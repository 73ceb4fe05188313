package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

func TestStatement(t *testing.T) {
	condition := func(source string, kind registry.Kind) *registry.Expression {
		x, err := registry.CompileExpression(source, kind)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	template := func(text string) *registry.Template {
		x, err := registry.ParseTemplate(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	found, none := condition("size(result.json.payments) == 1", registry.KindAnswer), condition("size(result.json.payments) == 0", registry.KindAnswer)
	keyed := registry.Lookup{Tool: "find_payment", Arguments: template(`{"reference":"{{key}}"}`), Applied: found, Absent: none, Settle: 30 * time.Second}
	keyless := registry.Lookup{Tool: "list_payments", Applied: found}
	once := []string{"source_event", "/invoice_id"}
	byEvent := config.Context{Preset: "auto", Facts: map[string]config.Source{"source_event": {Meta: "/event"}}}
	for _, test := range []struct {
		name    string
		effect  registry.Effect
		policy  registry.Policy
		context config.Context
		want    string
	}{
		{"everything", registry.Write, registry.Policy{
			OncePer: once, MayDiffer: []string{"/memo"}, Owner: "finance-ops", Lookups: []registry.Lookup{keyed}, Secret: []string{"/card"},
			Approval:      &registry.Approval{When: condition("args.amount > 1000", registry.KindArguments), Expires: 8 * time.Hour, Reviewers: []string{"dana", "erin"}},
			DownstreamKey: registry.DownstreamKey{Meta: "key", Window: 24 * time.Hour}, Retention: 48 * time.Hour, Timeout: time.Minute,
		}, byEvent, `One call per source event and invoice_id. Once done it stays done: every later call with the same gets the recorded result.
A second call with another amount or card is refused until a person allows it; memo may differ.
Before a call for which ` + "`args.amount > 1000`" + ` holds, or cannot be told, dana or erin must approve these very arguments, and nobody who asked for it may. The approval is good once, for 8h.
When an answer is lost, or none comes within 1m, nobody is told that it was done or not: find_payment is asked by our key whether it happened; that nothing is found counts from 30s after the attempt's end on, and then it is sent again.
Also the same bytes are sent again by themselves under the same key, at most 3 attempts altogether and all within 24h, for which books must honour the key; after that finance-ops must find out.
What is in card is never shown, and kept only sealed.
Arguments and results are kept for 48h, that and when it was done for ever.
Owner: finance-ops.`},
		{"a lookup without the key", registry.Write, registry.Policy{OncePer: []string{}, Lookups: []registry.Lookup{keyless}, RepeatAfter: time.Hour}, byEvent,
			`One call per tenant and workflow. Until 1h after its result was delivered, every call with the same gets the recorded result; then a call is a new one.
A second call with another amount, card, invoice_id or memo is refused until a person allows it.
When an answer is lost, or none comes within 10m, nobody is told that it was done or not: list_payments is asked whether it happened, and finding nothing proves nothing. It does not ask for our key, so it cannot tell this call's effect from another's on the same thing: what it finds counts only if it was not there before and nobody else was at it.
What cannot be found out so, with at most 3 attempts, a person (no owner is named) must find out.
Arguments and results are kept for 720h, that and when it was done for ever.`},
		{"nothing declared", registry.Write, registry.Policy{Approval: &registry.Approval{}}, config.Context{Preset: "auto"},
			`The same arguments are the same call until its result is known to have arrived, and after that until something else is written to books, at most for 60 s.
Planned anew later, it is done again: nothing says which piece of work a call belongs to.
Before each call a reviewer must approve these very arguments, and nobody who asked for it may. The approval is good once, for 24h.
When an answer is lost, or none comes within 10m, nobody is told that it was done or not: nothing is sent again, and a person (no owner is named) must find out.
Arguments and results are kept for 720h, that and when it was done for ever.`},
		{"a state", registry.Idempotent, registry.Policy{Entity: []string{"/invoice_id"}}, byEvent,
			`The last call counts: it sets the state of invoice_id. Calls are sent one at a time per invoice_id, again whenever they come, and never while an earlier one could still arrive; only a call that the client repeats under its own call id is not sent again.
When an answer is lost, or none comes within 10m, the next call sets the state again.
Arguments and results are kept for 720h, that and when it was done for ever.`},
		{"normalised", registry.Write, registry.Policy{ReadsWhen: condition("args.amount == 0", registry.KindArguments), Normalize: map[string][]string{"/memo": {"trim", "lower"}}}, byEvent,
			`One call per source event and arguments. Once done it stays done: the same call again gets the recorded result.
Other arguments are another call, which is held back only while the first one is in doubt.
Calls for which ` + "`args.amount == 0`" + ` holds only read, and are always sent.
Compared is memo after trim and lower; sent is what the caller wrote.
When an answer is lost, or none comes within 10m, nobody is told that it was done or not: nothing is sent again, and a person (no owner is named) must find out.
Arguments and results are kept for 720h, that and when it was done for ever.`},
	} {
		t.Run(test.name, func(t *testing.T) {
			schema := `{"type":"object","properties":{"invoice_id":{"type":"string"},"amount":{"type":"number"},"memo":{"type":"string"},"card":{"type":"string"}}}`
			e, err := registry.Compile(registry.Tool{Server: "books", Name: "pay_invoice", Effect: test.effect, EffectSource: "declared", Policy: test.policy, InputSchema: json.RawMessage(schema)})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(statement(e, test.context), "\n"); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
