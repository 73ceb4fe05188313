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
	finished     bool         // its sender has finished or died
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
	a.Finished = a.Finished || ev.finished
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
		op.DownstreamID = ev.downstreamID
		if op.doneOtherwise(a) {
			op.Conflict = fmt.Sprintf("attempt %d was answered as done after another attempt, with other arguments, had been", a.N)
			events = append(events, EventConflict)
		}
		return events
	}
	if a.State == AttemptUnsent && before.State == AttemptOpen {
		op.Budget++
		op.Ordered = a.Order
	}
	switch {
	case op.running():
		return events
	case !op.unresolved():
		if op.Status != StatusFailed {
			op.become(StatusFailed)
		}
		op.Budget = op.Grant
		return events
	}
	if _, ok := op.again(now, op.Window, op.Effect == registry.Idempotent); !ok {
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
		op.Conflict = fmt.Sprintf("attempt %d was answered as done after a person had decided %q", a.N, op.Resolved.Verdict)
	case a.State == AttemptSucceeded && !op.sameEffect(a):
		op.Conflict = fmt.Sprintf("attempt %d was answered as done after another attempt had been", a.N)
	case a.proven() && op.Resolved != nil && op.Status == StatusSucceeded && !op.unresolved():
		op.Conflict = fmt.Sprintf("attempt %d was answered as not done after a person had decided %q", a.N, op.Resolved.Verdict)
	default:
		return []EventType{EventSettled}
	}
	return []EventType{EventSettled, EventConflict}
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

// again says from when on the frozen bytes may be sent again out of unknown, under which of DESIGN's warrants
// there is; not ok: never. sets: the tool sets a state, which needs none. Whether the earlier senders are gone is asked separately (gone), for that has no time.
func (op *Operation) again(now time.Time, window time.Duration, sets bool) (at time.Time, ok bool) {
	at = op.deadline()
	if now.After(at) {
		at = now
	}
	if op.Ordered != nil || sets {
		return op.backoff(at), true
	}
	if window <= 0 || op.Budget <= 0 {
		return time.Time{}, false
	}
	at = op.backoff(at)
	if at.Add(op.Timeout + window/10).After(op.FirstSent.Add(window)) {
		return time.Time{}, false
	}
	return at, true
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
