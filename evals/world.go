package evals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Trouble is what a downstream does with one attempt.
type Trouble int

const (
	NoTrouble    Trouble = iota // the effect happens and is answered
	AnswerLost                  // the effect happens, and the connection is reset in the place of an answer
	Silent                      // no effect and no answer: the request got lost
	SilentDone                  // the effect happens, and no answer comes
	Late                        // no answer comes, and the effect happens after World.Late
	Slow                        // the effect happens and is answered after World.Slow
	Refuses                     // no effect, and an answer that says so
	DiesBefore                  // the caller's process dies before the first byte leaves
	DiesAfter                   // the effect happens, and the caller's process dies before it has the answer
	LosesProcess                // the downstream's own process ends in the call, after the effect, and is away for World.Away
	FailsBefore                 // the downstream's own process ends in the call, before the effect, and is away for World.Away
)

// Keys says what a downstream makes of an idempotency key.
type Keys int

const (
	KeysIgnored Keys = iota // every request has its effect
	KeysReplay              // a request under a key that it knows has no effect and gets the first one's answer, a refusal too
	KeysUnique              // a request under a key that it knows has no effect and is told that it exists already
)

// World is a downstream: a system that is written to, with a ledger of the effects that it really had, and troubles. Its
// ledger tells of each effect which step asked for it: by the tag in the request's _meta, else because the request's key was
// seen with that step before, else because the arguments are equal. It is safe for concurrent use; set the fields before.
type World struct {
	Keys   Keys
	Window time.Duration // how long it knows a key, from its first request on; 0: for ever
	Took   time.Duration // how long a call takes; a lookup takes half as long
	Late   time.Duration // of the trouble Late
	Slow   time.Duration // of the trouble Slow
	Away   time.Duration // of LosesProcess and FailsBefore
	Lag    time.Duration // how long an effect does not show in lookups
	// Real has the effect elsewhere; nil: it is only kept in the ledger. One call at a time.
	Real func(tool string, d *registry.Dispatch) (registry.Answer, error)
	Die  func() // ends the caller's process: for DiesBefore and DiesAfter; must return at once
	Lose func() // ends the downstream's own process, for Away; nil: it only refuses connections

	mu       sync.Mutex
	steps    []Step
	calls    []Planned
	troubles map[int][]Trouble // by step: of its next attempts
	effects  []Effect
	keyed    map[string]*answered
	stepOf   map[string]int     // by operation, and by key
	refused  map[request]string // with which words, as it was asked for last
	turned   map[int]bool       // steps that the server behind refused
	away     time.Time
	late     int        // calls under way that nobody waits for; no WaitGroup, for more may begin while it is waited for
	quiet    *sync.Cond // late is 0
	note     func(step int, text string)
}

// request is one way to ask for a step.
type request struct {
	step int
	args string // canonical
}

// Effect is one thing that really happened.
type Effect struct {
	Step      int // -1: nobody knows whose
	Tool      string
	Key       string
	Arguments json.RawMessage
	At        time.Time
}

// answered is what a downstream that honours keys remembers of one.
type answered struct {
	at     time.Time
	args   string // canonical
	answer *registry.Answer
}

// NewWorld returns a downstream for the steps of a plan, without troubles.
func NewWorld(p *Plan) *World {
	w := &World{
		steps: p.Steps, calls: p.Calls, troubles: map[int][]Trouble{}, keyed: map[string]*answered{}, stepOf: map[string]int{}, refused: map[request]string{}, turned: map[int]bool{},
		note: func(int, string) {},
	}
	w.quiet = sync.NewCond(&w.mu)
	return w
}

// Trouble says what happens to the next attempts of a step.
func (w *World) Trouble(step int, next ...Trouble) { w.troubles[step] = next }

// refuse says with which words a request will be refused, as the run shows it; "": it will not, from now on: what was in its
// way is gone.
func (w *World) refuse(step int, args json.RawMessage, words string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := request{step, canonical(args)}
	if old, known := w.refused[r]; !known || old != "" {
		w.refused[r] = words
	}
}

// Effects returns what really happened, in order.
func (w *World) Effects() []Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Effect(nil), w.effects...)
}

// Settle waits until nothing that is under way can have an effect any more.
func (w *World) Settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.late > 0 {
		w.quiet.Wait()
	}
}

// later does something that nobody waits for but Settle.
func (w *World) later(do func()) {
	w.mu.Lock()
	w.late++
	w.mu.Unlock()
	go func() {
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.late--; w.late == 0 {
				w.quiet.Broadcast()
			}
		}()
		do()
	}()
}

// tag is the member of a request's _meta that says, for the downstream's ledger alone, which step asks.
const tag = "chaos/step"

