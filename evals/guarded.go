package evals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// guarded is a line with toolguard in it, in process: a real guard on a real store.
type guarded struct {
	arm     *Arm
	event   string
	policy  *Policy // nil: the runtime says all facts
	seal    *toolguard.Seal
	entries []*registry.Entry
	by      map[string]int // entries by server and tool

	mu    sync.Mutex
	store *storetest.Memory
	born  int          // processes begun
	now   [2]*guarding // the second only where two work together
	world *World
	gone  []*guarding
}

// guarding is one process.
type guarding struct {
	name  string
	guard *toolguard.Guard
	tools []*toolguard.Tool
	ctx   context.Context
	kill  context.CancelFunc
}

// newGuarded starts the process, or both.
func newGuarded(a *Arm, f *Fault, w *World, event string, entries []*registry.Entry, o *Policy) (*guarded, error) {
	g := &guarded{arm: a, world: w, event: event, entries: entries, by: map[string]int{}, store: storetest.NewMemory(), policy: o}
	for i, e := range entries {
		g.by[e.Action()] = i
	}
	var err error
	if g.seal, err = toolguard.NewSeal(make([]byte, toolguard.SealKeySize)); err != nil { // what a policy calls secret is in the runs, for all to read
		return nil, err
	}
	for i := range f.processes() {
		p, err := g.begin()
		if err != nil {
			return nil, err
		}
		g.now[i] = p
	}
	return g, nil
}

// begin opens a guard on the store as it is.
func (g *guarded) begin() (*guarding, error) {
	g.born++
	p := &guarding{name: fmt.Sprintf("process %d", g.born)}
	p.ctx, p.kill = context.WithCancel(context.Background())
	var err error
	p.guard, err = toolguard.Open(p.ctx, g.ledger(), &toolguard.Options{
		Log: slog.New(slog.DiscardHandler), Process: p.name, Alive: g.alive, Seal: g.seal,
	})
	if err != nil {
		return nil, err
	}
	for _, e := range g.entries {
		t, err := p.guard.Register(p.ctx, e)
		if err != nil {
			return nil, errors.Join(err, p.guard.Close(p.ctx))
		}
		p.tools = append(p.tools, t)
	}
	return p, nil
}

func (g *guarded) ledger() *storetest.Memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.store
}

func (g *guarded) alive(process string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.now {
		if p != nil && p.name == process {
			return p.ctx.Err() == nil
		}
	}
	return false
}

func (g *guarded) do(q *question) said {
	g.mu.Lock()
	p := g.now[q.process]
	g.mu.Unlock()
	if p == nil || p.ctx.Err() != nil {
		return said{kind: saidNothing}
	}
	ctx, cancel := context.WithTimeout(p.ctx, q.patience)
	defer cancel()
	r := p.guard.Do(ctx, toolguard.Call{
		Tool: p.tools[g.by[q.server+"/"+q.tool]], Arguments: q.args, Facts: q.facts(g.arm, g.event, g.policy), Meta: q.meta(),
	})
	g.world.know(r.Verdict.Key, q.step)
	switch {
	case p.ctx.Err() != nil:
		return said{kind: saidNothing}
	case ctx.Err() != nil:
		return said{kind: saidError, text: "timed out"}
	}
	s := understood(r)
	s.took = r.Delivered
	return s
}

// facts are what the runtime says about a call: a chat client its session and call id, a workflow also where it is.
func (q *question) facts(a *Arm, event string, o *Policy) keyderive.Facts {
	f := keyderive.Facts{Session: fmt.Sprintf("session %d", q.played), CallID: q.id, Client: "chaos"}
	if !a.policy {
		return f
	}
	f.SourceEvent, f.Run, f.Step, f.Request = event, fmt.Sprintf("run %d", q.played), strconv.Itoa(q.step), fmt.Sprintf("turn %d", q.turn)
	if o != nil {
		o.Known(&f)
	}
	return f
}

