package badgerstore

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// What the committer sees: what is on disk, under the group handed over, under the group being collected.

func (k *committer) head(key string) (head, error) {
	for _, g := range []*group{k.group, k.ahead} {
		if h, ok := g.heads[key]; ok {
			return h, nil
		}
	}
	if h, ok := k.heads[key]; ok {
		return h, nil
	}
	h, found, err := stored(k, nameKey(prefixRecord, key), decodeHead)
	if found {
		h.listing = k.s.view.listing(key)
	}
	return h, err
}

func (k *committer) intent(key string) (intentHead, bool, error) {
	for _, g := range []*group{k.group, k.ahead} {
		if h, ok := g.intents[key]; ok {
			return h, true, nil
		}
	}
	return stored(k, []byte(key), decodeIntent)
}

func (k *committer) lane(key string) ([]slot, error) {
	for _, lanes := range []map[string][]slot{k.group.lanes, k.ahead.lanes, k.lanes} {
		if lane, ok := lanes[key]; ok {
			return lane, nil
		}
	}
	lane, _, err := stored(k, []byte(key), decodeLane)
	return lane, err
}

func (k *committer) document(name string) (documentHead, error) {
	for _, g := range []*group{k.group, k.ahead} {
		if d, ok := g.documents[name]; ok {
			return d, nil
		}
	}
	d, _, err := stored(k, partKey(prefixDocument, name, 0), func(b []byte) (documentHead, error) {
		rev, parts, err := blobHead(b)
		return documentHead{rev, parts}, err
	})
	return d, err
}

// stored reads one key as of the last group on disk. Whatever a group still on its way there changes has been looked up before.
func stored[T any](k *committer, key []byte, decode func([]byte) (T, error)) (v T, found bool, err error) {
	if k.s.view.lacks(key) {
		return v, false, nil
	}
	defer recovered(key, &err)
	if seq := k.s.view.latest(); k.txn == nil || k.txn.ReadTs() != seq {
		k.txn = k.s.db.NewTransactionAt(seq, false)
	}
	item, err := k.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return v, false, nil
	}
	if err == nil {
		err = item.Value(func(b []byte) error {
			v, err = decode(b)
			return err
		})
	}
	if err != nil {
		return v, false, unreadable(key, err)
	}
	return v, true, nil
}

func unreadable(key []byte, err error) error {
	return fmt.Errorf("ledger: what is stored under %q cannot be read: %w", key, err)
}

// recovered makes an error of a panic, with which Badger meets damaged tables.
func recovered(key []byte, err *error) {
	if p := recover(); p != nil {
		*err = unreadable(key, fmt.Errorf("%w: %v", errDamaged, p))
	}
}
