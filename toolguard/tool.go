package toolguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Tool is a registered tool as this guard treats it.
type Tool struct {
	*registry.Entry
	Effective registry.Effect // its effect: never looser than when it was first seen, unless the operator declared it
	Notes     []string        // what was ignored or changed at registration, one plain sentence each

	deriver *keyderive.Deriver   // the entry's, with what it needs for secrets
	earlier []*keyderive.Deriver // earlier identity definitions, latest first
	locked  error                // why its secrets cannot be kept: it is not called
}

// history is what the ledger keeps of a tool.
type history struct {
	Effect      registry.Effect        `json:"effect,omitempty"` // as first seen, made stricter only
	Definitions []keyderive.Definition `json:"definitions"`      // latest last
}

// maxDefinitions is how many identity definitions of a tool are kept; each costs every call of the tool a look.
const maxDefinitions = 16

// Register makes a tool known to the guard and to its ledger, or renews it under the same action. Its identity
// definition joins those kept from earlier, which go on answering for what was made under them.
func (g *Guard) Register(ctx context.Context, e *registry.Entry) (*Tool, error) {
	name := "tool/" + e.Action()
	for {
		data, rev, err := g.store.Document(ctx, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("register %s: %w", e.Action(), err)
		}
		var h history
		if len(data) > 0 {
			if err := json.Unmarshal(data, &h); err != nil {
				return nil, fmt.Errorf("register %s: the ledger's record of it: %w", e.Action(), err)
			}
		}
		t, changed, err := h.register(e)
		if err != nil {
			return nil, fmt.Errorf("register %s: %w", e.Action(), err)
		}
		if err := g.veil(ctx, t); err != nil {
			return nil, fmt.Errorf("register %s: %w", e.Action(), err)
		}
		if changed {
			if data, err = json.Marshal(h); err != nil {
				return nil, fmt.Errorf("register %s: %w", e.Action(), err)
			}
			err = g.store.Commit(ctx, &Write{Token: newToken(), Document: name, Data: data, DocumentRev: rev})
			if errors.Is(err, ErrConflict) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("register %s: %w", e.Action(), err)
			}
		}
		g.mu.Lock()
		g.tools[e.Action()] = t
		g.mu.Unlock()
		g.resume(ctx, t)
		return t, nil
	}
}

// Unregister forgets a tool that is no longer served; its attempts on their way go on.
func (g *Guard) Unregister(action string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tools, action)
}

// register adds a tool's definition and effect to its history.
func (h *history) register(e *registry.Entry) (t *Tool, changed bool, err error) {
	t = &Tool{Entry: e, Effective: e.Effect}
	if e.EffectSource != "declared" {
		if h.Effect != "" {
			t.Effective = e.Effect.Stricter(h.Effect)
		}
		if t.Effective != e.Effect {
			t.Notes = append(t.Notes, fmt.Sprintf("%s now says that it is %q; it was %q when it was first seen, and that stands until the configuration declares its effect.", e.Action(), e.Effect, t.Effective))
		}
		changed = h.Effect != t.Effective
		h.Effect = t.Effective
	}
	id := e.Definition.ID()
	kept := h.Definitions[:0:0]
	for _, d := range h.Definitions {
		if d.ID() == id {
			continue
		}
		kept = append(kept, d)
	}
	if n := len(h.Definitions); n == 0 || h.Definitions[n-1].ID() != id {
		changed = true
	}
	for i := len(kept) - 1; i >= 0; i-- {
		deriver, err := kept[i].Compile()
		if err != nil {
			return nil, false, fmt.Errorf("an earlier identity definition: %w", err)
		}
		t.earlier = append(t.earlier, deriver)
	}
	h.Definitions = append(kept, e.Definition)
	if n := len(h.Definitions) - maxDefinitions; n > 0 {
		h.Definitions = h.Definitions[n:]
	}
	return t, changed, nil
}

// past derives the identities that a call has under the earlier definitions, latest first. One that needs a fact
// or a target that the call does not have does not apply.
func (t *Tool) past(action string, f keyderive.Facts, args any) []keyderive.Identity {
	var ids []keyderive.Identity
	for _, d := range t.earlier {
		if id, err := d.Derive(action, f, args); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// resume looks after what earlier processes left of a tool's operations.
func (g *Guard) resume(ctx context.Context, t *Tool) {
	page, err := g.store.Operations(ctx, Query{Open: true, Due: true, Action: t.Action()})
	if err != nil {
		g.log.Error("open operations could not be read", "tool", t.Action(), "error", err)
		return
	}
	for _, op := range page.Operations {
		g.schedule(t, op)
	}
}

// schedule plans what is to be done next about an operation without a call that asks for it, if there is anything.
func (g *Guard) schedule(t *Tool, op *Operation) {
	at, ok := g.due(t, op)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.closing:
		return
	default:
	}
	if old := g.timers[op.Key]; old != nil {
		old.Stop()
	}
	key := op.Key
	g.timers[key] = time.AfterFunc(time.Until(at), func() { g.again(t.Action(), key) })
}

// due says when something is to be done about an operation without a call that asks for it.
func (g *Guard) due(t *Tool, op *Operation) (time.Time, bool) {
	n := t.onItsOwn(op, time.Now())
	return n.at, n.step == stepLook || n.step == stepSend
}

// onItsOwn is what may be done about an operation without a call that asks for it. State-setting tools are sent again by
// the next call only.
func (t *Tool) onItsOwn(op *Operation, now time.Time) next {
	if t.locked != nil {
		return next{}
	}
	switch op.Status {
	case StatusApproved:
		if t.Effective == registry.Deny {
			return next{}
		}
		return next{stepSend, now}
	case StatusUnknown, StatusEscalated:
		w := t.warrants()
		if w.sets {
			w.sets, w.window = false, 0
		}
		return op.next(now, w)
	}
	return next{}
}

// again does what is due about an operation, if it still is.
func (g *Guard) again(action, key string) {
	g.mu.Lock()
	delete(g.timers, key)
	t := g.tools[action]
	g.mu.Unlock()
	if t == nil {
		return
	}
	op, err := g.load(key)
	if err == nil {
		switch n := t.onItsOwn(op, time.Now()); {
		case n.step != stepLook && n.step != stepSend:
		case n.at.After(time.Now()):
			g.schedule(t, op)
		case n.step == stepLook:
			g.look(t, key)
		case op.Status == StatusApproved:
			err = g.carryOn(t, op)
		default:
			err = g.sendAgain(t, op)
		}
	}
	if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStoreClosed) {
		g.log.Error("an operation could not be looked after", "tool", action, "key", key, "error", err)
	}
}

// sendAgain sends an operation's frozen bytes again, if there is still a warrant for it.
func (g *Guard) sendAgain(t *Tool, op *Operation) error {
	r := g.rooms.enter(op.room())
	defer g.rooms.leave(r)
	r.Lock()
	defer r.Unlock()
	op, err := g.load(op.Key)
	if err != nil {
		return err
	}
	if n := t.onItsOwn(op, time.Now()); n.step != stepSend || op.Status == StatusApproved || n.at.After(time.Now()) {
		g.schedule(t, op)
		return nil
	}
	arguments, err := g.frozen(context.Background(), op)
	if err != nil {
		return err
	}
	_, err = g.launch(context.Background(), t, op, &Write{}, attemptOf{owner: g.process, digest: op.Digest, frozen: op.Frozen}, registry.Dispatch{Arguments: arguments})
	return err
}
