package badgerstore

import "github.com/dgraph-io/badger/v4"

// load reads what the store keeps in memory and returns the committer that goes on from there.
func (s *Store) load() (_ *committer, err error) {
	defer recovered([]byte(s.dir), &err)
	k := &committer{s: s, chains: map[string]chain{}, heads: map[string]head{}, lanes: map[string][]slot{}, group: &group{}, ahead: &group{}}
	k.seq = s.db.MaxVersion()
	s.view.seq, s.view.open, s.view.snapshots = k.seq, newOpenSet(), map[uint64]int{}
	seq, found, err := stored(k, []byte{prefixSequence}, func(b []byte) (uint64, error) { return (&scanner{rest: b}).uint64(), nil })
	if err != nil {
		return nil, err
	}
	if found {
		k.seq = max(k.seq, seq)
		s.view.seq = k.seq
	}
	k.fences = newFences(k.seq)
	s.db.SetDiscardTs(k.seq)

	r := &reading{s: s, seq: k.seq, txn: s.db.NewTransactionAt(k.seq, false)}
	defer r.txn.Discard()
	err = r.scan([]byte{prefixChain}, nil, false, func(item *badger.Item) (bool, error) {
		name := string(item.Key()[1:])
		end, err := value(item, decodeChain)
		k.chains[name] = end
		return true, err
	})
	if err != nil {
		return nil, err
	}
	err = r.scan([]byte{prefixOpen}, nil, false, func(item *badger.Item) (bool, error) {
		key := string(item.Key()[1:])
		l, err := value(item, func(b []byte) (*listing, error) { return decodeListing(key, b) })
		if err == nil {
			s.view.open.add(l)
		}
		return true, err
	})
	return k, err
}
