package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
	more chan struct{} // holds one after something was written
}

func newTail() *tail { return &tail{more: make(chan struct{}, 1)} }

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - 4096; over > 0 {
		t.text = slices.Delete(t.text, 0, over)
	}
	select {
	case t.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

// quiet returns once nothing was written for so long.
func (t *tail) quiet(d time.Duration) {
	for {
		select {
		case <-t.more:
		case <-time.After(d):
			return
		}
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// stderrOnly is a log handler that keeps what a child writes to its stderr, and nothing else.
type stderrOnly struct {
	to    *tail
	child bool
}

func (s stderrOnly) Enabled(context.Context, slog.Level) bool { return true }

func (s stderrOnly) Handle(_ context.Context, r slog.Record) error {
	child := s.child
	r.Attrs(func(a slog.Attr) bool {
		child = child || a.Key == "from" && a.Value.String() == "stderr"
		return !child
	})
	if child {
		_, err := s.to.Write([]byte(r.Message + "\n"))
		return err
	}
	return nil
}

func (s stderrOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		s.child = s.child || a.Key == "from" && a.Value.String() == "stderr"
	}
	return s
}

func (s stderrOnly) WithGroup(string) slog.Handler { return s }

// telling is what a failed program's words come to: the first line about an error, else the last three on one.
func telling(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for _, line := range lines {
		if strings.Contains(strings.ToLower(line), "error") {
			return strings.TrimSpace(line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
