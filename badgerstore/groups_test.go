package badgerstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

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
	read := func(key string, rev, seq uint64) { r.add(&toolguard.Operation{Key: key, Rev: rev}, seq) }
	sees := func(key string, seq, want uint64) {
		t.Helper()
		if got, _ := r.get(key, seq); got.rev != want {
			t.Fatalf("as of %d, %s is of %d, want %d", seq, key, got.rev, want)
		}
	}
	read("k", 3, 4)
	sees("k", 2, 0)
	sees("k", 3, 3)
	r.replaced("k", 5)
	sees("k", 9, 0)
	read("k", 3, 4) // read before it was replaced
	sees("k", 9, 0)
	read("k", 5, 5)
	sees("k", 4, 0)
	sees("k", 9, 5)
	r.replaced("k", 6)
	for rev := uint64(7); ; rev++ {
		if _, ok := r.find("k"); !ok {
			break
		}
		r.replaced(fmt.Sprint(rev), rev)
	}
	if r.floor < 6 {
		t.Fatalf("forgot up to 6, but says %d", r.floor)
	}
	read("k", 3, 4) // read before what is forgotten
	sees("k", r.floor, 0)
	read("k", 6, r.floor)
	sees("k", r.floor, 6)
	if n := len(r.now) + len(r.old); n > 2*recentSize/noteSize+2 {
		t.Fatalf("%d kept", n)
	}
}
