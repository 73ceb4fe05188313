package toolguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Approval is one request for a person's word on one thing: the operation's key, the hash of all frozen bytes, the
// action and the workflow version. It is good once, until it expires.
type Approval struct {
	ID         string        `json:"id"` // the operation's key, a dot, and the number of the request
	State      ApprovalState `json:"state"`
	Digest     string        `json:"digest"`               // over everything it binds; what a reviewer looked at
	Frozen     string        `json:"frozen"`               // hash of all frozen bytes
	Version    string        `json:"version,omitempty"`    // the fact workflow_version, if there was one
	Policy     string        `json:"policy"`               // hash of policy, schema and upstream
	Requesters []string      `json:"requesters,omitempty"` // who asked; none of them may approve
	Reviewers  []string      `json:"reviewers,omitempty"`  // who may decide; none named: every reviewer
	Requested  time.Time     `json:"requested"`
	Expires    time.Time     `json:"expires"`
	Decision   *Decision     `json:"decision,omitempty"`
}

// ApprovalState is where a request stands.
type ApprovalState string

const (
	ApprovalOpen     ApprovalState = "open"     // waits for a person
	ApprovalApproved ApprovalState = "approved" // not used yet, or given back by an attempt that never left
	ApprovalRejected ApprovalState = "rejected"
	ApprovalSpent    ApprovalState = "spent"   // an attempt was made with it
	ApprovalExpired  ApprovalState = "expired" // nobody decided, or nobody used it, in time
)

const (
	maxRequesters = 64
	maxRejected   = 16
)

// Stands is the state at a time: what is open or approved expires.
func (a *Approval) Stands(now time.Time) ApprovalState {
	if (a.State == ApprovalOpen || a.State == ApprovalApproved) && !now.Before(a.Expires) {
		return ApprovalExpired
	}
	return a.State
}

// terms are what a call asks of approvals.
type terms struct {
	required  bool // the policy wants one for this call
	version   string
	policy    string
	actor     string
	expires   time.Duration
	reviewers []string
}

func termsOf(t *Tool, f keyderive.Facts, args any) terms {
	w := terms{version: f.WorkflowVersion, policy: t.PolicyHash, actor: f.Actor, expires: registry.DefaultExpires}
	if p := t.Policy.Approval; p != nil {
		w.required = t.NeedsApproval(registry.Input{Arguments: args, Facts: f, Tool: t.Action()})
		w.expires, w.reviewers = cmpDuration(p.Expires, w.expires), p.Reviewers
	}
	return w
}

// fit reports whether a request binds what would be sent now: the same frozen bytes, under the same workflow version.
func (w terms) fit(op *Operation, now time.Time) bool {
	a := op.Approval
	return a != nil && a.Frozen == op.Frozen && a.Version == w.version && a.Policy == w.policy && now.Before(a.Expires)
}

// usable reports whether the operation has an approval that an attempt may consume.
func (w terms) usable(op *Operation, now time.Time) bool {
	return w.fit(op, now) && op.Approval.State == ApprovalApproved
}

// ask makes a request for approval, in place of the one there may be: the one place where one begins. Who asked for the
// operation before stays a requester.
func (op *Operation) ask(w terms, digest, frozen string, now time.Time) {
	if op.Status != StatusAwaitingApproval {
		op.become(StatusAwaitingApproval)
	}
	op.Asked++
	op.Digest, op.Frozen, op.Policy = digest, frozen, w.policy
	a := &Approval{
		ID: op.Key + "." + strconv.Itoa(op.Asked), State: ApprovalOpen, Frozen: frozen, Version: w.version, Policy: w.policy,
		Reviewers: w.reviewers, Requested: now.UTC(), Expires: now.Add(w.expires).UTC(),
	}
	a.Digest = bound(op, a)
	if op.Approval != nil {
		a.Requesters = op.Approval.Requesters
	}
	a.join(w.actor)
	op.Approval = a
}

// bound is the digest of what an approval is for.
func bound(op *Operation, a *Approval) string {
	text, _ := json.Marshal(map[string]string{ // strings: cannot fail
		"key": op.Key, "action": op.Action, "frozen": a.Frozen, "version": a.Version, "policy": a.Policy,
	})
	return keyderive.Digest(text)
}

// joins reports whether a requester is new to the request.
func (a *Approval) joins(actor string) bool {
	return actor != "" && !slices.Contains(a.Requesters, actor)
}

// AskedBy reports whether a person is one of the requesters, and so may not approve. A host may spell a name otherwise than
// the reviewers' list does: case, and space around it, make nobody another person.
func (a *Approval) AskedBy(name string) bool {
	return slices.ContainsFunc(a.Requesters, func(r string) bool {
		return r == "*" || strings.EqualFold(strings.TrimSpace(r), strings.TrimSpace(name))
	})
}

