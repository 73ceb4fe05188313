package people

import (
	"iter"

	"toolguard.dev/toolguard"
)

// Outcomes are what a call can get, in the order in which they are told.
var Outcomes = []toolguard.Outcome{toolguard.Fresh, toolguard.Replayed, toolguard.Pending, toolguard.Blocked, toolguard.Escalated}

// Report counts calls. Observed calls were all sent, and are counted apart, by the outcome that they would have had.
type Report struct {
	Counts
	Observed Counts `json:"observed"`
}

// Counts are calls by outcome, and by tool, outcome, reason and status.
type Counts struct {
	Calls    int                       `json:"calls"`
	Outcomes map[toolguard.Outcome]int `json:"outcomes"` // each of Outcomes, though none
	Tools    []toolguard.ReportRow     `json:"tools"`    // never nil
}

// ReportOf reads the events twice. The error is theirs.
func ReportOf(events iter.Seq2[toolguard.Event, error], q toolguard.ReportQuery) (Report, error) {
	var r Report
	for observed, into := range map[bool]*Counts{false: &r.Counts, true: &r.Observed} {
		rows, err := toolguard.Report(those(events, observed), q)
		if err != nil {
			return r, err
		}
		*into = count(rows)
	}
	return r, nil
}

// those are the events of calls that were only observed, or the others.
func those(events iter.Seq2[toolguard.Event, error], observed bool) iter.Seq2[toolguard.Event, error] {
	return func(yield func(toolguard.Event, error) bool) {
		for e, err := range events {
			if o, _ := e.Detail["observe"].(bool); err == nil && o != observed {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func count(rows []toolguard.ReportRow) Counts {
	c := Counts{Outcomes: map[toolguard.Outcome]int{}, Tools: rows}
	if rows == nil {
		c.Tools = []toolguard.ReportRow{}
	}
	for _, o := range Outcomes {
		c.Outcomes[o] = 0
	}
	for _, row := range rows {
		c.Calls += row.Calls
		c.Outcomes[row.Outcome] += row.Calls
	}
	return c
}
