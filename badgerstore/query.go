package badgerstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// pageLength is how many operations a page of all has when the query does not say.
const pageLength = 100

// Operations answers q; see [toolguard.Store].
func (s *Store) Operations(ctx context.Context, q toolguard.Query) (page toolguard.Page, err error) {
	kinds := 0
	for _, is := range []bool{q.Key != "", q.Intent != "", q.Lane != "", q.Call != "", q.Open, q.Queue != "", q.All} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return page, fmt.Errorf("ledger: a query must ask for one thing, not %d", kinds)
	}
	var n *narrow
	if q.Open {
		n = &narrow{place: place{q.Tenant, q.Workflow, q.Action}, subject: q.Subject, holding: q.Holding, due: q.Due, limit: q.Limit}
	}
	err = s.read(ctx, n, func(r *reading, open []string) error {
		page.Seq = r.seq
		var keys []string
		var err error
		switch {
		case q.Key != "":
			keys = []string{q.Key}
		case q.Intent != "":
			keys, err = r.intent(q.Intent, q.Tenant, q.Limit)
		case q.Lane != "":
			keys, err = r.lane(q.Lane, q.Tenant, q.After)
		case q.Call != "":
			keys, err = r.call(q.Call, q.Tenant)
		case q.Open:
			keys = open
		case q.Queue != "":
			if keys, page.Next, err = r.queue(q); err == nil {
				page.Count, err = r.count(q.Queue, q.Tenant)
			}
		case q.All:
			keys, page.Next, err = r.all(q)
		}
		if err != nil {
			return err
		}
		if q.Limit > 0 && len(keys) > q.Limit {
			keys = keys[:q.Limit]
		}
		page.Operations, err = r.operations(keys, &q)
		return err
	})
	if err != nil {
		return toolguard.Page{}, err
	}
	return page, nil
}

func (r *reading) operations(keys []string, q *toolguard.Query) ([]*toolguard.Operation, error) {
	var ops []*toolguard.Operation
	for i, key := range keys {
		if i%64 == 63 && r.ctx.Err() != nil {
			return nil, r.ctx.Err()
		}
		op, err := r.operation(key)
		switch {
		case errors.Is(err, toolguard.ErrNotFound) && q.Key != "":
			return nil, nil
		case errors.Is(err, toolguard.ErrNotFound):
			return nil, unreadable(nameKey(prefixRecord, key), errDamaged) // an index names it
		case err != nil:
			return nil, err
		}
		if q.Tenant == "" || q.Tenant == op.Facts.Tenant {
			ops = append(ops, op)
		}
	}
	return ops, nil
}

// intent returns the keys of an intent's occurrences, latest first.
func (r *reading) intent(intent, tenant string, limit int) ([]string, error) {
	var first []string // the occurrence that has the intent's name
	if _, ok := r.s.view.recent.get(intent, r.seq); ok {
		first = []string{intent}
	} else if h, err := getKnown(r, nameKey(prefixRecord, intent), decodeHead); errors.Is(err, toolguard.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	} else if !h.alias {
		first = []string{intent}
	}
	if tenant == "" {
		keys, err := r.intents(intent)
		if first != nil && !slices.Contains(keys, intent) {
			keys = append(keys, intent)
		}
		return keys, err
	}
	h, err := getKnown(r, scopedKey(prefixIntent, intent, tenant), decodeIntent)
	if errors.Is(err, toolguard.ErrNotFound) {
		return first, nil
	}
	if err != nil || limit == 1 || !h.several {
		return []string{h.key}, err
	}
	var keys []string
	prefix := repeatPrefix(intent, tenant)
	err = r.scan(prefix, nil, false, func(item *badger.Item) (bool, error) {
		keys = append(keys, string(item.Key()[len(prefix)+8:]))
		return limit == 0 || len(keys) < limit, nil
	})
	return keys, err
}

// intents returns the keys of all occurrences of an intent's name, latest first, whatever their tenant.
func (r *reading) intents(intent string) ([]string, error) {
	var all []intentHead
	prefix := scopedName(prefixIntent, intent)
	err := r.scan(prefix, nil, false, func(item *badger.Item) (bool, error) {
		h, err := value(item, decodeIntent)
		if err != nil || !h.several {
			all = append(all, h)
			return true, err
		}
		each := repeatPrefix(intent, string(item.Key()[len(prefix):]))
		return true, r.scan(each, nil, false, func(item *badger.Item) (bool, error) {
			rest := item.Key()[len(each):]
			all = append(all, intentHead{occurrence: int(^binary.BigEndian.Uint64(rest)), key: string(rest[8:])})
			return true, nil
		})
	})
	slices.SortStableFunc(all, func(a, b intentHead) int { return cmp.Compare(b.occurrence, a.occurrence) })
	keys := make([]string, len(all))
	for i, h := range all {
		keys[i] = h.key
	}
	return keys, err
}

