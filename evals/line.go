package evals

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolguard.dev/registry"
)

// line is the way from the agent to the downstream: what an arm puts there. It outlives the processes that it starts.
type line interface {
	do(q *question) said
	die()                               // kills the process that the agent and what guards it are in; may be called from within do
	restart() error                     // starts a new one
	decide(approve func(step int) bool) // a person looks at what waits for a yes
	settle()                            // waits until nothing is under way by itself
	waiting() map[int]bool              // steps that wait for a person
	end()                               // gives up what it holds
}

// question is one call as the agent makes it.
type question struct {
	step     int
	server   string
	tool     string
	args     json.RawMessage
	id       string // of the call: another one for each try
	key      string // that the model made up
	turn     int
	played   int           // how often the run was begun, 1, 2, …
	patience time.Duration // how long the agent's client waits
	process  int           // 0, or 1 for the second of two
}

// said is what the agent hears of a call.
type said struct {
	kind saidKind
	text string
	wait time.Duration // when to ask again, if the answer says so
	took func()        // to be called when the agent goes on: then it is known to have the answer
}

type saidKind int

const (
	saidDone saidKind = iota
	saidRefused
	saidError    // something went wrong; it may have happened
	saidAway     // it was not sent; it can be later
	saidPending  // not known yet
	saidApproval // a person must say yes
	saidHeld     // an earlier call stands in the way
	saidChanged  // it is on record with other arguments
	saidStopped  // not sent, and it will not be
	saidRejected // a person said no
	saidPerson   // a person has to find out
	saidNothing  // the process died
)

// call is the attempt at the downstream that a question comes to without a guard.
func (q *question) call() *registry.Dispatch {
	return &registry.Dispatch{
		Arguments: q.args, Meta: q.meta(), Sending: func() error { return nil }, Sent: func() {},
	}
}

// meta tags a call with its step, for the downstream's ledger.
func (q *question) meta() json.RawMessage { return fmt.Appendf(nil, `{%q:%d}`, tag, q.step) }

// bare is a line without a guard.
type bare struct {
	arm   *Arm
	world *World
	real  bool // pace times faster

	mu     sync.Mutex
	keys   int
	caches [2]map[string]said
	ctx    context.Context // of the process
	kill   context.CancelFunc
}

func newBare(a *Arm, w *World) *bare {
	b := &bare{arm: a, world: w}
	_ = b.restart()
	return b
}

func (b *bare) do(q *question) said {
	d := q.call()
	switch b.arm.key {
	case randomKey:
		b.mu.Lock()
		b.keys++
		d.Key = fmt.Sprintf("random-%d", b.keys)
		b.mu.Unlock()
	case modelKey:
		d.Key = q.key
	}
	entry := ""
	if b.arm.cached {
		entry = hashOf(q.tool, q.args)
		b.mu.Lock()
		old, hit := b.caches[q.process][entry]
		b.mu.Unlock()
		if hit {
			old.text = "from the cache: " + old.text
			return old
		}
	}
	process := b.process()
	wait := q.patience
	if b.real {
		wait /= pace
	}
	ctx, cancel := context.WithTimeout(process, wait)
	defer cancel()
	s := heard(b.world.call(ctx, q.tool, d))
	if process.Err() != nil {
		return said{kind: saidNothing}
	}
	if b.arm.cached && (s.kind == saidDone || s.kind == saidRefused) {
		b.mu.Lock()
		b.caches[q.process][entry] = s
		b.mu.Unlock()
	}
	return s
}

// heard is what an agent makes of a tool's answer.
func heard(answer registry.Answer, err error) said {
	text := answer.Text()
	switch {
	case errors.Is(err, registry.ErrNotSent):
		return said{kind: saidAway, text: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return said{kind: saidError, text: "timed out"}
	case err != nil:
		return said{kind: saidError, text: err.Error()}
	case strings.HasPrefix(text, "409"):
		return said{kind: saidError, text: text}
	case strings.HasPrefix(text, "already exists"):
		return said{kind: saidDone, text: text}
	case answer.IsError():
		return said{kind: saidRefused, text: text}
	}
	return said{kind: saidDone, text: text}
}

func (b *bare) process() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ctx
}

func (b *bare) die() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill()
}

func (b *bare) restart() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caches = [2]map[string]said{{}, {}}
	b.ctx, b.kill = context.WithCancel(context.Background())
	return nil
}

func (b *bare) decide(func(int) bool) {}
func (b *bare) settle()               {}
func (b *bare) waiting() map[int]bool { return nil }
func (b *bare) end()                  { b.die() }

// hashOf is what a cache takes for the same call: the tool and the arguments, members sorted, numbers as they are spelled.
func hashOf(tool string, args json.RawMessage) string {
	text := args
	if v, err := decode(args); err == nil {
		text, _ = json.Marshal(v)
	}
	sum := sha256.Sum256(append([]byte(tool+"\n"), text...))
	return hex.EncodeToString(sum[:])
}

func decode(args json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(string(args)))
	d.UseNumber()
	var v map[string]any
	err := d.Decode(&v)
	return v, err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
