package toolguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// dispatch records an attempt and sends it on its way. The room is held.
func (g *Guard) dispatch(v *visit, s *situation, d decision, seq uint64) (*flight, error) {
	op, arguments, frozen := d.op, v.Arguments, v.frozen
	var body *Body
	switch {
	case op == nil:
		op = newOperation(s, v.Tool, d.occurrence)
		op.Rejected = d.rejected
		body = g.bodyOf(v.Tool, op.Key, arguments, nil)
	case !d.frozen:
		op = op.clone()
		op.Policy = v.Tool.PolicyHash
		body = g.bodyOf(v.Tool, op.Key, arguments, nil)
	default: // out of unknown, or approved: the frozen bytes, whatever the call spelled
		op = op.clone()
		frozen, d.digest = op.Frozen, op.Digest
		var err error
		if arguments, err = g.frozen(v.lasting, op); err != nil {
			return nil, err
		}
	}
	w := &Write{Body: body, Fence: v.room, FenceSince: seq, Call: v.callIndex()}
	if w.Call != "" {
		w.CallUntil = s.now.Add(retention(v.Tool))
	}
	a := attemptOf{owner: g.process, callID: v.Facts.CallID, digest: d.digest, frozen: frozen, until: v.until}
	if !v.unasked {
		call := g.callEvent(v, g.verdict(v, op, "", ""), s.now)
		a.call = &call
	}
	return g.launch(v.lasting, v.Tool, op, w, a, registry.Dispatch{Arguments: arguments, Meta: v.Meta, Input: v.Input})
}

// launch writes the attempt down, with what w holds already, and then starts it: the intent is durable before the first byte leaves.
func (g *Guard) launch(ctx context.Context, t *Tool, op *Operation, w *Write, a attemptOf, d registry.Dispatch) (*flight, error) {
	now := time.Now()
	a.timeout = cmpDuration(t.Policy.Timeout, registry.DefaultTimeout)
	today := t.warrants()
	a.window, a.lookups, a.settle = today.window, today.lookups, today.settle
	attempt := start(op, a, now)

	w.Token, w.Dispatch = newToken(), true
	op.list(w)
	w.Lanes = []string{lane("w", op.Facts, t.Server)}
	if op.Entity != "" {
		w.Lanes = append(w.Lanes, lane("e", op.Facts, op.Entity))
	}
	if t.keyless() {
		w.Lanes = append(w.Lanes, targetLane(op))
	}
	e := eventOf(op, EventDispatched, now)
	e.Approval = attempt.Approval
	w.Events = append(w.Events, e)
	if !g.takeOff() {
		return nil, ErrClosed
	}
	if err := g.store.Commit(context.Background(), w); err != nil {
		g.running.Done()
		if errors.Is(err, ErrStoreAway) {
			g.doubt(op.Key, attempt.N)
		}
		return nil, err
	}
	f := newFlight(op, d.Arguments, a.call)
	f.hide = g.hider(t, d.Arguments)
	f.until = a.until
	if t.keyless() && op.doubted() == attempt.N && op.certain() == len(op.Attempts)-1 { // no earlier one may have happened
		f.picture = op.clone()
	}
	g.mu.Lock()
	g.flights[op.Key] = f
	g.mu.Unlock()

	d.Key, d.Operation, d.Attempt = attempt.SentKey, op.Key, attempt.N
	deadline := attempt.Deadline
	d.Sent = func() { f.sent.CompareAndSwap(0, time.Now().UnixNano()) }
	d.Sending = func() error {
		if !time.Now().Before(deadline) {
			return fmt.Errorf("the attempt's deadline passed before it was sent: %w", registry.ErrNotSent)
		}
		return nil
	}
	go g.fly(ctx, t, f, d, deadline)
	return f, nil
}

// takeOff counts one more attempt on its way, unless the guard closes.
func (g *Guard) takeOff() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.closing:
		return false
	default:
		g.running.Add(1)
		return true
	}
}

func cmpDuration(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return a
}

func retention(t *Tool) time.Duration {
	return cmpDuration(t.Policy.Retention, registry.DefaultRetention)
}

// reply is what a handler returned.
type reply struct {
	answer registry.Answer
	err    error
}

// fly runs one attempt to its end: the tool's answer, or its deadline and then, late, the answer.
func (g *Guard) fly(ctx context.Context, t *Tool, f *flight, d registry.Dispatch, deadline time.Time) {
	ctx, cancel := context.WithDeadline(handling(ctx, &f.facts), deadline)
	defer cancel()
	unknown := func(says string) registry.Classification {
		return registry.Classification{Outcome: registry.Unknown, Sent: true, Says: says}
	}
	for {
		inTime := context.AfterFunc(ctx, func() {
			defer g.running.Done()
			g.land(t, f, registry.Answer{}, unknown("no answer in time"), f.sent.Load() != 0)
		})
		if f.picture != nil {
			g.takePicture(ctx, t, f)
		}
		r := g.handle(ctx, t, d)
		if !inTime() {
			<-f.done
			g.late(t, f, r, d.Key)
			return
		}
		class := classify(t, f, r, d.Key)
		if class.Outcome == registry.Incomplete {
			f.ask(r.answer)
			select {
			case d.Input = <-f.input:
				f.sent.Store(0) // there is more to send
				continue
			case <-ctx.Done():
				class = unknown("the tool asked for more input and did not get it in time")
			}
		}
		defer g.running.Done()
		g.land(t, f, r.answer, class, true)
		return
	}
}

