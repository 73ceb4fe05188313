package badgerstore

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// closeFor bounds how long Badger may take to close. It tries for ever what it cannot do.
const closeFor = 10 * time.Second

// begin reads what the store keeps in memory, compares it with what was noted of it, and notes that it is there.
func (s *Store) begin(kept *ledger) (err error) {
	if s.committer, err = s.load(); err != nil {
		return err
	}
	if s.home, err = newHome(s.dir, s.lock); err != nil {
		return err
	}
	k := s.committer
	if kept.mark != nil {
		if missing := kept.mark.fits(k.seq, k.chains); missing != "" {
			return damaged(s.dir, "%s", missing)
		}
	}
	s.marker = newMarker(s.home, kept, s.log, k.seq, k.chains)
	if kept.mark == nil { // from now on there must be data
		return s.marker.write()
	}
	return nil
}

// Close finishes what is queued, waits for reads, and gives the ledger up. Further calls do nothing.
//
// Every acknowledged write is on disk already. So where Badger cannot close, because the folder is gone, the disk has no
// room for its tables, or it takes too long, it is left alone; this process then keeps the ledger's lock to its end,
// unless the folder is gone. Only the lack of room is no error.
func (s *Store) Close() error {
	s.gate.Lock()
	if s.closed {
		s.gate.Unlock()
		return nil
	}
	s.closed = true
	s.committer.close()
	s.gate.Unlock()

	s.ended.Wait()
	s.tail.close()
	s.marker.end()
	if err := s.home.changed(); err != nil {
		s.lock.release()
		return err
	}
	if !s.room.canFlush() {
		s.lock.keep()
		s.log.Warn("ledger: too little space to tidy up; what was written is safe, and read again at the next start", "folder", s.dir)
		return nil
	}
	return s.shut()
}

func (s *Store) shut() error {
	closed := make(chan error, 1)
	go func() { closed <- s.db.Close() }()
	timer := time.NewTimer(closeFor)
	defer timer.Stop()
	select {
	case err := <-closed:
		defer s.lock.release()
		if err != nil {
			return fmt.Errorf("ledger %s: %w", s.dir, oneLine{err})
		}
		if err := s.marker.write(); err != nil {
			s.marker.log.Debug("ledger: how far it has come was not noted", "error", err)
		}
		return nil
	case <-timer.C:
		s.lock.keep()
		return fmt.Errorf("ledger %s: it could not be closed within %s; what was written is safe, and read again at the next start", s.dir, closeFor)
	}
}

// retained are locks that are held until the process ends.
var retained struct {
	sync.Mutex
	locks []*lock
}

func (l *lock) keep() {
	retained.Lock()
	defer retained.Unlock()
	retained.locks = append(retained.locks, l)
}

// oneLine is an error whose text may have had several.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
