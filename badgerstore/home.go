package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

// home is the folder a ledger was opened in. It may be removed or replaced under a process that holds it, which would go
// on writing to files that nobody finds again.
type home struct {
	dir  string
	lock *os.File
	data os.FileInfo // of Badger's folder
}

func newHome(dir string, l *lock) (*home, error) {
	data, err := os.Stat(filepath.Join(dir, dataFolder))
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &home{dir: dir, lock: l.file, data: data}, nil
}

// changed says that what the folder's path names is not what was opened. It takes some microseconds: less than any sync.
func (h *home) changed() error {
	opened, err := h.lock.Stat()
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	lock, err := os.Stat(filepath.Join(h.dir, lockFile))
	if err == nil && !os.SameFile(lock, opened) {
		err = errReplaced
	}
	var data os.FileInfo
	if err == nil {
		data, err = os.Stat(filepath.Join(h.dir, dataFolder))
	}
	if err == nil && !os.SameFile(data, h.data) {
		err = errReplaced
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(h.dir, dataFolder, badger.ManifestFilename))
	}
	if err != nil {
		return fmt.Errorf("the ledger in %s was removed or replaced while it was open: %w", h.dir, err)
	}
	return nil
}

var errReplaced = errors.New("another one is in its place")
