package badgerstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// DefaultMinFree is how many bytes of disk stay free where [Options.MinFree] does not say.
const DefaultMinFree = 64 << 20

// Options of [Open]. The zero value, and nil, are good.
type Options struct {
	Log *slog.Logger // nil: slog.Default

	// MinFree is how many bytes of disk must stay free; 0: DefaultMinFree. A write that could leave less, with all
	// that Badger may still have to move around, is refused with toolguard.ErrStoreFull.
	MinFree uint64

	// Fail is for tests: the committer calls it at every [Stage]. An error is taken for a failed write to
	// disk; it may also end the process.
	Fail func(Stage) error
}

// Stage is a moment in the life of a group of writes.
type Stage string

// The stages at which [Options.Fail] is called.
const (
	BeforeCommit Stage = "before-commit" // nothing of the group is on disk
	AfterCommit  Stage = "after-commit"  // the group is on disk, and nobody knows it yet
)

// Store is a ledger in a folder of its own; it implements [toolguard.Store].
type Store struct {
	ID string // names this ledger, for as long as its folder lives

	dir  string
	lock *lock
	db   *badger.DB
	tail *tail
	room *room
	log  *slog.Logger
	fail func(Stage) error

	home   *home
	marker *marker

	gate   sync.RWMutex // held shared by every call, exclusively to close
	closed bool

	committer *committer
	ended     sync.WaitGroup
	broken    atomic.Pointer[error]

	view view
}

var _ toolguard.Store = (*Store)(nil)

// Open opens the ledger in dir and creates what is missing, the folder with mode 0700.
//
// It refuses with ErrLocked while another process holds the ledger, with toolguard.ErrFormat if a newer program
// wrote it, with toolguard.ErrDamaged if it is less than it was or cannot be read, before anything is changed, and
// plainly if dir lies on a network file system, where neither locks nor syncs can be relied on.
func Open(dir string, o *Options) (*Store, error) {
	return open(dir, o, memTableSize)
}

func open(dir string, o *Options, memTable int64) (_ *Store, err error) {
	if o == nil {
		o = &Options{}
	}
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if err := refuseNetwork(dir); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, log: log, fail: o.Fail}
	if s.lock, err = takeLock(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.release()
		}
	}()
	kept, err := openFolder(dir, memTable)
	if err != nil {
		return nil, err
	}
	s.ID = kept.id
	s.room = newRoom(dir, o.MinFree, kept.memTable)
	if err := s.room.canOpen(); err != nil {
		return nil, err
	}
	if err := inspect(dir, kept.mark); err != nil {
		return nil, err
	}
	if err := removeEmptyLogs(filepath.Join(dir, dataFolder)); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if s.db, err = badger.OpenManaged(badgerOptions(filepath.Join(dir, dataFolder), kept.memTable, log)); err != nil {
		return nil, fmt.Errorf("ledger %s: %w", dir, oneLine{err})
	}
	s.room.watch(s.db)
	if s.tail, err = newTail(filepath.Join(dir, dataFolder)); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), s.db.Close())
	}
	if err := s.begin(kept); err != nil {
		s.tail.close()
		return nil, errors.Join(err, s.db.Close())
	}
	s.ended.Go(s.committer.run)
	return s, nil
}

// Commit applies a write; see [toolguard.Store]. A write may carry a body or a document of up to MaxBody bytes and
// may take up to MaxWrite bytes in all.
func (s *Store) Commit(ctx context.Context, w *toolguard.Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := newChange(w)
	if err != nil {
		return err
	}
	if err := s.enqueue(ctx, c); err != nil || c.lazy {
		return err
	}
	c.done.Wait()
	if c.err == nil {
		c.stamp(w)
	}
	return c.err
}

func (s *Store) enqueue(ctx context.Context, c *change) error {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return toolguard.ErrStoreClosed
	}
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return s.committer.collect(ctx, c)
}
