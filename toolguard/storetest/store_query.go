package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"toolguard.dev/toolguard"
)

var queryTests = map[string]func(*bench){
	"an operation comes back as it was, stamped": func(b *bench) {
		op := operation("acme", "k")
		b.store(op)
		b.sameText(b.get("k"), op)
		if got := b.get("k"); string(got.Material) != `{"n":9007199254740993,"s":"<a&b>","v":1}` || got.Token != op.Token || got.Rev == 0 {
			b.Fatalf("got %s", text(b.T, got))
		}
		op.Attempts, op.Ordered, op.Entity = nil, &toolguard.Decision{Verdict: "repeat"}, ""
		b.store(op)
		b.reopen()
		b.sameText(b.get("k"), op)
	},
	"what is not there is not found": func(b *bench) {
		ctx := context.Background()
		b.wants(toolguard.Query{Key: "k"})
		b.wants(toolguard.Query{Tenant: "acme", Intent: "i"})
		b.wants(toolguard.Query{Tenant: "acme", Lane: "l"})
		b.wants(toolguard.Query{Tenant: "acme", Call: "c"})
		b.wants(toolguard.Query{Tenant: "acme", Open: true})
		b.wants(toolguard.Query{Tenant: "acme", All: true, Limit: 10})
		b.store(operation("acme", "k"))
		if _, err := b.Body(ctx, "k"); !errors.Is(err, toolguard.ErrNotFound) {
			b.Fatalf("got %v", err)
		}
		if _, err := b.Body(ctx, "k2"); !errors.Is(err, toolguard.ErrNotFound) {
			b.Fatalf("got %v", err)
		}
	},
	"every returned value is the caller's": func(b *bench) {
		ctx := context.Background()
		op := operation("acme", "k")
		data := []byte("data")
		w := &toolguard.Write{Operation: op, Open: true, Body: &toolguard.Body{Result: []byte(`"r"`)}, Document: "d", Data: data, Events: []toolguard.Event{event("acme", "k")}}
		b.put(w)
		want := text(b.T, op)
		for range 2 { // first what was given, then what was returned
			op.Attempts[0].Owner, op.Allowed.By, op.Material[2] = "x", "x", 'x'
			w.Body.Result[1], w.Data[0], w.Events[0].Detail["s"] = 'x', 'x', "x"
			got := b.get("k")
			if text(b.T, got) != want {
				b.Fatalf("got  %s\nwant %s", text(b.T, got), want)
			}
			body, err := b.Body(ctx, "k")
			if err != nil || string(body.Result) != `"r"` {
				b.Fatalf("%s, %v", body.Result, err)
			}
			d, _, err := b.Document(ctx, "d")
			if err != nil || string(d) != "data" {
				b.Fatalf("%s, %v", d, err)
			}
			events := b.events(0, 1)
			b.sameText(events[0].Detail, event("", "").Detail)
			op, w.Body.Result, w.Data, w.Events = got, body.Result, d, events
		}
	},
	"open operations are listed and taken off": func(b *bench) {
		one, two, three := operation("acme", "k1"), operation("acme", "k2"), operation("acme", "k3")
		two.Subject, three.Action = one.Subject, "books/refund"
		b.put(&toolguard.Write{Operation: one, Open: true})
		b.put(&toolguard.Write{Operation: two, Open: true, Holding: true})
		b.put(&toolguard.Write{Operation: three, Open: true})
		b.store(operation("acme", "k4"))
		ofTool := toolguard.Query{Tenant: "acme", Open: true, Workflow: "monthly", Action: "books/pay"}
		for range 2 {
			b.wants(toolguard.Query{Tenant: "acme", Open: true}, "k1", "k2", "k3")
			b.wants(toolguard.Query{Open: true}, "k1", "k2", "k3")
			b.wants(ofTool, "k1", "k2")
			narrow := ofTool
			narrow.Subject = one.Subject
			b.wants(narrow, "k1", "k2")
			narrow.Holding = true
			b.wants(narrow, "k2")
			narrow.Subject = ""
			b.wants(narrow, "k2")
			narrow.Subject, narrow.Holding = "other", false
			b.wants(narrow)
			b.wants(toolguard.Query{Tenant: "acme", Open: true, Workflow: "yearly", Action: "books/pay"})
			if n := len(b.query(toolguard.Query{Tenant: "acme", Open: true, Limit: 2}).Operations); n != 2 {
				b.Fatalf("%d, want 2", n)
			}
			b.reopen()
		}
		b.put(&toolguard.Write{Operation: one, Open: true, Holding: true})
		b.store(two)
		holding := ofTool
		holding.Holding = true
		for range 2 {
			b.wants(ofTool, "k1")
			b.wants(holding, "k1")
			b.reopen()
		}
		b.put(&toolguard.Write{Operation: one, Open: true})
		b.wants(holding)
		b.wants(ofTool, "k1")
		due := toolguard.Query{Open: true, Due: true}
		b.wants(due)
		b.put(&toolguard.Write{Operation: one, Open: true, Due: true})
		b.put(&toolguard.Write{Operation: three, Open: true, Holding: true})
		for range 2 {
			b.wants(due, "k1")
			b.wants(toolguard.Query{Open: true, Holding: true}, "k3")
			b.wants(toolguard.Query{Open: true, Due: true, Holding: true})
			b.reopen()
		}
		b.put(&toolguard.Write{Operation: one, Open: true})
		b.wants(due)
	},
	"a queue is read a page at a time, latest created first, and counted": func(b *bench) {
		for i := range 5 {
			b.put(&toolguard.Write{Operation: operation([]string{"acme", "other"}[i%2], fmt.Sprint("k", i)), Queue: "q"})
		}
		b.put(&toolguard.Write{Operation: operation("acme", "k5"), Queue: "q2"})
		b.store(operation("acme", "k6"))
		queue := toolguard.Query{Queue: "q"}
		ofAcme := toolguard.Query{Queue: "q", Tenant: "acme"}
		for range 2 {
			b.wants(queue, "k4", "k3", "k2", "k1", "k0")
			b.wants(ofAcme, "k4", "k2", "k0")
			b.wants(toolguard.Query{Queue: "q2"}, "k5")
			b.wants(toolguard.Query{Queue: "q3"})
			var got []string
			page := toolguard.Page{}
			for next := uint64(0); ; next = page.Next {
				page = b.query(toolguard.Query{Queue: "q", Tenant: "acme", Limit: 1, Before: next})
				if page.Count != 3 || len(page.Operations) > 1 {
					b.Fatalf("%d of %d", len(page.Operations), page.Count)
				}
				got = append(got, keysOf(page.Operations)...)
				if page.Next == 0 {
					break
				}
			}
			if fmt.Sprint(got) != "[k4 k2 k0]" {
				b.Fatalf("got %v", got)
			}
			b.reopen()
		}
		two, three := b.get("k2"), b.get("k3")
		b.put(&toolguard.Write{Operation: two, Queue: "q"})
		b.put(&toolguard.Write{Operation: three, Queue: "q2"})
		b.put(&toolguard.Write{Operation: two})
		for range 2 {
			b.wants(queue, "k4", "k1", "k0")
			b.wants(toolguard.Query{Queue: "q2"}, "k5", "k3")
			if n := b.query(queue).Count; n != 3 {
				b.Fatalf("counted %d", n)
			}
			b.reopen()
		}
	},
	"an intent gives its occurrences, latest first": func(b *bench) {
		var want []string
		for _, n := range []int{1, 2, 3, 4, 300, 256, 257} {
			op := operation("acme", fmt.Sprint("k", n))
			op.Intent, op.Occurrence = "intent", n
			b.store(op)
			b.store(op)
			want = append(want, op.Key)
		}
		slices.Sort(want)
		want = []string{"k300", "k257", "k256", "k4", "k3", "k2", "k1"}
		for range 2 {
			b.wants(toolguard.Query{Tenant: "acme", Intent: "intent"}, want...)
			b.wants(toolguard.Query{Tenant: "acme", Intent: "intent", Limit: 1}, "k300")
			b.wants(toolguard.Query{Tenant: "acme", Intent: "intent", Limit: 3}, want[:3]...)
			b.wants(toolguard.Query{Intent: "intent"}, want...)
			b.wants(toolguard.Query{Tenant: "acme", Intent: "inten"})
			b.reopen()
		}
	},
	"an intent has the name of its first occurrence": func(b *bench) {
		occurrence := func(n int, tenant, key string) *toolguard.Operation {
			op := operation(tenant, key)
			op.Intent, op.Occurrence = "first", n
			return op
		}
		asked := toolguard.Query{Tenant: "acme", Intent: "first"}
		b.wants(asked)
		first := occurrence(1, "acme", "first")
		b.store(first)
		b.refuses(&toolguard.Write{Operation: occurrence(1, "acme", "first")}, toolguard.ErrConflict)
		for range 2 {
			b.wants(asked, "first")
			b.wants(toolguard.Query{Intent: "first"}, "first")
			b.wants(toolguard.Query{Tenant: "other", Intent: "first"})
			b.store(first)
			b.reopen()
		}
		b.store(occurrence(2, "acme", "second"))
		for range 2 {
			b.wants(asked, "second", "first")
			b.wants(toolguard.Query{Tenant: "acme", Intent: "first", Limit: 1}, "second")
			b.wants(toolguard.Query{Intent: "first"}, "second", "first")
			b.reopen()
		}
		b.store(occurrence(3, "acme", "third"))
		b.wants(asked, "third", "second", "first")
		b.wants(toolguard.Query{Tenant: "acme", Key: "first"}, "first")
		b.wants(toolguard.Query{Tenant: "acme", All: true}, "third", "second", "first")
	},
	"an intent may begin after its first occurrence": func(b *bench) {
		occurrence := func(n int, key string) *toolguard.Operation {
			op := operation("acme", key)
			op.Intent, op.Occurrence = "first", n
			return op
		}
		asked := toolguard.Query{Tenant: "acme", Intent: "first"}
		b.wants(toolguard.Query{Tenant: "acme", Key: "first"})
		b.store(occurrence(3, "third"))
		for range 2 {
			b.wants(asked, "third")
			b.wants(toolguard.Query{Intent: "first"}, "third")
			b.wants(toolguard.Query{Tenant: "acme", Key: "first"})
			if _, err := b.Body(context.Background(), "first"); !errors.Is(err, toolguard.ErrNotFound) {
				b.Fatalf("the body of an operation that does not exist: %v", err)
			}
			b.refuses(&toolguard.Write{Operation: func() *toolguard.Operation { op := occurrence(1, "first"); op.Rev = 1; return op }()}, toolguard.ErrConflict)
			b.reopen()
		}
		b.store(occurrence(4, "fourth"))
		b.store(occurrence(1, "first"))
		for range 2 {
			b.wants(asked, "fourth", "third", "first")
			b.wants(toolguard.Query{Tenant: "acme", Key: "first"}, "first")
			b.wants(toolguard.Query{Tenant: "acme", All: true}, "first", "fourth", "third")
			b.reopen()
		}
	},
	"what was looked for in vain is found once it is there": func(b *bench) {
		for i := range 20 {
			key := fmt.Sprint("k", i)
			b.wants(toolguard.Query{Tenant: "acme", Intent: key})
			b.wants(toolguard.Query{Tenant: "acme", Key: key})
			op := operation("acme", key)
			op.Intent = key
			b.store(op)
			b.wants(toolguard.Query{Tenant: "acme", Intent: key}, key)
			again := operation("acme", key)
			again.Intent = key
			b.refuses(&toolguard.Write{Operation: again}, toolguard.ErrConflict)
			next := operation("acme", key+" again")
			next.Intent, next.Occurrence = key, 2
			b.store(next)
			b.wants(toolguard.Query{Tenant: "acme", Intent: key}, key+" again", key)
		}
	},
	"a lane gives its dispatches, latest first": func(b *bench) {
		var ops []*toolguard.Operation
		for i := range 20 {
			op := operation("acme", fmt.Sprint("k", i))
			b.put(&toolguard.Write{Operation: op, Dispatch: true, Lanes: []string{"lane", fmt.Sprint("lane ", i%2)}})
			if op.Dispatched != op.Rev {
				b.Fatalf("dispatched at %d, written at %d", op.Dispatched, op.Rev)
			}
			ops = append(ops, op)
		}
		dispatched := ops[5].Dispatched
		b.put(&toolguard.Write{Operation: ops[5], Lanes: []string{"lane"}}) // no dispatch
		if got := b.get("k5"); got.Dispatched != dispatched || ops[5].Dispatched != dispatched {
			b.Fatalf("dispatched at %d, want %d", got.Dispatched, dispatched)
		}
		b.put(&toolguard.Write{Operation: ops[10], Dispatch: true, Lanes: []string{"lane"}})
		want := []string{"k10", "k19", "k18", "k17", "k16", "k15", "k14", "k13", "k12", "k11", "k9", "k8", "k7", "k6", "k5", "k4"}
		for range 2 {
			got := keysOf(b.query(toolguard.Query{Tenant: "acme", Lane: "lane"}).Operations)
			if len(got) < 16 || !slices.Equal(got[:16], want) {
				b.Fatalf("got %v, want %v", got, want)
			}
			b.wants(toolguard.Query{Tenant: "acme", Lane: "lane", Limit: 2}, "k10", "k19")
			b.wants(toolguard.Query{Tenant: "acme", Lane: "lane", After: ops[17].Dispatched}, "k10", "k19", "k18")
			b.wants(toolguard.Query{Tenant: "acme", Lane: "lane", After: ops[10].Dispatched})
			b.wants(toolguard.Query{Tenant: "acme", Lane: "lane 1"}, "k19", "k17", "k15", "k13", "k11", "k9", "k7", "k5", "k3", "k1")
			b.reopen()
		}
	},
	"a call gives the operation last indexed under it, until then": func(b *bench) {
		one, two := operation("acme", "k1"), operation("acme", "k2")
		b.put(&toolguard.Write{Operation: one, Call: "call", CallUntil: time.Now().Add(time.Hour)})
		b.wants(toolguard.Query{Tenant: "acme", Call: "call"}, "k1")
		b.put(&toolguard.Write{Operation: two, Call: "call", CallUntil: time.Now().Add(time.Hour)})
		b.store(one)
		b.reopen()
		b.wants(toolguard.Query{Tenant: "acme", Call: "call"}, "k2")
		until := time.Now().Add(500 * time.Millisecond)
		b.put(&toolguard.Write{Operation: one, Call: "short", CallUntil: until})
		b.eventually("the call is forgotten", func() bool {
			before := time.Now()
			found := len(b.query(toolguard.Query{Tenant: "acme", Call: "short"}).Operations) == 1
			if after := time.Now(); found && !before.Before(until) || !found && after.Before(until) {
				b.Fatalf("found: %v, at %s, until %s", found, after, until)
			}
			return !found
		})
	},
	"no query crosses tenants": func(b *bench) {
		for _, tenant := range []string{"a", "b"} {
			op := operation(tenant, "key of "+tenant)
			op.Intent, op.Subject = "intent", "subject"
			b.put(&toolguard.Write{Operation: op, Open: true, Holding: true, Dispatch: true, Lanes: []string{"lane"}, Call: "call", CallUntil: time.Now().Add(time.Hour)})
		}
		for range 2 {
			for _, q := range []toolguard.Query{
				{Intent: "intent"}, {Intent: "intent", Limit: 1}, {Lane: "lane"}, {Call: "call"}, {Open: true}, {All: true, Limit: 10},
				{Open: true, Workflow: "monthly", Action: "books/pay", Subject: "subject", Holding: true}, {Open: true, Holding: true},
			} {
				for _, tenant := range []string{"a", "b"} {
					q.Tenant = tenant
					b.wants(q, "key of "+tenant)
				}
				q.Tenant = "c"
				b.wants(q)
				if q.Tenant = ""; q.Limit != 1 {
					if n := len(b.query(q).Operations); n != 2 {
						b.Fatalf("an operator's %+v: %d operations, want 2", q, n)
					}
				}
			}
			b.wants(toolguard.Query{Tenant: "a", Key: "key of b"})
			b.wants(toolguard.Query{Key: "key of b"}, "key of b")
			b.reopen()
		}
	},
	"all are paged by creation while others write": func(b *bench) {
		var want []string
		for i := range 25 {
			op := operation("acme", fmt.Sprintf("k%02d", i))
			b.put(&toolguard.Write{Operation: op, Events: []toolguard.Event{event("acme", op.Key), event("acme", op.Key)}})
			want = append(want, op.Key)
			b.put(&toolguard.Write{Operation: operation("other", fmt.Sprint("o", i))})
			b.put(&toolguard.Write{Events: []toolguard.Event{event("acme", "")}})
		}
		slices.Reverse(want)
		for _, limit := range []int{1, 5, 7, 25, 30} {
			var got []string
			for before := uint64(0); ; {
				page := b.query(toolguard.Query{Tenant: "acme", All: true, Before: before, Limit: limit})
				if len(page.Operations) > limit {
					b.Fatalf("%d operations, want at most %d", len(page.Operations), limit)
				}
				got = append(got, keysOf(page.Operations)...)
				b.store(page.Operations[0])                                  // written again, not created again
				b.store(operation("acme", fmt.Sprint("new", limit, before))) // created after the first page
				if before = page.Next; before == 0 {
					break
				}
			}
			got = slices.DeleteFunc(got, func(k string) bool { return k[0] == 'n' }) // of an earlier round
			if !slices.Equal(got, want) {
				b.Fatalf("by %d: got %v, want %v", limit, got, want)
			}
		}
	},
	"a page has every write up to its sequence": func(b *bench) {
		b.put(&toolguard.Write{Operation: operation("acme", "k"), Open: true})
		var acked atomic.Uint64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 100 {
				op, err := b.read("k")
				if err == nil {
					op.Generation = i
					err = b.Commit(context.Background(), &toolguard.Write{Token: fmt.Sprint(i), Operation: op, Open: true})
				}
				if err != nil {
					b.Error(err)
					return
				}
				acked.Store(op.Rev)
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			for _, q := range []toolguard.Query{{Key: "k"}, {Tenant: "acme", Open: true}, {Tenant: "acme", Intent: "intent of k"}, {Tenant: "acme", All: true, Limit: 1}} {
				least := acked.Load()
				page := b.query(q)
				if len(page.Operations) != 1 || page.Operations[0].Rev > page.Seq || page.Operations[0].Rev < least || page.Seq < least {
					b.Fatalf("%+v: %s as of %d, want at least %d", q, text(b.T, page.Operations), page.Seq, least)
				}
			}
		}
	},
}

