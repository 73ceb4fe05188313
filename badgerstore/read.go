package badgerstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// reading is one read of the ledger as of a sequence.
type reading struct {
	s   *Store
	ctx context.Context
	seq uint64
	txn *badger.Txn // nil until something is read from Badger
}

// badger returns the transaction to read with.
func (r *reading) badger() *badger.Txn {
	if r.txn == nil {
		r.txn = r.s.db.NewTransactionAt(r.seq, false)
	}
	return r.txn
}

// end gives up the transaction.
func (r *reading) end() {
	if r.txn != nil {
		r.txn.Discard()
	}
}

// read calls f with the latest state, and with the keys of the open operations that n selects.
func (s *Store) read(ctx context.Context, n *narrow, f func(r *reading, open []string) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return toolguard.ErrStoreClosed
	}
	seq, open := s.view.begin(n)
	defer s.view.end(seq)
	r := &reading{s: s, ctx: ctx, seq: seq}
	defer r.end()
	defer recovered([]byte(s.dir), &err)
	return f(r, open)
}

// get decodes what is stored under key, or returns toolguard.ErrNotFound.
func get[T any](r *reading, key []byte, decode func([]byte) (T, error)) (v T, err error) {
	item, err := r.badger().Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return v, toolguard.ErrNotFound
	}
	if err != nil {
		return v, unreadable(key, err)
	}
	return value(item, decode)
}

// getKnown is get for keys that, once there, are never taken away: what is not there is remembered.
func getKnown[T any](r *reading, key []byte, decode func([]byte) (T, error)) (v T, err error) {
	if r.s.view.lacks(key) {
		return v, toolguard.ErrNotFound
	}
	v, err = get(r, key, decode)
	if errors.Is(err, toolguard.ErrNotFound) {
		r.s.view.missed(key, r.seq)
	}
	return v, err
}

// value decodes an item. What it returns must not refer to the bytes.
func value[T any](item *badger.Item, decode func([]byte) (T, error)) (v T, err error) {
	err = item.Value(func(b []byte) error {
		v, err = decode(b)
		return err
	})
	if err != nil && !errors.Is(err, toolguard.ErrNotFound) {
		return v, unreadable(item.Key(), err)
	}
	return v, err
}

// scan calls f with the items under prefix, in order, from start on (nil: from the first, or backwards from the
// last), until it returns false.
func (r *reading) scan(prefix, start []byte, backwards bool, f func(*badger.Item) (bool, error)) error {
	it := r.badger().NewIterator(badger.IteratorOptions{Prefix: prefix, Reverse: backwards})
	defer it.Close()
	if start == nil {
		start = prefix
		if backwards {
			start = append(bytes.Clone(prefix), bytes.Repeat([]byte{0xff}, 16)...)
		}
	}
	n := 0
	for it.Seek(start); it.ValidForPrefix(prefix); it.Next() {
		if n++; n%256 == 0 && r.ctx != nil && r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		if more, err := f(it.Item()); err != nil || !more {
			return err
		}
	}
	return nil
}

