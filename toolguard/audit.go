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

// Events reads a store's audit from its beginning, a page at a time.
func Events(ctx context.Context, store Store) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for after := uint64(0); ; {
			page, err := store.Events(ctx, after, 1000)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if len(page) == 0 {
				return
			}
		}
	}
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
