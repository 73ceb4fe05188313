package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/people"
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
				r, err := people.ReportOf(toolguard.Events(c.Context(), s), q)
				if err != nil {
					return err
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

func (p *program) printReport(r people.Report) error {
	if err := p.printCounts(r.Counts, "OUTCOME"); err != nil || r.Observed.Calls == 0 {
		return err
	}
	fmt.Fprintf(p.stdout, "\nObserved (mode: observe): %s; each was sent, and this is only what its outcome would have been\n\n", counted(r.Observed.Calls, "call"))
	return p.printCounts(r.Observed, "WOULD HAVE BEEN")
}

func (p *program) printCounts(c people.Counts, outcome string) error {
	rows := [][]string{{outcome, "CALLS"}}
	for _, o := range people.Outcomes {
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
