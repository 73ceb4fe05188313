package toolguard

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// errCollision: two identities have one hash, or a record was tampered with.
var errCollision = errors.New("the record under this key is of another operation")

// await gives the call that started an attempt its answer, or what can be said when the caller's time is over; nil when
// the caller has the time to wait for the next attempt.
func (g *Guard) await(v *visit, f *flight, owner bool) *Result {
	timer := time.NewTimer(time.Until(v.until))
	defer timer.Stop()
	for over := timer.C; ; {
		asked, question := f.question()
		if question != nil {
			return g.asked(v, f, *question, owner)
		}
		if g.observe {
			over = nil
		}
		select {
		case <-f.done:
			if owner && f.out.on {
				return nil
			}
			return g.landed(v, f, owner)
		case <-asked:
			continue
		case <-over:
		case <-v.ctx.Done():
		}
		return g.left(v, f, owner, registry.Answer{})
	}
}

// reconciling answers a caller that does not wait for the next attempt any longer, and leaves that to the guard.
func (g *Guard) reconciling(v *visit, op *Operation) *Result {
	d := decision{op: op, outcome: Pending, reason: ReasonReconciling}
	if at, ok := g.due(v.Tool, op); ok {
		d.at = at
		g.schedule(v.Tool, op)
	}
	return g.answer(v, d)
}

// join waits for an attempt that another call started.
func (g *Guard) join(v *visit, f *flight) *Result {
	// A caller that answers what the tool asked for goes on with the same attempt, and gets the tool's answer as its own.
	v.continues = v.Input != nil && f.reply(v.Input)
	f.enter()
	return g.await(v, f, false)
}

// asked hands the tool's question on: it settles nothing, and the caller is expected to come again with the answers.
func (g *Guard) asked(v *visit, f *flight, question registry.Answer, owner bool) *Result {
	return g.left(v, f, owner, f.shown(v, question))
}

// left answers a caller whose attempt is still on its way, and records that it does not wait any more.
func (g *Guard) left(v *visit, f *flight, owner bool, question registry.Answer) *Result {
	op, last := f.leave(owner)
	if op == nil {
		<-f.done
		if owner && f.out.on {
			defer g.rise(f.out.op.Key)
			return g.reconciling(v, f.out.op)
		}
		return g.landed(v, f, owner)
	}
	now := time.Now()
	verdict := g.verdict(v, op, Pending, ReasonInProgress)
	event := g.callEvent(v, verdict, now)
	if v.ctx.Err() != nil {
		event.detail("caller", "gone")
	}
	err := g.update(op.Key, func(op *Operation) *Write {
		if a := op.attempt(f.attempt); a != nil {
			a.Called = a.Called || owner
			a.Input = question.Result != nil
		}
		if last && op.Sent == f.attempt {
			op.Waited = false
		}
		w := g.write(op)
		w.Events = []Event{event}
		return w
	})
	if err != nil {
		g.log.Error("a call was not recorded", "tool", v.Tool.Action(), "key", op.Key, "error", err)
	}
	if question.Result != nil {
		return g.result(verdict, question, "", nil)
	}
	return g.result(verdict, registry.Answer{}, text(v.Tool.Name, verdict, told{op: op}), nil)
}

