package badgerstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"toolguard.dev/toolguard"
)

const (
	formatFile = "FORMAT"
	ledgerFile = "LEDGER"
	dataFolder = "badger"

	formatName = "toolguard ledger "
	format     = 5
)

// ledger is what the file LEDGER keeps.
type ledger struct {
	id       string
	memTable int64 // Badger cannot open what it wrote with a larger one, so this only grows
	mark     *mark // nil: Badger's part was never seen whole
}

// openFolder checks the format of the ledger in dir, or makes dir one, and settles the size of its memory tables.
// The lock must be held.
func openFolder(dir string, memTable int64) (*ledger, error) {
	text, err := os.ReadFile(filepath.Join(dir, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return newFolder(dir, memTable)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if err := checkFormat(dir, string(text)); err != nil {
		return nil, err
	}
	l, err := readLedger(dir)
	if err != nil {
		return nil, err
	}
	if l.memTable < memTable {
		l.memTable = memTable
		if err := l.write(dir); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func newFolder(dir string, memTable int64) (*ledger, error) {
	if _, err := os.Stat(filepath.Join(dir, dataFolder)); err == nil {
		return nil, fmt.Errorf("%w: %s holds data but no file %s: it was not made by toolguard, or is damaged",
			toolguard.ErrFormat, dir, formatFile)
	}
	l := &ledger{id: strings.ToLower(rand.Text()), memTable: memTable}
	if err := l.write(dir); err != nil {
		return nil, err
	}
	return l, writeFile(dir, formatFile, fmt.Sprintf("%s%d\n", formatName, format))
}

// Exists reports whether there is a ledger in dir, or what is left of one; [Open] would not make a new one then.
func Exists(dir string) bool {
	for _, name := range []string{formatFile, dataFolder} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return true // also if it cannot be told: Open says why
		}
	}
	return false
}

// Foreign reports whether dir holds anything, and nothing that a ledger has: it is no place for a new one.
func Foreign(dir string) bool {
	entries, _ := os.ReadDir(dir)
	some := false
	for _, e := range entries {
		switch e.Name() {
		case formatFile, ledgerFile, lockFile, dataFolder:
			return false
		case "lost+found": // a file system of its own
		default:
			some = true
		}
	}
	return some
}

// Discard removes a ledger that was made for nothing, but not its folder. It leaves one alone that another process holds,
// and one of which unused, asked once nobody else can open it, says that it is of use; nil: it is of none.
func Discard(dir string, unused func() bool) error {
	l, err := takeLock(dir)
	if err != nil {
		return err
	}
	defer l.release()
	if unused != nil && !unused() {
		return nil
	}
	for _, name := range []string{formatFile, ledgerFile, dataFolder, lockFile} { // the lock last: until then nobody else begins
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	return nil
}

func checkFormat(dir, text string) error {
	number, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), formatName)
	n, err := strconv.Atoi(number)
	switch {
	case !ok || err != nil || n < 1:
		return fmt.Errorf("%w: %s says %q, which is no toolguard ledger", toolguard.ErrFormat, filepath.Join(dir, formatFile), text)
	case n > format:
		return fmt.Errorf("%w: the ledger in %s was written in format %d by a newer toolguard; this one knows format %d and leaves it alone",
			toolguard.ErrFormat, dir, n, format)
	case n < format:
		return fmt.Errorf("%w: the ledger in %s was written in format %d, before toolguard was first released; this one knows format %d only: move the folder away to begin anew",
			toolguard.ErrFormat, dir, n, format)
	}
	return nil
}

func readLedger(dir string) (*ledger, error) {
	path := filepath.Join(dir, ledgerFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &ledger{}
	if _, err := fmt.Sscanf(string(text), "id %s\nmemtable %d\n", &l.id, &l.memTable); err != nil {
		return nil, fmt.Errorf("%w: %s is damaged: %w", toolguard.ErrFormat, path, err)
	}
	if err := l.readMark(string(text)); err != nil {
		return nil, damaged(dir, "%s: %v", ledgerFile, err)
	}
	return l, nil
}

func (l *ledger) write(dir string) error {
	text := fmt.Sprintf("id %s\nmemtable %d\n", l.id, l.memTable)
	if l.mark != nil {
		text += l.mark.text()
	}
	return writeFile(dir, ledgerFile, text+sumLine(text))
}

// writeFile replaces a small file so that it is there whole, or as before, whatever happens.
func writeFile(dir, name, text string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("ledger: %w", err)
		}
	}()
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// syncFolder brings to disk which files a folder has.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
