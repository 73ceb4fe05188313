package badgerstore

// fences knows when each fence was last written, and by which operation. It forgets the oldest: of a fence it does not know
// it only says that it was not written after floor.
type fences struct {
	recent, older map[string]fence
	floor         uint64
	turned        uint64 // sequence at which recent was begun
}

type fence struct {
	key    string // of the operation that wrote last
	seq    uint64
	others uint64 // when an operation other than that wrote last
}

const fencesKept = 1 << 15 // twice that, in all

func newFences(seq uint64) *fences {
	return &fences{recent: map[string]fence{}, older: map[string]fence{}, floor: seq, turned: seq}
}

// passes reports whether no operation other than key may have written name after seq.
func (f *fences) passes(name, key string, seq uint64) bool {
	last := f.last(name)
	if last.key == key && key != "" {
		return last.others <= seq
	}
	return last.seq <= seq
}

func (f *fences) last(name string) fence {
	if l, ok := f.recent[name]; ok {
		return l
	}
	if l, ok := f.older[name]; ok {
		return l
	}
	return fence{seq: f.floor, others: f.floor}
}

func (f *fences) write(name, key string, seq uint64) {
	last := f.last(name)
	if last.key != key {
		last.key, last.others = key, last.seq
	}
	last.seq = seq
	if len(f.recent) >= fencesKept {
		f.recent, f.older, f.floor, f.turned = map[string]fence{}, f.recent, f.turned, seq-1
	}
	f.recent[name] = last
}
