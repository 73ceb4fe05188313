package badgerstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"toolguard.dev/codec"
	"toolguard.dev/toolguard"
)

// A record is the operation, a body that does not expire, if it is small, and a head, which the store keeps and stamps by
// itself. The head stands last, so that the committer adds it to what others wrote.
//
//	version 1 | operation, packed if flagged | body, or "" |
//	parts of the body 1 | rev 8 | dispatched 8 | created 8 | token | bundle of the body, or 0 | queue, if flagged |
//	history: sequences after the one before | flags 1
const (
	recordVersion = 4
	recordHead    = 2 + 3*8 + 1 + maxToken + binary.MaxVarintLen64 + 3*binary.MaxVarintLen32 + historyBytes

	recordHolding = 1  // it may hold others back, if it is open
	recordOpen    = 2  // some sheet lists it
	recordQueued  = 4  // it stands in a queue
	recordDue     = 8  // something may have to be done about it, if it is open
	recordPacked  = 16 // the operation is packed

	// recordAlias stands for a record: there is none, but its key names an intent that has occurrences all the same.
	recordAlias = 0

	// historyKept is how many sequences of a record's history it names; those beyond it, and of writes that do not write
	// the record, have keys of their own.
	historyKept  = 24
	historyBytes = historyKept * 4

	// maxInline is the largest body that stands in the record. Most bodies of open operations do, so that they need
	// no key of their own and are gone once the operation is final, whose body expires and so has a key.
	maxInline = 2 << 10

	packedFrom = 1 << 10 // smaller operations are hashes and times for the most part
)

var errDamaged = errors.New("damaged")

// head is what the committer knows of a stored operation.
type head struct {
	rev        uint64
	dispatched uint64 // sequence of the last write that dispatched it
	created    uint64 // sequence of the first write
	token      string
	alias      bool     // it is none: see recordAlias
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

// operation is an operation on its way to the disk: the beginning of a record, with room for the rest.
type operation struct {
	text   []byte // version | operation
	packed bool
}

// encodeOperation returns an operation with room for an inline body and a head, and how large it was before it was packed.
func encodeOperation(op *toolguard.Operation, inline int) (o operation, size int, err error) {
	buffer, c := buffers.Get().(*[]byte), copies.Get().(*toolguard.Operation)
	defer buffers.Put(buffer)
	*c = *op
	c.Token, c.Rev, c.Dispatched = "", 0, 0
	text, err := codec.AppendShort((*buffer)[:0], c)
	*c = toolguard.Operation{}
	copies.Put(c)
	if err != nil {
		return o, 0, fmt.Errorf("operation %s: %w", op.Key, err)
	}
	*buffer = text
	size = len(text)
	if o.packed = size > packedFrom; o.packed {
		text = pack(text)
	}
	o.text = append(make([]byte, 0, 1+2*binary.MaxVarintLen32+len(text)+inline+recordHead), recordVersion)
	o.text = appendName(o.text, text)
	return o, size, nil
}

// copies are of operations that are being encoded.
var copies = sync.Pool{New: func() any { return new(toolguard.Operation) }}

// encodeRecord adds a head and its inline body to an operation, whose memory the record uses.
func encodeRecord(h *head, o operation) []byte {
	b := append(appendName(o.text, h.inline), byte(h.parts))
	for _, n := range []uint64{h.rev, h.dispatched, h.created} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.AppendUvarint(appendName(b, h.token), h.bundle)
	flags := byte(0)
	if o.packed {
		flags |= recordPacked
	}
	if h.listing != nil {
		flags |= recordOpen
		if h.listing.holding {
			flags |= recordHolding
		}
		if h.listing.due {
			flags |= recordDue
		}
	}
	if h.queue != "" {
		flags |= recordQueued
		b = appendName(b, h.queue)
	}
	b = binary.AppendUvarint(b, uint64(len(h.history)))
	last := uint64(0)
	for _, seq := range h.history {
		b = binary.AppendUvarint(b, seq-last)
		last = seq
	}
	return append(b, flags)
}

// scanRecord reads a record. What it returns of it and the body of the head stay in the slice.
func scanRecord(b []byte) (h head, operation []byte, packed bool, err error) {
	if len(b) == 1 && b[0] == recordAlias {
		return head{alias: true}, nil, false, nil
	}
	if len(b) < 2 || b[0] != recordVersion {
		return h, nil, false, errDamaged
	}
	flags := b[len(b)-1]
	s := scanner{rest: b[1 : len(b)-1]}
	operation = s.name()
	h = head{
		holding: flags&recordHolding != 0, due: flags&recordDue != 0, open: flags&recordOpen != 0,
		inline: s.name(), parts: int(s.byte()), rev: s.uint64(), dispatched: s.uint64(), created: s.uint64(), token: s.string(), bundle: s.uvarint(),
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
	if s.bad || len(s.rest) > 0 {
		return head{}, nil, false, errDamaged
	}
	return h, operation, flags&recordPacked != 0, nil
}

func decodeHead(b []byte) (head, error) {
	h, _, _, err := scanRecord(b)
	h.inline = bytes.Clone(h.inline)
	return h, err
}

func decodeRecord(b []byte) (*toolguard.Operation, error) {
	h, text, packed, err := scanRecord(b)
	if err == nil && packed {
		text, err = unpack(text)
	}
	if err != nil {
		return nil, err
	}
	if h.alias {
		return nil, toolguard.ErrNotFound
	}
	op := new(toolguard.Operation)
	if err := codec.Decode(string(text), op); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
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

// intentHead is the latest occurrence of an intent, unless that is its first, which has its name. While it is the only one,
// that is all there is.
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
