package drill

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// manner is how the downstream behaves when a call reaches it. What it is asked for it does, in any case.
type manner int

const (
	answers  manner = iota // it does it and says so
	silent                 // it does it, and the answer is lost
	timesOut               // it does it, and then says that its own time ran out
	cryptic                // it does it, and then answers with an error that could mean anything
	hangs                  // it does it, and then nothing comes until it is let go
)

// downstream stands for the system that the tool writes to. It counts what it did.
type downstream struct {
	honours time.Duration // how long it honours a key; 0: not at all
	result  json.RawMessage
	came    chan struct{} // one for each call that reached it
	let     chan struct{} // closed to let go of what hangs
	gate    sync.Once

	mu      sync.Mutex
	next    []manner // of the calls to come; then answers
	arrived int
	did     []string // canonical arguments of what was done, in order
	times   []time.Time
	keys    map[string]time.Time // when each key was first seen
}

func newDownstream(e *registry.Entry, window time.Duration) *downstream {
	return &downstream{honours: window, result: resultOf(e), came: make(chan struct{}, 64), let: make(chan struct{}), keys: map[string]time.Time{}}
}

// resultOf makes up what the tool answers when all went well.
func resultOf(e *registry.Entry) json.RawMessage {
	result := map[string]any{"content": []any{map[string]any{"type": "text", "text": "ok"}}}
	if root, err := schemaOf(e.OutputSchema); err == nil && e.HasOutput {
		if v, ok := (&maker{root: root, whole: true}).make(root, "", 0).(map[string]any); ok {
			if text, err := json.Marshal(v); err == nil {
				result["structuredContent"] = v
				result["content"] = []any{map[string]any{"type": "text", "text": string(text)}}
			}
		}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return json.RawMessage(`{"content":[{"type":"text","text":"ok"}]}`)
	}
	return text
}

func (d *downstream) behave(m ...manner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = m
}

// effects is how many things were done.
func (d *downstream) effects() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.did)
}

// calls is how many calls reached it.
func (d *downstream) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.arrived
}

// letGo ends what hangs.
func (d *downstream) letGo() { d.gate.Do(func() { close(d.let) }) }

var errLost = errors.New("the connection broke")

// handle is the tool's handler.
func (d *downstream) handle(ctx context.Context, call *registry.Dispatch) (registry.Answer, error) {
	if err := call.Sending(); err != nil {
		return registry.Answer{}, err
	}
	m := d.take(call)
	call.Sent()
	select {
	case d.came <- struct{}{}:
	default:
	}
	switch m {
	case silent:
		<-ctx.Done()
		return registry.Answer{}, errLost
	case hangs:
		<-d.let
		return registry.Answer{}, errLost
	case timesOut:
		return registry.NewAnswer(nil, true, "Error: the request timed out after 30000 ms")
	case cryptic:
		return registry.NewAnswer(nil, true, "Error: E-1042")
	}
	return registry.Answer{Result: d.result}, nil
}

// take does what a call asks for, unless its key was seen before and is honoured still.
func (d *downstream) take(call *registry.Dispatch) manner {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.arrived++
	d.times = append(d.times, now)
	m := answers
	if len(d.next) > 0 {
		m, d.next = d.next[0], d.next[1:]
	}
	first, seen := d.keys[call.Key]
	if seen && d.honours > 0 && now.Sub(first) < d.honours {
		return m
	}
	d.keys[call.Key] = now
	text := string(call.Arguments)
	if v, err := keyderive.Parse(call.Arguments); err == nil {
		text = string(keyderive.AppendCanonical(nil, v))
	}
	d.did = append(d.did, text)
	return m
}

// unreachable answers a lookup: the drill has no books that could be looked into.
func unreachable(context.Context, *registry.Dispatch) (registry.Answer, error) {
	return registry.NewAnswer(nil, true, "Error: the service is unavailable")
}
