package badgerstore

import (
	"sync"

	"github.com/klauspost/compress/s2"
)

// Values are packed (in the Snappy format) by those who write them, not by Badger when it builds its tables: that
// halves what goes through the log, the memory tables and the compactions, and the work is done before the committer.

const maxUnpacked = MaxBody + 1<<20

// pack returns room bytes to be filled in, and then b packed.
func pack(room int, b []byte) []byte {
	dst := make([]byte, room+s2.MaxEncodedLen(len(b)))
	return dst[:room+len(s2.EncodeSnappy(dst[room:], b))]
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

// buffers are for what is packed at once.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
