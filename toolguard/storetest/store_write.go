package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

func keysOf(ops []*toolguard.Operation) []string {
	keys := []string{}
	for _, op := range ops {
		keys = append(keys, op.Key)
	}
	return keys
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

var writeTests = map[string]func(*bench){
	"a new operation must not exist": func(b *bench) {
		b.store(operation("acme", "k"))
		b.refuses(&toolguard.Write{Operation: operation("acme", "k")}, toolguard.ErrConflict)
		b.refuses(&toolguard.Write{Operation: operation("other", "k")}, toolguard.ErrConflict)
	},
	"an operation that does not exist has no revision": func(b *bench) {
		op := operation("acme", "k")
		op.Rev = 1
		b.refuses(&toolguard.Write{Operation: op}, toolguard.ErrConflict)
		if b.get("k") != nil {
			b.Fatal("stored nevertheless")
		}
	},
	"every write is read as it was written, a dispatch too": func(b *bench) {
		op := operation("acme", "k")
		for i, w := range []toolguard.Write{{}, {Dispatch: true, Open: true}, {Open: true}, {Dispatch: true, Open: true}, {}} {
			op.Sent = i + 1
			w.Operation, w.Body = op, &toolguard.Body{Arguments: json.RawMessage(fmt.Sprint(i))}
			b.put(&w)
			for range 2 {
				if got := b.get("k"); got.Sent != i+1 || got.Rev != op.Rev || got.Dispatched != op.Dispatched {
					b.Fatalf("write %d: read attempt %d of revision %d, dispatched at %d, want %d, %d and %d", i, got.Sent, got.Rev, got.Dispatched, i+1, op.Rev, op.Dispatched)
				}
				if body, err := b.Body(context.Background(), "k"); err != nil || string(body.Arguments) != fmt.Sprint(i) {
					b.Fatalf("write %d: body %s (%v)", i, body.Arguments, err)
				}
			}
		}
	},
	"only the stored revision can be replaced": func(b *bench) {
		op := operation("acme", "k")
		b.store(op)
		stale := *op
		op.Status = toolguard.StatusUnknown
		b.store(op)
		stale.Status = toolguard.StatusFailed
		b.refuses(&toolguard.Write{Operation: &stale}, toolguard.ErrConflict)
		ahead := *op
		ahead.Rev++
		b.refuses(&toolguard.Write{Operation: &ahead}, toolguard.ErrConflict)
		if got := b.get("k"); got.Status != toolguard.StatusUnknown || got.Rev != op.Rev {
			b.Fatalf("got %s at %d, want unknown at %d", got.Status, got.Rev, op.Rev)
		}
	},
	"a refused write changes nothing at all": func(b *bench) {
		op := operation("acme", "k")
		b.put(&toolguard.Write{Operation: op, Open: true, Body: &toolguard.Body{Result: []byte(`1`)}})
		before := b.query(toolguard.Query{Key: "k"}).Seq
		wrong := operation("acme", "k")
		b.refuses(&toolguard.Write{
			Operation: wrong, Dispatch: true, Lanes: []string{"lane"}, Call: "call", Body: &toolguard.Body{Result: []byte(`2`)},
			Fence: "fence", FenceSince: before, Events: []toolguard.Event{{Type: toolguard.EventCall, Tenant: "acme"}}, Document: "doc", Data: []byte("x"),
		}, toolguard.ErrConflict)
		if wrong.Rev != 0 {
			b.Fatal("a refused operation got a revision")
		}
		b.wants(toolguard.Query{Tenant: "acme", Lane: "lane"})
		b.wants(toolguard.Query{Tenant: "acme", Call: "call"})
		b.wants(toolguard.Query{Tenant: "acme", Open: true}, "k")
		if body, err := b.Body(context.Background(), "k"); err != nil || string(body.Result) != "1" {
			b.Fatalf("body: %s, %v", body.Result, err)
		}
		if _, _, err := b.Document(context.Background(), "doc"); !errors.Is(err, toolguard.ErrNotFound) {
			b.Fatalf("document: %v", err)
		}
		if n := len(b.events(0, 10)); n != 0 {
			b.Fatalf("%d events", n)
		}
		b.put(&toolguard.Write{Operation: operation("acme", "k2"), Fence: "fence", FenceSince: before})
	},
	"of many writers exactly one wins each revision": func(b *bench) {
		b.store(operation("acme", "k"))
		var mu sync.Mutex
		winners := map[uint64]int{} // by the revision they replaced
		parallel(b.T, 64, func(i int) error {
			for {
				op, err := b.read("k")
				if err != nil {
					return err
				}
				rev := op.Rev
				op.Generation++
				err = b.Commit(context.Background(), &toolguard.Write{Token: fmt.Sprint("writer ", i), Operation: op})
				if errors.Is(err, toolguard.ErrConflict) {
					continue
				}
				if err != nil {
					return err
				}
				if op.Rev <= rev {
					return fmt.Errorf("revision %d after %d", op.Rev, rev)
				}
				mu.Lock()
				winners[rev]++
				mu.Unlock()
				return nil
			}
		})
		if got := b.get("k").Generation; got != 65 || len(winners) != 64 {
			b.Fatalf("%d increments of %d revisions, want 64 of 64", got-1, len(winners))
		}
	},
	"of many creators exactly one wins": func(b *bench) {
		var won atomic.Int32
		parallel(b.T, 64, func(i int) error {
			err := b.Commit(context.Background(), &toolguard.Write{Token: fmt.Sprint("creator ", i), Operation: operation("acme", "k")})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, toolguard.ErrConflict) {
				return err
			}
			return nil
		})
		if won.Load() != 1 {
			b.Fatalf("%d won", won.Load())
		}
	},
	"sequences rise with every write": func(b *bench) {
		var last uint64
		for i := range 20 {
			op := operation("acme", fmt.Sprint("k", i%5))
			if stored := b.get(op.Key); stored != nil {
				op = stored
			}
			w := &toolguard.Write{Operation: op}
			for range i % 3 {
				w.Events = append(w.Events, toolguard.Event{Type: toolguard.EventCall, Tenant: "acme", Time: time.Now()})
			}
			b.put(w)
			if op.Rev <= last {
				b.Fatalf("revision %d after %d", op.Rev, last)
			}
			for _, e := range w.Events {
				if e.Seq <= last || e.Seq > op.Rev {
					b.Fatalf("event at %d, between %d and %d", e.Seq, last, op.Rev)
				}
			}
			last = op.Rev
			if i == 10 {
				b.reopen()
			}
		}
	},
	"a token that is stored is its own write, come again": func(b *bench) {
		op := operation("acme", "k")
		w := &toolguard.Write{Token: "mine", Operation: op, Dispatch: true, Lanes: []string{"lane"}, Events: []toolguard.Event{{Type: toolguard.EventCall, Tenant: "acme"}}}
		b.put(w)
		rev := op.Rev
		for range 2 {
			again := operation("acme", "k")
			again.Status = toolguard.StatusFailed
			b.put(&toolguard.Write{Token: "mine", Operation: again, Events: []toolguard.Event{{Type: toolguard.EventCall, Tenant: "acme"}}})
			if again.Rev != rev || again.Dispatched != rev || again.Token != "mine" {
				b.Fatalf("stamped %d, %d, %q, want %d, %d, mine", again.Rev, again.Dispatched, again.Token, rev, rev)
			}
			if got := b.get("k"); got.Status != toolguard.StatusDispatching || got.Rev != rev {
				b.Fatalf("changed: %s at %d", got.Status, got.Rev)
			}
			if n := len(b.events(0, 10)); n != 1 {
				b.Fatalf("%d events", n)
			}
			b.reopen()
		}
		b.store(op)
		b.refuses(&toolguard.Write{Token: "mine", Operation: operation("acme", "k")}, toolguard.ErrConflict)
	},
	"a fence lets one decide at a time": func(b *bench) {
		before := b.query(toolguard.Query{Key: "k"}).Seq
		one, two := operation("acme", "k1"), operation("acme", "k2")
		b.put(&toolguard.Write{Operation: one, Fence: "f", FenceSince: before})
		b.refuses(&toolguard.Write{Operation: two, Fence: "f", FenceSince: before}, toolguard.ErrConflict)
		b.put(&toolguard.Write{Operation: operation("acme", "k3"), Fence: "g", FenceSince: before}) // another fence
		b.put(&toolguard.Write{Operation: operation("acme", "k4"), FenceSince: before})             // none
		b.put(&toolguard.Write{Operation: one, Fence: "f", FenceSince: before})                     // its own writes do not hold it up
		b.put(&toolguard.Write{Operation: two, Fence: "f", FenceSince: b.query(toolguard.Query{Key: "k"}).Seq})
		b.refuses(&toolguard.Write{Operation: one, Fence: "f", FenceSince: one.Rev}, toolguard.ErrConflict)
		since := b.query(toolguard.Query{Key: "k"}).Seq
		b.reopen()
		b.refuses(&toolguard.Write{Operation: one, Fence: "f", FenceSince: one.Rev}, toolguard.ErrConflict)
		b.put(&toolguard.Write{Operation: one, Fence: "f", FenceSince: since})
		b.refuses(&toolguard.Write{Operation: two, Fence: "f", FenceSince: since}, toolguard.ErrConflict)
	},
	"of many who decide on what they read, one gets through the fence": func(b *bench) {
		var won atomic.Int32
		parallel(b.T, 32, func(i int) error {
			for {
				page, err := b.Operations(context.Background(), toolguard.Query{Tenant: "acme", Open: true})
				if err != nil || len(page.Operations) > 0 {
					return err
				}
				w := &toolguard.Write{Token: fmt.Sprint(i), Operation: operation("acme", fmt.Sprint("k", i)), Open: true, Fence: "f", FenceSince: page.Seq}
				if err = b.Commit(context.Background(), w); err == nil {
					won.Add(1)
				} else if !errors.Is(err, toolguard.ErrConflict) {
					return err
				}
			}
		})
		if won.Load() != 1 {
			b.Fatalf("%d got through", won.Load())
		}
	},
	"documents are replaced by revision": func(b *bench) {
		ctx := context.Background()
		if _, _, err := b.Document(ctx, "d"); !errors.Is(err, toolguard.ErrNotFound) {
			b.Fatalf("got %v", err)
		}
		b.refuses(&toolguard.Write{Document: "d", Data: []byte("x"), DocumentRev: 5}, toolguard.ErrConflict)
		large := bytes.Repeat([]byte("0123456789"), 250_000)
		var rev uint64
		for _, data := range [][]byte{large, []byte("small"), {}, large[:1_000_000]} {
			b.put(&toolguard.Write{Document: "d", Data: data, DocumentRev: rev})
			b.refuses(&toolguard.Write{Document: "d", Data: []byte("x"), DocumentRev: rev}, toolguard.ErrConflict)
			got, next, err := b.Document(ctx, "d")
			if err != nil || !bytes.Equal(got, data) || next <= rev {
				b.Fatalf("%d bytes at %d, %v; want %d bytes above %d", len(got), next, err, len(data), rev)
			}
			rev = next
		}
		b.put(&toolguard.Write{Document: "e", Data: []byte("other")})
		b.reopen()
		if got, next, err := b.Document(ctx, "d"); err != nil || len(got) != 1_000_000 || next != rev {
			b.Fatalf("%d bytes at %d, %v", len(got), next, err)
		}
	},
	"too large is refused, and the store goes on": func(b *bench) {
		large := bytes.Repeat([]byte("x"), 64<<20)
		b.refuses(&toolguard.Write{Operation: operation("acme", "k"), Body: &toolguard.Body{Result: large}}, toolguard.ErrTooLarge)
		b.refuses(&toolguard.Write{Operation: operation("acme", "k"), Body: &toolguard.Body{Sealed: large}}, toolguard.ErrTooLarge)
		b.refuses(&toolguard.Write{Document: "d", Data: large}, toolguard.ErrTooLarge)
		b.refuses(&toolguard.Write{Token: string(large[:65]), Operation: operation("acme", "k")}, toolguard.ErrTooLarge)
		if b.get("k") != nil {
			b.Fatal("stored nevertheless")
		}
		b.store(operation("acme", "k"))
	},
	"a context that is done takes up no write": func(b *bench) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := b.Commit(ctx, &toolguard.Write{Token: "t", Operation: operation("acme", "k")}); !errors.Is(err, context.Canceled) {
			b.Fatalf("got %v", err)
		}
		if b.get("k") != nil {
			b.Fatal("stored nevertheless")
		}
	},
}

// read is get for goroutines that may not fail the test.
func (b *bench) read(key string) (*toolguard.Operation, error) {
	page, err := b.Operations(context.Background(), toolguard.Query{Key: key})
	if err == nil && len(page.Operations) != 1 {
		err = fmt.Errorf("%d operations %s", len(page.Operations), key)
	}
	if err != nil {
		return nil, err
	}
	return page.Operations[0], nil
}

// parallel runs n goroutines from one start.
func parallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	start, errs := make(chan struct{}), make(chan error, n)
	for i := range n {
		go func() {
			<-start
			errs <- f(i)
		}()
	}
	close(start)
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}
