package badgerstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// Writes of one group share a journal entry: readers still stop and go on between any two of them.
func TestReadersGoOnInTheMiddleOfAGroup(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	var mu sync.Mutex
	created, want := map[uint64]string{}, map[uint64]string{}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range 8 {
				op := &toolguard.Operation{Key: fmt.Sprint(i, " ", j), Intent: fmt.Sprint(i, " ", j), Occurrence: 1}
				op.Facts.Tenant = fmt.Sprint("t", i%2)
				w := &toolguard.Write{Token: op.Key, Operation: op}
				for range (i + j) % 3 {
					w.Events = append(w.Events, toolguard.Event{Type: toolguard.EventCall, Tenant: op.Facts.Tenant, Key: op.Key})
				}
				if err := s.Commit(ctx, w); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				created[op.Rev] = op.Key
				for _, e := range w.Events {
					want[e.Seq] = e.Hash
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	revs := make([]uint64, 0, len(created))
	for rev := range created {
		revs = append(revs, rev)
	}
	slices.Sort(revs)
	slices.Reverse(revs)
	for range 2 {
		for _, limit := range []int{1, 7, 100, 1000} {
			var got []uint64
			for before := uint64(0); ; {
				page, err := s.Operations(ctx, toolguard.Query{All: true, Before: before, Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				for _, op := range page.Operations {
					if created[op.Rev] != op.Key {
						t.Fatalf("%s at %d", op.Key, op.Rev)
					}
					got = append(got, op.Rev)
				}
				if before = page.Next; before == 0 {
					break
				}
			}
			if !slices.Equal(got, revs) {
				t.Fatalf("by %d: got %d operations, want %d, latest first", limit, len(got), len(revs))
			}
			events, after := 0, uint64(0)
			for {
				page, err := s.Events(ctx, after, limit)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, e := range page {
					if e.Seq <= after || want[e.Seq] != e.Hash {
						t.Fatalf("event %d after %d has hash %s", e.Seq, after, e.Hash)
					}
					after = e.Seq
				}
				events += len(page)
			}
			if events != len(want) {
				t.Fatalf("by %d: %d events, want %d", limit, events, len(want))
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(dir, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecentShowsNothingThatWasReplaced(t *testing.T) {
	var r recent
	publish := func(key string, rev uint64) {
		r.publish(&change{key: key, head: head{rev: rev}, known: keep(&toolguard.Operation{Key: key}, nil, time.Time{})})
	}
	read := func(key string, rev uint64) *known { return &known{op: &toolguard.Operation{Key: key, Rev: rev}} }
	publish("k", 5)
	if r.get("k", 4) != nil || r.get("k", 5) == nil || r.get("k", 9) == nil {
		t.Fatal("a reader sees what was published up to its sequence")
	}
	r.add("k", read("k", 3), 4) // read before it was replaced
	if got := r.get("k", 9); got == nil || got.op.Rev != 5 {
		t.Fatal("an older one took its place")
	}
	for rev := uint64(6); r.find("k") != nil; rev++ {
		publish(fmt.Sprint(rev), rev)
	}
	if r.floor < 5 {
		t.Fatalf("forgot up to 5, but says %d", r.floor)
	}
	r.add("k", read("k", 3), 4)
	if r.get("k", r.floor) != nil {
		t.Fatal("an older one came back after the newer was forgotten")
	}
	r.add("k", read("k", 5), r.floor)
	if got := r.get("k", r.floor); got == nil || got.op.Rev != 5 {
		t.Fatal("what was read is not kept")
	}
	if n := len(r.now) + len(r.old); n > 2*recentSize/knownSize+2 {
		t.Fatalf("%d kept", n)
	}
}
