package badgerstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"toolguard.dev/toolguard"
)

// A record is a head, which the store keeps and stamps by itself, a body that does not expire, if it is small, and the
// operation, packed. The key material stands beside the JSON and not in it: it must come back byte for byte, and
// encoding/json would write it anew.
//
//	version 1 | flags 1 | parts of the body 1 | rev 8 | dispatched 8 | created 8 | token | bundle of the body, or 0 | body, or "" |
//	queue, if flagged | history: sequences after the one before | packed: material | JSON
const (
	recordVersion = 3
	recordHead    = 3 + 3*8 + 1 + maxToken + binary.MaxVarintLen64 + 2

	recordHolding = 1 // it may hold others back, if it is open
	recordOpen    = 2 // some sheet lists it
	recordQueued  = 4 // it stands in a queue
	recordDue     = 8 // something may have to be done about it, if it is open

	// historyKept is how many sequences of a record's history it names; those beyond it, and of writes that do not write
	// the record, have keys of their own.
	historyKept  = 24
	historyBytes = historyKept * 4

	// maxInline is the largest body that stands in the record. Most bodies of open operations do, so that they need
	// no key of their own and are gone once the operation is final, whose body expires and so has a key.
	maxInline = 2 << 10
)

var errDamaged = errors.New("damaged")

// head is what the committer knows of a stored operation.
type head struct {
	rev        uint64
	dispatched uint64 // sequence of the last write that dispatched it
	created    uint64 // sequence of the first write
	token      string
	parts      int      // of its body
	bundle     uint64   // that its body is in; 0: none
	inline     []byte   // its body, if the record keeps it
	listing    *listing // nil unless it is open
	holding    bool     // as stored
	due        bool     // as stored
	open       bool     // as stored
	queue      string
	history    []uint64 // sequences of the first historyKept writes with events of the operation, each of its first event
}

// encodeOperation returns the operation packed, and how large it was before.
func encodeOperation(op *toolguard.Operation) (b []byte, size int, err error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	c := *op
	c.Material, c.Token, c.Rev, c.Dispatched = nil, "", 0, 0
	text := appendName((*buffer)[:0], op.Material)
	if text, err = appendJSON(text, reflect.ValueOf(&c).Elem()); err != nil {
		return nil, 0, fmt.Errorf("operation %s: %w", op.Key, err)
	}
	*buffer = text
	return pack(text), len(text), nil
}

func encodeRecord(h *head, operation []byte) []byte {
	b := make([]byte, 3, recordHead+len(h.inline)+len(operation))
	b[0], b[2] = recordVersion, byte(h.parts)
	if h.listing != nil {
		b[1] |= recordOpen
		if h.listing.holding {
			b[1] |= recordHolding
		}
		if h.listing.due {
			b[1] |= recordDue
		}
	}
	for _, n := range []uint64{h.rev, h.dispatched, h.created} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.AppendUvarint(appendName(b, h.token), h.bundle)
	b = appendName(b, h.inline)
	if h.queue != "" {
		b[1] |= recordQueued
		b = appendName(b, h.queue)
	}
	b = binary.AppendUvarint(b, uint64(len(h.history)))
	last := uint64(0)
	for _, seq := range h.history {
		b = binary.AppendUvarint(b, seq-last)
		last = seq
	}
	return append(b, operation...)
}

// scanHead reads a head. Its body stays in the scanned slice.
func scanHead(s *scanner) head {
	if v := s.byte(); v != recordVersion {
		s.bad = true
	}
	flags := s.byte()
	h := head{
		holding: flags&recordHolding != 0, due: flags&recordDue != 0, open: flags&recordOpen != 0, parts: int(s.byte()),
		rev: s.uint64(), dispatched: s.uint64(), created: s.uint64(), token: s.string(), bundle: s.uvarint(), inline: s.name(),
	}
	if flags&recordQueued != 0 {
		h.queue = s.string()
	}
	n := s.uvarint()
	if n > historyKept {
		s.bad = true
	}
	for last := uint64(0); n > 0 && !s.bad; n-- {
		last += s.uvarint()
		h.history = append(h.history, last)
	}
	return h
}