// landed gives a caller the answer of an attempt it waited for.
func (g *Guard) landed(v *visit, f *flight, owner bool) *Result {
	out := &f.out
	outcome, reason := out.gets(owner || v.continues)
	op := out.op
	verdict := g.verdict(v, op, outcome, reason)
	verdict.Attempt = f.attempt
	if at, ok := g.due(v.Tool, op); ok && outcome == Pending {
		verdict.RetryAfterMS = fromNow(at)
	}
	if !owner && outcome == Replayed && op.Frozen != v.frozen {
		verdict.Differs = g.differs(v, op)
	}
	answer := f.shown(v, out.answer)
	var delivered *Operation
	if out.class.Outcome == registry.Succeeded && out.recorded {
		delivered = op
	}
	if !out.recorded && (owner || v.continues) {
		verdict.Status = StatusUnknown
	}
	if !owner {
		g.event(v, verdict)
	}
	if g.observe && (answer.Result != nil || answer.Error != nil) {
		return g.result(verdict, answer, "", delivered)
	}
	switch outcome {
	case Fresh:
		says := ""
		switch {
		case answer.Result == nil && answer.Error == nil: // a handler's own words: it was not applied
			says = out.class.Says
		case out.class.Outcome == registry.Succeeded && out.class.Empty:
			says = text(v.Tool.Name, verdict, told{op: op})
		}
		return g.result(verdict, answer, says, delivered)
	case Replayed:
		if out.class.Outcome != registry.Succeeded {
			return g.replay(v, verdict, op)
		}
		if v.Tool.Policy.Receipt {
			answer = registry.Answer{}
		}
		return g.result(verdict, answer, text(v.Tool.Name, verdict, told{op: op, bare: answer.Result == nil}), delivered)
	}
	return g.result(verdict, registry.Answer{}, text(v.Tool.Name, verdict, told{op: op, says: out.class.Says, answered: out.class.Answered, sets: v.Tool.Effective == registry.Idempotent}), nil)
}

// fromNow is how many milliseconds there are until a moment, for somebody who is to come again: a second at least.
func fromNow(at time.Time) int64 { return max(time.Until(at).Milliseconds(), 1000) }

// answer gives a caller what the record says.
func (g *Guard) answer(v *visit, d decision) *Result {
	op := d.op
	verdict := g.verdict(v, op, d.outcome, d.reason)
	if !d.at.IsZero() && d.outcome == Pending {
		verdict.RetryAfterMS = fromNow(d.at)
	}
	if d.outcome == Replayed {
		if op.Frozen != v.frozen {
			verdict.Differs = g.differs(v, op)
		}
		g.event(v, verdict)
		return g.replay(v, verdict, op)
	}
	tell := told{op: op, pointer: d.pointer, sets: v.Tool.Effective == registry.Idempotent}
	if a := op.latest(); d.outcome != Blocked {
		tell.says, tell.answered = a.Says, a.Answered
	}
	if d.reason == ReasonArgumentsChanged || d.reason == ReasonEarlierUnknown {
		verdict.Differs = g.differs(v, op)
	}
	if d.carries { // the refusal shows the result, and that counts as its delivery
		g.deliver(op)()
		body, err := g.store.Body(v.lasting, op.Key)
		if err == nil {
			tell.result = registry.Answer{Result: body.Result}.Text()
		}
	}
	g.event(v, verdict)
	return g.result(verdict, registry.Answer{}, text(v.Tool.Name, verdict, tell), nil)
}

// replay answers with the recorded result. The reasons for having none are part of the verdict.
func (g *Guard) replay(v *visit, verdict Verdict, op *Operation) *Result {
	var answer registry.Answer
	recalled, err := g.recall(v, op)
	switch {
	case err == nil && recalled != nil:
		answer.Result = recalled
	case op.Body == BodyNotStored:
		verdict.Reason = ReasonBodyNotStored
	case errors.Is(err, ErrNotFound):
		verdict.Reason = ReasonBodyExpired
	case err != nil:
		verdict.Reason = ReasonBodyNotStored
		g.log.Error("a recorded result cannot be read", "key", op.Key, "error", err)
	}
	tell := told{op: op, bare: answer.Result == nil, owed: op.Owed() && !op.Class.Strict()}
	page, err := g.store.Operations(v.lasting, Query{Tenant: op.Facts.Tenant, Lane: lane("w", op.Facts, v.Tool.Server), After: op.Dispatched, Limit: 4})
	if err == nil {
		tell.since = page.Operations
	}
	if a := op.latest(); a.State == AttemptSucceeded {
		tell.says = a.Says
	}
	var delivered *Operation
	if op.Owed() {
		delivered = op
	}
	return g.result(verdict, answer, text(v.Tool.Name, verdict, tell), delivered)
}

