package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolguard.dev/badgerstore"
	"toolguard.dev/sharedstore"
	"toolguard.dev/toolguard"
)

// openLedger opens the ledger to serve from, together with the other processes that do, and makes one where nothing is in
// the way. undo takes back, once the ledger is closed, one that was made and that nobody else has joined, with files that were
// made beside it; nil: it was there.
func (p *program) openLedger(ctx context.Context, dir string) (store *sharedstore.Store, undo func(files ...string) error, err error) {
	if badgerstore.Foreign(dir) {
		return nil, nil, usage{fmt.Errorf("%s is no ledger, and not empty: name another folder with --data%s", dir, below(dir))}
	}
	_, missing := os.Lstat(dir)
	made := !badgerstore.Exists(dir)
	if store, err = p.share(ctx, dir); err != nil || !made {
		return store, nil, err
	}
	return store, func(files ...string) error {
		err := badgerstore.Discard(dir, func() bool {
			if !store.Vanish() {
				return false
			}
			for _, name := range files {
				_ = os.Remove(filepath.Join(dir, name))
			}
			return true
		})
		if errors.Is(missing, fs.ErrNotExist) {
			_ = os.Remove(dir) // not if anything else came into it
		}
		if errors.Is(err, badgerstore.ErrLocked) {
			return nil // others have it now
		}
		return err
	}, nil
}

// isEmpty reports whether a ledger is known to hold nothing.
func isEmpty(s toolguard.Store) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	page, err := s.Operations(ctx, toolguard.Query{All: true, Limit: 1})
	if err != nil || len(page.Operations) > 0 {
		return false
	}
	events, err := s.Events(ctx, 0, 1)
	return err == nil && len(events) == 0
}

// withLedger runs something on a ledger that is there already, whether somebody serves from it or not.
func (p *program) withLedger(ctx context.Context, do func(toolguard.Store) error) (err error) {
	dir, err := p.findLedger()
	if err != nil {
		return err
	}
	if !badgerstore.Exists(dir) {
		return fmt.Errorf("there is no ledger in %s%s", dir, below(dir))
	}
	store, err := p.share(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := toolguard.Recover(ctx, store, store.Alive); err != nil {
		return err
	}
	return do(store)
}

// share opens a ledger that other processes may have open, too.
func (p *program) share(ctx context.Context, dir string) (*sharedstore.Store, error) {
	return sharedstore.Open(ctx, dir, &sharedstore.Options{
		OpenOwner: func() (toolguard.Store, error) {
			s, err := badgerstore.Open(dir, &badgerstore.Options{Log: p.log()})
			if err != nil {
				return nil, err // and no store that is not nil and holds nil
			}
			return s, nil
		},
		Held: badgerstore.ErrLocked,
		Died: func(ctx context.Context, s *sharedstore.Store) error { return toolguard.Recover(ctx, s, s.Alive) },
		Log:  p.log(),
	})
}

// maxNamed is how many of many things a message names.
const maxNamed = 8

// below names the ledgers directly below a folder in which there is none.
func below(dir string) string {
	if found := ledgersIn(dir); len(found) > 0 {
		return "; below it there are " + choices(found)
	}
	return ""
}

// ledgersToName says which ledger may be named where no configuration does.
func (p *program) ledgersToName() string {
	dir, err := p.stateLedgers()
	if err != nil {
		return "name a ledger with --data DIR"
	}
	found := ledgersIn(dir)
	if len(found) == 0 {
		return "and there is no ledger in " + dir + "; name one with --data DIR"
	}
	return "name one of these ledgers: " + choices(found)
}

// ledgersIn lists the ledgers directly below a folder, the newest first.
func ledgersIn(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var found []string
	changed := map[string]time.Time{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err == nil && info.IsDir() && badgerstore.Exists(path) {
			found = append(found, path)
			changed[path] = info.ModTime()
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(changed[b].UnixNano(), changed[a].UnixNano()) })
	return found
}

// choices writes ledgers as they are given on the command line.
func choices(ledgers []string) string {
	words := make([]string, 0, maxNamed)
	for _, dir := range ledgers[:min(len(ledgers), maxNamed)] {
		words = append(words, "--data "+shellLine([]string{dir}))
	}
	text := strings.Join(words, ", ")
	if more := len(ledgers) - len(words); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