// join adds a requester. Beyond maxRequesters nobody can be told from one any more, so that "*" stands for everybody.
func (a *Approval) join(actor string) {
	switch {
	case !a.joins(actor):
	case len(a.Requesters) < maxRequesters:
		a.Requesters = append(slices.Clip(a.Requesters), actor)
	case !slices.Contains(a.Requesters, "*"):
		a.Requesters = append(slices.Clip(a.Requesters), "*")
	}
}

// waiting decides about a call whose operation waits for a person, or for its dispatch after one said yes.
func (s *situation) waiting(m met) decision {
	op := m.op
	switch {
	case m.digest != op.Digest && slices.Contains(op.Rejected, m.digest):
		return decision{act: actAnswer, op: op, digest: m.digest, outcome: Blocked, reason: ReasonApprovalRejected}
	case m.digest != op.Digest:
		return decision{act: actAsk, op: op, digest: m.digest}
	case !s.terms.fit(op, s.now): // expired, or what the person would rely on has changed
		return decision{act: actAsk, op: op, digest: m.digest, frozen: true}
	case op.Status == StatusAwaitingApproval:
		return decision{act: actAnswer, op: op, digest: m.digest, outcome: Pending, reason: ReasonApprovalRequired}
	}
	if d, held := s.heldBack(op.Key); held {
		return d
	}
	return decision{act: actDispatch, op: op, digest: m.digest, frozen: true}
}

// refusedBefore decides about a call whose operation a person rejected.
func (s *situation) refusedBefore(m met, same bool) decision {
	allowed := m.op.Allowed != nil && !same
	if !allowed && slices.Contains(m.op.Rejected, m.digest) {
		return decision{act: actAnswer, op: m.op, digest: m.digest, outcome: Blocked, reason: ReasonApprovalRejected}
	}
	return s.open(&m)
}

// ApprovalVerdict is what a person says to a request for approval.
type ApprovalVerdict struct {
	ID      string
	Approve bool   // false: reject
	Digest  string // of the request that was looked at; "" for whatever it is
	Note    string
	By      Person
}

// Person is who decides.
type Person struct {
	Name    string
	Proven  bool     // by a token that the agent's own account does not have; else every record says weak
	Tenants []string // whose operations; none named: all
}

// Sees reports whether a tenant's operations exist for the person.
func (p Person) Sees(tenant string) bool {
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenant)
}

// DecideApproval records what a person said to a request and returns the operation as it stands then. After an
// approval the process that serves the tool dispatches by itself. Errors wrap ErrNotFound (no such request, or of another tenant),
// ErrForbidden (a requester approves, or the policy names other reviewers) and ErrTransition: the request was decided,
// withdrawn or expired, or its digest is another one. A note of more than 4096 bytes is ErrTooLarge.
func DecideApproval(ctx context.Context, store Store, v ApprovalVerdict) (*Operation, error) {
	key, n, err := splitApproval(v.ID)
	if err != nil {
		return nil, err
	}
	if err := short(v.Note); err != nil {
		return nil, err
	}
	return decideOn(ctx, store, key, v.By, 0, 0, func(op *Operation, now time.Time) (*Write, error) {
		if n > op.Asked {
			return nil, fmt.Errorf("approval %s: %w", v.ID, ErrNotFound)
		}
		body, err := store.Body(ctx, key) // behind the operation: a write between them is a conflict
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		return decideApproval(op, body, v, now)
	})
}

// splitApproval takes an approval's id apart.
func splitApproval(id string) (key string, n int, err error) {
	key, number, ok := strings.Cut(id, ".")
	n, err = strconv.Atoi(number)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != number {
		return "", 0, fmt.Errorf("approval %.100q: %w", id, ErrNotFound)
	}
	return key, n, nil
}

// decideApproval applies a verdict. It is pure but for op, which it changes.
func decideApproval(op *Operation, body Body, v ApprovalVerdict, now time.Time) (*Write, error) {
	a := op.Approval
	switch {
	case a.ID != v.ID:
		return nil, fmt.Errorf("approval %s was withdrawn, because the call was changed or it had expired; the request is %s now: %w", v.ID, a.ID, ErrTransition)
	case a.State != ApprovalOpen || op.Status != StatusAwaitingApproval:
		return nil, fmt.Errorf("approval %s is decided already, or not needed any more (%s): %w", v.ID, a.State, ErrTransition)
	case a.Stands(now) == ApprovalExpired:
		return nil, fmt.Errorf("approval %s expired at %s; the next call asks again: %w", v.ID, a.Expires.Format(time.RFC3339), ErrTransition)
	case v.Digest != "" && v.Digest != a.Digest:
		return nil, fmt.Errorf("approval %s is for other arguments than those that were looked at: %w", v.ID, ErrTransition)
	case len(a.Reviewers) > 0 && !slices.Contains(a.Reviewers, v.By.Name):
		return nil, fmt.Errorf("approval %s is for %s to decide, not for %s: %w", v.ID, strings.Join(a.Reviewers, ", "), v.By.Name, ErrForbidden)
	case v.Approve && a.AskedBy(v.By.Name):
		return nil, fmt.Errorf("approval %s was asked for by %s, who may reject it but not approve it: %w", v.ID, v.By.Name, ErrForbidden)
	}
	d := &Decision{Verdict: "approve", By: v.By.Name, Note: v.Note, At: now.UTC(), Weak: !v.By.Proven, Attempt: op.Sent}
	w := &Write{}
	if v.Approve {
		a.State = ApprovalApproved
		op.become(StatusApproved)
	} else {
		d.Verdict = "reject"
		a.State = ApprovalRejected
		op.become(StatusRejected)
		op.Rejected = append(slices.Clip(op.Rejected), op.Digest)
		op.Rejected = op.Rejected[max(0, len(op.Rejected)-maxRejected):]
		op.Settled = now
		op.Body, op.BodyUntil = BodyStored, now.Add(op.Retention)
		w.Body, w.BodyUntil = body.bare(), op.BodyUntil
	}
	a.Decision = d
	w.Events = []Event{decisionEvent(op, EventApprovalDecided, d, now)}
	return w, nil
}

