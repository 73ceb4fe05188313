package badgerstore

import (
	"bytes"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
)

// Values are packed (in the Snappy format) by those who write them, not by Badger when it builds its tables: that
// halves what goes through the log, the memory tables and the compactions, and the work is done before the committer.

const maxUnpacked = MaxBody + 1<<20

// pack returns b packed.
func pack(b []byte) []byte {
	scratch := buffers.Get().(*[]byte)
	defer buffers.Put(scratch)
	if n := s2.MaxEncodedLen(len(b)); cap(*scratch) < n {
		*scratch = make([]byte, n)
	}
	return bytes.Clone(s2.EncodeSnappy((*scratch)[:cap(*scratch)], b))
}

// appendPacked appends b, packed.
func appendPacked(to, b []byte) []byte {
	n := len(to)
	to = slices.Grow(to, s2.MaxEncodedLen(len(b)))
	return to[:n+len(s2.EncodeSnappy(to[n:cap(to)], b))]
}

// unpack returns what was packed. The result does not refer to b.
func unpack(b []byte) ([]byte, error) {
	n, err := s2.DecodedLen(b)
	if err != nil || n > maxUnpacked {
		return nil, errDamaged
	}
	if b, err = s2.Decode(make([]byte, 0, n), b); err != nil {
		return nil, errDamaged
	}
	return b, nil
}

// buffers are for what is copied at once.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