// handle calls the tool. A panic is an outcome that is not known.
func (g *Guard) handle(ctx context.Context, t *Tool, d registry.Dispatch) (r reply) {
	ended := func(registry.Answer, error) {}
	defer func() {
		if p := recover(); p != nil {
			r = reply{err: fmt.Errorf("the tool's handler panicked: %v", p)}
		}
		ended(r.answer, r.err)
	}()
	if err := d.Sending(); err != nil {
		return reply{err: err}
	}
	if p := t.Policy.DownstreamKey; p.Argument != "" && d.Key != "" {
		parsed, err := keyderive.Parse(d.Arguments)
		if err == nil {
			d.Arguments, err = t.WithKey(d.Arguments, parsed, d.Key)
		}
		if err != nil {
			return reply{err: fmt.Errorf("%w: %w", registry.ErrNotSent, err)}
		}
	}
	ctx, ended = g.watching.attempt(ctx, t, &d)
	answer, err := t.Handler(registry.WithDispatch(ctx, &d), &d)
	return reply{answer, err}
}

// late records an answer that came after the deadline: it is evidence still. It does not keep Close waiting.
func (g *Guard) late(t *Tool, f *flight, r reply, key string) {
	class := classify(t, f, r, key)
	ev := evidenceOf(f.attempt, class, true)
	err := g.update(f.out.op.Key, func(op *Operation) *Write {
		return g.settling(t, op, f.arguments, ev, r.answer, time.Now())
	})
	if err == nil {
		if op, err := g.load(f.out.op.Key); err == nil {
			g.schedule(t, op)
		}
	} else if !errors.Is(err, ErrStoreClosed) {
		g.log.Error("a late answer was not recorded", "tool", t.Action(), "key", f.out.op.Key, "error", err)
	}
}

// classify asks the tool's policy what an answer proves.
func classify(t *Tool, f *flight, r reply, key string) registry.Classification {
	in := registry.Input{Facts: f.facts, Tool: t.Action(), Answer: &r.answer}
	if p := &t.Policy; p.DownstreamID != nil || len(p.NotApplied)+len(p.Unknown)+len(p.Secret) > 0 {
		in.Arguments, _ = keyderive.Parse(f.arguments)
	}
	return t.ClassifyCall(in, r.err, key)
}

// evidenceOf translates what the registry made of an answer.
func evidenceOf(attempt int, c registry.Classification, finished bool) evidence {
	ev := evidence{attempt: attempt, finished: finished, answered: c.Answered, exists: c.Exists, says: c.Says, downstreamID: c.DownstreamID}
	switch {
	case c.Outcome == registry.Succeeded:
		ev.state, ev.says = AttemptSucceeded, "" // the result is kept
	case c.Outcome == registry.Failed && c.Sent:
		ev.state = AttemptRefused
	case c.Outcome == registry.Failed:
		ev.state = AttemptUnsent
	default:
		ev.state = AttemptUnknown
	}
	return ev
}

// settling is the write that records evidence on op; nil where there is nothing to record. It changes op.
func (g *Guard) settling(t *Tool, op *Operation, arguments json.RawMessage, ev evidence, answer registry.Answer, now time.Time) *Write {
	wasFinal := op.Status.Final()
	var room [2]Attempt
	before := append(room[:0], op.Attempts...)
	types := settle(op, ev, now)
	if len(types) == 0 && sameAttempts(before, op.Attempts) {
		return nil
	}
	w := g.write(op)
	w.Events = make([]Event, 0, len(types)+1) // and the call's
	for _, typ := range types {
		e := eventOf(op, typ, now)
		e.Attempt = ev.attempt
		if a := op.attempt(ev.attempt); a != nil && typ == EventSettled && a.State != AttemptSucceeded {
			e.Detail = map[string]any{"attempt_state": string(a.State)}
			if a.Says != "" {
				e.Detail["says"] = a.Says
			}
		}
		if typ == EventConflict {
			e.Detail = map[string]any{"conflict": op.Conflict}
		}
		w.Events = append(w.Events, e)
	}
	if op.Status == StatusSucceeded && !wasFinal {
		op.Body, op.BodyUntil = BodyStored, now.Add(retention(t))
		w.BodyUntil = op.BodyUntil
		var result json.RawMessage
		if ev.state == AttemptSucceeded && !t.Policy.Receipt {
			result = answer.Result
		}
		w.Body = g.bodyOf(t, op.Key, arguments, result)
	}
	return w
}

