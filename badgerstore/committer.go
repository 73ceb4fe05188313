package badgerstore

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

const (
	headsKept = 1 << 12
	lanesKept = 1 << 12
)

// committer puts writes in order: whoever writes compares the write, under its lock, with what is stored and with what
// earlier writes on their way to disk will have stored, numbers it, links its events, and adds it to a group. While
// one group is being synced, the next is collected; one goroutine takes it as soon as the disk is free. Nobody is
// told of a decision before all that it rests on is on disk.
type committer struct {
	s    *Store
	wake chan struct{} // holds one when there may be a group to take; closed at the end

	mu     sync.Mutex
	seq    uint64 // the last one given out
	chains map[string]chain
	fences *fences
	tokens tokens
	heads  map[string]head   // of operations written lately
	lanes  map[string][]slot // of lanes written lately, by key in Badger

	txn   *badger.Txn // for what is on disk
	group *group      // being collected
	ahead *group      // taken last, maybe not on disk yet
	due   bool        // the group is to go to disk
	lazy  *time.Timer // makes it due
	late  []*change   // lazy writes that had no room in it

	closed bool
}

// lateKept is how many lazy writes wait for room at most.
const lateKept = 64 * groupChanges

// run brings groups to disk, one after the other, until the store closes.
func (k *committer) run() {
	defer k.lazy.Stop()
	for open := true; open; {
		_, open = <-k.wake
		for g := k.take(); g != nil; g = k.take() {
			k.s.write(g)
			runtime.Gosched() // whoever got an answer may write again: larger groups cost less
		}
	}
}

// flush makes what is in the group due, though nobody waits for it.
func (k *committer) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rouse()
}

// close has run end once all is written. Nothing may be collected any more.
func (k *committer) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due, k.closed = true, true
	close(k.wake)
}

