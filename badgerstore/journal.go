package badgerstore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"toolguard.dev/toolguard"
)

// A journal entry holds the events of one write under the write's sequence, which is that of its last event. An
// entry whose write created an operation is marked, so that all operations can be found in the order of creation.
//
//	tenant and key of the created operation, or "" and "" | number of events |
//	for each: place in its chain | hash before it, or "" | its hash |
//	packed: for each: JSON without these

// markCreated is Badger's user byte of a journal entry that created an operation.
const markCreated = 1

// encodeEvents packs the texts of events, without what linking will fill in, and returns how large they were.
func encodeEvents(events []toolguard.Event) (packed []byte, size int, err error) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	text := (*buffer)[:0]
	for i := range events {
		e := events[i]
		e.Chain, e.ChainSeq, e.Prev, e.Hash = "", 0, "", ""
		if text, err = appendJSON(text, reflect.ValueOf(&e).Elem()); err != nil {
			return nil, 0, fmt.Errorf("event: %w", err)
		}
		text = append(text, '\n')
	}
	*buffer = text
	return pack(0, text), len(text), nil
}

// encodeJournal takes linked events and their packed texts.
func encodeJournal(tenant, key string, events []toolguard.Event, packed []byte) ([]byte, error) {
	b := make([]byte, 0, len(tenant)+len(key)+len(packed)+len(events)*(2*33+binary.MaxVarintLen32)+3*binary.MaxVarintLen32)
	b = appendName(appendName(b, tenant), key)
	b = binary.AppendUvarint(b, uint64(len(events)))
	for i := range events {
		e := &events[i]
		b = binary.AppendUvarint(b, e.ChainSeq)
		var err error
		if b, err = appendHash(b, e.Prev); err != nil {
			return nil, err
		}
		if b, err = appendHash(b, e.Hash); err != nil {
			return nil, err
		}
	}
	return append(b, packed...), nil
}

func appendHash(b []byte, text string) ([]byte, error) {
	b = append(b, byte(hex.DecodedLen(len(text))))
	b, err := hex.AppendDecode(b, []byte(text))
	if err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	return b, nil
}

func (s *scanner) hash() string { return hex.EncodeToString(s.take(uint64(s.byte()))) }

// decodeCreated reads what a marked entry created.
func decodeCreated(b []byte) (tenant, key string, err error) {
	s := scanner{rest: b}
	tenant, key = s.string(), s.string()
	if s.bad {
		return "", "", errDamaged
	}
	return tenant, key, nil
}

// decodeEvents reads the events of the write with sequence seq.
func decodeEvents(seq uint64, b []byte) ([]toolguard.Event, error) {
	s := scanner{rest: b}
	s.name()
	s.name()
	n := s.uvarint()
	if s.bad || n > uint64(len(b)) {
		return nil, errDamaged
	}
	if n == 0 {
		return nil, nil
	}
	events := make([]toolguard.Event, n)
	for i := range events {
		e := &events[i]
		e.ChainSeq, e.Prev, e.Hash = s.uvarint(), s.hash(), s.hash()
	}
	if s.bad {
		return nil, errDamaged
	}
	text, err := unpack(s.rest)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // the hash covers numbers of any size
	for i := range events {
		e := events[i]
		if err := d.Decode(&events[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		events[i].Chain, events[i].ChainSeq, events[i].Prev, events[i].Hash = events[i].Tenant, e.ChainSeq, e.Prev, e.Hash
		events[i].Seq = seq - n + 1 + uint64(i)
	}
	return events, nil
}

// settled returns a copy of e that shares nothing with it.
func settled(e *toolguard.Event) (toolguard.Event, error) {
	packed, _, err := encodeEvents([]toolguard.Event{*e})
	if err != nil {
		return toolguard.Event{}, err
	}
	text, err := unpack(packed)
	if err != nil {
		return toolguard.Event{}, err
	}
	var c toolguard.Event
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return c, d.Decode(&c)
}
