package toolguard

import (
	"fmt"
	"slices"
	"time"

	"toolguard.dev/registry"
)

// become is the only place where a status is assigned.
func (op *Operation) become(to Status) {
	if !slices.Contains(transitions[op.Status], to) {
		panic(fmt.Sprintf("toolguard: no transition from %q to %q", op.Status, to))
	}
	op.Status = to
}

// evidence is what was learned of one attempt.
type evidence struct {
	attempt      int
	state        AttemptState // AttemptUnsent, AttemptRefused, AttemptUnknown or AttemptSucceeded
	finished     bool         // its sender can send nothing any more
	gone         time.Time    // since when, if that is known better than now
	answered     bool         // the tool itself answered
	exists       bool         // refused, because a thing with our key is there already: some other attempt made it
	says         string
	downstreamID string
}

// settle applies evidence to an operation and returns the events that tell of it, each without its circumstances.
// It is pure: time comes in, nothing goes out.
func settle(op *Operation, ev evidence, now time.Time) []EventType {
	a := op.attempt(ev.attempt)
	if a == nil {
		return nil
	}
	before := *a
	if ev.finished && !a.Finished {
		a.Finished, a.Gone = true, now
		if !ev.gone.IsZero() {
			a.Gone = ev.gone
		}
	}
	if ev.state != AttemptUnknown || a.State == AttemptOpen {
		if a.State != AttemptSucceeded {
			a.State = ev.state
			a.Ended = now
		}
		if ev.says != "" {
			a.Says = ev.says
		}
		a.Input = false
		a.Answered = ev.answered
	}
	if op.Status.Final() {
		return late(op, before, a)
	}
	if a.State == before.State && a.Finished == before.Finished {
		return nil
	}
	events := []EventType{EventSettled}
	if a.State == before.State {
		events = nil // only its sender ended
	}

	if a.State == AttemptSucceeded || ev.exists && ev.state == AttemptRefused && op.unresolved() {
		if a.State == AttemptSucceeded && a.Frozen != op.Frozen {
			// Something was done, but not what the operation stands for now.
			if op.Status != StatusEscalated {
				op.become(StatusEscalated)
				events = append(events, EventEscalated)
			}
			return events
		}
		op.become(StatusSucceeded)
		op.Settled = now
		if ev.downstreamID != "" {
			op.DownstreamID = ev.downstreamID
		}
		if op.doneOtherwise(a) {
			op.contradict("attempt %d was answered as done after another attempt, with other arguments, had been", a.N)
			events = append(events, EventConflict)
		}
		return events
	}
	if a.State == AttemptUnsent && before.State != AttemptUnsent && a.N == op.Sent {
		op.Budget++
		if op.Ordered == nil {
			op.Ordered = a.Order
		}
		if op.Approval != nil && a.Approval == op.Approval.ID {
			op.Approval.State = ApprovalApproved
		}
	}
	switch {
	case op.Status == StatusAwaitingApproval || op.Status == StatusApproved:
		return events // these attempts are behind it, and nothing more was learned of them
	case op.running():
		return events
	case !op.unresolved() && !op.done():
		if op.Status != StatusFailed {
			op.become(StatusFailed)
		}
		op.Budget = op.Grant
		return events
	}
	if op.DownstreamID == "" {
		op.DownstreamID = ev.downstreamID // a lookup may ask for it
	}
	if op.next(now, op.warrants()).step == stepNone {
		if op.Status != StatusEscalated {
			op.become(StatusEscalated)
			op.Spent = op.Budget <= 0 && op.Window > 0
			events = append(events, EventEscalated)
		}
	} else if op.Status == StatusDispatching {
		op.become(StatusUnknown)
	}
	return events
}

