package badgerstore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"toolguard.dev/toolguard"
)

// Badger opens what is left of a damaged ledger without a word: it begins a missing list of tables anew and deletes the
// tables that are not on it, leaves out tables whose index is bad, cuts its log at the first bad record, and reads a
// bad block as one that holds nothing. So everything is looked at, and nothing changed, before Badger is let near it.

const (
	tableSuffix = ".sst"
	logSuffix   = ".mem"
	valueSuffix = ".vlog"
)

// damaged says what is wrong with a ledger. The text is one line.
func damaged(dir, format string, args ...any) error {
	what := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	return fmt.Errorf("%w: %s: %s; nothing was changed, and the whole folder must come back from a copy", toolguard.ErrDamaged, dir, what)
}

// inspect refuses Badger's part of the ledger in dir if it is less than what was noted, or cannot be read.
func inspect(dir string, m *mark) error {
	data := filepath.Join(dir, dataFolder)
	entries, err := os.ReadDir(data)
	if errors.Is(err, fs.ErrNotExist) {
		if m != nil {
			return damaged(dir, "its data, the folder %s, is missing", dataFolder)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	var tables, logs int
	var last uint64
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name(), tableSuffix):
			tables++
		case strings.HasSuffix(e.Name(), logSuffix):
			logs++
			seq, err := scanLog(filepath.Join(data, e.Name()))
			if err != nil {
				return damaged(dir, "%s: %v", filepath.Join(dataFolder, e.Name()), err)
			}
			last = max(last, seq)
		}
	}
	manifest, err := readManifest(data, m)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m == nil && tables+logs == 0:
		return nil // it was just being made
	case errors.Is(err, fs.ErrNotExist):
		return damaged(dir, "%s is missing", filepath.Join(dataFolder, badger.ManifestFilename))
	case err != nil:
		return damaged(dir, "%s: %v", filepath.Join(dataFolder, badger.ManifestFilename), err)
	}
	seq, err := checkTables(data, manifest)
	if err != nil {
		return damaged(dir, "%v", err)
	}
	if last = max(last, seq); m != nil && last < m.seq {
		return damaged(dir, "it ends at sequence %d and had come to %d", last, m.seq)
	}
	return nil
}

// readManifest reads Badger's list of tables.
func readManifest(data string, m *mark) (*badger.Manifest, error) {
	f, err := os.Open(filepath.Join(data, badger.ManifestFilename))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	manifest, end, err := badger.ReplayManifestFile(f, 0, badger.Options{})
	if err != nil {
		return nil, err
	}
	if m != nil && end < m.manifest && m.manifest < manifestRewritten {
		return nil, fmt.Errorf("it is cut: %d bytes can be read, and it had %d", end, m.manifest)
	}
	return &manifest, nil
}

// checkTables reads every block of every table and returns the highest sequence in them.
func checkTables(data string, manifest *badger.Manifest) (last uint64, err error) {
	type task struct {
		id uint64
		of badger.TableManifest
	}
	tasks := make(chan task)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(manifest.Tables)) {
		wait.Go(func() {
			for t := range tasks {
				seq, bad := checkTable(table.NewFilename(t.id, data), t.of)
				mu.Lock()
				last, err = max(last, seq), cmp.Or(err, bad)
				mu.Unlock()
			}
		})
	}
	for id, of := range manifest.Tables {
		tasks <- task{id, of}
	}
	close(tasks)
	wait.Wait()
	return last, err
}

func checkTable(path string, of badger.TableManifest) (last uint64, err error) {
	name := filepath.Join(dataFolder, filepath.Base(path))
	defer func() {
		if p := recover(); p != nil { // with which Badger meets what it did not expect
			err = fmt.Errorf("%s: its index cannot be read", name)
		}
	}()
	file, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s is missing", name)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	t, err := table.OpenTable(file, table.Options{ChkMode: options.OnTableRead, Compression: of.Compression, BlockSize: 4 << 10})
	if err != nil {
		return 0, fmt.Errorf("%s: what it holds is not what was written: %w", name, err)
	}
	return t.MaxVersion(), t.Close(-1)
}
