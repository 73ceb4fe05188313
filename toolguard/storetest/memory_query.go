package storetest

import (
	"cmp"
	"fmt"
	"slices"

	"toolguard.dev/toolguard"
)

func (s *state) query(q toolguard.Query) (toolguard.Page, error) {
	kinds := 0
	for _, is := range []bool{q.Key != "", q.Intent != "", q.Lane != "", q.Call != "", q.Open, q.Queue != "", q.All} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return toolguard.Page{}, fmt.Errorf("a query must ask for one thing, not %d", kinds)
	}
	page := toolguard.Page{Seq: s.seq}
	found := s.find(q)
	limit := q.Limit
	if q.Queue != "" {
		every := q
		every.Before = 0
		page.Count = min(len(s.find(every)), toolguard.CountLimit)
	}
	paged := q.All || q.Queue != ""
	if paged && limit <= 0 {
		limit = 100
	}
	if limit > 0 && len(found) > limit {
		found = found[:limit]
		if paged {
			page.Next = found[limit-1].created
		}
	}
	for _, k := range found {
		page.Operations = append(page.Operations, k.Operation.Clone())
	}
	return page, nil
}

// find returns what q selects, in its order.
func (s *state) find(q toolguard.Query) []*kept {
	var found []*kept
	for _, k := range s.operations {
		if (q.Tenant == "" || q.Tenant == k.Facts.Tenant) && s.matches(k, &q) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b *kept) int {
		switch {
		case q.Intent != "":
			return cmp.Compare(b.Occurrence, a.Occurrence)
		case q.Lane != "":
			return cmp.Compare(s.dispatched(b, q.Lane), s.dispatched(a, q.Lane))
		}
		return cmp.Compare(b.created, a.created)
	})
	return found
}

func (s *state) matches(k *kept, q *toolguard.Query) bool {
	either := func(want, got string) bool { return want == "" || want == got }
	switch {
	case q.Key != "":
		return k.Key == q.Key
	case q.Intent != "":
		return k.Intent == q.Intent
	case q.Lane != "":
		return s.dispatched(k, q.Lane) > q.After
	case q.Call != "":
		i, ok := s.calls[scoped{k.Facts.Tenant, q.Call}]
		return ok && i.key == k.Key && !expired(i.until)
	case q.Open:
		return k.open && either(q.Workflow, k.Facts.Workflow) && either(q.Action, k.Action) && either(q.Subject, k.Subject) && (k.holding || !q.Holding) && (k.due || !q.Due)
	case q.Queue != "":
		return k.queue == q.Queue && (q.Before == 0 || k.created < q.Before)
	default:
		return q.Before == 0 || k.created < q.Before
	}
}

// dispatched is the sequence at which k was last dispatched in a lane, as far as the lane remembers; else 0.
func (s *state) dispatched(k *kept, lane string) uint64 {
	for _, d := range s.lanes[scoped{k.Facts.Tenant, lane}] {
		if d.key == k.Key {
			return d.seq
		}
	}
	return 0
}
