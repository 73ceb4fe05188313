package toolguard

import (
	"context"
	"time"

	"toolguard.dev/registry"
)

// How often a record is read again while another process has its attempt on its way.
const (
	watchFirst = 20 * time.Millisecond
	watchLast  = 500 * time.Millisecond
)

// elsewhere returns the attempt of an operation that another process on the same ledger dispatches, as a flight
// whose end is read from the record. Callers wait for it as for one of our own.
func (g *Guard) elsewhere(op *Operation) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.watched[op.Key]; f != nil && f.attempt == op.Sent {
		return f
	}
	f := newFlight(op, nil, nil)
	f.foreign = true
	g.watched[op.Key] = f
	go g.watch(f)
	return f
}

// watch reads a record until the attempt in it has ended.
func (g *Guard) watch(f *flight) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.watched[f.op.Key] == f {
			delete(g.watched, f.op.Key)
		}
	}()
	for wait := watchFirst; ; wait = min(2*wait, watchLast) {
		select {
		case <-g.closing:
			return
		case <-time.After(wait):
		}
		op, err := g.load(f.op.Key)
		if err != nil {
			continue // the ledger's owner changes, or is gone: callers give up by themselves
		}
		a := op.attempt(f.attempt)
		if a != nil && a.State == AttemptOpen {
			continue
		}
		f.out = landing{op: op, class: recorded(op, a), recorded: true, seq: g.arrivals.Load()}
		if f.out.class.Outcome == registry.Succeeded {
			if body, err := g.body(context.Background(), op.Key); err == nil {
				g.mu.Lock()
				t := g.tools[op.Action]
				g.mu.Unlock()
				f.out.answer.Result, f.hide = body.Result, g.hider(t, body.Arguments)
			}
		}
		g.rooms.landed(f, false)
		close(f.done)
		return
	}
}

// recorded is what the record says of an attempt that ended, as if it had been classified here.
func recorded(op *Operation, a *Attempt) registry.Classification {
	c := registry.Classification{Outcome: registry.Unknown, Sent: true}
	if a == nil { // a proven refusal, since forgotten
		c.Outcome = registry.Failed
		return c
	}
	c.Says, c.Answered, c.DownstreamID = a.Says, a.Answered, op.DownstreamID
	switch a.State {
	case AttemptSucceeded:
		c.Outcome = registry.Succeeded
	case AttemptRefused:
		c.Outcome = registry.Failed
	case AttemptUnsent:
		c.Outcome, c.Sent = registry.Failed, false
	}
	return c
}
