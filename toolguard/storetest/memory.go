package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

// Memory is a store in memory, for tests: the plainest thing that keeps the contract of [toolguard.Store]. It works
// inside testing/synctest bubbles and can be made to fail, and to die. Set its hooks before its first use.
type Memory struct {
	// Fail is called before a write is applied. An error is returned by Commit, and nothing is applied.
	Fail func(w *toolguard.Write) error
	// LoseAck is called after a write was applied. If it returns true, Commit returns an error that wraps
	// toolguard.ErrStoreBroken, as after a failed sync, and the store refuses every later write with it until
	// it was opened anew.
	LoseAck func(w *toolguard.Write) bool

	mu     sync.Mutex
	state  *state
	queue  []*toolguard.Write // lazy ones
	timer  *time.Timer
	broken bool
	closed bool
}

var _ toolguard.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{state: newState()} }

// Reopen opens the store anew. If it was not closed, it dies as its process would by kill -9: what was queued is lost, and its
// calls return toolguard.ErrStoreClosed from then on. The hooks are kept.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop()
	return &Memory{Fail: m.Fail, LoseAck: m.LoseAck, state: m.state}
}

// Snapshot returns an independent store, without hooks, that holds what kill -9 at this moment would leave.
func (m *Memory) Snapshot() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{state: m.state.clone()}
}

// Commit applies a write; see [toolguard.Store].
func (m *Memory) Commit(ctx context.Context, w *toolguard.Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := check(w); err != nil {
		return err
	}
	if m.Fail != nil {
		if err := m.Fail(w); err != nil {
			if w.Lazy {
				return nil
			}
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return toolguard.ErrStoreClosed
	case m.broken:
		return toolguard.ErrStoreBroken
	case w.Lazy:
		if m.queue = append(m.queue, cloneWrite(w)); len(m.queue) == 1 {
			m.timer = time.AfterFunc(toolguard.LazyDelay, m.ripen)
		}
		return nil
	}
	m.flush()
	if err := m.state.apply(w); err != nil {
		return err
	}
	if m.LoseAck != nil && m.LoseAck(w) {
		m.broken = true
		return fmt.Errorf("%w: the acknowledgement was lost", toolguard.ErrStoreBroken)
	}
	return nil
}

// ripen makes queued writes durable because their time has come.
func (m *Memory) ripen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
}

func (m *Memory) flush() {
	if m.timer != nil {
		m.timer.Stop()
	}
	queue := m.queue
	m.queue = nil
	if m.closed || m.broken {
		return
	}
	for _, w := range queue {
		_ = m.state.apply(w) // a lazy write is dropped silently
	}
}

// stop ends this store without writing anything more.
func (m *Memory) stop() {
	m.closed, m.queue = true, nil
	if m.timer != nil {
		m.timer.Stop()
	}
}

// Close makes queued writes durable and gives the store up.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	m.stop()
	return nil
}

// read calls f unless the store is closed.
func (m *Memory) read(ctx context.Context, f func(s *state) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return toolguard.ErrStoreClosed
	}
	return f(m.state)
}

// Operations answers a query; see [toolguard.Store].
func (m *Memory) Operations(ctx context.Context, q toolguard.Query) (page toolguard.Page, err error) {
	err = m.read(ctx, func(s *state) error {
		page, err = s.query(q)
		return err
	})
	return page, err
}

// Body returns the body of an operation; see [toolguard.Store].
func (m *Memory) Body(ctx context.Context, key string) (b toolguard.Body, err error) {
	err = m.read(ctx, func(s *state) error {
		kept, ok := s.bodies[key]
		if !ok || expired(kept.until) {
			return fmt.Errorf("body of %s: %w", key, toolguard.ErrNotFound)
		}
		b = cloneBody(kept.body)
		return nil
	})
	return b, err
}

// Events returns audit events; see [toolguard.Store]. No limit stands for all.
func (m *Memory) Events(ctx context.Context, after uint64, limit int) (events []toolguard.Event, err error) {
	err = m.read(ctx, func(s *state) error {
		for i := range s.events {
			if e := &s.events[i]; e.Seq > after && (limit <= 0 || len(events) < limit) {
				events = append(events, cloneEvent(e))
			}
		}
		return nil
	})
	return events, err
}

// History returns the audit events of an operation; see [toolguard.Store].
func (m *Memory) History(ctx context.Context, key string, after uint64, limit int) (events []toolguard.Event, err error) {
	err = m.read(ctx, func(s *state) error {
		for i := range s.events {
			if e := &s.events[i]; key != "" && e.Key == key && e.Seq > after && (limit <= 0 || len(events) < limit) {
				events = append(events, cloneEvent(e))
			}
		}
		return nil
	})
	return events, err
}

// Document returns a document; see [toolguard.Store].
func (m *Memory) Document(ctx context.Context, name string) (data []byte, rev uint64, err error) {
	err = m.read(ctx, func(s *state) error {
		d, ok := s.documents[name]
		if !ok {
			return fmt.Errorf("document %s: %w", name, toolguard.ErrNotFound)
		}
		data, rev = append([]byte{}, d.data...), d.rev
		return nil
	})
	return data, rev, err
}

// maxBody is the limit of the stores that keep things on disk.
const maxBody = 4 << 20

func check(w *toolguard.Write) error {
	switch {
	case len(w.Token) > 64:
		return fmt.Errorf("%w: a token of %d bytes", toolguard.ErrTooLarge, len(w.Token))
	case w.Body != nil && len(w.Body.Arguments)+len(w.Body.Result)+len(w.Body.Sealed) > maxBody:
		return fmt.Errorf("%w: a body of %d bytes", toolguard.ErrTooLarge, len(w.Body.Arguments)+len(w.Body.Result)+len(w.Body.Sealed))
	case len(w.Data) > maxBody:
		return fmt.Errorf("%w: a document of %d bytes", toolguard.ErrTooLarge, len(w.Data))
	case w.Operation != nil && w.Operation.Key == "":
		return fmt.Errorf("an operation without a key")
	case w.Operation == nil && w.Body != nil:
		return fmt.Errorf("a body without an operation")
	}
	return nil
}

func expired(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }
