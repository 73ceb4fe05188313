package drill_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"toolguard.dev/cmd/mcp-server/drill"
	"toolguard.dev/registry"
)

const paySchema = `{"type":"object","properties":{"invoice_id":{"type":"string"},"amount":{"type":"number","minimum":1},"memo":{"type":"string"}},"required":["invoice_id","amount"]}`

func pay(p registry.Policy) registry.Tool {
	return registry.Tool{Server: "books", Name: "pay", InputSchema: json.RawMessage(paySchema), Effect: registry.Write, EffectSource: "declared", Policy: p}
}

func condition(t *testing.T, source string, kind registry.Kind) *registry.Expression {
	t.Helper()
	x, err := registry.CompileExpression(source, kind)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

var byEvent = map[string]string{"source_event": "", "tenant": "acme"}

// Each rehearsal can fail, or names what is weak: the policies that are.
func TestRehearsals(t *testing.T) {
	once := []string{"source_event", "/invoice_id"}
	errorsRefused := registry.Policy{OncePer: once, NotApplied: []*registry.Expression{condition(t, `result.text.startsWith("Error")`, registry.KindAnswer)}}
	fooled := registry.Policy{OncePer: once, Lookups: []registry.Lookup{{Tool: "find", Absent: condition(t, `result.is_error`, registry.KindAnswer), Settle: time.Second}}}
	asks := registry.Policy{OncePer: once, Approval: &registry.Approval{When: condition(t, "args.amount > 1000", registry.KindArguments)}}
	evaded := registry.Policy{Approval: asks.Approval}
	for _, test := range []struct {
		name    string
		subject drill.Subject
		want    [5]string // result, and a part of what is said or weak
	}{
		{"a good policy", drill.Subject{Tool: pay(registry.Policy{OncePer: once, MayDiffer: []string{"/memo"}, Owner: "finance"}), Facts: byEvent},
			[5]string{"pass: recorded result", "pass: nothing was sent again", "pass: nothing was sent again", "not applicable: no call of it", "pass: another value of /amount"}},
		{"no stable key", drill.Subject{Tool: pay(registry.Policy{})},
			[5]string{"FAIL: done 2 times: nothing stable says", "pass: ", "pass: ", "not applicable: ", "not applicable: no once_per"}},
		{"a key of the run", drill.Subject{Tool: pay(registry.Policy{OncePer: []string{"run", "/invoice_id"}}), Facts: map[string]string{"source_event": "", "run": ""}},
			[5]string{"FAIL: done 2 times: its key has run", "pass: ", "pass: ", "not applicable: ", "pass: "}},
		{"an error taken for a refusal", drill.Subject{Tool: pay(errorsRefused), Facts: byEvent},
			[5]string{"pass: ", "FAIL: done 2 times after the answer \"timed out\": classify.not_applied", "pass: ", "not applicable: ", "FAIL: done 2 times: another value of /amount went through after the answer"}},
		{"errors: refused", drill.Subject{Tool: pay(registry.Policy{OncePer: once, Errors: registry.ErrorRefused}), Facts: byEvent},
			[5]string{"pass: ", "pass: errors: refused rests on", "pass: ", "not applicable: ", "pass: "}},
		{"a window that may be untrue", drill.Subject{Tool: pay(registry.Policy{OncePer: once, DownstreamKey: registry.DownstreamKey{Meta: "key", Window: 24 * time.Hour}}), Facts: byEvent},
			[5]string{"pass: ", "pass: had it not, it would have been done 2 times", "pass: had it not, it would have been done 2 times", "not applicable: ", "pass: "}},
		{"a lookup that takes an outage for absence", drill.Subject{Tool: pay(fooled), Facts: byEvent},
			[5]string{"pass: ", "FAIL: a lookup took the answer", "FAIL: a lookup took the answer", "not applicable: ", "pass: "}},
		{"approval", drill.Subject{Tool: pay(asks), Facts: byEvent}, [5]string{"pass: ", "pass: ", "pass: ", "pass: a person rejected it", "pass: "}},
		{"a secret argument", drill.Subject{Tool: pay(registry.Policy{OncePer: once, Secret: []string{"/memo"}}), Facts: byEvent},
			[5]string{"pass: ", "pass: ", "pass: ", "not applicable: ", "pass: another value of /amount, /memo"}},
		{"approval that a smaller amount evades", drill.Subject{Tool: pay(evaded), Facts: byEvent},
			[5]string{"pass: ", "pass: ", "pass: ", "pass: needed nobody's word", "not applicable: "}},
		{"approval always", drill.Subject{Tool: pay(registry.Policy{OncePer: once, Approval: &registry.Approval{Reviewers: []string{"dana"}}}), Facts: byEvent},
			[5]string{"pass: ", "pass: ", "pass: ", "pass: ", "pass: "}},
		{"observe", drill.Subject{Tool: pay(asks), Facts: byEvent, Observe: true},
			[5]string{"FAIL: mode: observe", "FAIL: mode: observe", "FAIL: mode: observe", "FAIL: done before anybody was asked: mode: observe", "FAIL: mode: observe"}},
		{"a key that a model makes up", drill.Subject{Tool: registry.Tool{Server: "s", Name: "t", Effect: registry.Write, InputSchema: json.RawMessage(`{"type":"object","properties":{"request_id":{"type":"string"}},"required":["request_id"]}`),
			Policy: registry.Policy{OncePer: []string{"/request_id"}}}},
			[5]string{"pass: /request_id looks like what a model makes up", "pass: ", "pass: ", "not applicable: ", "not applicable: none of its arguments"}},
		{"a tool that sets a state", drill.Subject{Tool: registry.Tool{Server: "s", Name: "t", Effect: registry.Idempotent, InputSchema: json.RawMessage(paySchema), Policy: registry.Policy{Entity: []string{"/invoice_id"}}}},
			[5]string{"not applicable: it sets a state", "pass: could not arrive any more", "pass: could not arrive any more", "not applicable: ", "not applicable: it sets a state"}},
		{"no sample", drill.Subject{Tool: registry.Tool{Server: "s", Name: "t", Effect: registry.Write, InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","format":"date","pattern":"^x[0-9]+$"}},"required":["a"],"not":{}}`)}},
			[5]string{"not applicable: no sample arguments", "not applicable: no sample", "not applicable: no sample", "not applicable: no sample", "not applicable: no sample"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []drill.Rehearsal
			if _, err := drill.Run(context.Background(), &test.subject, func(r drill.Rehearsal) { got = append(got, r) }); err != nil {
				t.Fatal(err)
			}
			for i, r := range got {
				result, said, _ := strings.Cut(test.want[i], ": ")
				if string(r.Result) != result || !strings.Contains(r.Why+"\n"+strings.Join(r.Weak, "\n"), said) {
					t.Errorf("%s: %s: %s (weak: %s), want %s", r.Name, r.Result, r.Why, r.Weak, test.want[i])
				}
				if r.Result == drill.Pass && r.Effect > 1 && test.subject.Tool.Effect == registry.Write && test.name != "errors: refused" {
					t.Errorf("%s: passed with %d effects", r.Name, r.Effect)
				}
			}
			if len(got) != len(drill.Names()) {
				t.Errorf("%d rehearsals", len(got))
			}
		})
	}
}

// The scratch ledgers are gone afterwards.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	_, err := drill.Run(context.Background(), &drill.Subject{Tool: pay(registry.Policy{})}, func(drill.Rehearsal) {})
	left, _ := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", err, left)
	}
}

// Arguments are made up that the schema takes, or it is said that none were.
func TestArguments(t *testing.T) {
	for schema, want := range map[string]string{
		`{}`: `{}`,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                                                                                                                                    `{"a":"drill-a-1"}`,
		`{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"const":3}},"required":["a","b"]}`:                                                                                                                               `{"a":"x","b":3}`,
		`{"type":"object","properties":{"a":{"type":"string","format":"uuid"},"b":{"type":"string","format":"email"}},"required":["a","b"]}`:                                                                                         "uuid",
		`{"type":"object","properties":{"a":{"type":"string","pattern":"^INV-[0-9]{4,6}$"}},"required":["a"]}`:                                                                                                                       "INV-",
		`{"type":"object","properties":{"a":{"type":"string","pattern":"^[A-Z]+$","minLength":5}},"required":["a"]}`:                                                                                                                 "",
		`{"type":"object","properties":{"a":{"type":"string","maxLength":3},"b":{"type":"string","minLength":40}},"required":["a","b"]}`:                                                                                             "",
		`{"type":"object","properties":{"a":{"type":"number","exclusiveMinimum":0,"maximum":0.5},"b":{"type":"integer","multipleOf":7,"minimum":30}},"required":["a","b"]}`:                                                          "35",
		`{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/$defs/i"},"minItems":2,"uniqueItems":true}},"required":["a"],"$defs":{"i":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}`: `{"n":2}`,
		`{"type":"object","allOf":[{"properties":{"a":{"type":"boolean"}},"required":["a"]}]}`:                                                                                                                                       `{"a":`,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"type":"integer","maximum":-3}]}},"required":["a"]}`:                                                                                                          "-",
		`{"type":"object","properties":{"a":{"type":["null","string"]}},"required":["a"]}`:                                                                                                                                           "drill-a-1",
		`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"string","format":"date-time"}},"required":["b"]}},"required":["a"]}`:                                                                         "T10:00:00Z",
	} {
		if strings.Contains(want, "uuid") {
			want = "6f1c1d1e"
		}
		tool := registry.Tool{Server: "s", Name: "t", Effect: registry.Deny, InputSchema: json.RawMessage(schema)}
		got, err := drill.Sample(tool)
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v", schema, got, err)
		}
	}
	for _, schema := range []string{`{"type":"object","not":{}}`, `{"type":"object","properties":{"a":{"type":"string","pattern":"^a$","minLength":3}},"required":["a"]}`} {
		if got, err := drill.Sample(registry.Tool{Server: "s", Name: "t", InputSchema: json.RawMessage(schema)}); err == nil {
			t.Errorf("%s: %s", schema, got)
		}
	}
}
