package badgerstore

import (
	"encoding/binary"
	"time"

	"github.com/klauspost/compress/s2"

	"toolguard.dev/toolguard"
)

// A blob is a body or a document, cut into parts that stay below Badger's value threshold. Each part begins with
// the sequence that wrote it and the number of parts.
const (
	partSize = 900 << 10
	partHead = 9

	// MaxBody is how many bytes a body (all its members together) or a document may have.
	MaxBody  = 4 << 20
	maxParts = (MaxBody+MaxBody/6+64)/partSize + 1 // what cannot be packed grows by a sixth at worst
)

// blob is content on its way to the disk, already cut.
type blob struct {
	parts   [][]byte
	expires uint64 // Badger's unit: seconds
}

// newBlob cuts content into parts: at least one.
func newBlob(content []byte) *blob {
	b := &blob{}
	for {
		n := min(len(content), partSize)
		b.parts = append(b.parts, append(make([]byte, partHead, partHead+n), content[:n]...))
		if content = content[n:]; len(content) == 0 {
			return b
		}
	}
}

func (b *blob) size() int {
	n := 0
	for _, p := range b.parts {
		n += len(p)
	}
	return n
}

// entries stamps the parts with seq and makes entries of them; parts left over from an older, longer blob go.
func (b *blob) entries(prefix byte, name string, seq uint64, older int) []entry {
	var es []entry
	for i, p := range b.parts {
		binary.BigEndian.PutUint64(p, seq)
		p[8] = byte(len(b.parts))
		es = append(es, entry{key: partKey(prefix, name, i), value: p, expires: b.expires})
	}
	for i := len(b.parts); i < older; i++ {
		es = append(es, entry{key: partKey(prefix, name, i), gone: true})
	}
	return es
}

// blobHead reads the sequence and the number of parts out of a blob's first part.
func blobHead(b []byte) (seq uint64, parts int, err error) {
	s := scanner{rest: b}
	seq, parts = s.uint64(), int(s.byte())
	if s.bad || parts < 1 || parts > maxParts {
		return 0, 0, errDamaged
	}
	return seq, parts, nil
}

// A body: when it expires (Unix nanoseconds, 0: never) | which members are there | packed: the arguments with their length |
// what is sealed with its length, if it is there | the result
const (
	bodyArguments = 1 << iota
	bodyResult
	bodySealed
)

func bodySize(b *toolguard.Body) int { return len(b.Arguments) + len(b.Result) + len(b.Sealed) }

func encodeBody(body *toolguard.Body, until time.Time) []byte {
	scratch := buffers.Get().(*[]byte)
	all := appendName((*scratch)[:0], body.Arguments)
	if body.Sealed != nil {
		all = appendName(all, body.Sealed)
	}
	all = append(all, body.Result...)
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 9+s2.MaxEncodedLen(len(all))), exactly(until))
	there := byte(0)
	if body.Arguments != nil {
		there |= bodyArguments
	}
	if body.Result != nil {
		there |= bodyResult
	}
	if body.Sealed != nil {
		there |= bodySealed
	}
	b = appendPacked(append(b, there), all)
	*scratch = all
	buffers.Put(scratch)
	return b
}

// exactly is t in Unix nanoseconds, and 0 for never.
func exactly(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(1, t.UnixNano()))
}

// expiry is t in Badger's whole seconds, not before t; 0 for never.
func expiry(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.Unix())) + 1
}

// expired compares what exactly made with now.
func expired(until uint64, now time.Time) bool { return until != 0 && exactly(now) >= until }

// decodeBody returns toolguard.ErrNotFound for a body that has expired.
func decodeBody(b []byte, now time.Time) (body toolguard.Body, until uint64, err error) {
	s := scanner{rest: b}
	until, there := s.uint64(), s.byte()
	if s.bad {
		return body, 0, errDamaged
	}
	if expired(until, now) {
		return body, 0, toolguard.ErrNotFound
	}
	all, err := unpack(s.rest)
	if err != nil {
		return body, 0, err
	}
	s = scanner{rest: all}
	arguments := s.name()
	if there&bodySealed != 0 {
		body.Sealed = s.name()
	}
	if s.bad {
		return body, 0, errDamaged
	}
	if there&bodyArguments != 0 {
		body.Arguments = arguments
	}
	if there&bodyResult != 0 {
		body.Result = s.rest
	}
	return body, until, nil
}
