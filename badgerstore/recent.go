package badgerstore

import (
	"bytes"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

// recent keeps operations as they were last published or read, so that reading them again needs neither Badger nor
// the codec. It forgets a whole generation at a time, the one that was used least lately.
type recent struct {
	mu       sync.Mutex
	now, old map[string]*known // by operation key
	size     int               // of what is in now
	newest   [2]uint64         // the highest revision ever published into now, and into old
	floor    uint64            // no forgotten revision is above it
}

const (
	recentSize = 8 << 20 // of a generation, about
	knownSize  = 3 << 10 // what an operation takes, about
	knownBody  = 64 << 10
)

// known is an operation with its body, which nobody changes any more.
type known struct {
	op    *toolguard.Operation
	body  *toolguard.Body // nil: not known
	until uint64          // as exactly has it
}

// keep copies what is written, so that it can be kept. The operation is still to be stamped.
func keep(op *toolguard.Operation, body *toolguard.Body, until time.Time) *known {
	k := &known{op: op.Clone()}
	if body != nil {
		k.until = exactly(until)
		if bodySize(body) <= knownBody {
			k.body = cloneBody(body)
		}
	}
	return k
}

func (k *known) size() int {
	if k.body == nil {
		return knownSize
	}
	return knownSize + bodySize(k.body)
}

// publish keeps what c wrote, or forgets what was there before.
func (r *recent) publish(c *change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := c.known
	if k == nil {
		r.forget(c.key)
		r.floor = max(r.floor, c.head.rev)
		return
	}
	k.op.Rev, k.op.Dispatched, k.op.Token = c.head.rev, c.head.dispatched, c.token
	if c.body == nil && c.inline == nil && c.bundled == nil {
		if before := r.find(c.key); before != nil {
			k.body, k.until = before.body, before.until
		}
	}
	r.put(c.key, k)
	r.newest[0] = max(r.newest[0], c.head.rev)
}

// add keeps what was read as of a sequence, unless something later was published since, or may have been.
func (r *recent) add(key string, k *known, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.floor <= seq && r.find(key) == nil {
		r.put(key, k)
	}
}

// addBody adds the body that was read as of a sequence to its operation.
func (r *recent) addBody(key string, body *toolguard.Body, until, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.find(key)
	if k != nil && k.body == nil && k.op.Rev <= seq && bodySize(body) <= knownBody {
		r.put(key, &known{k.op, cloneBody(body), until})
	}
}

// get returns what an operation was as of a sequence, if that is what is kept.
func (r *recent) get(key string, seq uint64) *known {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.find(key)
	if k == nil || k.op.Rev > seq {
		return nil
	}
	if _, now := r.now[key]; !now {
		r.put(key, k)
	}
	return k
}

func (r *recent) forget(key string) {
	if k := r.now[key]; k != nil {
		r.size -= k.size()
	}
	delete(r.now, key)
	delete(r.old, key)
}

func (r *recent) find(key string) *known {
	if k := r.now[key]; k != nil {
		return k
	}
	return r.old[key]
}

func (r *recent) put(key string, k *known) {
	if r.size > recentSize {
		r.floor = max(r.floor, r.newest[1])
		clear(r.old)
		r.old, r.now, r.size = r.now, r.old, 0
		r.newest = [2]uint64{0, r.newest[0]}
	}
	if r.now == nil {
		r.now = map[string]*known{}
	}
	if before := r.now[key]; before != nil {
		r.size -= before.size()
	}
	r.now[key] = k
	r.size += k.size()
}

func cloneBody(b *toolguard.Body) *toolguard.Body {
	return &toolguard.Body{Arguments: bytes.Clone(b.Arguments), Result: bytes.Clone(b.Result), Sealed: bytes.Clone(b.Sealed)}
}
