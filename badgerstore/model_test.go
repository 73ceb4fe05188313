package badgerstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

var (
	modelSeed = flag.Uint64("model.seed", 0, "the seed of the random writes; 0: a new one")
	modelFor  = flag.Duration("model.for", 3*time.Second, "how long writes and reads are random")
)

const (
	modelWriters = 32
	modelKeys    = 8 // of each writer
	modelReaders = 16
	modelLanes   = 3
)

// truth is what a writer made of one operation, by the numbers of its writes.
type truth struct {
	begun, acked       atomic.Int64
	bodyBegun, hasBody atomic.Int64 // which of them had a body, the latest
	rev, dispatched    uint64
	events             int
	open               bool
}

// modelRun plays random writes and reads against what they must come to.
type modelRun struct {
	s    *Store
	seed uint64
	ops  [modelWriters][modelKeys]truth
	docs [modelWriters]truth

	mu    sync.Mutex
	wrong error
}

func (m *modelRun) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wrong == nil {
		m.wrong = fmt.Errorf(format, args...)
	}
}

func (m *modelRun) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrong
}

func modelKey(writer, i int) string { return fmt.Sprintf("operation %d of %d", i, writer) }

// modelBytes is content that is of one write and no other, of one of the sizes that are stored apart, packable or not.
func (m *modelRun) modelBytes(name string, n int64) []byte {
	r := rand.New(rand.NewPCG(m.seed, uint64(n)*1e9+uint64(len(name))+uint64(name[len(name)-1])))
	size := []int{1, 200, maxInline - 100, maxInline + 100, 9 << 10, maxBundled - 1000, maxBundled + 1000, 100 << 10, 1200 << 10}[min(r.IntN(90)/8, 8)]
	if r.IntN(40) > 0 {
		size = min(size, 40<<10)
	}
	text := fmt.Appendf(nil, `"%s, %d: `, name, n)
	for step := 1 + r.IntN(8); len(text) < size; {
		text = append(text, bytes.Repeat([]byte{"0123456789abcdef"[r.IntN(16)]}, step)...)
	}
	return append(text, '"')
}

// write makes the next write of one operation, and knows what became of it.
func (m *modelRun) write(r *rand.Rand, writer, i int, op *toolguard.Operation) error {
	ctx, x := context.Background(), &m.ops[writer][i]
	n := x.begun.Load() + 1
	op.Facts.Run, op.Facts.Tenant = fmt.Sprint(n), fmt.Sprint("tenant ", writer%3)
	w := &toolguard.Write{Token: fmt.Sprint(op.Key, " ", n), Operation: op, Open: r.IntN(2) == 0, Holding: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		w.Dispatch, w.Lanes = true, []string{fmt.Sprint("lane ", i%modelLanes)}
	}
	for range r.IntN(4) {
		w.Events = append(w.Events, toolguard.Event{Type: toolguard.EventCall, Tenant: op.Facts.Tenant, Key: op.Key, Run: op.Facts.Run, CallID: string(bytes.Repeat([]byte("x"), r.IntN(400)))})
	}
	w.Lazy = op.Rev > 0 && r.IntN(8) == 0
	if body := r.IntN(2) == 0 || op.Rev == 0; body {
		w.Body = &toolguard.Body{Result: m.modelBytes(op.Key, n)}
		if r.IntN(2) == 0 {
			w.BodyUntil = time.Now().Add(time.Hour + time.Duration(r.IntN(200))*time.Second)
		}
		x.bodyBegun.Store(n)
	}
	x.begun.Store(n)
	if err := m.s.Commit(ctx, w); err != nil {
		return err
	}
	for tries := 0; w.Lazy && op.Token != w.Token; tries++ { // shown with the next one
		if tries > 8 {
			return fmt.Errorf("%s: a lazy write is not shown: %+v", op.Key, op)
		}
		page, err := m.s.Operations(ctx, toolguard.Query{Key: op.Key})
		if err != nil {
			return err
		}
		*op = *page.Operations[0]
		if op.Token != w.Token {
			if err := m.s.Commit(ctx, &toolguard.Write{Token: fmt.Sprint(w.Token, r.Uint64()), Events: []toolguard.Event{{Type: toolguard.EventCall, Tenant: "others"}}}); err != nil {
				return err
			}
		}
	}
	if w.Body != nil {
		x.hasBody.Store(n)
	}
	x.acked.Store(n)
	x.rev, x.dispatched, x.open = op.Rev, op.Dispatched, w.Open
	x.events += len(w.Events)
	switch again := *op; r.IntN(6) {
	case 0: // its acknowledgement was lost
		w.Operation, w.Lazy = &again, false
		if err := m.s.Commit(ctx, w); err != nil || again.Rev != op.Rev {
			m.fail("%s: a write that came again: revision %d, had %d, %v", op.Key, again.Rev, op.Rev, err)
		}
	case 1: // somebody decided on what was
		again.Rev--
		if err := m.s.Commit(ctx, &toolguard.Write{Token: "late", Operation: &again, Body: &toolguard.Body{Result: []byte("1")}}); !errors.Is(err, toolguard.ErrConflict) {
			m.fail("%s: a write on an old revision: %v", op.Key, err)
		}
	}
	return nil
}

