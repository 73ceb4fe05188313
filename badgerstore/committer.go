package badgerstore

import (
	"maps"
	"math"
	"time"

	"toolguard.dev/toolguard"
)

const (
	queueLength = 1 << 16
	headsKept   = 1 << 12
	lanesKept   = 1 << 12
)

// committer puts writes in order: one goroutine compares each with what is stored and with what earlier writes on
// their way to disk will have stored, numbers it, links its events, and collects it into a group. While one group
// is being synced, the next is collected; it is handed over as soon as the disk is free. Nobody is told of a
// decision before all that it rests on is on disk.
type committer struct {
	s      *Store
	seq    uint64 // the last one given out
	chains map[string]chain
	fences *fences
	heads  map[string]head   // of operations written lately
	lanes  map[string][]slot // of lanes written lately, by key in Badger

	group *group // being collected
	ahead *group // handed over last, maybe not on disk yet
	held  *change
	lazy  *time.Timer
	due   bool // lazy writes have waited long enough
}

func (k *committer) run() {
	k.lazy = time.NewTimer(math.MaxInt64)
	defer k.lazy.Stop()
	for open := true; ; {
		var queue <-chan *change
		if open && k.held == nil && !k.group.full() {
			queue = k.s.queue
		}
		var ready <-chan struct{}
		if len(k.group.changes) > 0 && (k.group.waits || k.due || queue == nil) {
			ready = k.s.ready
		}
		if queue == nil && ready == nil {
			<-k.s.ready // the last group is done
			return
		}
		select { // rather collect than hand over
		case c, ok := <-queue:
			open = k.collect(c, ok)
			continue
		default:
		}
		select {
		case c, ok := <-queue:
			open = k.collect(c, ok)
		case <-ready:
			k.handOver()
		case <-k.lazy.C:
			k.due = true
		}
	}
}

// collect adds c to the group, or holds it back for the next one.
func (k *committer) collect(c *change, ok bool) bool {
	if !ok {
		return false
	}
	if !k.group.takes(c) {
		k.held = c
		return true
	}
	if len(k.group.changes) == 0 {
		k.lazy.Reset(toolguard.LazyDelay)
	}
	k.add(c)
	return true
}

// handOver gives the group to the disk, which is free.
func (k *committer) handOver() {
	k.group.seal(k.chains)
	if len(k.lanes) > lanesKept {
		clear(k.lanes)
	}
	if len(k.heads) > headsKept {
		clear(k.heads)
	}
	maps.Copy(k.lanes, k.group.lanes)
	maps.Copy(k.heads, k.group.heads)
	k.ahead, k.group, k.due = k.group, &group{}, false
	k.s.write(k.ahead)
	if c := k.held; c != nil {
		k.held = nil
		k.collect(c, true)
	}
}

// add decides about c and, if it goes through, adds what it changes to the group.
func (k *committer) add(c *change) {
	g := k.group
	if len(g.changes) == 0 && k.s.room.short() {
		g.refuse = toolguard.ErrStoreFull
	}
	g.changes = append(g.changes, c)
	g.waits = g.waits || !c.lazy
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
	ends, err := link(c.events, k.chains)
	if err != nil {
		return err
	}
	line, err := c.journal(old.rev == 0)
	if err != nil {
		return err
	}
	lanes, err := k.dispatched(c)
	if err != nil {
		return err
	}
	first, found, err := k.intentOf(c, old)
	if err != nil {
		return err
	}

	// From here on nothing fails. An event has a sequence of its own, so that a reader can stop between any two; a
	// write has that of its last event.
	g, seq := k.group, k.seq+uint64(max(1, len(c.events)))
	for i := range c.events {
		c.events[i].Seq = k.seq + 1 + uint64(i)
	}
	if line.value != nil {
		line.key = journalKey(seq)
		g.entries = append(g.entries, line)
	}
	if c.key != "" {
		if old.rev == 0 {
			g.occurrence(c, first, found)
		}
		for key, lane := range lanes {
			lane[0].seq = seq
			set(&g.lanes, key, lane)
		}
		g.operation(c, old, seq)
	} else if c.token != "" {
		g.entries = append(g.entries, entry{key: nameKey(prefixToken, c.token), expires: expiry(time.Now().Add(tokenLife))})
		set(&g.tokens, c.token, true)
	}
	if c.document != "" {
		g.entries = append(g.entries, c.data.entries(prefixDocument, c.document, seq, c.older)...)
		set(&g.documents, c.document, documentHead{seq, len(c.data.parts)})
	}
	if c.fence != "" {
		k.fences.write(c.fence, c.key, seq)
	}
	for name, end := range ends {
		k.chains[name] = end
		set(&g.chains, name, true)
	}
	g.size += c.size
	g.seq, k.seq = seq, seq
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
		if c.replayed, err = k.hasToken(c.token); err != nil || c.replayed {
			return h, err
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

// dispatched returns what c's lanes will be, but for the sequence of their first slot, by their keys in Badger.
func (k *committer) dispatched(c *change) (map[string][]slot, error) {
	if len(c.lanes) == 0 {
		return nil, nil
	}
	lanes := make(map[string][]slot, len(c.lanes))
	for _, name := range c.lanes {
		key := string(scopedKey(prefixLane, name, c.tenant))
		lane, err := k.lane(key)
		if err != nil {
			return nil, err
		}
		lanes[key] = dispatch(lane, c.key)
	}
	return lanes, nil
}

// intentOf returns the head of the intent that c adds an occurrence to, if there is one and c adds one.
func (k *committer) intentOf(c *change, old head) (intentHead, bool, error) {
	if c.key == "" || old.rev != 0 {
		return intentHead{}, false, nil
	}
	return k.intent(string(scopedKey(prefixIntent, c.intent, c.tenant)))
}