// late marks what evidence on a final operation means: never a change of status.
func late(op *Operation, before Attempt, a *Attempt) []EventType {
	if a.State == before.State {
		return nil
	}
	switch {
	case a.State == AttemptSucceeded && op.Resolved != nil:
		op.contradict("attempt %d was answered as done after a person had decided %q", a.N, op.Resolved.Verdict)
	case a.State == AttemptSucceeded && op.Status == StatusRejected:
		op.contradict("attempt %d was answered as done after a person had rejected it", a.N)
	case a.State == AttemptSucceeded && !op.sameEffect(a):
		op.contradict("attempt %d was answered as done after another attempt had been", a.N)
	case a.proven() && op.Resolved != nil && op.Status == StatusSucceeded && !op.unresolved():
		op.contradict("attempt %d was answered as not done after a person had decided %q", a.N, op.Resolved.Verdict)
	default:
		return []EventType{EventSettled}
	}
	return []EventType{EventSettled, EventConflict}
}

// contradict notes evidence that speaks against how a final operation stands: a person has to look at it.
func (op *Operation) contradict(format string, args ...any) {
	op.Conflict, op.Seen = fmt.Sprintf(format, args...), nil
}

// sameEffect reports whether attempt a cannot have had an effect of its own: the downstream honours keys, and another
// attempt that succeeded carried the same one.
func (op *Operation) sameEffect(a *Attempt) bool {
	for i := range op.Attempts {
		b := &op.Attempts[i]
		if b.N != a.N && b.State == AttemptSucceeded && b.SentKey == a.SentKey && op.Window > 0 {
			return true
		}
	}
	return false
}

// doneOtherwise reports whether an attempt other than a succeeded with other bytes.
func (op *Operation) doneOtherwise(a *Attempt) bool {
	return slices.ContainsFunc(op.Attempts, func(b Attempt) bool {
		return b.N != a.N && b.State == AttemptSucceeded && b.Frozen != a.Frozen
	})
}

// unresolved reports whether some attempt may have happened.
func (op *Operation) unresolved() bool {
	return slices.ContainsFunc(op.Attempts, func(a Attempt) bool {
		return a.State == AttemptUnknown || a.State == AttemptOpen
	})
}

// done reports whether some attempt was answered as done.
func (op *Operation) done() bool {
	return slices.ContainsFunc(op.Attempts, func(a Attempt) bool { return a.State == AttemptSucceeded })
}

// running reports whether an attempt is on its way.
func (op *Operation) running() bool {
	return slices.ContainsFunc(op.Attempts, func(a Attempt) bool { return a.State == AttemptOpen })
}

// gone reports whether the sender of every attempt that may have happened has finished or died.
func (op *Operation) gone() bool {
	return !slices.ContainsFunc(op.Attempts, func(a Attempt) bool { return !a.proven() && !a.Finished })
}

// deadline is the latest deadline of the attempts that may have happened: before it nothing is sent again.
func (op *Operation) deadline() time.Time {
	var t time.Time
	for i := range op.Attempts {
		if a := &op.Attempts[i]; !a.proven() && a.Deadline.After(t) {
			t = a.Deadline
		}
	}
	return t
}

// warrants are what there may be to go on with an operation out of unknown.
type warrants struct {
	window  time.Duration // how long the downstream honours our key
	timeout time.Duration // of the attempt that would be made
	denied  bool          // the tool is not called any more, whatever else there is
	sets    bool          // the tool sets a state: it may be sent again by a call that wants it
	lookups bool
	settle  time.Duration // of the lookups
	demand  bool          // somebody asks: one more round of lookups, where their budget is spent
}

// warrants are those that were declared when the latest attempt was sent.
func (op *Operation) warrants() warrants {
	return warrants{window: op.Window, timeout: op.Timeout, sets: op.Effect == registry.Idempotent, lookups: op.Lookups, settle: op.Settle}
}

// today's warrants for an operation: a window that was shortened counts, a longer one does not.
func (t *Tool) warrants() warrants {
	w := warrants{
		window: t.Policy.DownstreamKey.Window, timeout: cmpDuration(t.Policy.Timeout, registry.DefaultTimeout),
		denied: t.Effective == registry.Deny, sets: t.Effective == registry.Idempotent, lookups: len(t.Policy.Lookups) > 0,
	}
	for i := range t.Policy.Lookups {
		w.settle = max(w.settle, t.Policy.Lookups[i].Settle)
	}
	return w
}

