package toolguard

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// Verification is what [Verify] found.
type Verification struct {
	Events int            `json:"events"`
	Chains map[string]int `json:"chains"`          // events of each chain
	Break  string         `json:"break,omitempty"` // the first place where the audit is not whole; "": it is
}

// Verify recomputes every link of the audit, in the order given, and names the first break: an event that was edited,
// removed, added or moved. A cut tail shows only against a checkpoint kept elsewhere. The error is that of the events.
func Verify(events iter.Seq2[Event, error]) (Verification, error) {
	v := Verification{Chains: map[string]int{}}
	prev := map[string]string{}
	for e, err := range events {
		if err != nil {
			return v, err
		}
		want := v.Chains[e.Chain] + 1
		hash, err := e.sum()
		switch {
		case err != nil:
			v.Break = fmt.Sprintf("chain %q, event %d cannot be read: %v", e.Chain, want, err)
		case e.ChainSeq != uint64(want):
			v.Break = fmt.Sprintf("chain %q: event %d follows event %d", e.Chain, e.ChainSeq, want-1)
		case e.Prev != prev[e.Chain]:
			v.Break = fmt.Sprintf("chain %q, event %d (%s, %s) does not follow the one before it", e.Chain, e.ChainSeq, e.Type, e.Time.Format(time.RFC3339))
		case e.Hash != hash:
			v.Break = fmt.Sprintf("chain %q, event %d (%s, %s) was changed", e.Chain, e.ChainSeq, e.Type, e.Time.Format(time.RFC3339))
		}
		if v.Break != "" {
			return v, nil
		}
		v.Events++
		v.Chains[e.Chain] = want
		prev[e.Chain] = e.Hash
	}
	return v, nil
}

// ChainEnd is the end of a chain of the audit.
type ChainEnd struct {
	Events uint64
	Hash   string // of the last one
}

// Ended is a [Store] that keeps the ends of the audit's chains apart from the events, so that it shows when some of
// these cannot be read any more.
type Ended interface {
	// Ends returns the ends of all chains as they are, or were since it was called.
	Ends(ctx context.Context) (map[string]ChainEnd, error)
}

// Events reads a store's audit from its beginning, a page at a time. If the store is [Ended], the last thing it yields is
// ErrDamaged where a chain was not read whole.
func Events(ctx context.Context, store Store) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		var ends map[string]ChainEnd
		var err error
		if s, ok := store.(Ended); ok {
			ends, err = s.Ends(ctx)
		}
		counts := map[string]uint64{}
		for after := uint64(0); err == nil; {
			var page []Event
			if page, err = store.Events(ctx, after, 1000); err != nil {
				break
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
				if end, ok := ends[e.Chain]; ok && e.ChainSeq <= end.Events {
					if counts[e.Chain]++; e.ChainSeq == end.Events && e.Hash != end.Hash {
						counts[e.Chain]--
					}
				}
			}
			if len(page) == 0 {
				err = whole(counts, ends)
				break
			}
		}
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// whole compares how many events of each chain were read with how many there are.
func whole(counts map[string]uint64, ends map[string]ChainEnd) error {
	for _, chain := range slices.Sorted(maps.Keys(ends)) {
		if n, want := counts[chain], ends[chain].Events; n != want {
			return fmt.Errorf("%w: of chain %q, %d of %d events can be read as they were written", ErrDamaged, chain, n, want)
		}
	}
	return nil
}

// ReportQuery narrows a [Report]; zero members do not.
type ReportQuery struct {
	Run   string
	Event string // source event
	Since time.Time
}

// ReportRow counts the calls of one tool that got one outcome for one reason.
type ReportRow struct {
	Tool    string  `json:"tool"`
	Outcome Outcome `json:"outcome"`
	Reason  Reason  `json:"reason,omitempty"`
	Status  Status  `json:"status,omitempty"`
	Calls   int     `json:"calls"`
}

// Report counts calls by tool, outcome, reason and status, sorted by these.
func Report(events iter.Seq2[Event, error], q ReportQuery) ([]ReportRow, error) {
	counts := map[ReportRow]int{}
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if e.Type != EventCall || q.Run != "" && e.Run != q.Run || q.Event != "" && e.SourceEvent != q.Event || e.Time.Before(q.Since) {
			continue
		}
		counts[ReportRow{Tool: e.Tool, Outcome: e.Outcome, Reason: e.Reason, Status: e.Status}]++
	}
	rows := slices.SortedFunc(maps.Keys(counts), func(a, b ReportRow) int {
		return cmp.Or(cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Status, b.Status))
	})
	for i := range rows {
		rows[i].Calls = counts[rows[i]]
	}
	return rows, nil
}