// asking is what the downstream makes of a request.
type asking struct {
	step    int
	refused string // with these words; "": it is not
}

var errReset = errors.New("read tcp: connection reset by peer")

// Handle is the downstream as a tool's handler.
func (w *World) Handle(ctx context.Context, tool string, d *registry.Dispatch) (registry.Answer, error) {
	asks, trouble, err := w.arrive(tool, d)
	step := asks.step
	if err != nil {
		return registry.Answer{}, err
	}
	time.Sleep(w.Took)
	if trouble == DiesBefore {
		w.note(step, "the process dies before it sends")
		w.Die()
		return registry.Answer{}, errReset
	}
	if err := d.Sending(); err != nil {
		return registry.Answer{}, err
	}
	d.Sent()
	switch trouble {
	case Silent:
		w.note(step, "the request is lost")
		<-ctx.Done()
		return registry.Answer{}, ctx.Err()
	case Late:
		w.later(func() {
			time.Sleep(w.Late)
			w.apply(asks, tool, d, 0, false)
		})
		<-ctx.Done()
		return registry.Answer{}, ctx.Err()
	case FailsBefore:
		w.note(step, "the downstream's process ends, before the effect")
		w.leave()
		return registry.Answer{}, errReset
	}
	delay := time.Duration(0)
	if trouble == Slow {
		delay = w.Slow
	}
	answer := w.apply(asks, tool, d, delay, trouble == Refuses)
	switch trouble {
	case AnswerLost:
		w.note(step, "the answer is lost: connection reset")
		return registry.Answer{}, errReset
	case SilentDone:
		w.note(step, "no answer comes")
		<-ctx.Done()
		return registry.Answer{}, ctx.Err()
	case DiesAfter:
		w.note(step, "the process dies before it has the answer")
		w.Die()
		return registry.Answer{}, errReset
	case LosesProcess:
		w.note(step, "the downstream's process ends, after the effect")
		w.leave()
		return registry.Answer{}, errReset
	}
	return answer, nil
}

// call is Handle for a caller that goes when its context ends, whatever becomes of the call.
func (w *World) call(ctx context.Context, tool string, d *registry.Dispatch) (answer registry.Answer, err error) {
	done := make(chan struct{})
	var late registry.Answer
	var failed error
	w.later(func() {
		late, failed = w.Handle(ctx, tool, d)
		close(done)
	})
	select {
	case <-done:
		return late, failed
	case <-ctx.Done():
		return registry.Answer{}, ctx.Err()
	}
}

// arrive finds out whose attempt it is, and what becomes of it.
func (w *World) arrive(tool string, d *registry.Dispatch) (asking, Trouble, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.whose(tool, d)
	step := t.step
	if time.Now().Before(w.away) {
		w.note(step, "the downstream is away: connection refused")
		return t, 0, fmt.Errorf("%w: dial tcp: connection refused", registry.ErrNotSent)
	}
	if next := w.troubles[step]; len(next) > 0 && t.refused == "" {
		w.troubles[step] = next[1:]
		return t, next[0], nil
	}
	return t, NoTrouble, nil
}

func (w *World) whose(tool string, d *registry.Dispatch) asking {
	step := -1
	var meta map[string]json.RawMessage
	if json.Unmarshal(d.Meta, &meta) == nil && meta[tag] != nil {
		if json.Unmarshal(meta[tag], &step) != nil || step >= len(w.steps) {
			step = -1
		}
	}
	for _, name := range []string{d.Operation, d.Key} {
		if known, ok := w.stepOf[name]; ok && step < 0 {
			step = known
		}
	}
	args := canonical(d.Arguments)
	for i := range w.calls {
		if c := &w.calls[i]; step < 0 && c.Tool == tool && canonical(c.Arguments) == args {
			step = c.Step
		}
	}
	w.learn(d.Operation, step)
	w.learn(d.Key, step)
	return asking{step, w.refused[request{step, args}]}
}

// know says for which step the operation under a key is: whatever comes under it without a tag, as after a person's yes, is
// of that step, whatever its policy makes of the arguments.
func (w *World) know(key string, step int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.learn(key, step)
}

func (w *World) learn(key string, step int) {
	if _, known := w.stepOf[key]; !known && key != "" && step >= 0 {
		w.stepOf[key] = step
	}
}

// known is the step that an operation is for; -1: nobody knows.
func (w *World) known(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step, ok := w.stepOf[key]; ok {
		return step
	}
	return -1
}

func (w *World) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = time.Now().Add(w.Away)
	if w.Lose != nil {
		w.Lose()
	}
}

