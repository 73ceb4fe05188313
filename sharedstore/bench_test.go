package sharedstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// BenchmarkSocket compares the store's rate over the socket, to an owner in another process, with the owner's own. An
// operation is two durable writes, one after the other.
func BenchmarkSocket(b *testing.B) {
	for _, callers := range []int{1, 64} {
		var own, over float64
		b.Run(fmt.Sprintf("owner/%d", callers), func(b *testing.B) { own = rate(b, callers, newStore(b, false)) })
		b.Run(fmt.Sprintf("socket/%d", callers), func(b *testing.B) {
			over = rate(b, callers, newStore(b, true))
			if own > 0 {
				b.ReportMetric(over/own, "of-owner")
			}
		})
	}
}

func newStore(b *testing.B, elsewhere bool) toolguard.Store {
	dir := b.TempDir()
	if elsewhere {
		holder(b, dir)
	}
	return open(b, dir)
}

// rate has callers do b.N operations and returns operations per second.
func rate(b *testing.B, callers int, s toolguard.Store) float64 {
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	for range callers {
		all.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := pay(s, n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	rate := float64(b.N) / time.Since(began).Seconds()
	b.ReportMetric(rate, "op/s")
	return rate
}

// pay writes what one guarded call does: the dispatch, then the settle with the body and the call's event.
func pay(s toolguard.Store, n int64) error {
	ctx, now := context.Background(), time.Now()
	key := fmt.Sprintf("0198c5e0-7d2a-8f10-9a3b-%012x", n)
	facts := keyderive.Facts{Tenant: "acme", Workflow: "invoices", SourceEvent: "<mail@example.com>" + key, Run: "run-1", Step: "pay", CallID: "toolu_01ABC"}
	hash := "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	op := &toolguard.Operation{
		Key: key, Intent: "intent " + key, Occurrence: 1, Action: "books/pay_invoice", Effect: registry.Write, Facts: facts,
		Material:   json.RawMessage(`{"action":"books/pay_invoice","occurrence":1,"scope":{"source_event":"mail","tenant":"acme","workflow":"invoices"},"target":{"/invoice_id":"INV-1"},"v":1}`),
		Definition: hash, Subject: hash, Digest: hash, Frozen: hash, Policy: hash,
		Status: toolguard.StatusDispatching, Waited: true, Sent: 1, Generation: 1, Budget: 3, FirstSent: now, Created: now,
		Attempts: []toolguard.Attempt{{N: 1, Owner: "1234-abcdef", CallID: "toolu_01ABC", Started: now, Deadline: now.Add(time.Minute), Frozen: hash, SentKey: key, State: toolguard.AttemptOpen}},
	}
	e := toolguard.Event{
		Time: now, Type: toolguard.EventDispatched, Key: key, Tool: op.Action, Tenant: facts.Tenant, Workflow: facts.Workflow, SourceEvent: facts.SourceEvent,
		Run: facts.Run, Step: facts.Step, Status: op.Status, Occurrence: 1, Attempt: 1, Digest: hash, Policy: hash, CallID: facts.CallID, Client: "claude-code",
	}
	err := s.Commit(ctx, &toolguard.Write{
		Token: key + "/1", Operation: op, Open: true, Holding: true, Dispatch: true, Lanes: []string{"acme/invoices", "acme/invoices/books"},
		Call: facts.CallID + key, CallUntil: now.Add(time.Hour), Fence: key, FenceSince: 1 << 62, Events: []toolguard.Event{e},
		Body: &toolguard.Body{Arguments: json.RawMessage(`{"invoice_id":"INV-2026-000123","amount":1299.5,"memo":"` + strings.Repeat("monthly fee ", 18) + `"}`)},
	})
	if err != nil {
		return err
	}
	op.Status, op.Waited, op.Settled, op.Body, op.BodyUntil = toolguard.StatusSucceeded, false, now, toolguard.BodyStored, now.Add(time.Hour)
	op.Attempts[0].State, op.Attempts[0].Finished, op.Attempts[0].Ended, op.Attempts[0].Called = toolguard.AttemptSucceeded, true, now, true
	settled, call := e, e
	settled.Type, settled.Status = toolguard.EventSettled, op.Status
	call.Type, call.Outcome, call.Status = toolguard.EventCall, toolguard.Fresh, op.Status
	return s.Commit(ctx, &toolguard.Write{
		Token: key + "/2", Operation: op, BodyUntil: op.BodyUntil, Events: []toolguard.Event{settled, call},
		Body: &toolguard.Body{Result: json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("paid, thank you ", 38) + `"}]}`)},
	})
}
