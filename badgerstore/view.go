package badgerstore

import "sync"

// view is what reads see: the ledger as of a sequence, and the open operations as of the same.
type view struct {
	mu   sync.RWMutex
	seq  uint64
	open openSet

	recent recent
	absent absent

	reading   sync.Mutex
	snapshots map[uint64]int // reads under way, by the sequence they read at
}

func (v *view) latest() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.seq
}

func (v *view) listing(key string) *listing {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if l := v.open.byKey[key]; l != nil {
		c := l.listing // the original changes
		return &c
	}
	return nil
}

// publish shows g to reads that begin from now on. It returns the sequence below which nobody reads.
func (v *view) publish(g *group) uint64 {
	for _, c := range g.changes {
		if c.key != "" && c.err == nil && !c.replayed {
			v.recent.replaced(c.key, c.head.rev)
		}
	}
	v.mu.Lock()
	for key, l := range g.listings {
		if l == nil {
			v.open.remove(key)
		} else {
			v.open.add(l)
		}
	}
	v.absent.forget(g)
	v.seq = g.seq
	v.mu.Unlock()

	v.reading.Lock()
	defer v.reading.Unlock()
	oldest := g.seq
	for seq := range v.snapshots {
		oldest = min(oldest, seq)
	}
	return oldest
}

// missed notes that a read as of a sequence did not find a key, unless a later write is visible, which may be of that key.
func (v *view) missed(key []byte, seq uint64) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.seq == seq {
		v.absent.add(string(key))
	}
}

// lacks reports whether a key is known to be absent, in what is published and in all before.
func (v *view) lacks(key []byte) bool { return v.absent.has(key) }

// begin begins a read; end must be called with the sequence it returns. If narrow is not nil, the read gets the keys of the open
// operations it selects.
func (v *view) begin(narrow *narrow) (seq uint64, keys []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if narrow != nil {
		keys = v.open.keys(narrow)
	}
	v.reading.Lock()
	defer v.reading.Unlock()
	v.snapshots[v.seq]++
	return v.seq, keys
}

func (v *view) end(seq uint64) {
	v.reading.Lock()
	defer v.reading.Unlock()
	if v.snapshots[seq]--; v.snapshots[seq] == 0 {
		delete(v.snapshots, seq)
	}
}