func sameAttempts(x, y []Attempt) bool {
	return slices.EqualFunc(x, y, func(a, b Attempt) bool { return a.State == b.State && a.Finished == b.Finished })
}

// land records how an attempt ended and gives its answer to whoever waits.
func (g *Guard) land(t *Tool, f *flight, answer registry.Answer, class registry.Classification, finished bool) {
	now := time.Now()
	op, waits := f.record()
	ev := evidenceOf(f.attempt, class, finished)
	if at := f.sent.Load(); finished && at != 0 {
		ev.gone = time.Unix(0, at)
	}
	on, first := false, true
	build := func(op *Operation) *Write {
		if op.Sent == f.attempt {
			op.Waited = false
		}
		told := false
		if a := op.attempt(f.attempt); a != nil {
			told, a.Called = a.Called, true
		}
		w := g.settling(t, op, f.arguments, ev, answer, now)
		if w == nil {
			if waits && told {
				return nil // it was made, and only the acknowledgement was lost
			}
			w = g.write(op)
		}
		due, again := g.due(t, op)
		if on = first && waits && again && due.Before(f.until); waits && !told && !on {
			w.Events = append(w.Events, *f.call)
			e := &w.Events[len(w.Events)-1]
			e.Time, e.Status, e.Attempt = now.UTC(), op.Status, f.attempt
			e.Outcome, e.Reason = (&landing{op: op, class: class, recorded: true}).gets(true)
		}
		return w
	}
	err := g.commit(op, build)
	first = false // a caller whose attempt was not recorded is answered, and does not wait on
	f.out = landing{op: op, answer: answer, class: class, recorded: err == nil, on: on && err == nil, seq: g.arrivals.Load()}
	g.rooms.landed(f, waits)
	if err == nil {
		g.forget(f)
	}
	close(f.done)
	if err == nil {
		if !on {
			g.schedule(t, op)
		}
		return
	}
	g.log.Error("an answer was not recorded", "tool", t.Action(), "key", op.Key, "error", err)
	if passes(err) {
		g.running.Add(1)
		go g.landAgain(t, f, build)
	}
}

// forget takes a landed flight out of the air. Where the call that started it goes on, what comes next is the call's to do.
func (g *Guard) forget(f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flights[f.out.op.Key] == f {
		delete(g.flights, f.out.op.Key)
	}
	if f.out.on {
		g.sitting[f.out.op.Key]++
	}
}

// gets says what a caller of an attempt gets once it ended. Done or refused, the call that started it gets the
// tool's own answer and the others are told so; what is not known is never fresh.
func (l *landing) gets(owner bool) (Outcome, Reason) {
	switch c := l.class; {
	case !l.recorded && owner && c.Outcome != registry.Unknown:
		return Fresh, ReasonNotRecorded
	case c.Outcome == registry.Succeeded && owner:
		return Fresh, ""
	case c.Outcome == registry.Succeeded, l.op.Status == StatusSucceeded:
		return Replayed, ReasonDone
	case l.op.Status == StatusFailed && !c.Sent:
		return Blocked, ReasonToolUnavailable
	case l.op.Status == StatusFailed && owner:
		return Fresh, ""
	case l.op.Status == StatusFailed:
		return Blocked, ReasonRefused
	case l.op.Status == StatusAbandoned:
		return Blocked, ReasonAbandoned
	case l.op.Status == StatusEscalated && l.op.Spent:
		return Escalated, ReasonAttemptsSpent
	case l.op.Status == StatusEscalated:
		return Escalated, ReasonOutcomeUnknown
	}
	return Pending, ReasonReconciling
}

// commit writes what build makes of op, and of the stored record where somebody else wrote it meanwhile. op is left
// as it was written. A body that the store does not take costs only the body.
func (g *Guard) commit(op *Operation, build func(*Operation) *Write) error {
	for {
		w := build(op)
		if w == nil {
			return nil
		}
		err := g.store.Commit(context.Background(), w)
		if errors.Is(err, ErrTooLarge) && w.Body != nil {
			op.Body = BodyNotStored
			w.Body = w.Body.bare()
			err = g.store.Commit(context.Background(), w)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		stored, err := g.load(op.Key)
		if err != nil {
			return err
		}
		*op = *stored
	}
}

// update changes a stored operation: build gets it as stored, again after each conflict; nil from build changes nothing.
func (g *Guard) update(key string, build func(*Operation) *Write) error {
	op, err := g.load(key)
	if err != nil {
		return err
	}
	return g.commit(op, build)
}

func (g *Guard) load(key string) (*Operation, error) { return load(context.Background(), g.store, key) }

func load(ctx context.Context, store Store, key string) (*Operation, error) {
	page, err := store.Operations(ctx, Query{Key: key})
	if err != nil {
		return nil, err
	}
	if len(page.Operations) == 0 {
		return nil, fmt.Errorf("operation %s: %w", key, ErrNotFound)
	}
	return page.Operations[0], nil
}
