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

// survey reads into s what the call may have to meet, and returns the sequence as of which it was read.
func (g *Guard) survey(v *visit, s *situation) (seq uint64, err error) {
	t, f, action := v.Tool, v.Facts, v.Tool.Action()
	*s = situation{
		now: time.Now(), id: v.id, facts: f, frozen: v.frozen, input: v.Input != nil,
		idempotent: t.Effective == registry.Idempotent, entity: v.entity,
		repeat: t.Policy.RepeatAfter, warrants: t.warrants(), terms: termsOf(t, f, v.args),
	}
	s.warrants.demand = !v.unasked
	page, err := g.operations(v.lasting, Query{Tenant: f.Tenant, Intent: v.id.Intent, Limit: 1})
	if err != nil {
		return 0, err
	}
	seq = page.Seq
	if len(page.Operations) > 0 {
		s.own = met{page.Operations[0], v.id.MaterialDigest}
		if _, material := v.id.Key(s.own.op.Occurrence); string(material) != string(s.own.op.Material) {
			return 0, errCollision
		}
	}
	past := t.past(action, f, v.args)
	for _, id := range past {
		if s.own.op != nil {
			break
		}
		page, err := g.operations(v.lasting, Query{Tenant: f.Tenant, Intent: id.Intent, Limit: 1})
		if err != nil {
			return 0, err
		}
		if len(page.Operations) > 0 && (id.Class.Strict() || page.Operations[0].listed()) {
			s.own = met{page.Operations[0], id.MaterialDigest}
		}
	}
	if index := v.takenIndex(); index != "" && s.own.op == nil {
		page, err := g.operations(v.lasting, Query{Tenant: f.Tenant, Call: index})
		if err != nil {
			return 0, err
		}
		if len(page.Operations) > 0 && page.Operations[0].Definition == v.id.Definition {
			s.own = met{page.Operations[0], v.id.MaterialDigest}
		}
	}
	if index := v.callIndex(); index != "" {
		page, err := g.operations(v.lasting, Query{Tenant: f.Tenant, Call: index})
		if err != nil {
			return 0, err
		}
		if len(page.Operations) > 0 {
			s.repeated = page.Operations[0]
		}
	}
	if err := g.surveyOthers(v, s, past); err != nil {
		return 0, err
	}
	if op := s.own.op; op != nil && op.Status == StatusSucceeded && !s.idempotent {
		if err := g.surveyWrites(v, s, op); err != nil {
			return 0, err
		}
	}
	return seq, nil
}

// surveyOthers reads the open operations of the same target, and those that share a value with the call.
func (g *Guard) surveyOthers(v *visit, s *situation, past []keyderive.Identity) error {
	q := Query{Tenant: v.Facts.Tenant, Open: true, Workflow: v.Facts.Workflow, Action: v.Tool.Action()}
	if len(past) == 0 && !s.idempotent {
		q.Subject = v.id.Subject
	}
	page, err := g.operations(v.lasting, q)
	if err != nil {
		return err
	}
	for _, op := range page.Operations {
		switch {
		case !op.listed():
		case s.idempotent:
			if op.Entity == v.entity || s.own.op != nil && op.Key == s.own.op.Key { // made under another entity
				s.others = append(s.others, met{op, v.id.MaterialDigest})
			}
		case op.Definition == v.id.Definition:
			if op.Subject == v.id.Subject {
				s.others = append(s.others, met{op, v.id.MaterialDigest})
			}
		default:
			m, err := g.reread(v, op, past)
			if err != nil {
				return err
			}
			if m.op != nil {
				s.others = append(s.others, m)
			}
		}
	}
	if s.idempotent || s.id.Class == keyderive.ClassDeclared {
		return nil
	}
	q.Subject, q.Holding = "", true
	if page, err = g.operations(v.lasting, q); err != nil {
		return err
	}
	for _, op := range page.Operations {
		if !op.holding() || op.Facts.SourceEvent != v.Facts.SourceEvent || op.Definition == v.id.Definition && op.Subject == v.id.Subject {
			continue
		}
		_, args, err := g.arguments(v.lasting, op)
		switch {
		case errors.Is(err, ErrNotFound):
			continue // owed for so long that they are not kept any more
		case err != nil:
			return err
		}
		if pointer, shared := v.Tool.Shared(args, v.args); shared && !sameValue(args, v.args) {
			s.holding = append(s.holding, held{op, v.Tool.Cut(pointer)})
		}
	}
	return nil
}

