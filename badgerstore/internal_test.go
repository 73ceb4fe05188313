package badgerstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

func TestMemoryTableNeverShrinks(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct{ asked, want int64 }{{48 << 20, 48 << 20}, {32 << 20, 48 << 20}, {64 << 20, 64 << 20}, {32 << 20, 64 << 20}} {
		s, err := open(dir, nil, step.asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.db.Opts().MemTableSize; got != step.want {
			t.Errorf("asked for %d: got %d, want %d", step.asked, got, step.want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedValuesAreErrorsThatNameTheirKey(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	op := &toolguard.Operation{Key: "key-1", Intent: "intent-1", Occurrence: 1}
	op.Facts.Tenant = "acme"
	w := &toolguard.Write{
		Token: "t", Operation: op, Dispatch: true, Lanes: []string{"lane-1"}, Call: "call-1", Body: &toolguard.Body{Result: []byte(`1`)},
		Document: "document-1", Data: []byte("x"), Events: []toolguard.Event{{Tenant: "acme", Type: toolguard.EventCall}},
	}
	if err := s.Commit(ctx, w); err != nil {
		t.Fatal(err)
	}
	other := &toolguard.Operation{Key: "key-3", Intent: "intent-3", Occurrence: 1}
	w = &toolguard.Write{Token: "t4", Operation: other, Body: &toolguard.Body{Result: []byte(`1`)}, BodyUntil: time.Now().Add(time.Hour)}
	if err := s.Commit(ctx, w); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 40<<10)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(large)
	w = &toolguard.Write{
		Token: "t5", Operation: &toolguard.Operation{Key: "key-4", Intent: "intent-4", Occurrence: 1},
		Body: &toolguard.Body{Result: large}, BodyUntil: time.Now().Add(time.Hour),
	}
	if err := s.Commit(ctx, w); err != nil {
		t.Fatal(err)
	}
	ask := func(q toolguard.Query) func() error {
		return func() error { q.Tenant = "acme"; _, err := s.Operations(ctx, q); return err }
	}
	for _, c := range []struct {
		key  []byte
		read func() error
	}{
		{nameKey(prefixRecord, "key-1"), ask(toolguard.Query{Key: "key-1"})},
		{scopedKey(prefixIntent, "intent-1", "acme"), ask(toolguard.Query{Intent: "intent-1"})},
		{scopedKey(prefixLane, "lane-1", "acme"), ask(toolguard.Query{Lane: "lane-1"})},
		{scopedKey(prefixCall, "call-1", "acme"), ask(toolguard.Query{Call: "call-1"})},
		{journalKey(op.Rev), ask(toolguard.Query{All: true, Limit: 1})},
		{journalKey(op.Rev), func() error { _, err := s.Events(ctx, 0, 10); return err }},
		{nameKey(prefixRecord, "key-1"), func() error { _, err := s.Body(ctx, "key-1"); return err }},
		{bundleKey(other.Rev), func() error { _, err := s.Body(ctx, "key-3"); return err }},
		{partKey(prefixBody, "key-4", 0), func() error { _, err := s.Body(ctx, "key-4"); return err }},
		{partKey(prefixDocument, "document-1", 0), func() error { _, _, err := s.Document(ctx, "document-1"); return err }},
	} {
		good, err := raw(s, c.key)
		if err != nil {
			t.Fatalf("%q: %v", c.key, err)
		}
		for n := range min(len(good.value), 300) {
			for _, bad := range [][]byte{good.value[:n], append(bytes.Repeat([]byte{0xff}, n), good.value[n:]...)} {
				good.put(t, s, c.key, bad)
				s.view.recent = recent{} // what was kept would hide it
				err := c.read()
				named := err == nil || strings.Contains(err.Error(), "what is stored under \"") && !strings.Contains(err.Error(), s.dir)
				if !named && !errors.Is(err, toolguard.ErrNotFound) {
					t.Fatalf("%q with %q: %v names no key", c.key, bad, err)
				}
			}
		}
		good.put(t, s, c.key, good.value)
		s.view.recent = recent{}
		if err := c.read(); err != nil {
			t.Fatalf("%q put back: %v", c.key, err)
		}
	}
	// A damaged record refuses its own writes and no others.
	good, _ := raw(s, nameKey(prefixRecord, "key-1"))
	good.put(t, s, nameKey(prefixRecord, "key-1"), []byte{9})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(s.dir, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Commit(ctx, &toolguard.Write{Token: "t2", Operation: op}); err == nil || !strings.Contains(err.Error(), "key-1") {
		t.Fatalf("got %v", err)
	}
	if err := s.Commit(ctx, &toolguard.Write{Token: "t3", Operation: &toolguard.Operation{Key: "key-2"}}); err != nil {
		t.Fatal(err)
	}
}

type rawValue struct {
	value []byte
	mark  byte
}

func raw(s *Store, key []byte) (v rawValue, err error) {
	txn := s.db.NewTransactionAt(s.view.latest(), false)
	defer txn.Discard()
	item, err := txn.Get(key)
	if err != nil {
		return v, err
	}
	v.mark = item.UserMeta()
	v.value, err = item.ValueCopy(nil)
	return v, err
}

// put writes past the committer, at the sequence that reads see.
func (v rawValue) put(t *testing.T, s *Store, key, value []byte) {
	t.Helper()
	txn := s.db.NewTransactionAt(s.view.latest(), true)
	defer txn.Discard()
	if err := txn.SetEntry(badger.NewEntry(key, value).WithMeta(v.mark)); err != nil {
		t.Fatal(err)
	}
	if err := txn.CommitAt(s.view.latest(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestForgottenFencesRefuseWhatTheyCannotTell(t *testing.T) {
	f := newFences(10)
	if f.passes("f", "k", 9) || !f.passes("f", "k", 10) {
		t.Fatal("an unknown fence was last written before the ledger was opened")
	}
	f.write("f", "k", 11)
	if !f.passes("f", "k", 10) || f.passes("f", "other", 10) || !f.passes("f", "other", 11) {
		t.Fatal("only others are held up")
	}
	for i := range 2 * fencesKept {
		f.write(fmt.Sprint("g", i), "k", uint64(12+i))
	}
	if f.passes("f", "other", 10) || f.passes("f", "k", 10) {
		t.Fatal("a forgotten fence lets an old decision pass")
	}
	if now := uint64(12 + 2*fencesKept); !f.passes("f", "other", now) {
		t.Fatal("a forgotten fence refuses a fresh decision")
	}
	if n := len(f.recent) + len(f.older); n > 2*fencesKept {
		t.Fatalf("%d fences kept", n)
	}
}

func TestBlobsAreCutBelowTheValueThreshold(t *testing.T) {
	for _, size := range []int{0, 1, partSize - 1, partSize, partSize + 1, 3*partSize - 2, MaxBody} {
		b := newBlob([]byte("he" + strings.Repeat("x", size) + "tail"))
		var whole []byte
		for _, p := range b.parts {
			if len(p) >= valueThreshold {
				t.Fatalf("a part of %d bytes", len(p))
			}
			whole = append(whole, p[partHead:]...)
		}
		if len(whole) != size+6 || !strings.HasPrefix(string(whole), "he") || !strings.HasSuffix(string(whole), "tail") || len(b.parts) > maxParts {
			t.Fatalf("%d bytes in %d parts", len(whole), len(b.parts))
		}
	}
}

func TestLargestWriteFitsBadger(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "ledger"), nil, memTableSize)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var lanes []string
	for i := range 60 {
		lanes = append(lanes, fmt.Sprint("lane ", i))
	}
	for i := range 12 {
		w := &toolguard.Write{
			Token: fmt.Sprint(i), Dispatch: true, Lanes: lanes, Operation: &toolguard.Operation{Key: fmt.Sprint("k", i), Entity: strings.Repeat("e", 200<<10)},
			Body: &toolguard.Body{Arguments: bytes.Repeat([]byte("1"), MaxBody/2), Result: bytes.Repeat([]byte("2"), MaxBody/2)},
		}
		if err := s.Commit(context.Background(), w); err != nil {
			t.Fatal(err)
		}
	}
}

// A read that ends after a write became visible does not note what it did not see yet as absent.
func TestLateMissIsNotKept(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, key := s.view.latest(), nameKey(prefixRecord, "key")
	s.view.missed(key, before)
	if !s.view.lacks(key) {
		t.Error("a miss is not kept")
	}
	op := &toolguard.Operation{Key: "key", Intent: "key", Occurrence: 1}
	if err := s.Commit(context.Background(), &toolguard.Write{Token: "t", Operation: op}); err != nil {
		t.Fatal(err)
	}
	s.view.missed(key, before)
	if s.view.lacks(key) {
		t.Error("what was written counts as absent")
	}
}
