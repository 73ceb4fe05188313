package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

// DefaultLimit is how long a call waits where [Options.Limit] does not say.
const DefaultLimit = 30 * time.Second

// Options of [Open].
type Options struct {
	// OpenOwner opens the store itself, for the process that owns it; whatever lock it takes decides who does. It is
	// called again and again while another process may have gone.
	OpenOwner func() (toolguard.Store, error)
	// Held is what OpenOwner's error wraps while another process owns the store. Any other error ends Open.
	Held error
	// Died is called in the owner when processes have died: what they left is to be settled (toolguard.Recover, with
	// [Store.Alive]). After an error it is called again. nil: nobody minds.
	Died func(ctx context.Context, s *Store) error
	// Limit is how long a call waits for an owner, and for its answer; 0: DefaultLimit. Beyond it the call fails with
	// toolguard.ErrStoreAway.
	Limit time.Duration
	Log   *slog.Logger // nil: slog.Default
}

// Store is a [toolguard.Store] that the processes of one machine share; see the package's documentation.
type Store struct {
	dir, name string
	o         Options
	file      *os.File // locked as long as this process lives

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	ran  sync.WaitGroup

	mu      sync.Mutex
	now     backend       // nil while there is none
	changed chan struct{} // closed when now changes
	why     error         // there is none
	closed  bool
	recent  []lazy
}

// backend is the store itself, where this process owns it, or a link to the owner.
type backend interface {
	gone() <-chan struct{}
	close() error
}

var _ toolguard.Store = (*Store)(nil)

// Open opens the store in dir: it connects to the process that owns it, or becomes the owner itself. It fails with
// what OpenOwner says, with ErrVersion if the owner is of another version, and with toolguard.ErrStoreAway if there is
// an owner that cannot be reached within the limit.
func Open(ctx context.Context, dir string, o *Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	s := &Store{dir: dir, name: newName(), o: *o, changed: make(chan struct{})}
	if s.o.Log == nil {
		s.o.Log = slog.Default()
	}
	if s.o.Limit == 0 {
		s.o.Limit = DefaultLimit
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.o.Limit, toolguard.ErrStoreAway)
	defer cancel()
	b, err := s.find(limited)
	if err != nil {
		return nil, err
	}
	if shared {
		if s.file, err = enrol(dir, s.name); err != nil {
			return nil, errors.Join(fmt.Errorf("ledger: %w", err), b.close())
		}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.install(b)
	s.ran.Go(func() { s.keep(b) })
	return s, nil
}

// Process is this process's name, for toolguard.Options.Process.
func (s *Store) Process() string { return s.name }

// Alive reports whether the process of that name lives and has the store open, for toolguard.Options.Alive. The kernel
// knows: it is true as long as the process holds the lock of its file.
func (s *Store) Alive(process string) bool {
	return process == s.name || shared && lives(s.dir, process)
}

// Commit applies a write; see [toolguard.Store]. If the owner goes before it has answered, the write goes to the next
// one under the same token.
func (s *Store) Commit(ctx context.Context, w *toolguard.Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.Lazy {
		return s.commitLazy(ctx, w)
	}
	return s.do(ctx, w.Token != "" || w.Operation != nil, func(own *owner) error {
		return own.Commit(ctx, w)
	}, func(l *link, q asking) error {
		return l.commit(q, w)
	})
}

// Operations answers a query; see [toolguard.Store].
func (s *Store) Operations(ctx context.Context, q toolguard.Query) (page toolguard.Page, err error) {
	err = s.do(ctx, true, func(own *owner) (err error) {
		page, err = own.Operations(ctx, q)
		return err
	}, func(l *link, a asking) error {
		a.kind = kindOperations
		return l.ask(a, &q, &page)
	})
	return page, err
}

// Body returns the body of an operation; see [toolguard.Store].
func (s *Store) Body(ctx context.Context, key string) (body toolguard.Body, err error) {
	err = s.do(ctx, true, func(own *owner) (err error) {
		body, err = own.Body(ctx, key)
		return err
	}, func(l *link, a asking) error {
		a.kind = kindBody
		return l.ask(a, &key, &body)
	})
	return body, err
}

// eventsAtATime bounds what is read, and sent, for one request.
const eventsAtATime = 1000

// Events returns audit events; see [toolguard.Store].
func (s *Store) Events(ctx context.Context, after uint64, limit int) ([]toolguard.Event, error) {
	return s.events(ctx, eventsOf{After: after}, limit)
}

func (s *Store) events(ctx context.Context, q eventsOf, limit int) ([]toolguard.Event, error) {
	var all []toolguard.Event
	for {
		q.Limit = eventsAtATime
		if limit > 0 {
			q.Limit = min(q.Limit, limit-len(all))
		}
		var page []toolguard.Event
		err := s.do(ctx, true, func(own *owner) (err error) {
			page, err = q.from(ctx, own)
			return err
		}, func(l *link, a asking) error {
			a.kind, page = kindEvents, nil
			return l.ask(a, &q, &page)
		})
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < q.Limit || limit > 0 && len(all) >= limit {
			return all, nil
		}
		q.After = all[len(all)-1].Seq
	}
}

// from reads the events asked for.
func (q eventsOf) from(ctx context.Context, store toolguard.Store) ([]toolguard.Event, error) {
	if q.Key != "" {
		return store.History(ctx, q.Key, q.After, q.Limit)
	}
	return store.Events(ctx, q.After, q.Limit)
}

// History returns the audit events of an operation; see [toolguard.Store].
func (s *Store) History(ctx context.Context, key string, after uint64, limit int) ([]toolguard.Event, error) {
	if key == "" {
		return nil, nil
	}
	return s.events(ctx, eventsOf{Key: key, After: after}, limit)
}

// Document returns a document; see [toolguard.Store].
func (s *Store) Document(ctx context.Context, name string) (data []byte, rev uint64, err error) {
	err = s.do(ctx, true, func(own *owner) (err error) {
		data, rev, err = own.Document(ctx, name)
		return err
	}, func(l *link, a asking) error {
		var d documentOf
		a.kind = kindDocument
		err := l.ask(a, &name, &d)
		data, rev = d.Data, d.Rev
		return err
	})
	return data, rev, err
}

// Close makes queued writes durable and gives the store up; another process takes it over if this one owns it. What
// this process has not finished counts as left by a dead one from then on.
func (s *Store) Close() error {
	s.mu.Lock()
	closed, unsure := s.closed, len(s.recent) > 0
	s.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if unsure {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = s.do(ctx, true, func(*owner) error { return nil }, func(l *link, a asking) error {
			var nothing struct{}
			a.kind = kindFlush
			return l.ask(a, &nothing, &nothing)
		})
	}
	s.mu.Lock()
	closed = s.closed
	s.closed = true
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.stop()
	s.ran.Wait()
	s.mu.Lock()
	b := s.now
	s.mu.Unlock()
	if b != nil {
		err = errors.Join(err, b.close())
	}
	if s.file != nil {
		s.file.Close() // it stays: the owner sees by it that this process has gone
	}
	if err != nil {
		return fmt.Errorf("ledger %s: %w", s.dir, err)
	}
	return nil
}

// closeTimeout is how long Close waits for lazy writes to be durable.
const closeTimeout = 5 * time.Second
