package badgerstore

import (
	"math"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// load reads what the store keeps in memory and returns the committer that goes on from there.
func (s *Store) load() (_ *committer, err error) {
	defer recovered([]byte(s.dir), &err)
	k := &committer{
		s: s, wake: make(chan struct{}, 1), chains: map[string]chain{}, heads: map[string]head{}, lanes: map[string][]slot{},
		group: newGroup(&group{}), ahead: &group{},
	}
	k.seq = s.db.MaxVersion()
	s.view.seq, s.view.open, s.view.snapshots = k.seq, newOpenSet(), map[uint64]int{}
	seq, _, err := stored(k, []byte{prefixSequence}, func(b []byte) (uint64, error) { return (&scanner{rest: b}).uint64(), nil })
	if err != nil {
		return nil, err
	}
	if seq != k.seq { // every group writes both
		return nil, damaged(s.dir, "it says that it ends at sequence %d, and it has come to %d", seq, k.seq)
	}
	k.fences = newFences(k.seq)
	s.db.SetDiscardTs(k.seq)

	r := &reading{s: s, seq: k.seq}
	defer r.end()
	err = r.scan([]byte{prefixChain}, nil, false, func(item *badger.Item) (bool, error) {
		name := string(item.Key()[1:])
		end, err := value(item, decodeChain)
		k.chains[name] = end
		return true, err
	})
	if err != nil {
		return nil, err
	}
	if err := k.loadSheets(r); err != nil {
		return nil, err
	}
	var latest []string
	err = r.scan([]byte{prefixToken}, nil, true, func(item *badger.Item) (bool, error) {
		of, err := value(item, decodeTokens)
		latest = append(latest, of...)
		return len(latest) < tokensKept, err
	})
	for _, token := range slices.Backward(latest) {
		k.tokens.add(token)
	}
	k.lazy = time.AfterFunc(math.MaxInt64, k.flush)
	return k, err
}

// loadSheets lists the operations that are open.
func (k *committer) loadSheets(r *reading) error {
	sheets := map[string]*sheet{} // where each operation stands last
	return r.scan([]byte{prefixSheet}, nil, false, func(item *badger.Item) (bool, error) {
		s := &sheet{key: item.KeyCopy(nil), open: map[string]struct{}{}}
		_, err := value(item, func(b []byte) (struct{}, error) {
			return struct{}{}, scanSheet(b, func(l *listing) error {
				s.size++
				h, found, err := stored(k, nameKey(prefixRecord, l.key), decodeHead)
				switch {
				case err != nil:
					return err
				case !found:
					return errDamaged
				case !h.open:
					return nil
				}
				if before := sheets[l.key]; before != nil {
					delete(before.open, l.key)
				}
				sheets[l.key] = s
				s.open[l.key] = struct{}{}
				l.holding, l.due, l.sheet = h.holding, h.due, s
				k.s.view.open.add(l)
				return nil
			})
		})
		return err == nil, err
	})
}
