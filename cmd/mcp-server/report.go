package main

import (
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

func (p *program) reportCommand() *cobra.Command {
	var q toolguard.ReportQuery
	var since string
	c := &cobra.Command{
		Use: "report", Short: "Count calls by outcome and tool", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = moment(since, time.Now()); err != nil {
				return usage{err}
			}
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				r := reported{}
				for observed, into := range map[bool]*counts{false: &r.counts, true: &r.Observed} {
					rows, err := toolguard.Report(those(toolguard.Events(c.Context(), s), observed), q)
					if err != nil {
						return err
					}
					*into = count(rows)
				}
				if p.json {
					return p.printJSON(r)
				}
				return p.printReport(r)
			})
		},
	}
	c.Flags().StringVar(&q.Run, "run", "", "only calls of this `run`")
	c.Flags().StringVar(&q.Event, "event", "", "only calls of this source `event`")
	c.Flags().StringVar(&since, "since", "", "only calls since then: a `time` (2026-08-31, 2026-08-31T12:00:00Z) or how long ago (24h)")
	return c
}

// moment reads a time, or how long ago it was.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %s: write a time such as 2026-08-31 or 2026-08-31T12:00:00Z, or a duration such as 24h", short(text, 60))
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

// reported is a report, as --json shows it. Observed calls were all sent, and are counted apart, by the outcome that they
// would have had.
type reported struct {
	counts
	Observed counts `json:"observed"`
}

type counts struct {
	Calls    int                       `json:"calls"`
	Outcomes map[toolguard.Outcome]int `json:"outcomes"`
	Tools    []toolguard.ReportRow     `json:"tools"`
}

func count(rows []toolguard.ReportRow) counts {
	c := counts{Outcomes: map[toolguard.Outcome]int{}, Tools: rows}
	if rows == nil {
		c.Tools = []toolguard.ReportRow{}
	}
	for _, o := range outcomes {
		c.Outcomes[o] = 0
	}
	for _, row := range rows {
		c.Calls += row.Calls
		c.Outcomes[row.Outcome] += row.Calls
	}
	return c
}

var outcomes = []toolguard.Outcome{toolguard.Fresh, toolguard.Replayed, toolguard.Pending, toolguard.Blocked, toolguard.Escalated}

func (p *program) printReport(r reported) error {
	if err := p.printCounts(r.counts, "OUTCOME"); err != nil || r.Observed.Calls == 0 {
		return err
	}
	fmt.Fprintf(p.stdout, "\nObserved (mode: observe): %s; each was sent, and this is only what its outcome would have been\n\n", counted(r.Observed.Calls, "call"))
	return p.printCounts(r.Observed, "WOULD HAVE BEEN")
}

func (p *program) printCounts(c counts, outcome string) error {
	rows := [][]string{{outcome, "CALLS"}}
	for _, o := range outcomes {
		rows = append(rows, []string{string(o), fmt.Sprint(c.Outcomes[o])})
	}
	if err := table(p.stdout, rows); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout)
	rows = [][]string{{"TOOL", outcome, "REASON", "STATUS", "CALLS"}}
	for _, row := range c.Tools {
		rows = append(rows, []string{row.Tool, string(row.Outcome), dash(string(row.Reason)), dash(string(row.Status)), fmt.Sprint(row.Calls)})
	}
	return table(p.stdout, rows)
}