var keepTests = map[string]func(*bench){
	"bodies come back byte for byte, and are replaced": func(b *bench) {
		op := operation("acme", "k")
		large := json.RawMessage(`"` + string(bytes.Repeat([]byte("<é>"), 900_000)) + `"`)
		for _, body := range []toolguard.Body{
			{Arguments: json.RawMessage(`{ "a" : 1.50, "b":"<x>" }`)}, {Arguments: large, Result: json.RawMessage(`{"z":1,"a":2}`)},
			{Result: json.RawMessage(`null`)}, {Arguments: json.RawMessage(`1`), Result: large}, {},
			{Arguments: json.RawMessage(`{}`), Result: json.RawMessage(`{}`), Sealed: []byte("\x00\x01\xff")}, {Arguments: json.RawMessage(`1`), Sealed: large},
		} {
			b.put(&toolguard.Write{Operation: op, Body: &body})
			b.store(op) // leaves it
			got, err := b.Body(context.Background(), "k")
			if err != nil || !bytes.Equal(got.Arguments, body.Arguments) || !bytes.Equal(got.Result, body.Result) || !bytes.Equal(got.Sealed, body.Sealed) {
				b.Fatalf("%d and %d bytes, %v; want %d and %d", len(got.Arguments), len(got.Result), err, len(body.Arguments), len(body.Result))
			}
			b.reopen()
			if again, err := b.Body(context.Background(), "k"); err != nil || !bytes.Equal(again.Arguments, body.Arguments) || !bytes.Equal(again.Result, body.Result) || !bytes.Equal(again.Sealed, body.Sealed) {
				b.Fatalf("not the same after reopening: %v", err)
			}
		}
	},
	"a body expires, its operation does not": func(b *bench) {
		op := operation("acme", "k")
		until := time.Now().Add(700 * time.Millisecond)
		b.put(&toolguard.Write{Operation: op, Body: &toolguard.Body{Result: []byte(`1`)}, BodyUntil: until})
		b.eventually("the body is gone", func() bool {
			before := time.Now()
			_, err := b.Body(context.Background(), "k")
			gone := errors.Is(err, toolguard.ErrNotFound)
			if err != nil && !gone {
				b.Fatal(err)
			}
			if after := time.Now(); !gone && !before.Before(until) || gone && after.Before(until) {
				b.Fatalf("gone: %v, at %s, until %s", gone, after, until)
			}
			return gone
		})
		b.sameText(b.get("k"), op)
		b.put(&toolguard.Write{Operation: op, Body: &toolguard.Body{Result: []byte(`2`)}})
		if body, err := b.Body(context.Background(), "k"); err != nil || string(body.Result) != "2" {
			b.Fatalf("%s, %v", body.Result, err)
		}
	},
	"everything is there after reopening": func(b *bench) {
		var want []string
		for i := range 200 {
			op := operation(fmt.Sprint("t", i%2), fmt.Sprint("k", i))
			b.put(&toolguard.Write{Operation: op, Open: i%3 == 0, Events: []toolguard.Event{event("acme", op.Key)}, Body: &toolguard.Body{Result: []byte(fmt.Sprint(i))}})
			want = append(want, text(b.T, op))
		}
		seq := b.query(toolguard.Query{Key: "k0"}).Seq
		for range 3 {
			b.reopen()
			for i := range want {
				key := fmt.Sprint("k", i)
				if got := text(b.T, b.get(key)); got != want[i] {
					b.Fatalf("got  %s\nwant %s", got, want[i])
				}
				if body, err := b.Body(context.Background(), key); err != nil || string(body.Result) != fmt.Sprint(i) {
					b.Fatalf("%s, %v", body.Result, err)
				}
			}
			if n := len(b.query(toolguard.Query{Open: true}).Operations); n != 67 {
				b.Fatalf("%d open, want 67", n)
			}
			if n := verified(b); n != 200 {
				b.Fatalf("%d events, want 200", n)
			}
			if got := b.query(toolguard.Query{Key: "k0"}).Seq; got != seq {
				b.Fatalf("sequence %d, want %d", got, seq)
			}
		}
	},
}
