package badgerstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/toolguard"
)

func open(t *testing.T, dir string, o *badgerstore.Options) *badgerstore.Store {
	t.Helper()
	s, err := badgerstore.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func write(key string) *toolguard.Write {
	return &toolguard.Write{
		Token: "token of " + key, Open: true,
		Operation: &toolguard.Operation{Key: key, Intent: key, Occurrence: 1, Action: "books/pay", Facts: keyderive.Facts{Tenant: "acme", Workflow: "w"}, Status: toolguard.StatusDispatching},
		Events:    []toolguard.Event{{Type: toolguard.EventDispatched, Tenant: "acme", Key: key}},
	}
}

func get(t *testing.T, s *badgerstore.Store, key string) *toolguard.Operation {
	t.Helper()
	page, err := s.Operations(context.Background(), toolguard.Query{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Operations) == 0 {
		return nil
	}
	return page.Operations[0]
}

func TestLedgerKeepsItsIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, dir, nil)
	id := s.ID
	s.Close()
	if again := open(t, dir, nil).ID; again != id || id == "" {
		t.Fatalf("%q, then %q", id, again)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, nil).Close()
	format := filepath.Join(dir, "FORMAT")
	if text, err := os.ReadFile(format); err != nil || string(text) != "toolguard ledger 5\n" {
		t.Fatalf("%q, %v", text, err)
	}
	for text, want := range map[string]string{
		"toolguard ledger 6\n":  "written in format 6 by a newer toolguard",
		"toolguard ledger 1\n":  "written in format 1, before toolguard was first released",
		"something else\n":      "no toolguard ledger",
		"toolguard ledger -1\n": "no toolguard ledger",
		"":                      "no toolguard ledger",
	} {
		if err := os.WriteFile(format, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := badgerstore.Open(dir, nil)
		if !errors.Is(err, toolguard.ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want one that says %q", text, err, want)
		}
	}
	if err := os.Remove(format); err != nil {
		t.Fatal(err)
	}
	if _, err := badgerstore.Open(dir, nil); !errors.Is(err, toolguard.ErrFormat) {
		t.Errorf("without a format: %v", err)
	}
	if err := os.WriteFile(format, []byte("toolguard ledger 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, nil)
}

func TestFullDiskIsRefusedAndHarmless(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	s := open(t, dir, nil)
	if err := s.Commit(ctx, write("k1")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir, &badgerstore.Options{MinFree: 1 << 60})
	for range 3 {
		if err := s.Commit(ctx, write("k2")); !errors.Is(err, toolguard.ErrStoreFull) {
			t.Fatalf("got %v", err)
		}
	}
	if get(t, s, "k1") == nil || get(t, s, "k2") != nil {
		t.Fatal("not as it was")
	}
	s.Close()
	s = open(t, dir, nil)
	w := write("k2")
	if err := s.Commit(ctx, w); err != nil {
		t.Fatal(err)
	}
	if w.Events[0].ChainSeq != 2 {
		t.Fatalf("event %d of its chain, want 2", w.Events[0].ChainSeq)
	}
}

func TestFailedDiskBreaksTheStoreUntilItIsOpenedAnew(t *testing.T) {
	for _, stage := range []badgerstore.Stage{badgerstore.BeforeCommit, badgerstore.AfterCommit} {
		t.Run(string(stage), func(t *testing.T) {
			dir := t.TempDir()
			ctx := context.Background()
			var fails atomic.Bool
			bad := errors.New("input/output error")
			s := open(t, dir, &badgerstore.Options{Fail: func(at badgerstore.Stage) error {
				if at == stage && fails.Load() {
					return bad
				}
				return nil
			}})
			if err := s.Commit(ctx, write("k1")); err != nil {
				t.Fatal(err)
			}
			fails.Store(true)
			if err := s.Commit(ctx, write("k2")); !errors.Is(err, toolguard.ErrStoreBroken) || !errors.Is(err, bad) {
				t.Fatalf("got %v", err)
			}
			fails.Store(false)
			for i := range 3 {
				if err := s.Commit(ctx, write(fmt.Sprint("k3", i))); !errors.Is(err, toolguard.ErrStoreBroken) {
					t.Fatalf("got %v", err)
				}
			}
			if get(t, s, "k1") == nil {
				t.Fatal("reads stopped")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, nil)
			if there := get(t, s, "k2") != nil; there != (stage == badgerstore.AfterCommit) {
				t.Fatalf("stored: %v", there)
			}
			if get(t, s, "k30") != nil {
				t.Fatal("a refused write was stored")
			}
			w := write("k2")
			if err := s.Commit(ctx, w); err != nil || w.Operation.Rev == 0 {
				t.Fatalf("its own write, come again: %v, revision %d", err, w.Operation.Rev)
			}
			verify(t, s)
		})
	}
}

// verify recomputes every chain and compares the list of open operations with their records.
func verify(t *testing.T, s *badgerstore.Store) {
	t.Helper()
	ctx := context.Background()
	events, err := s.Events(ctx, 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]toolguard.Event{}
	for _, e := range events {
		again, end := e, ends[e.Tenant]
		if err := again.Link(e.Tenant, end.ChainSeq+1, end.Hash); err != nil {
			t.Fatal(err)
		}
		if e.Hash != again.Hash || e.Prev != again.Prev || e.ChainSeq != again.ChainSeq {
			t.Fatalf("chain %q breaks at %d", e.Tenant, e.ChainSeq)
		}
		ends[e.Tenant] = e
	}
	want := map[string]bool{}
	for before := uint64(0); ; {
		page, err := s.Operations(ctx, toolguard.Query{All: true, Before: before, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range page.Operations {
			if op.Status == toolguard.StatusDispatching {
				want[op.Key] = true
			}
		}
		if before = page.Next; before == 0 {
			break
		}
	}
	page, err := s.Operations(ctx, toolguard.Query{Open: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range page.Operations {
		if !want[op.Key] {
			t.Fatalf("%s is listed as open, and %s", op.Key, op.Status)
		}
		delete(want, op.Key)
	}
	if len(want) > 0 {
		t.Fatalf("not listed as open: %v", want)
	}
}

// Lazy writes that come faster than the disk takes them wait for room; they are not lost.
func TestLazyWritesWaitForRoom(t *testing.T) {
	const writes = 5000
	dir := t.TempDir()
	s := open(t, dir, nil)
	for i := range writes {
		w := write(fmt.Sprint("k", i))
		w.Lazy = true
		if err := s.Commit(context.Background(), w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, nil)
	page, err := s.Operations(context.Background(), toolguard.Query{Open: true})
	if err != nil || len(page.Operations) != writes {
		t.Fatalf("%d of %d are there, %v", len(page.Operations), writes, err)
	}
	verify(t, s)
}