// rouse has run look for a group to take. The lock is held.
func (k *committer) rouse() {
	k.due = len(k.group.changes) > 0
	if k.closed {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// collect adds c to the group, when it has room for c.
func (k *committer) collect(ctx context.Context, c *change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.group.takes(c) {
		k.rouse()
		if c.lazy {
			if len(k.late) < lateKept {
				k.late = append(k.late, c)
			}
			return nil // what finds no room there either is dropped, as a lazy write may be
		}
		taken := k.group.taken
		k.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
		}
		k.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if c.lazy && len(k.group.changes) == 0 {
		k.lazy.Reset(toolguard.LazyDelay)
	}
	k.add(c)
	if !c.lazy {
		k.rouse()
	}
	return nil
}

// take returns the group for the disk, which is free, and begins the next one; nil if there is nothing to write yet.
func (k *committer) take() *group {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.group
	if len(g.changes) == 0 || !k.due {
		return nil
	}
	k.writeSheets(g)
	if len(k.lanes) > lanesKept {
		clear(k.lanes)
	}
	if len(k.heads) > headsKept {
		clear(k.heads)
	}
	maps.Copy(k.lanes, g.lanes)
	maps.Copy(k.heads, g.heads)
	for name := range g.chains {
		g.put(nameKey(prefixChain, name), k.chains[name].encode())
	}
	k.ahead, k.group, k.due = g, newGroup(k.ahead), k.closed
	k.addLate()
	close(g.taken)
	return g
}

// addLate adds lazy writes that had no room in the group before, and leaves some for those that somebody waits for.
func (k *committer) addLate() {
	n := 0
	for n < len(k.late) && n < groupChanges/2 && k.group.takes(k.late[n]) {
		k.add(k.late[n])
		n++
	}
	if n > 0 {
		k.late = slices.Delete(k.late, 0, n)
		k.lazy.Reset(toolguard.LazyDelay)
	}
}

// add decides about c and, if it goes through, adds what it changes to the group.
func (k *committer) add(c *change) {
	g := k.group
	if len(g.changes) == 0 && k.s.room.short() {
		g.refuse = toolguard.ErrStoreFull
	}
	g.changes = append(g.changes, c)
	if c.err = g.refuse; c.err == nil {
		c.err = k.apply(c)
	}
}

// apply compares, numbers and links c and adds its entries: all of them, or none.
func (k *committer) apply(c *change) error {
	old, err := k.compare(c)
	if err != nil || c.replayed {
		return err
	}
	lanes, err := k.dispatched(c)
	if err != nil {
		return err
	}
	others, err := k.others(c, &old)
	if err != nil {
		return err
	}
	ends := link(c.events, k.chains)

	// From here on nothing fails. An event has a sequence of its own, so that a reader can stop between any two; a
	// write has that of its last event.
	g, seq := k.group, k.seq+uint64(max(1, len(c.events)))
	for i := range c.events {
		c.events[i].seq = k.seq + 1 + uint64(i)
		g.journal.add(&c.events[i])
	}
	g.remember(c, &old)
	if c.key != "" {
		if old.rev == 0 {
			g.journal.create(seq, c.tenant, c.key)
			g.occurrence(c, others)
		}
		for _, l := range lanes {
			l.slots[0].seq = seq
			set(&g.lanes, l.key, l.slots)
		}
		g.operation(c, old, seq)
	} else if c.token != "" {
		k.tokens.add(c.token)
		g.tokens = append(g.tokens, c.token)
	}
	if c.document != "" {
		g.entries = append(g.entries, c.data.entries(prefixDocument, c.document, seq, c.older)...)
		set(&g.documents, c.document, documentHead{seq, len(c.data.parts)})
	}
	if c.fence != "" {
		k.fences.write(c.fence, c.key, seq)
	}
	for _, c := range ends {
		k.chains[c.name] = c.end
		set(&g.chains, c.name, true)
	}
	g.size += c.size + len(old.queue) + len(others.latest.key) // names that the change could not know
	g.seq, k.seq = seq, seq
	if g.journal.size() > journalFull {
		g.turn()
	}
	return nil
}

// compare returns the stored head of c's operation, if it has one, or refuses c.
func (k *committer) compare(c *change) (head, error) {
	var h head
	var err error
	if c.key != "" {
		if h, err = k.head(c.key); err != nil {
			return h, err
		}
		if c.token != "" && h.token == c.token {
			c.head, c.replayed = h, true
			return h, nil
		}
		if h.rev != c.rev {
			return h, toolguard.ErrConflict
		}
	} else if c.token != "" {
		if c.replayed = k.tokens.has(c.token); c.replayed {
			return h, nil
		}
	}
	if c.fence != "" && !k.fences.passes(c.fence, c.key, c.since) {
		return h, toolguard.ErrConflict
	}
	if c.document != "" {
		d, err := k.document(c.document)
		if err != nil {
			return h, err
		}
		if d.rev != c.documentRev {
			return h, toolguard.ErrConflict
		}
		c.older = d.parts
	}
	return h, nil
}

// laneOf is a lane by its key in Badger.
type laneOf struct {
	key   string
	slots []slot
}

// dispatched returns what c's lanes will be, but for the sequence of their first slot.
func (k *committer) dispatched(c *change) ([]laneOf, error) {
	if len(c.lanes) == 0 {
		return nil, nil
	}
	lanes := make([]laneOf, len(c.lanes))
	for i, name := range c.lanes {
		key := string(scopedKey(prefixLane, name, c.tenant))
		lane, err := k.lane(key)
		if err != nil {
			return nil, err
		}
		lanes[i] = laneOf{key, dispatch(lane, c.key)}
	}
	return lanes, nil
}

// others are the other occurrences of a new operation's intent.
type others struct {
	alone  bool // the operation has its intent's name, and there are none
	known  bool // the intent's name is taken already
	found  bool
	latest intentHead // if found
}

// others returns those that c's operation, whose stored head is old, will stand beside, if c adds one.
func (k *committer) others(c *change, old *head) (o others, err error) {
	if c.key == "" || old.rev != 0 {
		return o, nil
	}
	if o.alone = c.key == c.intent && !old.alias; o.alone {
		return o, nil
	}
	o.latest, o.found, err = k.intent(string(scopedKey(prefixIntent, c.intent, c.tenant)))
	if err != nil || c.key == c.intent {
		return o, err
	}
	first, err := k.head(c.intent)
	if o.known = first.alias || first.rev != 0; first.rev != 0 && !o.found {
		o.found, o.latest = true, intentHead{occurrence: 1, key: c.intent}
	}
	return o, err
}