// lane returns the keys of the operations dispatched in a lane after a sequence, latest first.
func (r *reading) lane(name, tenant string, after uint64) ([]string, error) {
	var lane []slot
	var err error
	if tenant != "" {
		lane, err = get(r, scopedKey(prefixLane, name, tenant), decodeLane)
		if errors.Is(err, toolguard.ErrNotFound) {
			return nil, nil
		}
	} else {
		err = r.scan(scopedName(prefixLane, name), nil, false, func(item *badger.Item) (bool, error) {
			l, err := value(item, decodeLane)
			lane = append(lane, l...)
			return true, err
		})
		slices.SortFunc(lane, func(a, b slot) int { return cmp.Compare(b.seq, a.seq) })
	}
	var keys []string
	for _, s := range lane {
		if s.seq > after {
			keys = append(keys, s.key)
		}
	}
	return keys, err
}

// indexed is what a call is indexed under.
type indexed struct {
	until uint64
	key   string
}

func encodeCall(key string, until time.Time) []byte {
	return append(binary.BigEndian.AppendUint64(nil, exactly(until)), key...)
}

func decodeCall(b []byte) (indexed, error) {
	s := scanner{rest: b}
	until := s.uint64()
	if s.bad {
		return indexed{}, errDamaged
	}
	return indexed{until, string(s.rest)}, nil
}

// call returns the key of the operation last indexed under a call, if that has not expired.
func (r *reading) call(name, tenant string) ([]string, error) {
	var found []indexed
	var err error
	if tenant != "" {
		c, err := get(r, scopedKey(prefixCall, name, tenant), decodeCall)
		if errors.Is(err, toolguard.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, c)
	} else {
		err = r.scan(scopedName(prefixCall, name), nil, false, func(item *badger.Item) (bool, error) {
			c, err := value(item, decodeCall)
			found = append(found, c)
			return true, err
		})
	}
	var keys []string
	for _, c := range found {
		if !expired(c.until, time.Now()) {
			keys = append(keys, c.key)
		}
	}
	return keys, err
}

// all returns the keys of a page of all operations, latest created first, and where the next page begins.
func (r *reading) all(q toolguard.Query) (keys []string, next uint64, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = pageLength
	}
	below := q.Before
	if below == 0 {
		below = r.seq + 1
	}
	// An entry has the sequence of its last write: the first one to look at is that in which below is.
	start := journalKey(r.seq)
	err = r.scan([]byte{prefixJournal}, journalKey(below-1), false, func(item *badger.Item) (bool, error) {
		start = item.KeyCopy(nil)
		return false, nil
	})
	if err != nil {
		return nil, 0, err
	}
	last, more := uint64(0), false
	err = r.scan([]byte{prefixJournal}, start, true, func(item *badger.Item) (bool, error) {
		if item.UserMeta()&markCreated == 0 {
			return true, nil
		}
		all, err := value(item, decodeCreated)
		for _, c := range slices.Backward(all) {
			if c.seq >= below || q.Tenant != "" && q.Tenant != c.tenant {
				continue
			}
			if more = len(keys) == limit; more {
				break
			}
			keys, last = append(keys, c.key), c.seq
		}
		return !more, err
	})
	if more {
		next = last
	}
	return keys, next, err
}

// queue returns the keys of a page of a queue, latest created first, and where the next page begins.
func (r *reading) queue(q toolguard.Query) (keys []string, next uint64, err error) {
	limit := cmp.Or(max(q.Limit, 0), pageLength)
	prefix := scopedName(prefixQueue, q.Queue)
	var start []byte
	if q.Before > 0 {
		start = queueKey(q.Queue, q.Before-1, "")
	}
	last := uint64(0)
	err = r.scan(prefix, start, false, func(item *badger.Item) (bool, error) {
		if ours, err := belongs(item, q.Tenant); err != nil || !ours {
			return true, err
		}
		if len(keys) == limit {
			next = last
			return false, nil
		}
		rest := item.Key()[len(prefix):]
		last = ^binary.BigEndian.Uint64(rest)
		keys = append(keys, string(rest[8:]))
		return true, nil
	})
	return keys, next, err
}

// count counts a queue.
func (r *reading) count(queue, tenant string) (n int, err error) {
	err = r.scan(scopedName(prefixQueue, queue), nil, false, func(item *badger.Item) (bool, error) {
		ours, err := belongs(item, tenant)
		if ours {
			n++
		}
		return n < toolguard.CountLimit, err
	})
	return n, err
}

// belongs reports whether an entry of a queue is of a tenant; "": of any.
func belongs(item *badger.Item, tenant string) (bool, error) {
	if tenant == "" {
		return true, nil
	}
	return value(item, func(b []byte) (bool, error) { return string(b) == tenant, nil })
}