// apply has the effect, unless the key says that it was there before, and returns the answer.
func (w *World) apply(asks asking, tool string, d *registry.Dispatch, delay time.Duration, refuse bool) registry.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first *answered
	if w.Keys != KeysIgnored && d.Key != "" {
		args := canonical(d.Arguments)
		if first = w.keyed[d.Key]; first != nil && (w.Window == 0 || time.Since(first.at) < w.Window) {
			return w.again(asks.step, d.Key, args, first)
		}
		first = &answered{at: time.Now(), args: args}
		w.keyed[d.Key] = first
	}
	if delay > 0 {
		w.mu.Unlock()
		time.Sleep(delay)
		w.mu.Lock()
	}
	answer := w.effect(asks, tool, d, refuse)
	if first != nil {
		first.answer = &answer
		if w.Keys == KeysUnique && answer.IsError() {
			delete(w.keyed, d.Key) // nothing is there
		}
	}
	return answer
}

// again answers a request under a key that was used before.
func (w *World) again(step int, key, args string, first *answered) registry.Answer {
	switch {
	case first.answer == nil:
		w.note(step, "the downstream is still at a request under this key")
		return Text("409: a request with this idempotency key is in progress", true)
	case first.args != args:
		w.note(step, "the downstream knows the key with other arguments")
		return Text("400: this idempotency key was used with other parameters", true)
	case w.Keys == KeysUnique:
		w.note(step, "the downstream has it already")
		return Text("already exists: "+key, true)
	}
	w.note(step, "the downstream knows the key: no second effect")
	return *first.answer
}

// effect is what happens in the end.
func (w *World) effect(asks asking, tool string, d *registry.Dispatch, refuse bool) registry.Answer {
	step := asks.step
	if w.Real != nil {
		return w.real(step, tool, d, refuse)
	}
	if asks.refused != "" {
		w.note(step, "refused, as recorded")
		return Text(asks.refused, true)
	}
	if refuse {
		w.note(step, "refused: the precondition is not met")
		return Text("not allowed: insufficient funds", true)
	}
	if step >= 0 && w.steps[step].NoOp && w.count(step) > 0 {
		w.note(step, "it is so already: nothing changes")
		return Text("done", false)
	}
	w.effects = append(w.effects, Effect{Step: step, Tool: tool, Key: d.Key, Arguments: d.Arguments, At: time.Now()})
	w.note(step, effectNote(tool, w.count(step)))
	return Text(fmt.Sprintf("done, reference R-%d", len(w.effects)), false)
}

// real has the effect at a server behind this one. What it does not answer as an error has happened, unless it gave the same
// answer under the same key before.
func (w *World) real(step int, tool string, d *registry.Dispatch, refuse bool) registry.Answer {
	if refuse {
		w.note(step, "refused, before it reached the server")
		return Text("not allowed: insufficient funds", true)
	}
	answer, err := w.Real(tool, d)
	if err != nil {
		answer = Text(err.Error(), true)
	}
	if answer.IsError() {
		w.note(step, "the server refused: "+clip(answer.Text(), 200))
		w.turned[step] = true
		return answer
	}
	first := w.keyed[d.Key]
	if first == nil {
		first = &answered{}
		w.keyed[d.Key] = first
	}
	if d.Key != "" && first.answer != nil && canonical(first.answer.Result) == canonical(answer.Result) {
		w.note(step, "the server knows the key, and answers as before")
		return answer
	}
	first.answer = &answer
	w.effects = append(w.effects, Effect{Step: step, Tool: tool, Key: d.Key, Arguments: d.Arguments, At: time.Now()})
	w.note(step, effectNote(tool, w.count(step)))
	return answer
}

// ask asks the server behind this one.
func (w *World) ask(tool string, d *registry.Dispatch) (registry.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.away) {
		return registry.Answer{}, errReset
	}
	return w.Real(tool, d)
}

func effectNote(tool string, n int) string {
	if n == 1 {
		return "EFFECT " + tool
	}
	return fmt.Sprintf("EFFECT %s, for the %s time", tool, ordinal(n))
}

func (w *World) count(step int) (n int) {
	for i := range w.effects {
		if w.effects[i].Step == step {
			n++
		}
	}
	return n
}

// canonical is the canonical form of arguments, or the bytes themselves where there is none.
func canonical(args json.RawMessage) string {
	c, err := keyderive.Canonical(args)
	if err != nil {
		return string(args)
	}
	return string(c)
}

func ordinal(n int) string {
	switch n {
	case 2:
		return "second"
	case 3:
		return "third"
	}
	return fmt.Sprintf("%dth", n)
}

// Text is an MCP tool result with one text block.
func Text(text string, isError bool) registry.Answer {
	a, _ := registry.NewAnswer(nil, isError, text) // a text alone always encodes
	return a
}
