package badgerstore

import (
	"encoding/binary"
	"slices"
	"time"

	"toolguard.dev/toolguard"
)

const (
	groupChanges = 512
	groupBytes   = MaxWrite + 64<<10 // below the 15 % of a memory table that Badger takes at once
)

// entry is one key of a group.
type entry struct {
	key, value []byte
	expires    uint64 // Unix seconds; 0: never
	mark       byte
	gone       bool // delete it
}

// group is the writes that go to disk together, and what they change, until reads see it.
type group struct {
	changes []*change
	entries []entry
	journal journal
	size    int
	seq     uint64        // of the last write
	refuse  error         // why nothing may be added
	taken   chan struct{} // closed when it goes to disk

	heads     map[string]head // by operation
	listings  map[string]*listing
	intents   map[string]intentHead // by key in Badger
	lanes     map[string][]slot     // by key in Badger
	documents map[string]documentHead
	tokens    []string            // of writes without an operation
	chains    map[string]bool     // that grew
	left      map[*sheet]struct{} // that some operation left
	bundles   map[uint64]*bundle  // by when they expire

	spare, lent [][]byte // memory of values: to be used, and used in this group
}

// What memory of values is kept from one group for another.
const (
	spareKept = 4
	spareSize = 256 << 10 // bytes each, at most
)

// newGroup returns an empty group, which uses the memory of one that is on disk: Badger has copied what it was given.
func newGroup(old *group) *group {
	clear(old.changes)
	clear(old.entries)
	clear(old.heads)
	clear(old.listings)
	clear(old.lanes)
	g := &group{
		taken: make(chan struct{}), changes: old.changes[:0], entries: old.entries[:0],
		journal: journal{created: old.journal.created[:0], events: old.journal.events[:0]},
		heads:   old.heads, listings: old.listings, lanes: old.lanes,
	}
	for _, b := range append(old.lent, old.spare...) {
		if len(g.spare) < spareKept && cap(b) <= spareSize {
			g.spare = append(g.spare, b)
		}
	}
	return g
}

// borrow returns memory for a value that is put together in the group; see lend.
func (g *group) borrow() []byte {
	n := len(g.spare)
	if n == 0 {
		return nil
	}
	b := g.spare[n-1]
	g.spare = g.spare[:n-1]
	return b[:0]
}

// lend returns a value that goes to Badger, and has its memory used again once it is there.
func (g *group) lend(b []byte) []byte {
	g.lent = append(g.lent, b)
	return b
}

type documentHead struct {
	rev   uint64
	parts int
}

