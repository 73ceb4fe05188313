package toolguard

import (
	"sync"
	"time"
)

// marks remembers deliveries whose lazy write may not be visible yet: for marksKept at least, for twice that at most.
type marks struct {
	mu       sync.Mutex
	now, old map[string]time.Time // by operation key
	turned   time.Time
}

const marksKept = 5 * LazyDelay

// add remembers a delivery and reports whether it is the first one of the operation.
func (m *marks) add(key string, at time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at.Sub(m.turned) > marksKept {
		m.now, m.old, m.turned = map[string]time.Time{}, m.now, at
	}
	_, now := m.now[key]
	_, old := m.old[key]
	m.now[key] = at
	return !now && !old
}

// show adds to operations, as read from the store, the deliveries that it does not show.
func (m *marks) show(ops []*Operation) {
	if len(ops) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range ops {
		if !op.Delivered.IsZero() {
			continue
		}
		if at, ok := m.now[op.Key]; ok {
			op.Delivered = at
		} else if at, ok := m.old[op.Key]; ok {
			op.Delivered = at
		}
	}
}
