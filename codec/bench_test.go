package codec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toolguard.dev/codec"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// BenchmarkWrite writes and reads what one guarded call commits first, beside encoding/json.
func BenchmarkWrite(b *testing.B) {
	w := dispatched()
	text, err := codec.Append(nil, w)
	if err != nil {
		b.Fatal(err)
	}
	plain, err := json.Marshal(w)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("append", func(b *testing.B) {
		room := make([]byte, 0, 4<<10)
		b.ReportAllocs()
		b.ReportMetric(float64(len(text)), "bytes")
		for b.Loop() {
			if _, err := codec.Append(room, w); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := codec.Decode(string(text), new(toolguard.Write)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json append", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(float64(len(plain)), "bytes")
		for b.Loop() {
			if _, err := json.Marshal(w); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(plain, new(toolguard.Write)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// dispatched is the first write of a call.
func dispatched() *toolguard.Write {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	key, hash := "3b31c93a-0b79-861b-9a97-556d3b6e4e2a", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	facts := keyderive.Facts{Tenant: "acme", Workflow: "invoices", SourceEvent: "<mail@example.com>", Run: "run-1", Step: "pay", CallID: "toolu_01ABC"}
	op := &toolguard.Operation{
		Key: key, Intent: hash[7:], Occurrence: 1, Action: "books/pay_invoice", Effect: registry.Write, Facts: facts,
		Material:   json.RawMessage(`{"action":"books/pay_invoice","occurrence":1,"scope":{"source_event":"mail","tenant":"acme","workflow":"invoices"},"target":{"/invoice_id":"INV-1"},"v":1}`),
		Definition: hash, Subject: hash[7:], Digest: hash, Frozen: hash[7:], Policy: hash,
		Status: toolguard.StatusDispatching, Waited: true, Sent: 1, Generation: 1, Budget: 3, FirstSent: now, Created: now,
		Attempts: []toolguard.Attempt{{N: 1, Owner: "1234-abcdef", Started: now, Deadline: now.Add(time.Minute), Frozen: hash[7:], SentKey: key, State: toolguard.AttemptOpen}},
	}
	return &toolguard.Write{
		Token: "token", Operation: op, Open: true, Holding: true, Dispatch: true, Lanes: []string{"acme/invoices"}, Fence: "fence", FenceSince: 1 << 40,
		Body: &toolguard.Body{Arguments: json.RawMessage(`{"invoice_id":"INV-2026-000123","amount":1299.5,"memo":"` + strings.Repeat("monthly fee ", 18) + `"}`)},
		Events: []toolguard.Event{{
			Time: now, Type: toolguard.EventDispatched, Key: key, Tool: op.Action, Tenant: facts.Tenant, Workflow: facts.Workflow, SourceEvent: facts.SourceEvent,
			Run: facts.Run, Step: facts.Step, Status: op.Status, Occurrence: 1, Attempt: 1, Digest: hash, Policy: hash,
		}},
	}
}