// reread looks at an operation of an earlier definition with today's eyes: does it act on the same target? If not, the
// result is empty.
func (g *Guard) reread(v *visit, op *Operation, past []keyderive.Identity) (met, error) {
	_, args, err := g.arguments(v.lasting, op)
	switch {
	case errors.Is(err, ErrNotFound):
		return met{}, nil
	case err != nil:
		return met{}, err
	}
	today, err := v.Tool.deriver.Derive(op.Action, op.Facts, args)
	if err != nil || today.Subject != v.id.Subject {
		return met{}, nil
	}
	m := met{op: op}
	for _, id := range past {
		if id.Definition == op.Definition {
			m.digest = id.MaterialDigest
		}
	}
	return m, nil
}

// surveyWrites reads what was dispatched since an operation was.
func (g *Guard) surveyWrites(v *visit, s *situation, op *Operation) error {
	if op.Class == keyderive.ClassTurn && !op.Delivered.IsZero() {
		page, err := g.operations(v.lasting, Query{Tenant: v.Facts.Tenant, Lane: lane("w", v.Facts, v.Tool.Server), After: op.Dispatched, Limit: 1})
		if err != nil {
			return err
		}
		s.written = len(page.Operations) > 0
	}
	if op.Class != keyderive.ClassDeclared && v.entity != "" {
		page, err := g.operations(v.lasting, Query{Tenant: v.Facts.Tenant, Lane: lane("e", v.Facts, v.entity), After: op.Dispatched})
		if err != nil {
			return err
		}
		s.renewed = slices.ContainsFunc(page.Operations, func(o *Operation) bool { return o.Status == StatusSucceeded && o.Key != op.Key })
	}
	return nil
}

// operations reads from the store and adds the deliveries that it cannot show yet.
func (g *Guard) operations(ctx context.Context, q Query) (Page, error) {
	page, err := g.store.Operations(ctx, q)
	if err != nil {
		return page, err
	}
	g.marks.show(page.Operations)
	return page, nil
}

// arguments reads an operation's frozen bytes and their value. The error wraps ErrNotFound where they are gone.
func (g *Guard) arguments(ctx context.Context, op *Operation) (json.RawMessage, any, error) {
	body, err := g.body(ctx, op.Key)
	if err == nil && body.Arguments == nil {
		err = ErrNotFound
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the arguments of operation %s: %w", op.Key, err)
	}
	args, err := keyderive.Parse(body.Arguments)
	if err != nil {
		return nil, nil, fmt.Errorf("the arguments of operation %s: %w", op.Key, err)
	}
	return body.Arguments, args, nil
}

// frozen reads the bytes that an operation froze, and makes sure that they are these.
func (g *Guard) frozen(ctx context.Context, op *Operation) (json.RawMessage, error) {
	arguments, _, err := g.arguments(ctx, op)
	if err == nil && g.rehash(op.Frozen, arguments) != op.Frozen {
		err = fmt.Errorf("the arguments of operation %s are not those that were recorded: %w", op.Key, ErrDamaged)
	}
	return arguments, err
}

// takenIndex names the identity of a call that may be taken by an operation of another request, run or step on the same
// target; "" where there is no such one.
func (v *visit) takenIndex() string {
	f := v.Facts
	if v.Tool.Effective == registry.Idempotent || !v.id.Class.Strict() || f.Request == "" && f.Run == "" && f.Step == "" {
		return ""
	}
	return keyderive.Hash([]byte(lane("t", f, v.Tool.Action(), v.id.Intent)))
}

// take records that an operation made under another identity has taken the call: what it comes to is what this
// identity came to, for every later call too. The room is held. op is left as it was written.
func (g *Guard) take(v *visit, op *Operation) (*Operation, error) {
	index := v.takenIndex()
	if op == nil || index == "" || op.Intent == v.id.Intent || op.Definition != v.id.Definition {
		return op, nil
	}
	page, err := g.operations(v.lasting, Query{Tenant: v.Facts.Tenant, Call: index})
	if err != nil || len(page.Operations) > 0 && page.Operations[0].Key == op.Key {
		return op, err
	}
	op = op.clone()
	w := g.write(op)
	w.Call = index
	return op, g.store.Commit(context.Background(), w)
}

// callIndex names this very call, where the runtime numbers calls: within the run or session, for this tool and these arguments.
func (v *visit) callIndex() string {
	within := cmpOr(v.Facts.Run, v.Facts.Session)
	if v.Facts.CallID == "" || within == "" {
		return ""
	}
	return keyderive.Hash([]byte(lane("c", v.Facts, v.Tool.Action(), within, v.Facts.CallID, v.id.MaterialDigest)))
}