// differs names the arguments in which a call and an operation differ; none where the operation's are gone.
func (g *Guard) differs(v *visit, op *Operation) []string {
	_, args, err := g.arguments(v.lasting, op)
	if err != nil {
		return nil
	}
	id, err := v.Tool.deriver.Derive(op.Action, op.Facts, args)
	if err != nil {
		pointers := keyderive.Differ(args, v.args, 16)
		for i := range pointers {
			pointers[i] = v.Tool.Cut(pointers[i])
		}
		return slices.Compact(pointers)
	}
	return keyderive.Differ(id.Payload, v.id.Payload, 16)
}

// refuse answers a call that reached no operation.
func (g *Guard) refuse(v *visit, r Reason, what string) *Result {
	verdict := g.verdict(v, nil, Blocked, r)
	g.event(v, verdict)
	return g.result(verdict, registry.Answer{}, text(v.Tool.Name, verdict, told{what: what}), nil)
}

// unavailable answers a call that could not be recorded, so that the tool was not called.
func (g *Guard) unavailable(v *visit, err error) *Result {
	if g.observe {
		return g.read(v, &Verdict{Outcome: Blocked, Reason: ReasonStoreUnavailable, Tool: v.Tool.Action()})
	}
	reason, what := ReasonStoreUnavailable, ""
	switch {
	case errors.Is(err, ErrTooLarge):
		reason, what = ReasonInvalidArguments, "the arguments are larger than the ledger takes"
	case errors.Is(err, ErrClosed):
		reason = ReasonToolUnavailable
	default:
		g.log.Error("a call was refused because the ledger did not take it", "tool", v.Tool.Action(), "error", err)
	}
	return g.refuse(v, reason, what)
}

// read passes a call through: it only reads, or the guard only observes (would).
func (g *Guard) read(v *visit, would *Verdict) *Result {
	verdict := Verdict{Outcome: Fresh, Tool: v.Tool.Action()}
	if would != nil {
		verdict = *would
	}
	d := registry.Dispatch{Arguments: v.Arguments, Meta: v.Meta, Input: v.Input, Sending: func() error { return nil }, Sent: func() {}}
	if would != nil {
		d.Key = keyderive.KeyOf([]byte(newToken())) // no operation's: a downstream that honours keys has to have the effect
	}
	facts := v.Facts
	ctx, cancel := context.WithTimeout(handling(v.ctx, &facts), cmpDuration(v.Tool.Policy.Timeout, registry.DefaultTimeout))
	defer cancel()
	r := g.handle(ctx, v.Tool, d)
	event := g.callEvent(v, verdict, time.Now())
	err := g.store.Commit(context.Background(), &Write{Token: newToken(), Events: []Event{event}, Lazy: would == nil})
	if err != nil {
		g.log.Warn("a call was not recorded", "tool", v.Tool.Action(), "error", err)
	}
	res := g.result(verdict, r.answer, "", nil)
	res.Guarded = false
	if r.err != nil {
		res.Verdict.Outcome, res.Verdict.Reason = Blocked, ReasonToolUnavailable
		res.Text = text(v.Tool.Name, res.Verdict, told{what: v.hide.Text(plain(r.err))})
		res.Answer = registry.Answer{}
	}
	return res
}

// would is the verdict that a decision would have led to.
func (g *Guard) would(v *visit, d decision) *Verdict {
	verdict := g.verdict(v, d.op, d.outcome, d.reason)
	switch d.act {
	case actJoin:
		verdict.Outcome, verdict.Reason = Replayed, ReasonDone
	case actQueue:
		verdict.Outcome, verdict.Reason = Pending, ReasonInProgress
	case actWait, actLook:
		verdict.Outcome, verdict.Reason = Pending, ReasonReconciling
	case actAsk:
		verdict.Outcome, verdict.Reason = Pending, ReasonApprovalRequired
	}
	return &verdict
}

