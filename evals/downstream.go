// Package evals holds what a guard is tried against: a downstream that keeps a ledger of its own effects, and fails in
// the ways that downstreams fail. It knows nothing of the guard's records, so that it can judge them.
package evals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolguard.dev/registry"
)

// Fault is what a downstream does with one attempt.
type Fault int

const (
	None          Fault = iota // the effect happens and is answered
	AnswerLost                 // the effect happens, the answer does not come back
	RequestLost                // no effect, no answer
	Refused                    // no effect, an answer that says so
	Unreachable                // nothing was sent
	Late                       // the effect happens and is answered after Downstream.Delay
	ServerError                // the effect happens, and the answer is an internal error
	AlreadyExists              // no effect; the answer says that it exists, naming the key
)

// Effect is one thing that really happened.
type Effect struct {
	Key       string // the idempotency key that came with it
	Operation string
	Attempt   int
	Arguments json.RawMessage
	At        time.Time
}

// Downstream is a system that is written to. The zero value has every effect it is asked for. It is safe for concurrent use.
type Downstream struct {
	Delay  time.Duration                    // of Late
	Window time.Duration                    // how long it honours a key: a second request under it has no effect and is answered like the first; 0: not at all
	Next   func(d *registry.Dispatch) Fault // what to do with an attempt; nil: None

	mu      sync.Mutex
	effects []Effect
	byKey   map[string]time.Time
}

// Handle is the downstream as a tool's handler.
func (s *Downstream) Handle(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
	fault := None
	if s.Next != nil {
		fault = s.Next(d)
	}
	switch fault {
	case Unreachable:
		return registry.Answer{}, fmt.Errorf("dial: connection refused: %w", registry.ErrNotSent)
	case RequestLost:
		return registry.Answer{}, errors.New("connection reset")
	case Refused:
		return Text("amount is not valid", true), nil
	case AlreadyExists:
		return Text("already exists: "+d.Key, true), nil
	case Late:
		select {
		case <-time.After(s.Delay):
		case <-ctx.Done():
			<-time.After(s.Delay / 10)
		}
	}
	s.apply(d)
	switch fault {
	case AnswerLost:
		return registry.Answer{}, errors.New("connection reset")
	case ServerError:
		return Text("500 internal server error", true), nil
	}
	return Text("done under "+d.Key, false), nil
}

func (s *Downstream) apply(d *registry.Dispatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if first, ok := s.byKey[d.Key]; ok && now.Before(first.Add(s.Window)) {
		return
	}
	if s.byKey == nil {
		s.byKey = map[string]time.Time{}
	}
	s.byKey[d.Key] = now
	s.effects = append(s.effects, Effect{Key: d.Key, Operation: d.Operation, Attempt: d.Attempt, Arguments: d.Arguments, At: now})
}

// Effects returns what really happened, in order.
func (s *Downstream) Effects() []Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Effect(nil), s.effects...)
}

// Text is an MCP tool result with one text block.
func Text(text string, isError bool) registry.Answer {
	quoted, _ := json.Marshal(text)
	result := fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]`, quoted)
	if isError {
		result = append(result, `,"isError":true`...)
	}
	return registry.Answer{Result: append(result, '}')}
}
