package sharedstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// processFolder holds a file for each process, locked for as long as that lives.
const processFolder = "processes"

// newName is a name that no other process ever had.
func newName() string {
	return fmt.Sprintf("%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:16]))
}

// enrol makes and locks the file of a process. The kernel drops the lock when the process dies.
func enrol(dir, name string) (*os.File, error) {
	dir = filepath.Join(dir, processFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		taken, err := tryLock(f, true)
		if err != nil {
			f.Close()
			return nil, err
		}
		// Between the two lines above others may have taken it for that of a dead process, and removed it.
		if taken && sameFile(f, path) {
			return f, nil
		}
		f.Close()
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// lives reports whether the process of that name lives: whether its file is locked. Where that cannot be found out, it does.
func lives(dir, name string) bool {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return false // no process of ours has such a name
	}
	f, err := os.Open(filepath.Join(dir, processFolder, name))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	free, err := tryLock(f, false)
	return err != nil || !free
}

// dead returns the names of the processes whose files are there and not locked.
func dead(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, processFolder))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !lives(dir, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// strike removes the file of a dead process.
func strike(dir, name string) error {
	err := os.Remove(filepath.Join(dir, processFolder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Vanish removes, after Close, what the store has put into its folder, and reports whether no other process has joined it:
// nothing can be lost then with the store itself. The lock of the store must be held.
func (s *Store) Vanish() bool {
	if shared {
		folder := filepath.Join(s.dir, processFolder)
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 1 || entries[0].Name() != s.name {
			return false
		}
		if strike(s.dir, s.name) != nil || os.Remove(folder) != nil { // somebody came in between
			return false
		}
		_ = os.Remove(filepath.Join(s.dir, socketFile))
	}
	return true
}
