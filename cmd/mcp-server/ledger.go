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
	"toolguard.dev/toolguard"
)

// openLedger opens the ledger to serve from, and makes one where nothing is in the way. undo takes back, once the ledger
// is closed, one that was made; nil: it was there.
func (p *program) openLedger(dir string) (store *badgerstore.Store, undo func() error, err error) {
	if badgerstore.Foreign(dir) {
		return nil, nil, usage{fmt.Errorf("%s is no ledger, and not empty: name another folder with --data%s", dir, below(dir))}
	}
	if !badgerstore.Exists(dir) {
		_, err := os.Lstat(dir)
		undo = func() error {
			discarded := badgerstore.Discard(dir)
			if errors.Is(err, fs.ErrNotExist) {
				_ = os.Remove(dir) // not if anything else came into it
			}
			return discarded
		}
	}
	store, err = badgerstore.Open(dir, &badgerstore.Options{Log: p.log()})
	return store, undo, err
}

// withLedger runs something on a ledger that is there already and that nobody serves from.
func (p *program) withLedger(ctx context.Context, do func(toolguard.Store) error) (err error) {
	dir, err := p.findLedger()
	if err != nil {
		return err
	}
	if !badgerstore.Exists(dir) {
		return fmt.Errorf("there is no ledger in %s%s", dir, below(dir))
	}
	store, err := badgerstore.Open(dir, &badgerstore.Options{Log: p.log()})
	if errors.Is(err, badgerstore.ErrLocked) {
		return fmt.Errorf("%w; end it first", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := toolguard.Recover(ctx, store, nil); err != nil {
		return err
	}
	return do(store)
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
