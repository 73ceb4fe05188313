package toolguard

import (
	"context"
	"errors"
	"maps"
	"time"

	"toolguard.dev/registry"
)

// People and other processes leave work for this one: an approval, an order, an operation whose sender died. The ledger is asked for it every attendEvery, or, where it takes long to answer, for a twentieth of the time.
const (
	attendEvery = time.Second
	attendShare = 20
)

// attend looks for such work until the guard closes.
func (g *Guard) attend() {
	for wait := attendEvery; ; {
		select {
		case <-g.closing:
			return
		case <-time.After(wait):
		}
		began := time.Now()
		if errors.Is(g.pickUp(), ErrStoreClosed) {
			return
		}
		g.unsend()
		wait = max(attendEvery, attendShare*time.Since(began))
	}
}

// pickUp plans the next attempt of every operation that has a warrant for one and whose tool is served here. Of the
// processes that try, the store lets one through.
func (g *Guard) pickUp() error {
	page, err := g.store.Operations(context.Background(), Query{Open: true, Due: true})
	if err != nil {
		return err // whoever calls meanwhile is told
	}
	for _, op := range page.Operations {
		g.mu.Lock()
		t, sat := g.tools[op.Action], g.sitting[op.Key] > 0 || g.flights[op.Key] != nil
		g.mu.Unlock()
		if t != nil && !sat {
			g.schedule(t, op)
		}
	}
	return nil
}

// doubt remembers an attempt that was not sent because its record was not acknowledged. The record may be made yet: the
// operation would then be on its way for ever, for its sender lives.
func (g *Guard) doubt(key string, attempt int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doubted[key] = attempt
}

// unsend settles the doubted attempts whose record is there after all.
func (g *Guard) unsend() {
	g.mu.Lock()
	doubted := maps.Clone(g.doubted)
	g.mu.Unlock()
	for key, n := range doubted {
		op, err := g.load(key)
		if err != nil {
			continue // not there, or not yet
		}
		if g.unsent(op, n) {
			g.mu.Lock()
			if g.doubted[key] == n {
				delete(g.doubted, key)
			}
			g.mu.Unlock()
		}
	}
}

// unsent records that an attempt was never sent, and reports whether there is no doubt about it any more.
func (g *Guard) unsent(op *Operation, n int) bool {
	r := g.rooms.enter(op.room())
	defer g.rooms.leave(r)
	r.Lock()
	defer r.Unlock()
	settled := false
	err := g.update(op.Key, func(op *Operation) *Write {
		settled = false
		a := op.attempt(n)
		switch {
		case op.Sent < n, g.air(op) != nil:
			return nil // its record may come yet
		case a == nil || a.Owner != g.process || a.State != AttemptOpen:
			settled = true
			return nil
		}
		settled = true
		now := time.Now()
		a.Called = true // its caller was told that the ledger does not answer
		op.Waited = false
		return g.settling(nil, op, nil, evidence{attempt: n, state: AttemptUnsent, finished: true, says: "its record came too late for it to be sent"}, registry.Answer{}, now)
	})
	if err != nil && !errors.Is(err, ErrStoreClosed) {
		g.log.Warn("an attempt that was never sent is on record as on its way", "key", op.Key, "error", err)
	}
	return err == nil && settled
}

// passes reports whether a store may take a write later that it did not take now.
func passes(err error) bool { return errors.Is(err, ErrStoreFull) || errors.Is(err, ErrStoreAway) }

// landAgain tries until the store takes what is known only in memory. Until then duplicates meet the flight.
func (g *Guard) landAgain(t *Tool, f *flight, build func(*Operation) *Write) {
	defer g.running.Done()
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		select {
		case <-g.closing:
			return
		case <-time.After(wait):
		}
		key := f.out.op.Key
		err := g.update(key, build)
		if passes(err) {
			continue
		}
		if err != nil {
			g.log.Error("an answer was not recorded", "tool", t.Action(), "key", key, "error", err)
			return
		}
		g.forget(f)
		if op, err := g.load(key); err == nil {
			g.schedule(t, op)
		}
		return
	}
}
