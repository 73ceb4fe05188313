package badgerstore

import (
	"bytes"
	"encoding/binary"
)

// bundle holds bodies that one group wrote and that expire at about the same time: one entry for all of them, which
// goes with the last. Whether a body has expired stands in itself.
//
//	for each body: key of its operation | body
type bundle struct {
	seq     uint64 // of the first write in it: the records of its bodies name it
	expires uint64 // Badger's unit: seconds
	text    []byte
}

const (
	bundleSpan = 60 // seconds that a body may stay on disk after it expired, to share an entry
	bundleFull = maxValue / 2
	maxBundled = 32 << 10 // a larger body has a key of its own
)

func bundleKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixBundle}, seq)
}

// bundled adds the body of the write with sequence seq to the bundle of those that expire when it does, and returns
// the bundle's name.
func (g *group) bundled(key string, body []byte, expires, seq uint64) uint64 {
	expires += bundleSpan - expires%bundleSpan
	b := g.bundles[expires]
	if b == nil || len(b.text) > bundleFull {
		if b != nil {
			g.entries = append(g.entries, b.entry(g))
		}
		if g.bundles == nil {
			g.bundles = map[uint64]*bundle{}
		}
		b = &bundle{seq: seq, expires: expires, text: g.borrow()}
		g.bundles[expires] = b
	}
	b.text = appendName(appendName(b.text, key), body)
	return b.seq
}

func (b *bundle) entry(g *group) entry {
	return entry{key: bundleKey(b.seq), value: g.lend(b.text), expires: b.expires}
}

// unbundle returns a copy of the body of the operation key: of two, the later.
func unbundle(b []byte, key string) ([]byte, error) {
	var body []byte
	for s := (scanner{rest: b}); len(s.rest) > 0; {
		name, next := s.name(), s.name()
		if s.bad {
			return nil, errDamaged
		}
		if string(name) == key {
			body = next
		}
	}
	if body == nil {
		return nil, errDamaged
	}
	return bytes.Clone(body), nil
}
