package badgerstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"toolguard.dev/toolguard"
)

// dirty returns how many pages of the files that end in suffix, in dir, are not on disk yet.
func dirty(t *testing.T, dir, suffix string) (files int, pages uint64) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Badger has made a table of it
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var whole [2]uint64
		var cached struct{ all, dirty, writing, evicted, lately uint64 }
		const cachestat = 451 // cachestat(2), the same on all processors
		if _, _, errno := syscall.Syscall6(cachestat, f.Fd(), uintptr(unsafe.Pointer(&whole)), uintptr(unsafe.Pointer(&cached)), 0, 0, 0); errno != 0 {
			t.Skipf("the kernel does not tell what of a file is on disk: %v", errno)
		}
		files++
		pages += cached.dirty + cached.writing
	}
	return files, pages
}

// canTell skips the test where the kernel never says that a file's pages were written back: in memory, say.
func canTell(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "page.map"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	_, before := dirty(t, dir, "page.map")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, after := dirty(t, dir, "page.map"); before == 0 || after != 0 {
		t.Skipf("this file system does not tell what was written back: %d pages are dirty before a sync, %d after", before, after)
	}
}

// A process that is killed loses nothing that it wrote to a memory map; a machine that loses its power does. So the
// kernel is asked whether what was acknowledged is on disk, from one log of Badger's to the next and after opening anew.
func TestWhatIsAcknowledgedIsSynced(t *testing.T) {
	dir := t.TempDir()
	canTell(t, dir)
	ledger, ctx, n := filepath.Join(dir, "ledger"), context.Background(), 0
	data, random := make([]byte, 900<<10), rand.NewChaCha8([32]byte{1}) // which cannot be packed
	random.Read(data)
	for range 2 {
		s, err := open(ledger, nil, 16<<20)
		if err != nil {
			t.Fatal(err)
		}
		for first := s.tail.number; s.tail.number < first+3; n++ {
			w := &toolguard.Write{Token: fmt.Sprint(n), Document: fmt.Sprint("document ", n), Data: data[:(1+n%4*299)<<10]}
			if err := s.Commit(ctx, w); err != nil {
				t.Fatal(err)
			}
			if logs, pages := dirty(t, filepath.Join(ledger, dataFolder), logSuffix); logs == 0 || pages != 0 {
				t.Fatalf("after write %d, %d pages of %d logs are not on disk", n, pages, logs)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What could not be synced is neither acknowledged nor shown, and nothing is written after it.
func TestSyncThatFailsBreaksTheStore(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "ledger"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	write := func(name string) error {
		return s.Commit(ctx, &toolguard.Write{Token: name, Document: name, Data: []byte(name)})
	}
	if err := write("a"); err != nil {
		t.Fatal(err)
	}
	if err := s.tail.file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c", "b"} {
		if err := write(name); !errors.Is(err, toolguard.ErrStoreBroken) {
			t.Errorf("%s: %v", name, err)
		}
		if data, _, err := s.Document(ctx, name); !errors.Is(err, toolguard.ErrNotFound) {
			t.Errorf("%s is shown: %q, %v", name, data, err)
		}
	}
	if data, _, err := s.Document(ctx, "a"); err != nil || string(data) != "a" {
		t.Errorf("a: %q, %v", data, err)
	}
}

// Nothing is in Badger's value log, which nobody syncs: a ledger is whole with whatever a loss of power leaves of it.
func TestValueLogIsNotNeeded(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "ledger"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data, random := make([]byte, MaxBody), rand.NewChaCha8([32]byte{1})
	random.Read(data)
	ctx := context.Background()
	for i, size := range []int{0, 1, maxValue / 2, maxValue, maxValue + 1, MaxBody} {
		if err := s.Commit(ctx, &toolguard.Write{Token: fmt.Sprint(i), Document: fmt.Sprint(i), Data: data[:size]}); err != nil {
			t.Fatal(err)
		}
	}
	const log = "badger/000001.vlog"
	for name, lose := range map[string]func(path string) error{
		"as it is": func(string) error { return nil },
		"zeros": func(path string) error {
			return errors.Join(os.Truncate(path, 0), os.Truncate(path, 2*2*valueThreshold))
		},
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"missing": os.Remove,
		"an empty log of the next memory table": func(path string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(path), "00002.mem"), nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ledger")
			if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(filepath.Join(dir, log)); err != nil || info.Size() != 2*2*valueThreshold {
				t.Fatal(info, err)
			}
			if err := lose(filepath.Join(dir, log)); err != nil {
				t.Fatal(err)
			}
			again, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			for i, size := range []int{0, 1, maxValue / 2, maxValue, maxValue + 1, MaxBody} {
				got, _, err := again.Document(ctx, fmt.Sprint(i))
				if err != nil || !bytes.Equal(got, data[:size]) {
					t.Errorf("document of %d bytes: %d bytes, %v", size, len(got), err)
				}
			}
		})
	}
}