// understood is what an agent makes of a guarded answer. It believes what it is told.
func understood(r *toolguard.Result) said {
	v := r.Verdict
	s := said{text: r.Text, wait: time.Duration(v.RetryAfterMS) * time.Millisecond}
	if s.text == "" {
		s.text = r.Answer.Text()
	}
	switch v.Outcome {
	case toolguard.Fresh:
		s.kind = saidDone
		if v.Status == toolguard.StatusFailed || r.Answer.IsError() {
			s.kind = saidRefused
		}
	case toolguard.Replayed:
		s.kind = saidDone
	case toolguard.Pending:
		s.kind = saidPending
		if v.Reason == toolguard.ReasonApprovalRequired {
			s.kind = saidApproval
		}
	case toolguard.Escalated:
		s.kind = saidPerson
	default:
		switch v.Reason {
		case toolguard.ReasonEarlierUnknown:
			s.kind = saidHeld
			if v.Status == toolguard.StatusSucceeded {
				s.wait = -1 // it was told of the earlier call's result
			}
		case toolguard.ReasonArgumentsChanged:
			s.kind = saidChanged
		case toolguard.ReasonApprovalRejected:
			s.kind = saidRejected
		case toolguard.ReasonRefused:
			s.kind = saidRefused
		case toolguard.ReasonToolUnavailable, toolguard.ReasonStoreUnavailable:
			s.kind = saidAway
		default:
			s.kind = saidStopped
		}
	}
	return s
}

// die is kill -9: what the process had not written is gone, and it writes nothing more.
func (g *guarded) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.store = g.store.Reopen()
	for i, p := range g.now {
		if p != nil {
			p.kill()
			g.gone = append(g.gone, p)
			g.now[i] = nil
		}
	}
}

func (g *guarded) restart() error {
	p, err := g.begin()
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now[0] = p
	return nil
}

// queue lists the operations in one of the queues for people.
func (g *guarded) queue(name string) []*toolguard.Operation {
	page, err := g.ledger().Operations(context.Background(), toolguard.Query{Queue: name, Limit: 1000})
	if err != nil {
		return nil
	}
	return page.Operations
}

func (g *guarded) decide(approve func(step int) bool) {
	for _, op := range g.queue(toolguard.QueueApproval) {
		if op.Approval == nil || op.Approval.State != toolguard.ApprovalOpen {
			continue
		}
		step := g.world.known(op.Key)
		yes := approve(step)
		_, err := toolguard.DecideApproval(context.Background(), g.ledger(), toolguard.ApprovalVerdict{
			ID: op.Approval.ID, Approve: yes, By: toolguard.Person{Name: "dana", Proven: true},
		})
		if err != nil {
			g.world.note(step, "which does not count: "+err.Error())
		}
	}
}

// settle waits until no operation is on its way or can settle by itself.
func (g *guarded) settle() {
	for range 60 {
		page, err := g.ledger().Operations(context.Background(), toolguard.Query{Open: true})
		if err != nil {
			return
		}
		busy := false
		for _, op := range page.Operations {
			busy = busy || op.Status == toolguard.StatusDispatching || op.Status == toolguard.StatusUnknown || op.Status == toolguard.StatusApproved
		}
		if !busy {
			return
		}
		time.Sleep(30 * time.Second)
	}
}

func (g *guarded) waiting() map[int]bool {
	steps := map[int]bool{}
	for _, queue := range []string{toolguard.QueueOutcome, toolguard.QueueApproval} {
		for _, op := range g.queue(queue) {
			steps[g.world.known(op.Key)] = true
		}
	}
	return steps
}

func (g *guarded) end() {
	g.mu.Lock()
	all := g.gone
	for _, p := range g.now {
		if p != nil {
			all = append(all, p)
		}
	}
	g.mu.Unlock()
	for _, p := range all {
		_ = p.guard.Close(context.Background())
		p.kill()
	}
	_ = g.ledger().Close()
}
