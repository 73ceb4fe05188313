package badgerstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"toolguard.dev/toolguard"
)

// A journal entry holds the events of a group of writes, and which operations they created, under the sequence of the last
// of these writes. One that says that operations were created is marked, so that all of them can be found in the order
// of creation without the events being read.
//
//	number of created operations | for each: sequence | tenant | key |
//	packed: for each event: sequence | place in its chain | hash before it, or "" | its hash | JSON without these
type journal struct {
	seq     uint64 // of the last write in it
	number  int
	created []byte
	events  []byte
}

const (
	// markCreated is Badger's user byte of a journal entry that created an operation.
	markCreated = 1

	journalFull = maxValue / 4 // a write adds up to maxValue / 2, and what cannot be packed grows by a sixth
)

func (j *journal) create(seq uint64, tenant, key string) {
	j.seq = seq
	j.number++
	j.created = appendName(appendName(binary.AppendUvarint(j.created, seq), tenant), key)
}

// add takes a linked event.
func (j *journal) add(e *event) {
	j.seq = e.seq
	b := binary.AppendUvarint(binary.AppendUvarint(j.events, e.seq), e.place)
	b = binary.AppendUvarint(appendHash(appendHash(b, e.prev), e.hash), uint64(e.Size()))
	j.events = e.AppendJSON(b)
}

// entry returns what was collected as an entry of a group, and begins anew in the same memory.
func (j *journal) entry(g *group) entry {
	e := entry{key: journalKey(j.seq)}
	if j.number > 0 {
		e.mark = markCreated
	}
	e.value = append(binary.AppendUvarint(g.borrow(), uint64(j.number)), j.created...)
	e.value = g.lend(appendPacked(e.value, j.events))
	*j = journal{created: j.created[:0], events: j.events[:0]}
	return e
}

func (j *journal) size() int { return len(j.created) + len(j.events) }

// appendHash appends what Link computed.
func appendHash(b []byte, text string) []byte {
	b = append(b, byte(hex.DecodedLen(len(text))))
	b, err := hex.AppendDecode(b, []byte(text))
	if err != nil {
		panic(fmt.Sprintf("ledger: %q is no hash", text))
	}
	return b
}

func (s *scanner) hash() string { return hex.EncodeToString(s.take(uint64(s.byte()))) }

// created is an operation that a journal entry says was created.
type created struct {
	seq         uint64
	tenant, key string
}

func scanCreated(s *scanner) ([]created, error) {
	n := s.uvarint()
	if s.bad || n > uint64(len(s.rest)) {
		return nil, errDamaged
	}
	all := make([]created, n)
	for i := range all {
		all[i] = created{s.uvarint(), s.string(), s.string()}
	}
	if s.bad {
		return nil, errDamaged
	}
	return all, nil
}

// decodeCreated reads the created operations of an entry, in order.
func decodeCreated(b []byte) ([]created, error) { return scanCreated(&scanner{rest: b}) }

// decodeEvents reads the events of an entry that have a sequence above after, and this operation key, if it is not "".
func decodeEvents(b []byte, after uint64, key string) ([]toolguard.Event, error) {
	s := scanner{rest: b}
	if _, err := scanCreated(&s); err != nil {
		return nil, err
	}
	text, err := unpack(s.rest)
	if err != nil {
		return nil, err
	}
	var events []toolguard.Event
	told := []byte(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r < '-' || r > 'z' || r == '<' || r == '>' || r == '\\' }) {
		told = nil // it may be spelled otherwise in JSON
	}
	for s = (scanner{rest: text}); len(s.rest) > 0; {
		seq, place, prev, hash, text := s.uvarint(), s.uvarint(), s.hash(), s.hash(), s.name()
		if s.bad {
			return nil, errDamaged
		}
		if seq <= after || key != "" && !bytes.Contains(text, told) {
			continue
		}
		var e toolguard.Event
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // the hash covers numbers of any size
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		e.Chain, e.ChainSeq, e.Prev, e.Hash, e.Seq = e.Tenant, place, prev, hash, seq
		if key != "" && e.Key != key {
			continue
		}
		events = append(events, e)
	}
	return events, nil
}