// document writes a document of the writer's.
func (m *modelRun) document(writer int) error {
	x, name := &m.docs[writer], fmt.Sprint("document ", writer)
	n := x.begun.Add(1)
	w := &toolguard.Write{Token: fmt.Sprintf("%s, %d", name, n), Document: name, Data: m.modelBytes(name, n), DocumentRev: x.rev}
	if err := m.s.Commit(context.Background(), w); err != nil {
		return err
	}
	x.acked.Store(n)
	_, rev, err := m.s.Document(context.Background(), name)
	x.rev = rev
	return err
}

// read looks at one operation and its body.
func (m *modelRun) read(writer, i int) error {
	ctx, key, x := context.Background(), modelKey(writer, i), &m.ops[writer][i]
	low := x.acked.Load()
	page, err := m.s.Operations(ctx, toolguard.Query{Key: key})
	if err != nil {
		return err
	}
	high, got := x.begun.Load(), int64(0)
	if len(page.Operations) > 0 {
		fmt.Sscan(page.Operations[0].Facts.Run, &got)
		if op := page.Operations[0]; op.Key != key || op.Rev > page.Seq || op.Token != fmt.Sprint(key, " ", got) {
			m.fail("%s is %+v as of %d", key, op, page.Seq)
		}
	}
	if got < low || got > high {
		m.fail("%s is as of write %d; %d was acknowledged, %d begun", key, got, low, high)
	}
	low = x.hasBody.Load()
	body, err := m.s.Body(ctx, key)
	high = x.bodyBegun.Load()
	if errors.Is(err, toolguard.ErrNotFound) {
		if low > 0 {
			m.fail("%s: write %d had a body, which is lost", key, low)
		}
		return nil
	}
	if err != nil {
		return err
	}
	_, text, _ := bytes.Cut(body.Result, []byte(", "))
	if _, err := fmt.Sscanf(string(text[:min(len(text), 30)]), "%d:", &got); err != nil || got < low || got > high {
		m.fail("%s has the body of write %d (%v); the one of %d was acknowledged, %d begun", key, got, err, low, high)
	}
	if !bytes.Equal(body.Result, m.modelBytes(key, got)) {
		m.fail("%s: the body of write %d is not what was written", key, got)
	}
	return nil
}

// play has writers write and readers read for a while, and returns what the writers know of their operations.
func (m *modelRun) play(t *testing.T, round uint64, known *[modelWriters][modelKeys]toolguard.Operation) {
	end := time.Now().Add(*modelFor / 2)
	var all sync.WaitGroup
	goOn := func() bool { return time.Now().Before(end) && m.failed() == nil }
	for writer := range modelWriters {
		r := rand.New(rand.NewPCG(m.seed, round<<32+uint64(writer)))
		all.Go(func() {
			for goOn() {
				i := modelOne(r)
				op := &known[writer][i]
				op.Key, op.Intent, op.Occurrence = modelKey(writer, i), modelKey(writer, i), 1
				err := m.write(r, writer, i, op)
				if err == nil && r.IntN(16) == 0 {
					err = m.document(writer)
				}
				if err != nil {
					m.fail("writer %d: %w", writer, err)
				}
			}
		})
	}
	for reader := range modelReaders {
		r := rand.New(rand.NewPCG(m.seed, round<<32+uint64(100+reader)))
		all.Go(func() {
			for goOn() {
				if err := m.read(r.IntN(modelWriters)>>r.IntN(5), modelOne(r)); err != nil {
					m.fail("reader: %w", err)
				}
			}
		})
	}
	all.Wait()
	if err := m.failed(); err != nil {
		t.Fatal(err)
	}
}

