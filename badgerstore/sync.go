package badgerstore

import (
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// write brings g to disk, and then gives g's writes their answers.
func (s *Store) write(g *group) {
	g.seal()
	var err error
	if len(g.entries) > 0 {
		txn, failed := s.transaction(g)
		if err = failed; err == nil {
			if err = txn.CommitAt(g.seq, nil); err == nil {
				err = s.tail.sync(g.written())
			}
		}
	}
	err = s.written(g, err)
	for _, c := range g.changes {
		if err != nil {
			c.err = err
		}
		c.done.Done()
	}
}

// transaction puts g into a transaction, unless the store is broken.
func (s *Store) transaction(g *group) (*badger.Txn, error) {
	if err := s.broken.Load(); err != nil {
		return nil, *err
	}
	if err := s.at(BeforeCommit); err != nil {
		return nil, err
	}
	txn := s.db.NewTransactionAt(g.seq, true)
	sent := make([]badger.Entry, len(g.entries))
	for i := range g.entries {
		e := &g.entries[i]
		var err error
		if e.gone {
			err = txn.Delete(e.key)
		} else {
			sent[i] = badger.Entry{Key: e.key, Value: e.value, ExpiresAt: e.expires, UserMeta: e.mark}
			err = txn.SetEntry(&sent[i])
		}
		if err != nil {
			txn.Discard()
			return nil, err
		}
	}
	return txn, nil
}

// written shows g to readers if it is on disk. Any failure breaks the store: what reached the disk is not known.
func (s *Store) written(g *group, err error) error {
	if len(g.entries) == 0 {
		return nil
	}
	if err == nil {
		err = s.at(AfterCommit)
	}
	if err == nil {
		err = s.home.gone()
	}
	if err == nil {
		s.db.SetDiscardTs(s.view.publish(g))
		s.marker.wrote(g)
		return nil
	}
	if broken := s.broken.Load(); broken != nil {
		return *broken
	}
	err = fmt.Errorf("%w: %w", toolguard.ErrStoreBroken, err)
	s.broken.Store(&err)
	return err
}

func (s *Store) at(stage Stage) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(stage)
}
