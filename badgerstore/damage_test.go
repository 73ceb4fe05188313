package badgerstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// files reads a folder; put makes it so again.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == lockFile {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func put(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func pay(t *testing.T, s *Store, from, n int) {
	t.Helper()
	for i := range n {
		key := fmt.Sprint("k", from+i)
		w := &toolguard.Write{
			Token: key, Operation: &toolguard.Operation{Key: key, Intent: key, Occurrence: 1},
			Events: []toolguard.Event{{Tenant: fmt.Sprint("t", i%3), Type: toolguard.EventCall, Key: key}},
		}
		if err := s.Commit(context.Background(), w); err != nil {
			t.Fatal(err)
		}
	}
}

// refused opens a ledger that must be refused as damaged, and left as it is.
func refused(t *testing.T, dir, what string) {
	t.Helper()
	before := files(t, dir)
	s, err := Open(dir, nil)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, toolguard.ErrDamaged) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%s: got %v", what, err)
	}
	if !maps.Equal(files(t, dir), before) {
		t.Fatalf("%s: refused, and changed", what)
	}
}

// events opens a ledger that must be whole and counts its events.
func events(t *testing.T, dir, what string) int {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer s.Close()
	v, err := toolguard.Verify(toolguard.Events(context.Background(), s))
	if err != nil || v.Break != "" {
		t.Fatalf("%s: %v, %v", what, v, err)
	}
	return v.Events
}

func flipped(text string, bit int) string {
	b := []byte(text)
	b[bit/8] ^= 1 << (bit % 8)
	return string(b)
}

// A ledger is never opened as an empty or a shorter one: what it did would be done again.
func TestDamagedLedgerIsRefusedAndLeftAsItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	for i := range 2 { // two tables
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		pay(t, s, 300*i, 300)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	good := files(t, dir)
	const manifest = "badger/MANIFEST"
	var tables []string
	for name := range good {
		if strings.HasSuffix(name, tableSuffix) {
			tables = append(tables, name)
		}
	}
	if len(tables) != 2 {
		t.Fatalf("%v", tables)
	}
	damage := func(what string, change func(all map[string]string)) {
		t.Helper()
		all := maps.Clone(good)
		change(all)
		put(t, dir, all)
		refused(t, dir, what)
	}
	damage("no data", func(all map[string]string) {
		maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, "badger/") })
	})
	damage("no list of tables", func(all map[string]string) { delete(all, manifest) })
	for n := range len(good[manifest]) {
		damage(fmt.Sprintf("%d bytes of the list of tables", n), func(all map[string]string) { all[manifest] = all[manifest][:n] })
	}
	damage("a changed mark", func(all map[string]string) { all[ledgerFile] = flipped(all[ledgerFile], 8*len(all[ledgerFile])-200) })
	for _, name := range tables {
		damage(name+" gone", func(all map[string]string) { delete(all, name) })
		damage(name+" empty", func(all map[string]string) { all[name] = "" })
		damage(name+" cut", func(all map[string]string) { all[name] = all[name][:len(all[name])/2] })
		end := 8 * len(good[name])
		for i := range 50 {
			bit := rand.IntN(end)
			if i < 20 {
				bit = end - 1 - rand.IntN(end/20) // in its index and its foot
			}
			damage(fmt.Sprintf("%s, bit %d", name, bit), func(all map[string]string) { all[name] = flipped(all[name], bit) })
		}
	}
	put(t, dir, good)
	if n := events(t, dir, "put back"); n != 600 {
		t.Fatalf("%d events", n)
	}
	torn := maps.Clone(good)
	torn[manifest] += "\x00\x00\x00\x09\x01\x02\x03\x04torn"
	put(t, dir, torn)
	if n := events(t, dir, "a torn list of tables"); n != 600 {
		t.Fatalf("%d events", n)
	}
}

