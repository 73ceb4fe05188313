package sharedstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"toolguard.dev/codec"
	"toolguard.dev/toolguard"
)

// How long find waits between two tries, and keep after a failure.
const (
	tryFirst   = 5 * time.Millisecond
	tryLast    = 200 * time.Millisecond
	afterError = 500 * time.Millisecond
)

// find connects to the owner, or becomes it: whichever works first.
func (s *Store) find(ctx context.Context) (backend, error) {
	for wait := tryFirst; ; wait = min(2*wait, tryLast) {
		var unreached error
		if shared {
			l, err := dial(ctx, s.dir, s.name)
			if err == nil {
				return l, nil
			}
			if errors.Is(err, ErrVersion) {
				return nil, fmt.Errorf("ledger %s: %w", s.dir, err)
			}
			unreached = err
		}
		o, err := s.own()
		if err == nil {
			return o, nil
		}
		if !shared || s.o.Held == nil || !errors.Is(err, s.o.Held) {
			return nil, err
		}
		s.mu.Lock()
		s.why = fmt.Errorf("%w, and does not answer: %w", err, unreached)
		s.mu.Unlock()
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), s.reason())
		}
	}
}

// keep has a backend at all times, as far as possible, until the store closes.
func (s *Store) keep(b backend) {
	for {
		if o, ok := b.(*owner); ok {
			o.look(s.ctx, func(ctx context.Context) error {
				if s.o.Died == nil {
					return nil
				}
				return s.o.Died(ctx, s)
			})
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-b.gone():
		}
		s.install(nil)
		b.close()
		began := time.Now()
		for b = nil; b == nil; {
			var err error
			if b, err = s.find(s.ctx); err == nil {
				break
			}
			if s.ctx.Err() != nil {
				return
			}
			s.o.Log.Error("the ledger has no owner, and cannot be taken over", "folder", s.dir, "error", err)
			s.mu.Lock()
			s.why = err
			s.mu.Unlock()
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(afterError):
			}
		}
		_, owns := b.(*owner)
		s.o.Log.Info("the ledger has a new owner", "folder", s.dir, "this process", owns, "after", time.Since(began).Round(time.Millisecond))
		s.install(b)
	}
}

// lazy is a write without an answer, as it is sent.
type lazy struct {
	at    time.Time
	frame []byte
}

// Lazy writes are kept until they must be durable, for the next owner if this one dies.
const (
	lazyKept = 2 * toolguard.LazyDelay
	lazyMost = 4096
)

// commitLazy sends a write that nobody waits for.
func (s *Store) commitLazy(ctx context.Context, w *toolguard.Write) error {
	s.mu.Lock()
	o, owns := s.now.(*owner)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return toolguard.ErrStoreClosed
	}
	if owns {
		return o.Commit(ctx, w)
	}
	frame, err := codec.Append(newFrame(0, kindLazy, roomOf(kindCommit)), w)
	if err != nil {
		return err
	}
	if len(frame) > maxRequest {
		return fmt.Errorf("%w: a write of %d bytes", toolguard.ErrTooLarge, len(frame))
	}
	seal(frame)
	s.mu.Lock()
	if s.now != nil {
		old := 0
		for old < len(s.recent) && time.Since(s.recent[old].at) > lazyKept {
			old++
		}
		s.recent = s.recent[old:]
	}
	if len(s.recent) < lazyMost {
		s.recent = append(s.recent, lazy{time.Now(), frame})
	}
	l, _ := s.now.(*link)
	s.mu.Unlock()
	if l != nil {
		l.lazy(frame)
	}
	return nil
}

// install makes b what calls go to, after it got the lazy writes that the one before may have lost; nil: there is none.
func (s *Store) install(b backend) {
	for sent := 0; ; {
		s.mu.Lock()
		if rest := s.recent[sent:]; b == nil || len(rest) == 0 {
			s.now = b
			close(s.changed)
			s.changed = make(chan struct{})
			s.mu.Unlock()
			return
		} else {
			s.mu.Unlock()
			resend(b, rest)
			sent += len(rest)
		}
	}
}

func resend(b backend, lazies []lazy) {
	for _, z := range lazies {
		switch b := b.(type) {
		case *link:
			b.lazy(z.frame)
		case *owner:
			w := new(toolguard.Write)
			if codec.Decode(string(z.frame[headSize:]), w) == nil {
				_ = b.Commit(context.Background(), w)
			}
		}
	}
}

// backend waits until there is one.
func (s *Store) backend(ctx context.Context) (backend, error) {
	for {
		s.mu.Lock()
		b, changed, closed := s.now, s.changed, s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, toolguard.ErrStoreClosed
		case b != nil:
			return b, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Store) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		return errLost
	}
	return s.why
}

// do makes one call: on the store itself, or over a link, and again over the next one if that ends. All that it waits
// for is bounded by the limit. again: it may be sent twice.
func (s *Store) do(ctx context.Context, again bool, own func(*owner) error, over func(*link, asking) error) error {
	s.mu.Lock()
	b := s.now
	if s.closed {
		b = nil
	}
	s.mu.Unlock()
	if o, ok := b.(*owner); ok {
		return own(o)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	q := asking{ctx: ctx, until: time.Now().Add(s.o.Limit)}
	for sent := false; ; sent = true {
		if b == nil {
			var err error
			b, err = s.wait(q)
			switch {
			case err == nil, errors.Is(err, toolguard.ErrStoreClosed):
			case errors.Is(err, toolguard.ErrStoreAway):
				err = fmt.Errorf("%w: %w", err, s.reason())
			case sent:
				err = fmt.Errorf("%w: %w", toolguard.ErrStoreAway, err)
			}
			if err != nil {
				return err
			}
		}
		l, ok := b.(*link)
		if !ok {
			return own(b.(*owner))
		}
		err := over(l, q)
		switch {
		case !errors.Is(err, errLost):
			return err
		case !again:
			return fmt.Errorf("%w: %w", toolguard.ErrStoreAway, err)
		}
		s.lost(l)
		b = nil
	}
}

// wait waits for a backend.
func (s *Store) wait(q asking) (backend, error) {
	ctx, cancel := context.WithDeadlineCause(q.ctx, q.until, toolguard.ErrStoreAway)
	defer cancel()
	return s.backend(ctx)
}

// lost waits no more for a link that has ended.
func (s *Store) lost(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == backend(l) {
		s.now = nil // keep sees its end, too, and finds the next
	}
}
