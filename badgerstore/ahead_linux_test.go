package badgerstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toolguard.dev/toolguard"
)

// allocated returns how many bytes of a file have blocks.
func allocated(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestLogIsWrittenAhead(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "ledger"), nil, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data, random := make([]byte, 300<<10), rand.NewChaCha8([32]byte{1}) // which cannot be packed
	random.Read(data)
	for n := 0; s.tail.number < 3; n++ {
		w := &toolguard.Write{Token: fmt.Sprint(n), Document: fmt.Sprint("document ", n), Data: data[:1+n%8*len(data)/8]}
		if err := s.Commit(context.Background(), w); err != nil {
			t.Fatal(err)
		}
		if s.tail.size == 0 {
			t.Skip("this file system does not write over blocks in place")
		}
		used, has := s.tail.used, allocated(t, s.tail.file)
		if has < min(used+ahead/2, s.tail.size) || has > used+3*ahead {
			t.Fatalf("after write %d, Badger has written %d bytes of log %d, and %d have blocks", n, used, s.tail.number, has)
		}
	}
}

// A sync writes the pages that changed, and not a large piece around them, also far into a log.
func TestSyncWritesLittle(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "ledger"), nil, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data, random := make([]byte, 300<<10), rand.NewChaCha8([32]byte{1})
	random.Read(data)
	commit := func(name string, data []byte) {
		t.Helper()
		if err := s.Commit(context.Background(), &toolguard.Write{Token: name, Document: name, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; s.tail.used < 20<<20; n++ {
		commit(fmt.Sprint("large ", n), data)
	}
	if s.tail.size == 0 {
		t.Skip("this file system does not write over blocks in place")
	}
	const writes = 100
	before := written(t)
	for n := range writes {
		commit(fmt.Sprint("small ", n), data[:1000])
	}
	if each := (written(t) - before) / writes; each > 8*int64(os.Getpagesize()) {
		t.Errorf("a commit of 1 KB wrote %d KB", each>>10)
	}
}

// written returns how many bytes this process has had written to disks.
func written(t *testing.T) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("the kernel does not count what a process writes: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "write_bytes: %d", &bytes)
	}
	return bytes
}

// Whatever others write to a part of a file while it is rewritten stays.
func TestRewriteChangesNothing(t *testing.T) {
	const size, writers, rounds = 1 << 20, 4, 50
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(b)
	var all sync.WaitGroup
	for round := range uint32(rounds) {
		for w := range writers {
			all.Go(func() {
				for i := w * 4; i < size; i += writers * 4 {
					binary.LittleEndian.PutUint32(b[i:], round+1)
				}
			})
		}
		err := rewrite(int(f.Fd()), 0, size)
		all.Wait()
		if errors.Is(err, syscall.EINVAL) {
			t.Skip("the kernel is older than Linux 5.14")
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < size; i += 4 {
			if got := binary.LittleEndian.Uint32(b[i:]); got != round+1 {
				t.Fatalf("round %d: %d was written at %d, and %d is there", round, round+1, i, got)
			}
		}
	}
}

func TestRewriteOnAFullDiskFails(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	f, err := os.Create(filepath.Join(disk, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(4 << 20); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(int(f.Fd()), 0, 4<<20); err == nil {
		t.Error("4 MB were written to a disk of 1 MB")
	}
}

// A log that cannot be written ahead is written and synced all the same.
func TestWriteAheadIsNotNeeded(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	tail := &tail{file: w, size: 4 * ahead}
	tail.writeAhead()
	if tail.ready != tail.size {
		t.Errorf("a pipe was written ahead: %+v", tail)
	}
}