// blob puts a blob together again.
func (r *reading) blob(prefix byte, name string) (data []byte, seq uint64, err error) {
	parts := 1
	for i := 0; i < parts; i++ {
		key := partKey(prefix, name, i)
		_, err := get(r, key, func(b []byte) (struct{}, error) {
			s, n, err := blobHead(b)
			switch {
			case err != nil:
				return struct{}{}, err
			case i == 0:
				seq, parts = s, n
			case s != seq:
				return struct{}{}, errDamaged
			}
			data = append(data, b[partHead:]...)
			return struct{}{}, nil
		})
		if i > 0 && errors.Is(err, toolguard.ErrNotFound) {
			err = unreadable(key, errDamaged)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return data, seq, nil
}

// Body returns the body of an operation; see [toolguard.Store].
func (s *Store) Body(ctx context.Context, key string) (body toolguard.Body, err error) {
	err = s.read(ctx, nil, func(r *reading, _ []string) error {
		if k, ok := s.view.recent.get(key, r.seq); ok && k.body != nil {
			if expired(k.until, time.Now()) {
				return fmt.Errorf("body of %s: %w", key, toolguard.ErrNotFound)
			}
			body = *cloneBody(k.body)
			return nil
		}
		read, until, err := r.body(key)
		if err != nil {
			return fmt.Errorf("body of %s: %w", key, err)
		}
		s.view.recent.addBody(key, &read, until, r.seq)
		body = read
		return nil
	})
	return body, err
}

// body reads a body out of its operation's record, or where else it is.
func (r *reading) body(key string) (body toolguard.Body, until uint64, err error) {
	from := nameKey(prefixRecord, key)
	h, err := get(r, from, decodeHead)
	if err == nil && h.alias {
		err = toolguard.ErrNotFound
	}
	if err != nil {
		return body, 0, err
	}
	data := h.inline
	switch {
	case h.bundle != 0:
		from = bundleKey(h.bundle)
		data, err = get(r, from, func(b []byte) ([]byte, error) { return unbundle(b, key) })
	case len(data) == 0:
		from = partKey(prefixBody, key, 0)
		data, _, err = r.blob(prefixBody, key)
	}
	if err != nil {
		return body, 0, err
	}
	body, until, err = decodeBody(data, time.Now())
	if errors.Is(err, errDamaged) {
		err = unreadable(from, err)
	}
	return body, until, err
}

// operation reads an operation, or returns toolguard.ErrNotFound.
func (r *reading) operation(key string) (*toolguard.Operation, error) {
	if k, ok := r.s.view.recent.get(key, r.seq); ok {
		return k.op.Clone(), nil
	}
	op, err := get(r, nameKey(prefixRecord, key), decodeRecord)
	if err != nil {
		return nil, err
	}
	r.s.view.recent.add(op.Clone(), r.seq)
	return op, nil
}

// Document returns a document; see [toolguard.Store].
func (s *Store) Document(ctx context.Context, name string) (data []byte, rev uint64, err error) {
	err = s.read(ctx, nil, func(r *reading, _ []string) error {
		packed, seq, err := r.blob(prefixDocument, name)
		if err != nil {
			return fmt.Errorf("document %s: %w", name, err)
		}
		if data, err = unpack(packed); err != nil {
			return unreadable(partKey(prefixDocument, name, 0), err)
		}
		rev = seq
		return nil
	})
	return data, rev, err
}

// Events returns audit events; see [toolguard.Store]. No limit stands for all.
func (s *Store) Events(ctx context.Context, after uint64, limit int) (events []toolguard.Event, err error) {
	err = s.read(ctx, nil, func(r *reading, _ []string) error {
		return r.scan([]byte{prefixJournal}, journalKey(after+1), false, func(item *badger.Item) (bool, error) {
			es, err := value(item, func(b []byte) ([]toolguard.Event, error) { return decodeEvents(b, after, "") })
			if limit > 0 {
				es = es[:min(len(es), limit-len(events))]
			}
			events = append(events, es...)
			return limit <= 0 || len(events) < limit, err
		})
	})
	return events, err
}

// History returns the audit events of an operation; see [toolguard.Store]. No limit stands for all.
func (s *Store) History(ctx context.Context, key string, after uint64, limit int) (events []toolguard.Event, err error) {
	err = s.read(ctx, nil, func(r *reading, _ []string) error {
		at, err := r.history(key)
		if err != nil {
			return err
		}
		read := uint64(0) // the journal was read up to this sequence
		for _, seq := range at {
			if seq <= read || limit > 0 && len(events) >= limit {
				continue
			}
			err := r.entryWith(seq, func(entry uint64, b []byte) error {
				if read = entry; entry <= after {
					return nil
				}
				of, err := decodeEvents(b, after, key)
				if limit > 0 {
					of = of[:min(len(of), limit-len(events))]
				}
				events = append(events, of...)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return events, err
}

// history returns sequences of events of an operation, in order: at least one of each write with such.
func (r *reading) history(key string) ([]uint64, error) {
	h, err := get(r, nameKey(prefixRecord, key), decodeHead)
	if err != nil && !errors.Is(err, toolguard.ErrNotFound) {
		return nil, err
	}
	at := h.history
	prefix := scopedName(prefixHistory, key)
	err = r.scan(prefix, nil, false, func(item *badger.Item) (bool, error) {
		at = append(at, binary.BigEndian.Uint64(item.Key()[len(prefix):]))
		return true, nil
	})
	slices.Sort(at)
	return at, err
}

// entryWith calls f with the journal entry that has the event of a sequence in it, and the entry's own sequence.
func (r *reading) entryWith(seq uint64, f func(entry uint64, b []byte) error) error {
	found := false
	err := r.scan([]byte{prefixJournal}, journalKey(seq), false, func(item *badger.Item) (bool, error) {
		found = true
		_, err := value(item, func(b []byte) (struct{}, error) { return struct{}{}, f(binary.BigEndian.Uint64(item.Key()[1:]), b) })
		return false, err
	})
	if err == nil && !found {
		err = unreadable(journalKey(seq), errDamaged)
	}
	return err
}
