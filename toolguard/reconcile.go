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

// Picture is what the lookups that do not ask for our key saw before the first byte left. Without it they prove
// nothing: what they find may have been there.
type Picture struct {
	At     time.Time `json:"at"`               // when it was begun
	Policy string    `json:"policy"`           // the lookups are those of this policy
	Absent []int     `json:"absent,omitempty"` // numbers of the lookups that found nothing
}

const (
	lookTime     = 30 * time.Second // how long one lookup may take
	pictureShare = 4                // of an attempt's time, which all those before it may take
)

// keyless reports whether the tool has a lookup that does not ask for our key.
func (t *Tool) keyless() bool {
	return slices.ContainsFunc(t.Policy.Lookups, func(l registry.Lookup) bool { return !l.Keyed() })
}

// targetLane is where the dispatches on an operation's target are listed, of all workflows of the tenant.
func targetLane(op *Operation) string {
	var material struct {
		Target json.RawMessage `json:"target"`
	}
	_ = json.Unmarshal(op.Material, &material) // canonical JSON of our own
	return lane("t", keyderive.Facts{Tenant: op.Facts.Tenant}, op.Action, string(material.Target))
}

// takePicture asks the lookups without the key before an attempt is sent, and records what they saw.
func (g *Guard) takePicture(ctx context.Context, t *Tool, f *flight) {
	op := f.picture
	ctx, cancel := context.WithTimeout(ctx, op.Timeout/pictureShare) // the attempt itself must keep its time
	defer cancel()
	p := &Picture{At: time.Now().UTC(), Policy: t.PolicyHash}
	values, err := valuesOf(op, f.arguments)
	if err != nil {
		return
	}
	for i := range t.Policy.Lookups {
		if t.Policy.Lookups[i].Keyed() {
			continue
		}
		if g.ask(ctx, t, i, values).Finding == registry.Absent {
			p.Absent = append(p.Absent, i)
		}
	}
	err = g.update(op.Key, func(op *Operation) *Write {
		if a := op.attempt(f.attempt); a != nil {
			a.Picture = p
		}
		return g.write(op)
	})
	if err != nil {
		g.log.Warn("what was there before a call could not be recorded; a lookup without the key will prove nothing about it", "tool", t.Action(), "key", op.Key, "error", err)
	}
}

func valuesOf(op *Operation, arguments json.RawMessage) (registry.Values, error) {
	args, err := keyderive.Parse(arguments)
	key := ""
	for i := len(op.Attempts) - 1; i >= 0 && key == ""; i-- {
		if a := &op.Attempts[i]; !a.proven() {
			key = a.SentKey
		}
	}
	return registry.Values{Key: key, Arguments: args, Facts: op.Facts, DownstreamID: op.DownstreamID}, err
}

func (g *Guard) ask(ctx context.Context, t *Tool, i int, values registry.Values) registry.Found {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return t.Look(ctx, i, values)
}

// look makes a round of lookups for an operation, or joins the one that is under way. The channel is closed when its
// finding is recorded.
func (g *Guard) look(t *Tool, key string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if done := g.looks[key]; done != nil {
		return done
	}
	done := make(chan struct{})
	g.looks[key] = done
	go func() {
		op, err := g.reconcile(t, key)
		g.mu.Lock()
		delete(g.looks, key)
		g.mu.Unlock()
		close(done)
		switch {
		case err == nil && op != nil:
			g.schedule(t, op)
		case err != nil && !errors.Is(err, ErrStoreClosed) && !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) && !isConflict(err):
			g.log.Error("an operation could not be reconciled", "tool", t.Action(), "key", key, "error", err)
		}
	}()
	return done
}

// round is what one round of lookups came to.
type round struct {
	began   time.Time
	found   registry.Found
	lookup  int  // the number of the one that told, from 1
	absence bool // the finding Absent proves it
	why     string
}

// reconcile makes a round of lookups and records what it proves: an effect, or an absence, after which the frozen bytes are
// sent again in the same write. It returns the operation as it stands then, nil where there was nothing to find out.
func (g *Guard) reconcile(t *Tool, key string) (*Operation, error) {
	op, err := g.load(key)
	if err != nil || op.Status != StatusUnknown && op.Status != StatusEscalated {
		return nil, err
	}
	arguments, err := g.frozen(context.Background(), op)
	if err != nil {
		return nil, err
	}
	r, err := g.round(g.alive, t, op, arguments)
	if err == nil {
		err = g.alive.Err() // what the guard's end cut short proves nothing
	}
	if err != nil {
		return nil, err
	}
	room := g.rooms.enter(op.room())
	defer g.rooms.leave(room)
	room.Lock()
	defer room.Unlock()
	return g.conclude(t, op, arguments, r)
}

// round asks the lookups in order: the first that finds the effect tells, and an absence is one only if none of the
// others finds the effect.
func (g *Guard) round(ctx context.Context, t *Tool, op *Operation, arguments json.RawMessage) (round, error) {
	r := round{began: time.Now(), found: registry.Found{Finding: registry.Unclear}}
	values, err := valuesOf(op, arguments)
	if err != nil {
		return r, err
	}
	for i := range t.Policy.Lookups {
		found := g.ask(ctx, t, i, values)
		if !t.Policy.Lookups[i].Keyed() && found.Finding != registry.Unclear {
			crowd, err := g.crowded(op, t.warrants().settle) // after the answer: who came before it is seen
			if err != nil {
				return r, err
			}
			if why := cmpOr(crowd, op.unpictured(t, i)); why != "" {
				r.why = why
				continue
			}
		}
		switch {
		case found.Finding == registry.Applied && r.found.Finding == registry.Absent:
			r.found.Finding, r.why = registry.Unclear, "the lookups contradict each other"
			return r, nil
		case found.Finding == registry.Applied:
			r.found, r.lookup = found, i+1
			return r, nil
		case r.found.Finding == registry.Unclear && (found.Finding == registry.Absent || r.lookup == 0):
			r.found, r.lookup = found, i+1
		}
	}
	settled := op.settled(t.warrants().settle)
	r.absence = r.found.Finding == registry.Absent && op.gone() && !r.began.Before(settled)
	if r.found.Finding == registry.Absent && !r.absence {
		r.why = "it may still show"
	}
	return r, nil
}