// Badger cuts its log at the first bad record. That may only be one of the last write, which a crash can tear.
func TestDamagedLogIsRefusedAndTornOneIsNot(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "ledger"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pay(t, s, 0, 60)
	s.marker.later() // as of here
	pay(t, s, 60, 2)
	good := files(t, s.dir) // as kill -9 leaves it
	marked := maps.Clone(good)
	s.marker.later()
	marked[ledgerFile] = files(t, s.dir)[ledgerFile]

	var log string
	for name := range good {
		if strings.HasSuffix(name, logSuffix) {
			log = name
		}
	}
	text := strings.TrimRight(good[log], "\x00")
	last, end := wholeTransactions([]byte(good[log]))
	var ends []int // of the transactions
	for at := walHead; at < end; {
		r, _ := readRecord([]byte(text[at:]))
		if at += r.size; r.fin {
			ends = append(ends, at)
		}
	}
	if last != 62 || len(ends) != 62 {
		t.Fatalf("%d transactions, sequence %d", len(ends), last)
	}
	begin := ends[60] // of the last one
	dir := filepath.Join(t.TempDir(), "ledger")
	with := func(base map[string]string, log, text string) {
		all := maps.Clone(base)
		all[log] = text + strings.Repeat("\x00", 64<<10) // it is less than Badger left, but for the test's sake
		put(t, dir, all)
	}
	with(good, log, text)
	if n := events(t, dir, "killed"); n != 62 {
		t.Fatalf("%d events", n)
	}
	for range 20 {
		bit := 8*walHead + rand.IntN(8*(ends[59]-walHead))
		with(good, log, flipped(text, bit))
		refused(t, dir, fmt.Sprintf("bit %d of the log", bit))
		cut := walHead + rand.IntN(ends[59]-walHead)
		with(good, log, text[:cut])
		refused(t, dir, fmt.Sprintf("a log of %d bytes", cut))
	}
	for range 6 {
		cut := begin + rand.IntN(end-begin)
		for what, torn := range map[string]string{
			"torn":     text[:cut],
			"torn up":  text[:begin] + strings.Repeat("\x00", cut-begin) + text[cut:],
			"confused": flipped(text, 8*cut),
		} {
			with(good, log, torn)
			if n := events(t, dir, what); n != 61 && cut != begin {
				t.Fatalf("%s at %d of %d: %d events", what, cut-begin, end-begin, n)
			}
			with(marked, log, torn)
			if cut != begin || what != "torn up" { // there nothing is
				refused(t, dir, "what was noted is "+what)
			}
		}
	}
	all := maps.Clone(good)
	delete(all, log)
	put(t, dir, all)
	refused(t, dir, "no log")
}

func TestUnreadableEventsShow(t *testing.T) {
	for _, gone := range []uint64{1, 30, 60} {
		s, err := Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		pay(t, s, 0, 60)
		txn := s.db.NewTransactionAt(s.view.latest(), true)
		if err := txn.Delete(journalKey(gone)); err != nil {
			t.Fatal(err)
		}
		if err := txn.CommitAt(s.view.latest(), nil); err != nil {
			t.Fatal(err)
		}
		_, err = toolguard.Report(toolguard.Events(context.Background(), s), toolguard.ReportQuery{})
		if !errors.Is(err, toolguard.ErrDamaged) || !strings.Contains(err.Error(), "19 of 20 events") {
			t.Fatalf("without event %d: %v", gone, err)
		}
		if v, err := toolguard.Verify(toolguard.Events(context.Background(), s)); v.Break == "" && err == nil {
			t.Fatalf("without event %d: intact", gone)
		}
	}
}

func TestLedgerThatIsRemovedTakesNoWrite(t *testing.T) {
	for what, remove := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"emptied":  func(dir string) error { return os.RemoveAll(filepath.Join(dir, dataFolder)) },
		"moved":    func(dir string) error { return os.Rename(dir, dir+" moved") },
		"replaced": replace,
	} {
		t.Run(what, func(t *testing.T) {
			ctx := context.Background()
			dir := filepath.Join(t.TempDir(), "ledger")
			s, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			pay(t, s, 0, 10)
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			s.home.checked = time.Time{}
			before, _ := os.ReadFile(filepath.Join(dir, ledgerFile))
			for range 3 {
				if err := s.Commit(ctx, &toolguard.Write{Token: "t", Operation: &toolguard.Operation{Key: "k"}}); !errors.Is(err, toolguard.ErrStoreBroken) {
					t.Fatalf("got %v", err)
				}
			}
			if page, err := s.Operations(ctx, toolguard.Query{Key: "k3"}); err != nil || len(page.Operations) != 1 {
				t.Fatalf("reads stopped: %v", err)
			}
			s.marker.later()
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "removed or replaced") {
				t.Fatalf("got %v", err)
			}
			if after, _ := os.ReadFile(filepath.Join(dir, ledgerFile)); !bytes.Equal(after, before) {
				t.Fatalf("the ledger in its place now has %q, and had %q", after, before)
			}
		})
	}
}

func replace(dir string) error {
	if err := os.Rename(dir, dir+" moved"); err != nil {
		return err
	}
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	return s.Close()
}