// set puts a value into a map that may not be made yet: most groups need few of theirs.
func set[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

// takes reports whether c still fits.
func (g *group) takes(c *change) bool {
	return len(g.changes) == 0 || len(g.changes) < groupChanges && g.size+c.size <= groupBytes
}

func (g *group) put(key, value []byte) { g.entries = append(g.entries, entry{key: key, value: value}) }

// occurrence adds the entries by which a new operation is found by its intent, beside others.
func (g *group) occurrence(c *change, o others) {
	if o.alone {
		return
	}
	if !o.known && c.key != c.intent {
		g.put(nameKey(prefixRecord, c.intent), []byte{recordAlias})
		set(&g.heads, c.intent, head{alias: true})
	}
	old, next := o.latest, intentHead{occurrence: c.occurrence, key: c.key, several: o.found}
	if o.found {
		if !old.several {
			g.put(repeatKey(c.intent, c.tenant, old.occurrence, old.key), nil)
		}
		g.put(repeatKey(c.intent, c.tenant, c.occurrence, c.key), nil)
		if old.occurrence > next.occurrence {
			next.occurrence, next.key = old.occurrence, old.key
		}
	}
	key := scopedKey(prefixIntent, c.intent, c.tenant)
	set(&g.intents, string(key), next)
	g.put(key, next.encode())
}

// operation adds the entries of c's operation, whose stored head is old, and notes its new one.
func (g *group) operation(c *change, old head, seq uint64) {
	h := head{rev: seq, dispatched: old.dispatched, created: old.created, token: c.token, parts: old.parts, bundle: old.bundle, inline: old.inline, listing: g.relist(c, old.listing), queue: c.queue, history: old.history}
	if old.rev == 0 {
		h.created = seq
	}
	if c.dispatch {
		h.dispatched = seq
	}
	switch {
	case c.body != nil:
		g.entries = append(g.entries, c.body.entries(prefixBody, c.key, seq, old.parts)...)
		h.parts, h.bundle, h.inline = len(c.body.parts), 0, nil
	case c.inline != nil:
		g.entries = append(g.entries, (&blob{}).entries(prefixBody, c.key, seq, old.parts)...)
		h.parts, h.bundle, h.inline = 0, 0, c.inline
	case c.bundled != nil:
		g.entries = append(g.entries, (&blob{}).entries(prefixBody, c.key, seq, old.parts)...)
		h.parts, h.bundle, h.inline = 0, g.bundled(c.key, c.bundled, c.expires, seq), nil
	}
	if c.call != "" {
		g.entries = append(g.entries, entry{key: scopedKey(prefixCall, c.call, c.tenant), value: encodeCall(c.key, c.callUntil), expires: expiry(c.callUntil)})
	}
	if c.queue != old.queue {
		if old.queue != "" {
			g.entries = append(g.entries, entry{key: queueKey(old.queue, h.created, c.key), gone: true})
		}
		if c.queue != "" {
			g.put(queueKey(c.queue, h.created, c.key), []byte(c.tenant))
		}
	}
	g.put(nameKey(prefixRecord, c.key), encodeRecord(&h, c.operation))
	set(&g.heads, c.key, h)
	c.head = h
}

// remember notes where the events of operations are: in the record of c's own, whose stored head is old, or under a key.
func (g *group) remember(c *change, old *head) {
	for i := range c.events {
		key, seq := c.events[i].Key, c.events[i].seq
		switch {
		case key == "" || i > 0 && key == c.events[i-1].Key:
		case key == c.key && len(old.history) < historyKept:
			old.history = append(slices.Clip(old.history), seq)
		default:
			g.put(historyKey(key, seq), nil)
		}
	}
}

// turn begins a new journal entry.
func (g *group) turn() {
	if g.journal.size() > 0 {
		g.entries = append(g.entries, g.journal.entry(g))
	}
}

// seal adds what is written once per group, but for the chains.
func (g *group) seal() {
	if g.seq == 0 {
		return
	}
	g.turn()
	if len(g.tokens) > 0 {
		g.entries = append(g.entries, entry{key: tokenKey(g.seq), value: encodeTokens(g.tokens), expires: expiry(time.Now().Add(tokenLife))})
	}
	for _, b := range g.bundles {
		g.entries = append(g.entries, b.entry(g))
	}
	for key, lane := range g.lanes {
		g.put([]byte(key), encodeLane(lane))
	}
	g.put([]byte{prefixSequence}, binary.BigEndian.AppendUint64(nil, g.seq))
}

// written is what the group takes in Badger's log, about.
func (g *group) written() (n int64) {
	for i := range g.entries {
		n += int64(len(g.entries[i].key) + len(g.entries[i].value) + entryBytes)
	}
	return n
}

// chain is the end of a chain of events.
type chain struct {
	seq  uint64
	hash string
}

func (c chain) encode() []byte { return append(binary.BigEndian.AppendUint64(nil, c.seq), c.hash...) }

func decodeChain(b []byte) (chain, error) {
	s := scanner{rest: b}
	c := chain{seq: s.uint64()}
	c.hash = string(s.rest)
	if s.bad {
		return chain{}, errDamaged
	}
	return c, nil
}

// grown is a chain with a new end.
type grown struct {
	name string
	end  chain
}

// event is an event on its way to the disk.
type event struct {
	*toolguard.PreparedEvent
	seq uint64 // of the ledger

	place      uint64 // in its chain
	prev, hash string
}

// link places events behind the ends of their chains, and returns the new ends. The ends given
// stay as they are.
func link(events []event, ends map[string]chain) []grown {
	var all []grown
	for i := range events {
		e := &events[i]
		at := slices.IndexFunc(all, func(g grown) bool { return g.name == e.Tenant })
		if at < 0 {
			at = len(all)
			all = append(all, grown{e.Tenant, ends[e.Tenant]})
		}
		end := &all[at].end
		e.place, e.prev = end.seq+1, end.hash
		e.hash = e.Link(e.Tenant, e.place, e.prev)
		*end = chain{e.place, e.hash}
	}
	return all
}
