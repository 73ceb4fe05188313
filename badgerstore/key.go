package badgerstore

import "encoding/binary"

// Every key begins with a byte that says what it holds. Names in keys are prefixed by their length but for the last,
// so that no two sets of names make one key, and so that leaving off the last (the tenant) gives the prefix of all.
const (
	prefixRecord   = 'r' // operation key → record; the key of an intent without a first occurrence → recordAlias
	prefixIntent   = 'i' // intent, tenant → head: the latest occurrence; not while the first, which has its name, is the only one
	prefixRepeat   = 'n' // intent, tenant, falling occurrence, operation key → nothing; only once there are two
	prefixLane     = 'l' // lane, tenant → slots
	prefixCall     = 'c' // call, tenant → operation key
	prefixBody     = 'b' // operation key, part → part of a blob
	prefixBundle   = 'f' // sequence → bodies that expire together
	prefixDocument = 'd' // name, part → part of a blob
	prefixSheet    = 'o' // sequence, number → listings of operations
	prefixQueue    = 'w' // queue, falling sequence of creation, operation key → tenant
	prefixHistory  = 'k' // operation key, sequence of a write with events of it that its record does not name → nothing
	prefixJournal  = 'e' // sequence → the events of the writes up to it, and what they created
	prefixChain    = 'h' // chain → its latest event
	prefixToken    = 't' // sequence → the tokens of a group's writes without an operation
	prefixSequence = 'q' // → the latest sequence
)

func nameKey(prefix byte, name string) []byte {
	k := make([]byte, 0, 1+len(name))
	return append(append(k, prefix), name...)
}

// scopedKey is the key of a tenant's name; without the tenant it is the prefix of every tenant's.
func scopedKey(prefix byte, name, tenant string) []byte {
	k := make([]byte, 0, 1+binary.MaxVarintLen32+len(name)+len(tenant))
	return append(appendName(append(k, prefix), name), tenant...)
}

// repeatKey sorts the occurrences of an intent latest first.
func repeatKey(intent, tenant string, occurrence int, key string) []byte {
	k := repeatPrefix(intent, tenant)
	k = binary.BigEndian.AppendUint64(k, ^uint64(occurrence))
	return append(k, key...)
}

func repeatPrefix(intent, tenant string) []byte {
	return appendName(scopedName(prefixRepeat, intent), tenant)
}

func scopedName(prefix byte, name string) []byte { return scopedKey(prefix, name, "") }

// queueKey sorts a queue latest created first.
func queueKey(queue string, created uint64, key string) []byte {
	return append(binary.BigEndian.AppendUint64(scopedName(prefixQueue, queue), ^created), key...)
}

func historyKey(key string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(scopedName(prefixHistory, key), seq)
}

func journalKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixJournal}, seq)
}

func tokenKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixToken}, seq)
}

func partKey(prefix byte, name string, part int) []byte {
	return append(scopedKey(prefix, name, ""), byte(part))
}

func appendName[T string | ~[]byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// scanner reads what the append functions wrote. Once it met something impossible it only yields zeros, and ok is false.
type scanner struct {
	rest []byte
	bad  bool
}

func (s *scanner) take(n uint64) []byte {
	if s.bad || n > uint64(len(s.rest)) {
		s.bad = true
		return nil
	}
	b := s.rest[:n:n]
	s.rest = s.rest[n:]
	return b
}

func (s *scanner) byte() byte {
	if b := s.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (s *scanner) uint64() uint64 {
	if b := s.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (s *scanner) uvarint() uint64 {
	v, n := binary.Uvarint(s.rest)
	if s.bad || n <= 0 {
		s.bad = true
		return 0
	}
	s.rest = s.rest[n:]
	return v
}

// name reads a length and so many bytes, which stay in the scanned slice.
func (s *scanner) name() []byte { return s.take(s.uvarint()) }

func (s *scanner) string() string { return string(s.name()) }
