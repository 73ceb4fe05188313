package badgerstore

import (
	"bytes"
	"strings"
	"sync"

	"toolguard.dev/toolguard"
)

// recent keeps operations as they were last read, so that reading them again needs neither Badger nor the codec, and
// notes which were written since. It forgets a whole generation at a time, the one that was used least lately.
type recent struct {
	mu       sync.Mutex
	now, old map[string]known // by operation key
	size     int              // of what is in now
	newest   [2]uint64        // the highest revision ever put into now, and into old
	floor    uint64           // no forgotten revision is above it
}

const (
	recentSize = 8 << 20 // of a generation, about
	knownSize  = 3 << 10 // what an operation takes, about
	noteSize   = 256     // what it takes to note that there is a newer one
	knownBody  = 64 << 10
)

// known is an operation with its body, which nobody changes any more.
type known struct {
	rev   uint64
	op    *toolguard.Operation // nil: it was not read since it was written
	body  *toolguard.Body      // nil: not known
	until uint64               // as exactly has it
}

func (k *known) size() int {
	switch {
	case k.op == nil:
		return noteSize
	case k.body == nil:
		return knownSize
	}
	return knownSize + bodySize(k.body)
}

// replaced notes that an operation was written.
func (r *recent) replaced(key string, rev uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(strings.Clone(key), known{rev: rev}) // it may be part of a whole request
}

// add keeps what was read as of a sequence, unless something later was published since, or may have been.
func (r *recent) add(op *toolguard.Operation, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.find(op.Key); ok && k.op == nil && k.rev <= seq || !ok && r.floor <= seq {
		r.put(op.Key, known{rev: op.Rev, op: op})
	}
}

// addBody adds the body that was read as of a sequence to its operation.
func (r *recent) addBody(key string, body *toolguard.Body, until, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, _ := r.find(key)
	if k.op != nil && k.body == nil && k.rev <= seq && bodySize(body) <= knownBody {
		k.body, k.until = cloneBody(body), until
		r.put(key, k)
	}
}

// get returns what an operation was as of a sequence, if that is what is kept.
func (r *recent) get(key string, seq uint64) (k known, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok = r.find(key); !ok || k.op == nil || k.rev > seq {
		return known{}, false
	}
	if _, now := r.now[key]; !now {
		r.put(key, k)
	}
	return k, true
}

func (r *recent) find(key string) (known, bool) {
	if k, ok := r.now[key]; ok {
		return k, true
	}
	k, ok := r.old[key]
	return k, ok
}

func (r *recent) put(key string, k known) {
	if r.size > recentSize {
		r.floor = max(r.floor, r.newest[1])
		clear(r.old)
		r.old, r.now, r.size = r.now, r.old, 0
		r.newest = [2]uint64{0, r.newest[0]}
	}
	if r.now == nil {
		r.now = map[string]known{}
	}
	if before, ok := r.now[key]; ok {
		r.size -= before.size()
	}
	r.now[key] = k
	r.size += k.size()
	r.newest[0] = max(r.newest[0], k.rev)
}

func cloneBody(b *toolguard.Body) *toolguard.Body {
	return &toolguard.Body{Arguments: bytes.Clone(b.Arguments), Result: bytes.Clone(b.Result), Sealed: bytes.Clone(b.Sealed)}
}