// unpictured says why a lookup without the key proves nothing about an operation; "": it may.
func (op *Operation) unpictured(t *Tool, lookup int) string {
	for i := range op.Attempts {
		a := &op.Attempts[i]
		switch {
		case a.proven():
			continue
		case a.Picture == nil || a.Picture.Policy != t.PolicyHash:
			return "it was not looked at before the call"
		case !slices.Contains(a.Picture.Absent, lookup):
			return "something of the kind was there before the call"
		}
		return ""
	}
	return "no attempt is in doubt"
}

// crowded says which other operation on the target keeps a lookup without the key from proving anything; "": none.
func (g *Guard) crowded(op *Operation, settle time.Duration) (string, error) {
	page, err := g.operations(context.Background(), Query{Tenant: op.Facts.Tenant, Lane: targetLane(op)})
	if err != nil {
		return "", err
	}
	var taken time.Time
	for i := range op.Attempts {
		if a := &op.Attempts[i]; !a.proven() && a.Picture != nil {
			taken = a.Picture.At
			break
		}
	}
	for _, o := range page.Operations {
		switch {
		case o.Key == op.Key:
		case o.Dispatched > op.Dispatched:
			return "another operation on the target was dispatched since", nil
		case o.Status == StatusSucceeded && o.Settled.After(taken.Add(-settle)):
			return "another operation on the target was done shortly before", nil
		case !o.Status.Final() && o.Status != StatusFailed, o.Status == StatusAbandoned && o.Settled.After(taken):
			return "another operation on the target was open", nil
		case o.Status.Final() && o.arrives(taken, settle):
			return "an attempt of another operation on the target could still arrive", nil
		}
	}
	return "", nil
}

// arrives reports whether an effect of the operation may begin to show after a time, whatever was decided about it before.
func (op *Operation) arrives(after time.Time, settle time.Duration) bool {
	return slices.ContainsFunc(op.Attempts, func(a Attempt) bool {
		last := a.Deadline
		switch {
		case a.proven():
			return false
		case a.State == AttemptSucceeded:
			last = a.Ended
		case !a.Finished:
			return true
		case a.Gone.After(last):
			last = a.Gone
		}
		return last.Add(settle).After(after)
	})
}

// conclude records a round. The room is held; the operation is as it was when the round began, or the store refuses.
func (g *Guard) conclude(t *Tool, op *Operation, arguments json.RawMessage, r round) (*Operation, error) {
	now := time.Now()
	op.Looks++
	op.LookedAt = r.began
	if op.gone() && !r.began.Before(op.settled(t.warrants().settle)) {
		op.Looked++
	}
	event := func() Event {
		e := eventOf(op, EventReconciled, now)
		e.Detail = map[string]any{"found": string(r.found.Finding), "proves": r.absence || r.found.Finding == registry.Applied}
		if r.lookup > 0 {
			e.Detail["lookup"] = cmpOr(t.Policy.Lookups[r.lookup-1].Tool, fmt.Sprint(r.lookup))
		}
		for name, text := range map[string]string{"says": r.found.Says, "why": r.why} {
			if text != "" {
				e.Detail[name] = text
			}
		}
		return e
	}
	switch {
	case r.found.Finding == registry.Applied:
		ev := evidence{attempt: op.doubted(), state: AttemptSucceeded, downstreamID: r.found.DownstreamID, says: "a lookup found it"}
		if r.found.Says != "" {
			ev.says = "a lookup found it: " + r.found.Says
			ev.says = ev.says[:min(len(ev.says), maxSays)]
		}
		w := g.settling(t, op, arguments, ev, registry.Answer{}, now)
		w.Events = append([]Event{event()}, w.Events...)
		return op, g.store.Commit(context.Background(), w)
	case r.absence && op.Budget > 0 && t.Effective == registry.Write:
		_, err := g.launch(context.Background(), t, op, &Write{Events: []Event{event()}},
			attemptOf{owner: g.process, digest: op.Digest, frozen: op.Frozen}, registry.Dispatch{Arguments: arguments})
		return nil, err
	}
	w := g.write(op)
	w.Events = []Event{event()}
	spent := r.absence && t.Effective == registry.Write // nothing is left to send it with
	if op.Status == StatusUnknown && (spent || op.next(now, t.warrants()).step == stepNone) {
		op.become(StatusEscalated)
		op.Spent = spent
		w.Events = append(w.Events, eventOf(op, EventEscalated, now))
		op.list(w)
	}
	return op, g.store.Commit(context.Background(), w)
}

// certain is how many of the kept attempts are known not to have happened.
func (op *Operation) certain() (n int) {
	for i := range op.Attempts {
		if op.Attempts[i].proven() {
			n++
		}
	}
	return n
}

// doubted is the number of the latest attempt that may have happened.
func (op *Operation) doubted() int {
	for i := len(op.Attempts) - 1; i >= 0; i-- {
		if a := &op.Attempts[i]; !a.proven() {
			return a.N
		}
	}
	return 0
}
