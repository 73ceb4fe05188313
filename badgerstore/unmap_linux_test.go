package badgerstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"toolguard.dev/toolguard"
)

// logFile returns a log of a size, and n maps of it.
func logFile(t *testing.T, size, n int, flags int) (*os.File, [][]byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	maps := make([][]byte, n)
	for i := range maps {
		if maps[i], err = syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, flags); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(maps[i]) })
	}
	return f, maps
}

// selfMaps opens what tells this process's memory, and skips the test where the kernel does not tell it.
func selfMaps(t *testing.T) *os.File {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Skipf("the kernel does not show the maps of a process: %v", err)
	}
	t.Cleanup(func() { maps.Close() })
	f, _ := logFile(t, 1<<12, 1, syscall.MAP_SHARED)
	if _, ok := locate(maps, f, 0); !ok {
		t.Skip("the kernel is older than Linux 6.11, or the file system hides its files")
	}
	return maps
}

// resident returns how many KB of the map at an address this process can read or write without asking the kernel.
func resident(t *testing.T, address uint64) (kb int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	begin, ours := fmt.Sprintf("%08x-", address), false
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if name, _, _ := strings.Cut(line, " "); strings.Contains(name, "-") {
			ours = strings.HasPrefix(line, begin)
		} else if ours {
			if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kb); n == 1 {
				return kb
			}
		}
	}
	t.Fatalf("no map begins at %s", begin)
	return 0
}

// After a commit nothing of Badger's log is in its map any more, so the next sync finds it in none.
func TestSyncFindsNoMap(t *testing.T) {
	maps := selfMaps(t)
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
		m, ok := locate(maps, s.tail.file, 0)
		if !ok || m.start != s.tail.mapped {
			t.Fatalf("after write %d, log %d is mapped at %#x, known as %#x, %v", n, s.tail.number, m.start, s.tail.mapped, ok)
		}
		if kb := resident(t, m.start); kb > 0 {
			t.Fatalf("after write %d, %d KB of log %d are in its map", n, kb, s.tail.number)
		}
	}
}

// Only a map of the file itself is located, from its beginning, and shared.
func TestLocate(t *testing.T) {
	maps := selfMaps(t)
	const size = 1 << 20
	f, views := logFile(t, size, 1, syscall.MAP_SHARED)
	at := uint64(uintptr(unsafe.Pointer(&views[0][0])))
	for _, from := range []uint64{0, at - 1<<12, at, at + 1<<12} {
		if m, ok := locate(maps, f, from); !ok || m.start != at || m.end != at+size {
			t.Errorf("from %#x: found %#x to %#x, %v; it is at %#x", from, m.start, m.end, ok, at)
		}
	}
	if m, ok := locate(maps, f, at+size); ok {
		t.Errorf("found at %#x, behind where it is", m.start)
	}
	if _, ok := locate(nil, f, 0); ok {
		t.Error("found without asking")
	}
	private, _ := logFile(t, size, 1, syscall.MAP_PRIVATE)
	if m, ok := locate(maps, private, 0); ok {
		t.Errorf("a private map is found at %#x", m.start)
	}
	part, _ := logFile(t, size, 0, 0)
	b, err := syscall.Mmap(int(part.Fd()), 1<<16, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(b)
	if m, ok := locate(maps, part, 0); ok {
		t.Errorf("a map of another part of the file is found at %#x", m.start)
	}
	closed, _ := logFile(t, size, 1, syscall.MAP_SHARED)
	closed.Close()
	if m, ok := locate(maps, closed, 0); ok {
		t.Errorf("a closed file is found at %#x", m.start)
	}
}

// What is written to a map stays, whenever its pages are taken out of it, and no others are taken.
func TestUnmapLosesNothing(t *testing.T) {
	const size, writers, rounds = 1 << 20, 4, 50
	f, views := logFile(t, size, 1, syscall.MAP_SHARED)
	b := views[0]
	tail := &tail{file: f, maps: selfMaps(t), size: size, mapped: uint64(uintptr(unsafe.Pointer(&b[0])))}
	has := func(want uint32) {
		t.Helper()
		stored, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < size; i += 4 {
			if got, read := binary.LittleEndian.Uint32(b[i:]), binary.LittleEndian.Uint32(stored[i:]); got != want || read != want {
				t.Fatalf("%d was written at %d, %d is in the map and %d in the file", want, i, got, read)
			}
		}
	}
	for round := range uint32(rounds) {
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := w * 4; i < size; i += writers * 4 {
					binary.LittleEndian.PutUint32(b[i:], round+1)
				}
			})
		}
		tail.used = size
		tail.unmap()
		all.Wait()
		has(round + 1)
		tail.used = size/2 - 1
		tail.unmap()
		if kb := resident(t, tail.mapped); kb != size/2>>10 {
			t.Fatalf("%d KB are in the map, of which the first half was taken", kb)
		}
		has(round + 1)
	}
}

// A log whose map is not found is synced all the same.
func TestUnmapIsNotNeeded(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "ledger"), nil, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.tail.maps.Close()
	for n := range 3 {
		if err := s.Commit(context.Background(), &toolguard.Write{Token: fmt.Sprint(n), Document: fmt.Sprint(n), Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if s.tail.mapped != 0 {
		t.Errorf("the map is known to be at %#x", s.tail.mapped)
	}
}
