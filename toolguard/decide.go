package toolguard

import (
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// situation is everything that decide looks at: one call, and what the ledger holds that it may have to meet.
type situation struct {
	now        time.Time
	id         keyderive.Identity
	facts      keyderive.Facts
	frozen     string // hash of the call's bytes
	input      bool   // the call carries answers to what the tool asked for
	idempotent bool
	entity     string
	repeat     time.Duration // Policy.RepeatAfter
	warrants   warrants      // today's
	terms      terms         // of approvals, today's

	repeated *Operation // met by call id: this very call came before
	own      met        // latest occurrence under today's definition, or under an earlier one that still answers
	others   []met      // open or owed: of the same subject; for an idempotent tool of the same entity
	holding  []held     // others that share a value with the call
	written  bool       // another call of the server was dispatched since own was
	renewed  bool       // the entity was set by a later success
}

// met is an operation and the digest that the call has under the definition the operation was made under.
type met struct {
	op     *Operation
	digest string
}

// held is an operation that may hold the call back, and where they share a value.
type held struct {
	op      *Operation
	pointer string
}

// act is what to do about a call.
type act int

const (
	actAnswer   act = iota // answer from the record
	actDispatch            // start an attempt: of op, or of a new operation where op is nil
	actAsk                 // ask for a person's approval: of op, or of a new operation
	actLook                // ask the lookups at at, then decide again
	actJoin                // wait for op's attempt and give its answer
	actQueue               // wait until op's attempt has ended, then decide again
	actWait                // wait until at, then decide again
)

// decision is what decide says.
type decision struct {
	act        act
	op         *Operation
	digest     string   // the call's digest under op's definition
	occurrence int      // of a new operation
	frozen     bool     // the operation's frozen bytes are sent, or asked for, not the call's
	rejected   []string // of a new operation: what a person said no to in the one before
	outcome    Outcome
	reason     Reason
	pointer    string    // with earlier_unknown: what the two share; "" when it is the same target
	at         time.Time // with actWait and actLook, and where the caller may ask again
	carries    bool      // a refusal that shows op's result, which counts as its delivery
}

// decide says what to do about a call. It is pure.
func decide(s *situation) decision {
	if s.repeated != nil && s.repeated.Status != StatusFailed {
		return s.meet(met{s.repeated, s.id.MaterialDigest}, true)
	}
	if s.idempotent {
		return s.set()
	}
	if s.own.op != nil {
		return s.meet(s.own, false)
	}
	return s.open(nil)
}

// meet decides about a call whose operation is there. same: it is the very same call come again.
func (s *situation) meet(m met, same bool) decision {
	op := m.op
	switch op.Status {
	case StatusAwaitingApproval, StatusApproved:
		return s.waiting(m)
	case StatusRejected:
		return s.refusedBefore(m, same)
	}
	changed := m.digest != op.Digest
	answer := func(o Outcome, r Reason) decision {
		return decision{act: actAnswer, op: op, digest: m.digest, outcome: o, reason: r}
	}
	if changed && op.Status != StatusFailed && op.Status != StatusAbandoned && !s.over(op) {
		d := answer(Blocked, ReasonArgumentsChanged)
		d.carries = op.Owed()
		return d
	}
	switch op.Status {
	case StatusDispatching:
		return decision{act: actJoin, op: op, digest: m.digest}
	case StatusFailed:
		return s.open(&m)
	case StatusAbandoned:
		if op.Allowed != nil && !same {
			return s.open(&m)
		}
		return answer(Blocked, ReasonAbandoned)
	case StatusUnknown, StatusEscalated:
		return s.unresolved(m)
	}
	if !same && s.over(op) {
		return s.open(&m)
	}
	return answer(Replayed, ReasonDone)
}

// over reports whether a succeeded operation no longer answers: the call is a new occurrence.
func (s *situation) over(op *Operation) bool {
	switch {
	case op.Status != StatusSucceeded:
		return false
	case op.Allowed != nil:
		return true
	case op.Owed():
		return false
	case s.repeat > 0 && !s.now.Before(op.Delivered.Add(s.repeat)):
		return true
	case op.Class == keyderive.ClassDeclared:
		return false
	case s.renewed:
		return true
	case op.Class == keyderive.ClassFacts:
		return false
	case s.written:
		return true
	}
	return op.Facts.Request == "" && s.now.After(op.Delivered.Add(turn))
}

// turn is how long after its delivery a call without any runtime fact is still taken for a repetition.
const turn = 60 * time.Second

// unresolved decides about a call whose operation may have happened.
func (s *situation) unresolved(m met) decision {
	op := m.op
	next := op.next(s.now, s.warrants)
	d := decision{act: actAnswer, op: op, digest: m.digest, outcome: Escalated, reason: ReasonOutcomeUnknown, at: next.at, frozen: true}
	switch {
	case next.step == stepNone && op.Spent:
		d.reason = ReasonAttemptsSpent
	case next.step == stepNone:
	case next.step == stepStay:
		d.outcome, d.reason = Pending, ReasonReconciling
	case next.step == stepLook:
		d.act = actLook
	case next.at.After(s.now):
		d.act = actWait
	default:
		d.act = actDispatch
	}
	return d
}

// open decides about a call that would start an attempt: the next one of a failed operation, or a new occurrence
// behind m, or the first one. Nothing is dispatched before everything was asked that may answer or hold it.
func (s *situation) open(m *met) decision {
	var failed *met
	if m != nil && m.op.Status == StatusFailed {
		failed = m
	}
	for i := range s.others {
		switch o := &s.others[i]; {
		case m != nil && o.op.Key == m.op.Key || o.op.Facts.SourceEvent != s.facts.SourceEvent:
		case o.op.Status != StatusFailed:
			return s.take(*o)
		case failed == nil:
			failed = o
		}
	}
	but := ""
	if failed != nil {
		but = failed.op.Key
	}
	if d, held := s.heldBack(but); held {
		return d
	}
	d := decision{act: actDispatch, digest: s.id.MaterialDigest, occurrence: 1}
	ask := s.terms.required
	switch {
	case failed != nil:
		d.op, d.digest = failed.op, failed.digest
	case m != nil:
		if m.op.Intent == s.id.Intent {
			d.occurrence = m.op.Occurrence + 1
		}
		ask = ask || m.op.Status == StatusRejected
		d.rejected = m.op.Rejected
	}
	return s.approved(d, ask)
}

// approved turns a dispatch that needs a person's word into the asking for it.
func (s *situation) approved(d decision, ask bool) decision {
	switch {
	case !ask:
	case d.op != nil && d.digest == d.op.Digest && s.terms.usable(d.op, s.now):
		d.frozen = true // given back by an attempt that never left
	default:
		d.act = actAsk
	}
	return d
}

// heldBack reports whether another operation, but the one with key but, holds the call back: one on the same target under
// another source event, or one that shares a value with it.
func (s *situation) heldBack(but string) (decision, bool) {
	for _, o := range s.others {
		other := o.op.Facts.SourceEvent != s.facts.SourceEvent
		if other && o.op.Key != but && (o.op.Status == StatusUnknown || o.op.Status == StatusEscalated) {
			return decision{act: actAnswer, op: o.op, outcome: Blocked, reason: ReasonEarlierUnknown}, true
		}
	}
	if s.id.Class == keyderive.ClassDeclared {
		return decision{}, false
	}
	for _, h := range s.holding {
		if h.op.Key != but {
			return decision{act: actAnswer, op: h.op, outcome: Blocked, reason: ReasonEarlierUnknown, pointer: h.pointer, carries: h.op.Owed()}, true
		}
	}
	return decision{}, false
}

// take decides about a call that meets another request's, run's or step's operation on the same target.
func (s *situation) take(o met) decision {
	if o.digest != o.op.Digest && o.op.Status != StatusAwaitingApproval && o.op.Status != StatusApproved {
		return decision{act: actAnswer, op: o.op, outcome: Blocked, reason: ReasonEarlierUnknown, carries: o.op.Owed()}
	}
	return s.meet(o, false)
}

// set decides about a call of a state-setting tool: one in flight per entity, and none while one that may still
// arrive is on its way; then it is sent, whatever was sent before.
func (s *situation) set() decision {
	for _, o := range s.others {
		switch o.op.Status {
		case StatusDispatching:
			return decision{act: actQueue, op: o.op, digest: o.digest}
		case StatusUnknown, StatusEscalated:
			at := o.op.settled(s.warrants.settle)
			if !o.op.gone() {
				return decision{act: actAnswer, op: o.op, outcome: Pending, reason: ReasonReconciling, at: at}
			}
			if at.After(s.now) {
				return decision{act: actWait, op: o.op, at: at}
			}
		}
	}
	d := decision{act: actDispatch, digest: s.id.MaterialDigest, occurrence: 1}
	switch op := s.own.op; {
	case op == nil:
	case op.Status == StatusAwaitingApproval, op.Status == StatusApproved:
		return s.waiting(s.own)
	case op.Status == StatusSucceeded:
		d.occurrence = op.Occurrence + 1
	case op.Status == StatusAbandoned && op.Allowed == nil:
		return decision{act: actAnswer, op: op, outcome: Blocked, reason: ReasonAbandoned}
	case op.Status == StatusRejected && op.Allowed == nil:
		return decision{act: actAnswer, op: op, outcome: Blocked, reason: ReasonApprovalRejected}
	case op.Status.Final():
		d.occurrence, d.rejected = op.Occurrence+1, op.Rejected
	default:
		d.op, d.frozen = op, op.Status != StatusFailed
	}
	if d.frozen { // out of unknown: no new approval
		return d
	}
	return s.approved(d, s.terms.required || s.own.op != nil && s.own.op.Status == StatusRejected)
}

// newOperation returns the operation that a call opens, before its first attempt.
func newOperation(s *situation, t *Tool, occurrence int) *Operation {
	key, material := s.id.Key(occurrence)
	p := &t.Policy
	budget := p.Attempts
	if budget == 0 {
		budget = registry.DefaultAttempts
	}
	return &Operation{
		Key: key, Intent: s.id.Intent, Material: material, Occurrence: occurrence,
		Action: t.Action(), Effect: t.Effective, Facts: s.facts,
		Definition: s.id.Definition, Class: s.id.Class, Subject: s.id.Subject, Entity: s.entity,
		Policy: t.PolicyHash, Budget: budget, Grant: budget, Retention: retention(t), Generation: 1, Created: s.now,
	}
}

// attemptOf describes the attempt that a call or an order starts.
type attemptOf struct {
	owner, callID  string
	digest, frozen string
	timeout        time.Duration
	window         time.Duration // today's
	lookups        bool          // today's policy has some
	settle         time.Duration // of these
	call           *Event        // of the call that waits for it; nil: none does
	until          time.Time     // how long that call waits
}

// start adds an attempt to an operation: the one place where a dispatch begins.
func start(op *Operation, a attemptOf, now time.Time) *Attempt {
	if op.Status == StatusFailed || op.Status == StatusApproved || op.Status == "" {
		op.Digest, op.Frozen = a.digest, a.frozen
		op.Window, op.FirstSent = a.window, now
		if n := len(op.Attempts); n > 0 && op.Attempts[n-1].State == AttemptRefused && op.Attempts[n-1].Answered && op.Window > 0 {
			op.Generation++ // the downstream replays its refusals
		}
	}
	op.Timeout = a.timeout
	op.Window = min(op.Window, a.window)
	op.become(StatusDispatching)
	op.Sent++
	op.Budget--
	op.Waited = a.call != nil
	op.Spent = false
	op.Lookups, op.Settle = a.lookups, a.settle
	op.Looks, op.Looked, op.LookedAt = 0, 0, time.Time{}
	consumed := ""
	if op.Approval != nil && op.Approval.State == ApprovalApproved && op.Approval.Frozen == op.Frozen {
		op.Approval.State, consumed = ApprovalSpent, op.Approval.ID
	}
	op.add(Attempt{
		Approval: consumed,
		N:        op.Sent, Owner: a.owner, CallID: a.callID, Started: now, Deadline: now.Add(a.timeout),
		Frozen: op.Frozen, SentKey: keyderive.Generation(op.Key, op.Generation), State: AttemptOpen,
		Called: a.call == nil, Order: op.Ordered,
	})
	op.Ordered = nil
	return op.latest()
}