func (g *Guard) result(verdict Verdict, a registry.Answer, says string, delivered *Operation) *Result {
	r := &Result{Verdict: verdict, Answer: a, Text: says, Guarded: !g.observe, Delivered: func() {}}
	if delivered != nil {
		r.Delivered = g.deliver(delivered)
	}
	return r
}

func (g *Guard) verdict(v *visit, op *Operation, o Outcome, r Reason) Verdict {
	verdict := Verdict{Outcome: o, Reason: r, Tool: v.Tool.Action()}
	if op == nil {
		return verdict
	}
	times := [...]time.Time{op.Created.UTC(), op.Settled.UTC()}
	verdict.Status, verdict.Key, verdict.Occurrence, verdict.Attempt = op.Status, op.Key, op.Occurrence, op.Sent
	verdict.RecordedAt = &times[0]
	if op.Approval != nil {
		verdict.Approval = op.Approval.ID
	}
	if !op.Settled.IsZero() {
		verdict.SettledAt = &times[1]
	}
	return verdict
}

// event records one answered call.
func (g *Guard) event(v *visit, verdict Verdict) {
	w := &Write{Token: newToken(), Events: []Event{g.callEvent(v, verdict, time.Now())}}
	w.Lazy = verdict.Reason == ReasonStoreUnavailable // a caller that waited for the ledger once does not wait again
	if err := g.store.Commit(context.Background(), w); err != nil {
		g.log.Error("a call was not recorded", "tool", v.Tool.Action(), "outcome", verdict.Outcome, "error", err)
	}
}

func (g *Guard) callEvent(v *visit, verdict Verdict, now time.Time) Event {
	e := factsEvent(v.Facts, EventCall, now)
	e.Tool, e.Key, e.Policy = verdict.Tool, verdict.Key, v.Tool.PolicyHash
	e.Outcome, e.Reason, e.Status = verdict.Outcome, verdict.Reason, verdict.Status
	e.Occurrence, e.Attempt = verdict.Occurrence, verdict.Attempt
	e.Digest, e.Approval = v.id.MaterialDigest, verdict.Approval
	if len(verdict.Differs) > 0 {
		e.Detail = map[string]any{"differs": verdict.Differs}
	}
	if g.observe {
		e.detail("observe", true)
	}
	return e
}

func factsEvent(f keyderive.Facts, typ EventType, now time.Time) Event {
	return Event{
		Type: typ, Time: now.UTC(), Tenant: f.Tenant, Workflow: f.Workflow, SourceEvent: f.SourceEvent, Request: f.Request,
		Run: f.Run, Step: f.Step, Session: f.Session, Actor: f.Actor, CallID: f.CallID, Client: f.Client,
	}
}

// eventOf describes an operation as it stands.
func eventOf(op *Operation, typ EventType, now time.Time) Event {
	e := factsEvent(op.Facts, typ, now)
	e.Key, e.Tool, e.Status, e.Occurrence, e.Attempt = op.Key, op.Action, op.Status, op.Occurrence, op.Sent
	e.Digest, e.Policy, e.DownstreamID = op.Digest, op.Policy, op.DownstreamID
	if op.Approval != nil && (typ == EventApprovalRequested || typ == EventApprovalDecided) {
		e.Approval = op.Approval.ID
	}
	return e
}

// plain is an error's text without the sentinel's name in front.
func plain(err error) string {
	text := err.Error()
	for _, sentinel := range []error{registry.ErrArguments, registry.ErrNotSent, registry.ErrNotApplied, keyderive.ErrJSON, keyderive.ErrFactMissing, keyderive.ErrTargetMissing} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
	}
	return text
}

func sameValue(a, b any) bool {
	return string(keyderive.AppendCanonical(nil, a)) == string(keyderive.AppendCanonical(nil, b))
}

func isConflict(err error) bool { return errors.Is(err, ErrConflict) }

func newToken() string { return rand.Text() }
