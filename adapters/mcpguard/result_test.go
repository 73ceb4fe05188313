package mcpguard_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestRender compares with testdata/results, one file for each kind of answer.
func TestRender(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	verdict := func(o toolguard.Outcome, r toolguard.Reason, s toolguard.Status) toolguard.Verdict {
		return toolguard.Verdict{
			Outcome: o, Reason: r, Status: s, Key: "0b8f6a4e-0000-8000-8000-000000000001", Tool: "books/pay_invoice",
			Occurrence: 1, Attempt: 1, RecordedAt: &at,
		}
	}
	raw := func(s string) registry.Answer { return registry.Answer{Result: json.RawMessage(s)} }
	paid := raw(`{"content":[{"type":"text","text":"paid <P-1>"}],"structuredContent":{"payment_id":"P-1","cents":9007199254740993},"_meta":{"trace":1.10},"later":true}`)
	done := "ALREADY DONE, not repeated. The result below is the recorded one."
	for name, test := range map[string]struct {
		r               toolguard.Result
		output, widened bool
	}{
		"fresh":                       {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusSucceeded), Answer: paid}},
		"fresh_refused":               {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusFailed), Answer: raw(`{"content":[{"type":"text","text":"insufficient funds"}],"isError":true}`)}},
		"fresh_protocol_error":        {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusFailed), Answer: registry.Answer{Error: &registry.ProtocolError{Code: -32602, Message: "no such invoice"}}}},
		"fresh_protocol_error_data":   {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusFailed), Answer: registry.Answer{Error: &registry.ProtocolError{Code: -32602, Message: "no such invoice", Data: json.RawMessage(`[1]`)}}}},
		"fresh_receipt":               {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusSucceeded), Answer: raw(`{"content":[]}`), Text: "Done. This is the receipt."}},
		"replayed":                    {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Replayed, toolguard.ReasonDone, toolguard.StatusSucceeded), Answer: paid, Text: done}, output: true, widened: true},
		"replayed_no_room":            {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Replayed, toolguard.ReasonDone, toolguard.StatusSucceeded), Answer: paid, Text: done}, output: true},
		"replayed_without_body":       {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Replayed, toolguard.ReasonBodyExpired, toolguard.StatusSucceeded), Text: "ALREADY DONE, not repeated. Its result is no longer kept."}},
		"replayed_without_body_typed": {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Replayed, toolguard.ReasonBodyExpired, toolguard.StatusSucceeded), Text: "ALREADY DONE, not repeated. Its result is no longer kept."}, output: true, widened: true},
		"pending":                     {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Pending, toolguard.ReasonInProgress, toolguard.StatusDispatching), Text: "STILL RUNNING."}},
		"blocked":                     {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Blocked, toolguard.ReasonArgumentsChanged, toolguard.StatusSucceeded), Answer: paid, Text: "NOT SENT."}},
		"escalated":                   {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Escalated, toolguard.ReasonOutcomeUnknown, toolguard.StatusEscalated), Text: "OUTCOME UNKNOWN."}},
		"question":                    {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Pending, toolguard.ReasonInProgress, toolguard.StatusDispatching), Answer: raw(`{"resultType":"input_required","requestState":"s"}`)}},
		"task":                        {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Pending, toolguard.ReasonInProgress, toolguard.StatusDispatching), Answer: raw(`{"task":{"taskId":"t","status":"working"}}`)}},
		"fresh_receipt_empty_block":   {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusSucceeded), Answer: raw(`{"content":[{"type":"text","text":""}]}`), Text: "Done. This is the receipt."}},
		"fresh_no_words":              {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusFailed)}},
		"fresh_without_meta":          {r: toolguard.Result{Guarded: true, Verdict: verdict(toolguard.Fresh, "", toolguard.StatusSucceeded), Answer: raw(`{"content":[{"type":"text","text":"paid"}],"_meta":5}`)}},
		"read":                        {r: toolguard.Result{Verdict: verdict(toolguard.Fresh, "", ""), Answer: paid}},
		"read_unavailable":            {r: toolguard.Result{Verdict: verdict(toolguard.Blocked, toolguard.ReasonToolUnavailable, ""), Text: "NOT SENT."}},
	} {
		got, err := mcpguard.Render(&test.r, test.output, test.widened)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file := filepath.Join("testdata", "results", name+".json")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		typed, err := mcpguard.TypedAnswer(&test.r, test.output, test.widened)
		if test.r.Answer.Error != nil {
			if err == nil || err.Error() != test.r.Answer.Error.Message {
				t.Errorf("%s: in mcp-go's types: %v", name, err)
			}
			continue
		}
		read, problem := mcpguard.TypedReply(got)
		if err != nil || problem != nil {
			t.Fatalf("%s: in mcp-go's types: %v, %v", name, err, problem)
		}
		sameJSON(t, typed, read)
	}
}
