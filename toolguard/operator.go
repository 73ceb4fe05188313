package toolguard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Verdicts of a person on an operation whose outcome nobody knows.
const (
	VerdictApplied    = "applied"     // it happened
	VerdictNotApplied = "not_applied" // it did not happen and will not any more
	VerdictAbandoned  = "abandoned"   // nobody wants to know any more; it stays blocked
)

const (
	maxDownstreamID = 1024
	maxNote         = 4 << 10
)

// Resolution is a person's verdict.
type Resolution struct {
	Key        string
	Verdict    string
	Occurrence int // of the operation as it was looked at; 0: whatever it is
	Attempt    int // the latest attempt then; 0: whatever it is
	Result     json.RawMessage
	// DownstreamID is the downstream's name for what was made, where the person found it.
	DownstreamID string
	Note         string
	By           Person
	Force        bool // not_applied too early: counts as an order to send the same bytes again
}

// RepeatOrder is a person's order: an operation whose outcome is unknown is sent again, the same bytes under the same
// key; a final one may have its next occurrence with the next call.
type RepeatOrder struct {
	Key        string
	Occurrence int
	Note       string
	By         Person
	Force      bool // although an attempt may still be on its way; it is sent only after that one's deadline
}

// Resolve records a verdict and returns the operation as it stands then. The same verdict again changes nothing.
// Errors wrap ErrNotFound, ErrTransition (it is not unknown, or was looked at in another state), ErrTooLarge (a note of
// more than 4096 bytes, an id of more than 1024), and ErrTooEarly: an attempt may still arrive.
func Resolve(ctx context.Context, store Store, r Resolution) (*Operation, error) {
	switch r.Verdict {
	case VerdictApplied, VerdictNotApplied, VerdictAbandoned:
	default:
		return nil, fmt.Errorf("verdict %q: it is applied, not_applied or abandoned: %w", r.Verdict, ErrTransition)
	}
	if len(r.DownstreamID) > maxDownstreamID {
		return nil, fmt.Errorf("a downstream id has at most %d bytes: %w", maxDownstreamID, ErrTooLarge)
	}
	if err := short(r.Note); err != nil {
		return nil, err
	}
	return decideOn(ctx, store, r.Key, r.By, r.Occurrence, r.Attempt, func(op *Operation, now time.Time) (*Write, error) {
		body, err := store.Body(ctx, r.Key) // behind the operation: a write between them is a conflict
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		return resolve(op, body, r, now)
	})
}

// Repeat records an order and returns the operation as it stands then. Errors wrap ErrNotFound, ErrTransition (it
// is running, was followed by another occurrence, or failed: then the next call sends it by itself), ErrTooLarge (the note)
// and ErrTooEarly.
func Repeat(ctx context.Context, store Store, r RepeatOrder) (*Operation, error) {
	if err := short(r.Note); err != nil {
		return nil, err
	}
	return decideOn(ctx, store, r.Key, r.By, r.Occurrence, 0, func(op *Operation, now time.Time) (*Write, error) {
		if op.Status.Final() {
			if err := latest(ctx, store, op); err != nil {
				return nil, err
			}
		}
		return repeat(op, r, now)
	})
}

// short refuses a note that is none any more: it stands in the record for ever.
func short(note string) error {
	if len(note) > maxNote {
		return fmt.Errorf("a note has at most %d bytes: %w", maxNote, ErrTooLarge)
	}
	return nil
}

