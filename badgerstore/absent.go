package badgerstore

import "sync"

// absent are keys of records and intents that were looked for lately and are not there: most calls are new, and who reads
// for one has just found what the committer must make sure of. Such keys are never deleted, so that what is absent now was
// absent before. It forgets a generation at a time.
type absent struct {
	mu       sync.Mutex
	now, old map[string]struct{} // keys in Badger
}

const absentKept = 1 << 12 // of a generation

func (a *absent) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil || len(a.now) >= absentKept {
		a.now, a.old = make(map[string]struct{}, absentKept), a.now
	}
	a.now[key] = struct{}{}
}

func (a *absent) has(key []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.now[string(key)]; ok {
		return true
	}
	_, ok := a.old[string(key)]
	return ok
}

// forget takes off what g writes.
func (a *absent) forget(g *group) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range g.entries {
		if key := g.entries[i].key; key[0] == prefixRecord || key[0] == prefixIntent {
			delete(a.now, string(key))
			delete(a.old, string(key))
		}
	}
}