// settled compares all that is stored with all that was acknowledged, when nothing is written.
func (m *modelRun) settled(t *testing.T, known *[modelWriters][modelKeys]toolguard.Operation) {
	t.Helper()
	ctx := context.Background()
	type laneName struct{ name, tenant string }
	lanes := map[laneName][]slot{}
	for writer := range modelWriters {
		open, want := map[string]bool{}, map[string]bool{}
		for i := range modelKeys {
			key, x := modelKey(writer, i), &m.ops[writer][i]
			if err := m.read(writer, i); err != nil {
				t.Fatal(err)
			}
			if x.open {
				want[key] = true
			}
			if x.dispatched > 0 {
				lane := laneName{fmt.Sprint("lane ", i%modelLanes), fmt.Sprint("tenant ", writer%3)}
				lanes[lane] = append(lanes[lane], slot{x.dispatched, key})
			}
			if i > 0 {
				continue
			}
			history, err := m.s.History(ctx, key, 0, 0)
			if err != nil || len(history) != x.events {
				t.Fatalf("%s has %d events, had %d, %v", key, len(history), x.events, err)
			}
		}
		page, err := m.s.Operations(ctx, toolguard.Query{Open: true, Tenant: fmt.Sprint("tenant ", writer%3)})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range page.Operations {
			if _, ours := slices.BinarySearch(modelNames(writer), op.Key); ours {
				open[op.Key] = true
			}
		}
		if !maps.Equal(open, want) {
			t.Fatalf("open of writer %d: %v, want %v", writer, open, want)
		}
		name, x := fmt.Sprint("document ", writer), &m.docs[writer]
		data, rev, err := m.s.Document(ctx, name)
		if x.rev > 0 && (err != nil || rev != x.rev || !bytes.Equal(data, m.modelBytes(name, x.acked.Load()))) {
			t.Fatalf("%s of %d at %d: %d bytes at %d, %v: %.60s, want %.60s", name, x.acked.Load(), x.rev, len(data), rev, err, data, m.modelBytes(name, x.acked.Load()))
		}
	}
	if err := m.failed(); err != nil {
		t.Fatal(err)
	}
	for lane, want := range lanes {
		slices.SortFunc(want, func(a, b slot) int { return cmp.Compare(b.seq, a.seq) })
		page, err := m.s.Operations(ctx, toolguard.Query{Lane: lane.name, Tenant: lane.tenant})
		if err != nil {
			t.Fatal(err)
		}
		var got []slot
		for _, op := range page.Operations {
			got = append(got, slot{op.Dispatched, op.Key})
		}
		if !slices.Equal(got, want[:min(laneLength, len(want))]) {
			t.Fatalf("%s: %v, want %v", lane, got, want)
		}
	}
	events, err := m.s.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := toolguard.Verify(func(yield func(toolguard.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatalf("the audit: %+v, %v", v, err)
	}
}

// modelOne chooses an operation, and some more often than others.
func modelOne(r *rand.Rand) int { return r.IntN(modelKeys) >> r.IntN(4) }

func modelNames(writer int) (names []string) {
	for i := range modelKeys {
		names = append(names, modelKey(writer, i))
	}
	slices.Sort(names)
	return names
}

// Whoever reads gets what was acknowledged before, or something begun since, whole; and so does whoever opens the ledger anew.
func TestModel(t *testing.T) {
	m := &modelRun{seed: cmp.Or(*modelSeed, rand.Uint64())}
	t.Logf("seed %d", m.seed)
	dir := filepath.Join(t.TempDir(), "ledger")
	known := new([modelWriters][modelKeys]toolguard.Operation)
	for round := range uint64(2) {
		var err error
		if m.s, err = Open(dir, nil); err != nil {
			t.Fatal(err)
		}
		m.play(t, round, known)
		m.settled(t, known)
		if err := m.s.Close(); err != nil {
			t.Fatal(err)
		}
		if m.s, err = Open(dir, nil); err != nil {
			t.Fatal(err)
		}
		m.settled(t, known)
		t.Logf("at sequence %d", m.s.view.seq)
		if err := m.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