// latest refuses an operation behind which another occurrence was opened already: calls do not meet it any more.
func latest(ctx context.Context, store Store, op *Operation) error {
	page, err := store.Operations(ctx, Query{Tenant: op.Facts.Tenant, Intent: op.Intent, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Operations) > 0 && page.Operations[0].Occurrence > op.Occurrence {
		next := page.Operations[0]
		return fmt.Errorf("operation %s was followed by occurrence %d, which is operation %s: repeat that one: %w", op.Key, next.Occurrence, next.Key, ErrTransition)
	}
	return nil
}

// decideOn applies a person's decision to the operation as it is stored; nil from apply changes nothing.
func decideOn(ctx context.Context, store Store, key string, by Person, occurrence, attempt int, apply func(*Operation, time.Time) (*Write, error)) (*Operation, error) {
	for {
		op, err := load(ctx, store, key)
		if err != nil {
			return nil, err
		}
		if !by.Sees(op.Facts.Tenant) {
			return nil, fmt.Errorf("operation %s: %w", key, ErrNotFound)
		}
		if occurrence != 0 && occurrence != op.Occurrence || attempt != 0 && attempt != op.Sent {
			return nil, fmt.Errorf("operation %s is at occurrence %d, attempt %d now: %w", key, op.Occurrence, op.Sent, ErrTransition)
		}
		w, err := apply(op, time.Now())
		if err != nil || w == nil {
			return op, err
		}
		w.Token = newToken()
		op.list(w)
		err = store.Commit(ctx, w)
		if !errors.Is(err, ErrConflict) {
			return op, err
		}
	}
}

// resolve applies a verdict. It is pure but for op, which it changes.
func resolve(op *Operation, body Body, r Resolution, now time.Time) (*Write, error) {
	if op.Status.Final() && op.Conflict != "" && (op.Seen == nil || op.Seen.Verdict == r.Verdict) {
		return see(op, r, now), nil
	}
	if op.Resolved != nil && op.Resolved.Verdict == r.Verdict && op.Resolved.Attempt == op.Sent && op.Status != StatusUnknown && op.Status != StatusEscalated {
		if r.Result != nil && !bytes.Equal(r.Result, body.Result) || r.DownstreamID != "" && r.DownstreamID != op.DownstreamID {
			return nil, fmt.Errorf("operation %s was decided already, with another result or name, and that stays: %w", op.Key, ErrTransition)
		}
		return nil, nil
	}
	if op.Status != StatusUnknown && op.Status != StatusEscalated {
		return nil, op.undecided()
	}
	decision := &Decision{Verdict: r.Verdict, By: r.By.Name, Note: r.Note, At: now.UTC(), Weak: !r.By.Proven, Attempt: op.Sent}
	w := &Write{}
	if r.Verdict == VerdictNotApplied {
		if err := op.early(now); err != nil {
			if !r.Force {
				return nil, err
			}
			return order(op, decision, now)
		}
	}
	op.Resolved, op.Ordered = decision, nil
	switch r.Verdict {
	case VerdictApplied:
		op.become(StatusSucceeded)
		op.Settled, op.DownstreamID = now, r.DownstreamID
		op.Body, op.BodyUntil = BodyStored, now.Add(op.Retention)
		w.Body, w.BodyUntil = body.bare(), op.BodyUntil
		w.Body.Result = r.Result
	case VerdictNotApplied:
		for i := range op.Attempts {
			if a := &op.Attempts[i]; !a.proven() {
				a.State, a.Says = AttemptRefused, "a person found that it was not done"
			}
		}
		op.become(StatusFailed)
		op.Budget = op.Grant
	case VerdictAbandoned:
		op.become(StatusAbandoned)
		op.Settled = now
		op.BodyUntil = now.Add(op.Retention)
		w.Body, w.BodyUntil = body.bare(), op.BodyUntil
	}
	w.Events = []Event{decisionEvent(op, EventResolved, decision, now)}
	return w, nil
}

// see records what a person found about a final operation that evidence contradicts. It changes no status and sends
// nothing; it takes the operation off the list of what waits for a person. The same again changes nothing.
func see(op *Operation, r Resolution, now time.Time) *Write {
	if op.Seen != nil {
		return nil
	}
	op.Seen = &Decision{Verdict: r.Verdict, By: r.By.Name, Note: r.Note, At: now.UTC(), Weak: !r.By.Proven, Attempt: op.Sent}
	e := decisionEvent(op, EventResolved, op.Seen, now)
	e.detail("conflict", op.Conflict)
	return &Write{Events: []Event{e}}
}

// Arrival is until when an attempt may still arrive, or show in a lookup: a verdict "not applied" before it is too early.
func (op *Operation) Arrival() time.Time { return op.settled(0) }

// early says why a verdict "not applied", or an order to repeat, is too early; nil: it is not.
func (op *Operation) early(now time.Time) error {
	switch {
	case now.Before(op.settled(0)):
		return fmt.Errorf("operation %s: its attempt may still arrive, or show, until %s: %w", op.Key, op.settled(0).UTC().Format(time.RFC3339), ErrTooEarly)
	case !op.gone():
		return fmt.Errorf("operation %s: the process that sent it still waits for an answer: %w", op.Key, ErrTooEarly)
	}
	return nil
}

// repeat applies an order. It is pure but for op, which it changes.
func repeat(op *Operation, r RepeatOrder, now time.Time) (*Write, error) {
	decision := &Decision{Verdict: "repeat", By: r.By.Name, Note: r.Note, At: now.UTC(), Weak: !r.By.Proven, Attempt: op.Sent}
	switch op.Status {
	case StatusUnknown, StatusEscalated:
		if op.Ordered != nil {
			return nil, nil
		}
		if err := op.early(now); err != nil {
			if !r.Force {
				return nil, err
			}
			decision.Forced = true
		}
		return order(op, decision, now)
	case StatusSucceeded, StatusAbandoned, StatusRejected:
		if op.Allowed != nil {
			return nil, nil
		}
		op.Allowed = decision
		return &Write{Events: []Event{decisionEvent(op, EventRepeatAllowed, decision, now)}}, nil
	}
	return nil, op.undecided()
}

// undecided says why a person can decide nothing about an operation in its status, and what there is to do.
func (op *Operation) undecided() error {
	what := "it can only be allowed to be done once more, by an order to repeat it"
	switch op.Status {
	case StatusAwaitingApproval:
		what = "approve or reject the request for it"
	case StatusApproved:
		what = "the server that serves the tool sends it by itself"
	case StatusDispatching:
		what = "its answer may still come; look again when the attempt has ended"
	case StatusFailed:
		what = "nothing happened, and the next call of the agent sends it"
	}
	return fmt.Errorf("operation %s is %s: %s: %w", op.Key, op.Status, what, ErrTransition)
}

// order makes a decision the warrant to send the frozen bytes again, with a new budget.
func order(op *Operation, d *Decision, now time.Time) (*Write, error) {
	d.Forced = d.Forced || d.Verdict == VerdictNotApplied
	op.Ordered = d
	op.Budget = op.Grant
	op.Spent = false
	return &Write{Events: []Event{decisionEvent(op, EventRepeatAllowed, d, now)}}, nil
}

func decisionEvent(op *Operation, typ EventType, d *Decision, now time.Time) Event {
	e := eventOf(op, typ, now)
	e.Reviewer = d.By
	e.Detail = map[string]any{"verdict": d.Verdict, "weak": d.Weak}
	if d.Note != "" {
		e.Detail["note"] = d.Note
	}
	if d.Forced {
		e.Detail["forced"] = true
	}
	return e
}
