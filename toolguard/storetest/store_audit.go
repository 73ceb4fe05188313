package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

func event(tenant, key string) toolguard.Event {
	return toolguard.Event{
		Time: time.Date(2026, 3, 1, 12, 0, 0, 120000000, time.UTC), Type: toolguard.EventCall, Key: key, Tool: "books/pay", Tenant: tenant,
		Workflow: "monthly", Outcome: toolguard.Fresh, Status: toolguard.StatusSucceeded, Occurrence: 1, Attempt: 2, Digest: "sha256:digest",
		Detail: map[string]any{"n": json.Number("9007199254740993"), "s": "<a&b> \u2028", "list": []any{"x", json.Number("1.50")}},
	}
}

var auditTests = map[string]func(*bench){
	"events are chained per tenant, in the order of the writes": func(b *bench) {
		op := operation("acme", "k")
		w := &toolguard.Write{Operation: op, Events: []toolguard.Event{event("acme", "k"), event("other", "k"), event("acme", "k"), event("", "")}}
		b.put(w)
		if w.Events[0].ChainSeq != 1 || w.Events[2].ChainSeq != 2 || w.Events[2].Prev != w.Events[0].Hash || w.Events[0].Prev != "" || w.Events[1].ChainSeq != 1 {
			b.Fatalf("linked as %s", text(b.T, w.Events))
		}
		b.reopen()
		b.put(&toolguard.Write{Events: []toolguard.Event{event("acme", "k2")}})
		b.put(&toolguard.Write{Operation: op, Events: []toolguard.Event{event("other", "k")}})
		if n := verified(b); n != 6 {
			b.Fatalf("%d events, want 6", n)
		}
		b.sameText(b.events(0, 4), w.Events)
	},
	"chains hold when many write at once": func(b *bench) {
		var mu sync.Mutex
		given := map[uint64]string{}
		parallel(b.T, 32, func(i int) error {
			for j := range 8 {
				w := &toolguard.Write{Token: fmt.Sprint(i, " ", j), Events: []toolguard.Event{event(fmt.Sprint("t", i%3), "k"), event("all", "k")}}
				if j%2 == 0 {
					w.Operation = operation(fmt.Sprint("t", i%3), fmt.Sprint("k", i, " ", j))
				}
				if err := b.Commit(context.Background(), w); err != nil {
					return err
				}
				mu.Lock()
				for _, e := range w.Events {
					given[e.Seq] = e.Hash
				}
				mu.Unlock()
			}
			return nil
		})
		if n := verified(b); n != 512 {
			b.Fatalf("%d events, want 512", n)
		}
		for _, e := range b.events(0, 1000) {
			if given[e.Seq] != e.Hash {
				b.Fatalf("event at %d has hash %s, its writer was told %q", e.Seq, e.Hash, given[e.Seq])
			}
		}
		b.reopen()
		if n := verified(b); n != 512 {
			b.Fatalf("%d events, want 512", n)
		}
	},
	"events are read from where a reader stopped": func(b *bench) {
		for i := range 10 {
			w := &toolguard.Write{}
			for j := range i % 4 {
				w.Events = append(w.Events, event("acme", fmt.Sprint(i, " ", j)))
			}
			b.put(w)
		}
		all := b.events(0, 100)
		for limit := 1; limit < 5; limit++ {
			var got []toolguard.Event
			for after := uint64(0); ; after = got[len(got)-1].Seq {
				page := b.events(after, limit)
				if len(page) > limit {
					b.Fatalf("%d events, want at most %d", len(page), limit)
				}
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			b.sameText(got, all)
		}
		if len(all) != 13 {
			b.Fatalf("%d events, want 13", len(all))
		}
	},
	"an operation's events are read by its key": func(b *bench) {
		keys := []string{"k1", "k2", `k"<&>`, ""}
		for i := range 12 {
			w := &toolguard.Write{}
			for j := range 1 + i%3 {
				w.Events = append(w.Events, event("acme", keys[(i+j)%4]))
			}
			if i%4 == 1 {
				w.Operation = operation("acme", fmt.Sprint("o", i))
			}
			b.put(w)
		}
		for range 2 {
			for _, key := range keys[:3] {
				var all []toolguard.Event
				for _, e := range b.events(0, 100) {
					if e.Key == key {
						all = append(all, e)
					}
				}
				if len(all) < 4 {
					b.Fatalf("%d events of %q", len(all), key)
				}
				b.sameText(b.history(key, 0, 0), all)
				b.sameText(b.history(key, all[1].Seq, 2), all[2:4])
				b.sameText(b.history(key, all[0].Seq-1, 1), all[:1])
			}
			if n := len(b.history("k", 0, 0)) + len(b.history("", 0, 0)); n != 0 {
				b.Fatalf("%d events of nothing", n)
			}
			b.reopen()
		}
	},
	"a write without an operation is applied once": func(b *bench) {
		w := func() *toolguard.Write {
			return &toolguard.Write{Token: "once", Events: []toolguard.Event{event("acme", "")}, Document: "d", Data: []byte("x")}
		}
		b.put(w())
		b.put(w())
		if n := len(b.events(0, 10)); n != 1 {
			b.Fatalf("%d events, want 1", n)
		}
	},
}

// verified recomputes every chain and returns the number of events.
func verified(b *bench) int {
	b.Helper()
	events := b.events(0, 1<<20)
	type end struct {
		seq  uint64
		hash string
	}
	ends := map[string]end{}
	var last uint64
	for _, e := range events {
		if e.Seq <= last {
			b.Fatalf("sequence %d after %d", e.Seq, last)
		}
		last = e.Seq
		at := ends[e.Tenant]
		again := e
		if err := again.Link(e.Tenant, at.seq+1, at.hash); err != nil {
			b.Fatal(err)
		}
		if e.Chain != again.Chain || e.ChainSeq != again.ChainSeq || e.Prev != again.Prev || e.Hash != again.Hash {
			b.Fatalf("event %d of chain %q: got %s after %s, want %s", e.ChainSeq, e.Chain, e.Hash, e.Prev, again.Hash)
		}
		ends[e.Tenant] = end{e.ChainSeq, e.Hash}
	}
	return len(events)
}

var lazyTests = map[string]func(*bench){
	"a lazy write rides with the next durable one": func(b *bench) {
		op := operation("acme", "k")
		b.store(op)
		lazy := *op
		lazy.Waited = false
		b.put(&toolguard.Write{Operation: &lazy, Lazy: true, Events: []toolguard.Event{event("acme", "k")}})
		b.store(operation("acme", "k2"))
		if got := b.get("k"); got.Waited || got.Rev == op.Rev {
			b.Fatal("not visible")
		}
		b.reopen()
		if b.get("k").Waited || verified(b) != 1 {
			b.Fatal("not durable")
		}
	},
	"a lazy write waits no longer than LazyDelay": func(b *bench) {
		began := time.Now()
		b.put(&toolguard.Write{Operation: operation("acme", "k"), Lazy: true})
		b.eventually("the write is visible", func() bool { return b.get("k") != nil })
		if took := time.Since(began); took > toolguard.LazyDelay+2*time.Second {
			b.Fatalf("took %s", took)
		}
	},
	"a lazy write is made durable at close": func(b *bench) {
		b.put(&toolguard.Write{Operation: operation("acme", "k"), Lazy: true})
		b.reopen()
		if b.get("k") == nil {
			b.Fatal("lost")
		}
	},
	"a lazy write that conflicts is dropped silently": func(b *bench) {
		op := operation("acme", "k")
		b.store(op)
		stale := *op
		b.store(op)
		stale.Status = toolguard.StatusFailed
		b.put(&toolguard.Write{Operation: &stale, Lazy: true, Events: []toolguard.Event{event("acme", "k")}})
		b.store(operation("acme", "k2"))
		if got := b.get("k"); got.Status == toolguard.StatusFailed || len(b.events(0, 10)) != 0 {
			b.Fatal("applied")
		}
	},
	"a lazy write is taken as it was when it was given": func(b *bench) {
		op, e := operation("acme", "k"), event("acme", "k")
		body := &toolguard.Body{Result: []byte(`"before"`)}
		lanes := []string{"before"}
		b.put(&toolguard.Write{Operation: op, Lazy: true, Dispatch: true, Lanes: lanes, Events: []toolguard.Event{e}, Body: body})
		op.Attempts[0].Owner, op.Material[2], e.Detail["s"], lanes[0], body.Result[1] = "after", 'x', "after", "after", 'x'
		b.store(operation("acme", "k2"))
		got := b.get("k")
		if got.Attempts[0].Owner != "p1" || string(got.Material) != string(operation("", "").Material) {
			b.Fatalf("got %s", text(b.T, got))
		}
		b.wants(toolguard.Query{Tenant: "acme", Lane: "before"}, "k")
		if kept, err := b.Body(context.Background(), "k"); err != nil || string(kept.Result) != `"before"` {
			b.Fatalf("%s, %v", kept.Result, err)
		}
		b.sameText(b.events(0, 1)[0].Detail, event("", "").Detail)
		verified(b)
	},
	"after close nothing is taken": func(b *bench) {
		b.store(operation("acme", "k"))
		if err := b.Close(); err != nil {
			b.Fatal(err)
		}
		b.refuses(&toolguard.Write{Operation: operation("acme", "k2")}, toolguard.ErrStoreClosed)
		if _, err := b.Operations(context.Background(), toolguard.Query{Key: "k"}); !errors.Is(err, toolguard.ErrStoreClosed) {
			b.Fatalf("got %v", err)
		}
		if _, err := b.Events(context.Background(), 0, 1); !errors.Is(err, toolguard.ErrStoreClosed) {
			b.Fatalf("got %v", err)
		}
	},
}