// request records that a call asks for approval. The room is held.
func (g *Guard) request(v *visit, s *situation, d decision, seq uint64) (*Result, error) {
	op, w, frozen := d.op, &Write{Token: newToken(), Fence: v.room, FenceSince: seq}, v.frozen
	if op == nil {
		op = newOperation(s, v.Tool, d.occurrence)
		op.Rejected = d.rejected
	} else {
		op = op.clone()
	}
	if d.frozen {
		frozen = op.Frozen
	} else {
		w.Body = g.bodyOf(v.Tool, op.Key, v.Arguments, nil)
	}
	now := time.Now()
	if old := op.Approval; old != nil && (old.State == ApprovalOpen || old.State == ApprovalApproved) {
		e := eventOf(op, EventApprovalDecided, now)
		e.Detail = map[string]any{"verdict": "withdrawn"}
		if old.Stands(now) == ApprovalExpired {
			e.Detail["verdict"] = "expired"
		}
		w.Events = append(w.Events, e)
	}
	op.ask(s.terms, d.digest, frozen, now)
	op.list(w)
	verdict := g.verdict(v, op, Pending, ReasonApprovalRequired)
	asked := eventOf(op, EventApprovalRequested, now)
	asked.Actor, asked.CallID, asked.Session = v.Facts.Actor, v.Facts.CallID, v.Facts.Session
	asked.Detail = map[string]any{"digest": op.Approval.Digest, "expires": op.Approval.Expires.Format(time.RFC3339)}
	w.Events = append(w.Events, asked)
	if !v.unasked {
		w.Events = append(w.Events, g.callEvent(v, verdict, now))
		w.Call = v.callIndex()
		w.CallUntil = now.Add(retention(v.Tool))
	}
	if err := g.store.Commit(context.Background(), w); err != nil {
		return nil, err
	}
	return g.result(verdict, registry.Answer{}, text(v.Tool.Name, verdict, told{op: op}), nil), nil
}

// joinRequest adds a call's requester to an open request, before the call is answered: a requester may not approve.
func (g *Guard) joinRequest(v *visit, op *Operation) error {
	if op.Status != StatusAwaitingApproval || !op.Approval.joins(v.Facts.Actor) {
		return nil
	}
	op = op.clone()
	op.Approval.join(v.Facts.Actor)
	return g.store.Commit(context.Background(), g.write(op))
}

// carryOn does what an approval warrants without a call that asks for it: sends the operation, or asks anew where the
// approval does not fit any more.
func (g *Guard) carryOn(t *Tool, op *Operation) error {
	arguments, err := g.frozen(context.Background(), op)
	if err != nil {
		return err
	}
	args, err := keyderive.Parse(arguments)
	if err != nil {
		return err
	}
	facts := op.Facts
	facts.WorkflowVersion = op.Approval.Version // what it is today only a call can tell
	v := &visit{Call: Call{Tool: t, Arguments: arguments, Facts: facts}, ctx: context.Background(), lasting: context.Background(), args: args, hide: t.Redactor(args), frozen: op.Frozen, unasked: true}
	if v.id, err = t.deriver.Derive(t.Action(), facts, args); err != nil {
		return fmt.Errorf("approved operation %s: %w", op.Key, err)
	}
	v.entity = t.Entity(args)
	v.room = roomOf(t.Effective, facts, t.Action(), v.id.Subject, v.entity)
	r := g.rooms.enter(v.room)
	defer g.rooms.leave(r)
	r.Lock()
	defer r.Unlock()
	var s situation
	seq, err := g.survey(v, &s)
	if err != nil {
		return err
	}
	d := decide(&s)
	switch {
	case d.op == nil || d.op.Key != op.Key || d.op.Status != StatusApproved || g.air(d.op) != nil:
	case d.act == actDispatch:
		_, err = g.dispatch(v, &s, d, seq)
	case d.act == actAsk:
		_, err = g.request(v, &s, d, seq)
	}
	return err
}
