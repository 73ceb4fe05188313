package badgerstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// BenchmarkGroupCommit compares the store with the least that could be written: bare Badger with synced writes and
// a group commit, one key of 1 KB per write. An operation is two durable writes, one after the other.
func BenchmarkGroupCommit(b *testing.B) {
	for _, callers := range []int{1, 64} {
		var bare, store float64
		b.Run(fmt.Sprintf("bare/%d", callers), func(b *testing.B) { bare = run(b, callers, newBare(b)) })
		b.Run(fmt.Sprintf("store/%d", callers), func(b *testing.B) {
			store = run(b, callers, newStore(b))
			if bare > 0 {
				b.ReportMetric(store/bare, "of-bare")
			}
		})
	}
}

// run has callers do b.N operations and returns operations per second.
func run(b *testing.B, callers int, operation func(n int64) error) float64 {
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	for range callers {
		all.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := operation(n); err != nil {
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

// newBare is the baseline: its committer takes whatever is queued into one transaction.
func newBare(b *testing.B) func(int64) error {
	db, err := badger.Open(badger.DefaultOptions(b.TempDir()).WithSyncWrites(true).WithDetectConflicts(false).WithLogger(nil))
	if err != nil {
		b.Fatal(err)
	}
	type write struct {
		key  string
		done chan error
	}
	queue := make(chan write, 1024)
	var committer sync.WaitGroup
	committer.Go(func() {
		value := []byte(strings.Repeat("0123456789abcdef", 64))
		for w := range queue {
			txn := db.NewTransaction(true)
			group := []write{w}
			for more := true; more && len(group) < 512; {
				select {
				case w, ok := <-queue:
					if more = ok; ok {
						group = append(group, w)
					}
				default:
					more = false
				}
			}
			var err error
			for _, w := range group {
				if err == nil {
					err = txn.Set([]byte(w.key), value)
				}
			}
			if err == nil {
				err = txn.Commit()
			}
			for _, w := range group {
				w.done <- err
			}
		}
	})
	b.Cleanup(func() {
		close(queue)
		committer.Wait()
		db.Close()
	})
	return func(n int64) error {
		for i := range 2 {
			w := write{fmt.Sprintf("%d/%d", n, i), make(chan error, 1)}
			queue <- w
			if err := <-w.done; err != nil {
				return err
			}
		}
		return nil
	}
}

func newStore(b *testing.B) func(int64) error {
	var groups atomic.Int64
	s, err := badgerstore.Open(b.TempDir(), &badgerstore.Options{Fail: func(at badgerstore.Stage) error {
		if at == badgerstore.BeforeCommit {
			groups.Add(1)
		}
		return nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		b.ReportMetric(float64(2*b.N)/float64(groups.Load()), "writes/group")
		s.Close()
	})
	return func(n int64) error { return pay(s, n) }
}

var (
	arguments = json.RawMessage(`{"invoice_id":"INV-2026-000123","amount":1299.5,"currency":"EUR","memo":"` + strings.Repeat("monthly fee ", 18) + `"}`)
	result    = json.RawMessage(`{"content":[{"type":"text","text":"` + strings.Repeat("paid, thank you ", 38) + `"}],"structuredContent":{"payment_id":"pay_981"}}`)
)

// pay writes what one guarded call does: the dispatch, then the settle with the body and the call's event.
func pay(s toolguard.Store, n int64) error {
	ctx, now := context.Background(), time.Now()
	key := fmt.Sprintf("0198c5e0-7d2a-8f10-9a3b-%012x", n)
	facts := keyderive.Facts{Tenant: "acme", Workflow: "invoices", SourceEvent: fmt.Sprintf("<mail-%d@example.com>", n), Run: "run-1", Step: "pay", CallID: "toolu_01ABC"}
	hash := "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	op := &toolguard.Operation{
		Key: key, Intent: "intent " + key, Occurrence: 1, Action: "books/pay_invoice", Effect: registry.Write, Facts: facts,
		Material:   json.RawMessage(`{"action":"books/pay_invoice","occurrence":1,"scope":{"source_event":"mail","tenant":"acme","workflow":"invoices"},"target":{"/invoice_id":"INV-2026-000123"},"v":1}`),
		Definition: hash, Subject: hash, Digest: hash, Frozen: hash, Policy: hash,
		Status: toolguard.StatusDispatching, Waited: true, Sent: 1, Generation: 1, Budget: 3, FirstSent: now, Created: now,
		Attempts: []toolguard.Attempt{{N: 1, Owner: "host/1234/abcdef", CallID: "toolu_01ABC", Started: now, Deadline: now.Add(time.Minute), Frozen: hash, SentKey: key, State: toolguard.AttemptOpen}},
	}
	e := toolguard.Event{
		Time: now, Type: toolguard.EventDispatched, Key: key, Tool: op.Action, Tenant: facts.Tenant, Workflow: facts.Workflow, SourceEvent: facts.SourceEvent,
		Run: facts.Run, Step: facts.Step, Status: op.Status, Occurrence: 1, Attempt: 1, Digest: hash, Policy: hash, CallID: facts.CallID, Client: "claude-code",
	}
	lanes := []string{"acme/invoices", "acme/invoices/books"}
	err := s.Commit(ctx, &toolguard.Write{
		Token: key + "/1", Operation: op, Open: true, Holding: true, Dispatch: true, Lanes: lanes, Call: facts.CallID + key, CallUntil: now.Add(time.Hour),
		Fence: "acme/invoices/pay_invoice", FenceSince: 1 << 62, Events: []toolguard.Event{e},
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
		Token: key + "/2", Operation: op, Body: &toolguard.Body{Arguments: arguments, Result: result}, BodyUntil: op.BodyUntil,
		Events: []toolguard.Event{settled, call},
	})
}
