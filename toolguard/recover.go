package toolguard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Recover settles what dead processes left in a store: an attempt on its way becomes unknown, never another run; a call
// that was never answered gets its audit event. alive reports whether a process, by the name that its attempts bear, still
// lives; nil: none does. [Open] calls it; a command that only reads or decides calls it instead of Open.
func Recover(ctx context.Context, store Store, alive func(process string) bool) error {
	if alive == nil {
		alive = func(string) bool { return false }
	}
	page, err := store.Operations(ctx, Query{Open: true, Due: true})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	errs := make(chan error, 1)
	for _, op := range page.Operations {
		if !orphaned(op, alive) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := recoverOperation(ctx, store, op, alive); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return fmt.Errorf("recover: %w", err)
	default:
		return nil
	}
}

// orphaned reports whether an attempt of op has a sender that is no more.
func orphaned(op *Operation, alive func(string) bool) bool {
	for i := range op.Attempts {
		if a := &op.Attempts[i]; !a.Finished && !a.proven() && !alive(a.Owner) {
			return true
		}
	}
	return false
}

func recoverOperation(ctx context.Context, store Store, op *Operation, alive func(string) bool) error {
	for {
		w := recovery(op, alive, time.Now())
		err := store.Commit(ctx, w)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if op, err = load(ctx, store, op.Key); err != nil {
			return err
		}
	}
}

// recovery is the write that tells of an operation's dead senders. It changes op.
func recovery(op *Operation, alive func(string) bool, now time.Time) *Write {
	var events []Event
	for i := range op.Attempts {
		a := &op.Attempts[i]
		if a.Finished || a.proven() || alive(a.Owner) {
			continue
		}
		called := a.Called
		a.Called = true
		op.Waited = false
		for _, typ := range settle(op, evidence{attempt: a.N, state: AttemptUnknown, finished: true, says: "the process that had sent it died"}, now) {
			e := eventOf(op, typ, now)
			e.Attempt = a.N
			e.Detail = map[string]any{"recovered": true}
			events = append(events, e)
		}
		if !called {
			e := eventOf(op, EventCall, now)
			e.Attempt = a.N
			e.CallID = a.CallID
			e.Outcome, e.Reason = Pending, ReasonReconciling
			if op.Status == StatusEscalated {
				e.Outcome, e.Reason = Escalated, ReasonOutcomeUnknown
			}
			e.Detail = map[string]any{"recovered": true}
			events = append(events, e)
		}
	}
	w := &Write{Token: newToken(), Events: events}
	op.list(w)
	return w
}
