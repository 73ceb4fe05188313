package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// home is the folder a ledger was opened in. It may be removed or replaced under a process that holds it, which would go
// on writing to files that nobody finds again.
type home struct {
	dir        string
	lock, data os.FileInfo // of the lock's file and of Badger's folder

	checked time.Time
}

// homeFor is how long Badger's folder is trusted to be there, while the ledger's is.
const homeFor = 50 * time.Millisecond

func newHome(dir string, l *lock) (h *home, err error) {
	h = &home{dir: dir}
	if h.lock, err = l.file.Stat(); err == nil {
		h.data, err = os.Stat(filepath.Join(dir, dataFolder))
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return h, nil
}

// gone is changed, at less cost. Only the committer calls it.
func (h *home) gone() error {
	if time.Since(h.checked) < homeFor {
		return h.says(h.same(lockFile, h.lock))
	}
	h.checked = time.Now()
	return h.changed()
}

// changed says that what the folder's path names is not what was opened.
func (h *home) changed() error {
	err := h.same(lockFile, h.lock)
	if err == nil {
		err = h.same(dataFolder, h.data)
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(h.dir, dataFolder, badger.ManifestFilename))
	}
	return h.says(err)
}

func (h *home) same(name string, opened os.FileInfo) error {
	found, err := os.Stat(filepath.Join(h.dir, name))
	if err == nil && !os.SameFile(found, opened) {
		err = errReplaced
	}
	return err
}

func (h *home) says(err error) error {
	if err != nil {
		err = fmt.Errorf("the ledger in %s was removed or replaced while it was open: %w", h.dir, err)
	}
	return err
}

var errReplaced = errors.New("another one is in its place")