// step is what may be done next about an operation out of unknown.
type step int

const (
	stepNone step = iota // nothing: only a person, or late evidence
	stepStay             // nothing yet: its sender may still send
	stepLook             // ask the lookups
	stepSend             // send the frozen bytes again
)

type next struct {
	step step
	at   time.Time
}

// next says what may be done about an operation out of unknown, and from when on, under which of DESIGN's warrants there is.
func (op *Operation) next(now time.Time, w warrants) next {
	if op.done() && op.Ordered == nil {
		return next{} // with other bytes than the operation's: what more there is to do only a person knows
	}
	w.window = min(op.Window, w.window)
	look, looks := op.lookAt(now, w)
	send, sends := op.sendAt(now, w)
	switch gone := op.gone() || op.Ordered != nil; {
	case looks && (!sends || !gone || !look.After(send)):
		return next{stepLook, look}
	case sends && gone:
		return next{stepSend, send}
	case sends:
		return next{stepStay, send}
	}
	return next{}
}

// sendAt says from when on the frozen bytes may be sent again; not ok: never, unless a lookup proves an absence.
func (op *Operation) sendAt(now time.Time, w warrants) (at time.Time, ok bool) {
	if w.denied {
		return at, false
	}
	at = op.deadline()
	if now.After(at) {
		at = now
	}
	if op.Ordered != nil || w.sets {
		return op.backoff(at), true
	}
	if w.window <= 0 || op.Budget <= 0 {
		return time.Time{}, false
	}
	at = op.backoff(at)
	if at.Add(w.timeout + w.window/10).After(op.FirstSent.Add(w.window)) {
		return time.Time{}, false
	}
	return at, true
}

const (
	maxLooks   = 8           // rounds of lookups that could have proved an absence and did not, before a person is asked
	lookAgain  = time.Minute // between rounds on demand, once these are spent
	maxBackoff = 9           // 1 s, 2 s, … 512 s between rounds
)

// lookAt says when the next round of lookups is due.
func (op *Operation) lookAt(now time.Time, w warrants) (at time.Time, ok bool) {
	switch {
	case !w.lookups:
		return at, false
	case op.LookedAt.IsZero():
		return now, true
	case op.Looked >= maxLooks:
		at = op.LookedAt.Add(lookAgain)
		return now, w.demand && !at.After(now)
	}
	n := op.Looks
	if op.Looked > 0 {
		n = op.Looked
	}
	at = op.LookedAt.Add(time.Second << min(max(n-1, 0), maxBackoff))
	if settled := op.settled(w.settle); op.gone() && settled.After(op.LookedAt) && settled.Before(at) {
		at = settled
	}
	if at.Before(now) {
		at = now
	}
	return at, true
}

// settled is the moment from which on an absence that a lookup shows is one: settle after the deadlines and the ends of the
// senders of all attempts that may have happened. It means something only once these are gone.
func (op *Operation) settled(settle time.Duration) time.Time {
	at := op.deadline()
	for i := range op.Attempts {
		if a := &op.Attempts[i]; !a.proven() && a.Gone.After(at) {
			at = a.Gone
		}
	}
	return at.Add(max(settle, op.Settle))
}

// backoff delays a new attempt behind attempts that never left: 1 s, 2 s, 4 s … 64 s after the latest.
func (op *Operation) backoff(at time.Time) time.Time {
	n := 0
	for i := len(op.Attempts) - 1; i >= 0 && op.Attempts[i].State == AttemptUnsent; i-- {
		n++
	}
	if n == 0 {
		return at
	}
	if t := op.latest().Ended.Add(time.Second << min(n-1, 6)); t.After(at) {
		return t
	}
	return at
}