func decodeHead(b []byte) (head, error) {
	s := scanner{rest: b}
	h := scanHead(&s)
	if s.bad {
		return head{}, errDamaged
	}
	h.inline = bytes.Clone(h.inline)
	return h, nil
}

func decodeRecord(b []byte) (*toolguard.Operation, error) {
	s := scanner{rest: b}
	h := scanHead(&s)
	if s.bad {
		return nil, errDamaged
	}
	text, err := unpack(s.rest)
	if err != nil {
		return nil, err
	}
	s = scanner{rest: text}
	material := s.name()
	if s.bad {
		return nil, errDamaged
	}
	op := new(toolguard.Operation)
	if err := json.Unmarshal(s.rest, op); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	op.Material = nil
	if len(material) > 0 {
		op.Material = material
	}
	op.Rev, op.Dispatched, op.Token = h.rev, h.dispatched, h.token
	return op, nil
}

// listing is an operation in the list of the open ones.
type listing struct {
	key                               string
	tenant, workflow, action, subject string
	holding, due                      bool

	sheet *sheet // that it stands on; nil: on that of the group being collected
}

// same reports whether two listings are written alike: whether an operation is holding or due stands in its record.
func (l *listing) same(o *listing) bool {
	a, b := *l, *o
	a.holding, a.due, b.holding, b.due = false, false, false, false
	a.sheet, b.sheet = nil, nil
	return a == b
}

func (l *listing) size() int {
	return 4*binary.MaxVarintLen16 + len(l.tenant) + len(l.workflow) + len(l.action) + len(l.subject)
}

func appendListing(b []byte, l *listing) []byte {
	return appendName(appendName(appendName(appendName(b, l.tenant), l.workflow), l.action), l.subject)
}

// scanListing reads a key and its listing.
func scanListing(s *scanner) *listing {
	return &listing{key: s.string(), tenant: s.string(), workflow: s.string(), action: s.string(), subject: s.string()}
}

// intentHead is the latest occurrence of an intent. While it is the only one, that is all there is.
type intentHead struct {
	occurrence int
	key        string
	several    bool // every occurrence has a repeatKey
}

func (h *intentHead) encode() []byte {
	b := []byte{0}
	if h.several {
		b[0] = 1
	}
	return append(binary.AppendUvarint(b, uint64(h.occurrence)), h.key...)
}

func decodeIntent(b []byte) (intentHead, error) {
	s := scanner{rest: b}
	several := s.byte() == 1
	occurrence := s.uvarint()
	if s.bad {
		return intentHead{}, errDamaged
	}
	return intentHead{occurrence: int(occurrence), key: string(s.rest), several: several}, nil
}

// slot is one place in a lane.
type slot struct {
	seq uint64 // of the dispatch
	key string
}

const laneLength = 16

// dispatch returns the lane with key first, whose sequence is still to be set.
func dispatch(lane []slot, key string) []slot {
	next := append(make([]slot, 0, laneLength+1), slot{key: key})
	for _, s := range lane {
		if s.key != key {
			next = append(next, s)
		}
	}
	return next[:min(len(next), laneLength)]
}

func encodeLane(lane []slot) []byte {
	b := make([]byte, 0, 52*len(lane))
	for _, s := range lane {
		b = appendName(binary.BigEndian.AppendUint64(b, s.seq), s.key)
	}
	return b
}

func decodeLane(b []byte) ([]slot, error) {
	var lane []slot
	for s := (scanner{rest: b}); len(s.rest) > 0; {
		lane = append(lane, slot{s.uint64(), s.string()})
		if s.bad {
			return nil, errDamaged
		}
	}
	return lane, nil
}
