package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrLocked: another process, or another Store of this one, holds the ledger.
var ErrLocked = errors.New("the ledger is held by another process")

const lockFile = "LOCK.toolguard"

// lock is the right to open the ledger in a folder. The kernel takes it back when its holder dies.
type lock struct{ file *os.File }

// takeLock takes the lock of dir and writes down who holds it, or says who does.
func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	taken, err := flock(f)
	if err == nil && (!taken || !isFile(f, path)) { // or Discard has removed it in between
		err = held(dir)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("ledger: %w", err)
	}
	text := fmt.Sprintf("%d\n%s\n%s\n", os.Getpid(), command(), time.Now().UTC().Format(time.RFC3339))
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &lock{f}, nil
}

// isFile reports whether an open file is the one of that name still.
func isFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

func (l *lock) release() { l.file.Close() }

// command is the name of this program and its subcommand; other arguments may be nobody's business.
func command() string {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		name += " " + os.Args[1]
	}
	return strings.ReplaceAll(name, "\n", " ")
}

func held(dir string) error {
	text, _ := os.ReadFile(filepath.Join(dir, lockFile))
	line := strings.Split(string(text), "\n")
	if len(line) < 3 {
		return heldError(fmt.Sprintf("the ledger in %s is held by another process", dir))
	}
	return heldError(fmt.Sprintf("the ledger in %s is held by process %s (%s), since %s", dir, line[0], line[1], line[2]))
}

// heldError is ErrLocked with the holder's name.
type heldError string

func (e heldError) Error() string { return string(e) }
func (e heldError) Unwrap() error { return ErrLocked }
