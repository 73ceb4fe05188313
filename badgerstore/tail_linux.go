package badgerstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// badgerSyncs has Badger sync each commit. On Linux the store does: Badger syncs its value log as well, which is always
// empty here, and each sync costs a flush of the disk's own cache.
const badgerSyncs = false

// tail is the log that holds Badger's last commit: the one with the highest number. Badger begins another one, with the
// next number, when a commit finds its memory table full, and writes the whole commit to it. It writes through a shared
// memory map, which a sync of the file covers (fsync(2), msync(2)). Only the committer uses a tail.
type tail struct {
	dir    string
	number int
	file   *os.File // nil until the first sync

	used  int64 // bytes of file that Badger has written, about
	ready int64 // bytes of file that are, or with the next sync will be, on disk, whatever they are
	size  int64 // of file; 0: its file system is none that gains by what follows

	maps   *os.File // tells what the process has in memory; nil: nobody does
	mapped uint64   // where Badger has file there; 0: not known
}

// newTail returns the tail of Badger's folder, once Badger is open.
func newTail(dir string) (*tail, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, e := range entries {
		if digits, ok := strings.CutSuffix(e.Name(), logSuffix); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				last = max(last, n)
			}
		}
	}
	if last == 0 {
		return nil, fmt.Errorf("%s has no log", dir)
	}
	maps, _ := os.Open("/proc/self/maps") // nil where there is none
	return &tail{dir: dir, number: last - 1, maps: maps}, nil
}

// sync brings to disk what Badger committed last, n bytes.
func (t *tail) sync(n int64) error {
	begun, err := t.follow()
	if err != nil {
		return err
	}
	t.used += n
	t.writeAhead()
	t.unmap()
	if begun {
		return errors.Join(t.file.Sync(), syncFolder(t.dir))
	}
	return os.NewSyscallError("fdatasync", whole(func() error { return syscall.Fdatasync(int(t.file.Fd())) }))
}

// whole makes a system call again while a signal interrupts it.
func whole(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}

// follow goes on to a log that was begun since.
func (t *tail) follow() (begun bool, err error) {
	for {
		path := filepath.Join(t.dir, fmt.Sprintf("%05d%s", t.number+1, logSuffix))
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return begun, nil
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0) // to write ahead
		if err != nil {
			return false, err
		}
		t.file.Close() // nothing is written through it
		t.file, t.number, begun = file, t.number+1, true
		t.used, t.ready, t.size, t.mapped = 0, 0, overwritten(file), 0
	}
}

func (t *tail) close() {
	t.file.Close()
	t.maps.Close()
}
