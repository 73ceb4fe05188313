package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

func (p *program) exportCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "export", Short: "Write the audit out, one event a line", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "jsonl" && format != "csv" {
				return usage{fmt.Errorf("--format %s: it is jsonl or csv", format)}
			}
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				w := bufio.NewWriter(p.stdout)
				write, finish := jsonLines(w)
				if format == "csv" {
					write, finish = csvLines(w)
				}
				for e, err := range toolguard.Events(c.Context(), s) {
					if err == nil {
						err = write(e)
					}
					if err != nil {
						return err
					}
				}
				return errors.Join(finish(), w.Flush())
			})
		},
	}
	c.Flags().StringVar(&format, "format", "jsonl", "jsonl or csv")
	return c
}

func jsonLines(w io.Writer) (func(toolguard.Event) error, func() error) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(event toolguard.Event) error { return e.Encode(event) }, func() error { return nil }
}

// csvColumns are the members of an event, in the order of the columns.
var csvColumns = []string{"chain", "seq", "time", "type", "key", "tool", "tenant", "workflow", "source_event", "request", "run", "step", "session",
	"actor", "outcome", "reason", "status", "occurrence", "attempt", "digest", "policy", "approval", "reviewer", "downstream_id", "call_id",
	"client", "detail", "prev", "hash"}

func csvLines(w io.Writer) (func(toolguard.Event) error, func() error) {
	c := csv.NewWriter(w)
	head := false
	write := func(event *toolguard.Event) error {
		if !head {
			head = true
			if err := c.Write(csvColumns); err != nil {
				return err
			}
		}
		if event == nil {
			return nil
		}
		text, err := json.Marshal(event)
		if err != nil {
			return err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return err
		}
		row := make([]string, len(csvColumns))
		for i, name := range csvColumns {
			var s string
			if json.Unmarshal(members[name], &s) != nil {
				s = string(members[name]) // a number, or detail
			}
			row[i] = s
		}
		return c.Write(row)
	}
	finish := func() error {
		err := write(nil) // the head, where there are no events
		c.Flush()
		return errors.Join(err, c.Error())
	}
	return func(e toolguard.Event) error { return write(&e) }, finish
}

func (p *program) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Check that the audit is whole and unchanged", Args: cobra.NoArgs,
		Long: "verify recomputes every link of the audit and names the first break: an event that was edited, removed, added or moved.\n" +
			"A cut tail shows only against a checkpoint kept elsewhere: the last hash of an earlier export.",
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				v, err := toolguard.Verify(toolguard.Events(c.Context(), s))
				if err != nil {
					return err
				}
				if p.json {
					if err := p.printJSON(v); err != nil {
						return err
					}
					if v.Break != "" {
						return said{exitFailed}
					}
					return nil
				}
				if v.Break != "" {
					return fmt.Errorf("the audit is broken: %s", printable(v.Break))
				}
				_, err = fmt.Fprintf(p.stdout, "the audit is intact: %s in %s\n", counted(v.Events, "event"), counted(len(v.Chains), "chain"))
				return err
			})
		},
	}
}

func (p *program) reportCommand() *cobra.Command {
	var q toolguard.ReportQuery
	var since string
	c := &cobra.Command{
		Use: "report", Short: "Count calls by outcome and tool", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = moment(since, time.Now()); err != nil {
				return usage{err}
			}
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				rows, err := toolguard.Report(toolguard.Events(c.Context(), s), q)
				if err != nil {
					return err
				}
				if p.json {
					return p.printJSON(report(rows))
				}
				return p.printReport(report(rows))
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

// reported is a report, as --json shows it.
type reported struct {
	Calls    int                       `json:"calls"`
	Outcomes map[toolguard.Outcome]int `json:"outcomes"`
	Tools    []toolguard.ReportRow     `json:"tools"`
}

func report(rows []toolguard.ReportRow) reported {
	r := reported{Outcomes: map[toolguard.Outcome]int{}, Tools: rows}
	if rows == nil {
		r.Tools = []toolguard.ReportRow{}
	}
	for _, o := range outcomes {
		r.Outcomes[o] = 0
	}
	for _, row := range rows {
		r.Calls += row.Calls
		r.Outcomes[row.Outcome] += row.Calls
	}
	return r
}

var outcomes = []toolguard.Outcome{toolguard.Fresh, toolguard.Replayed, toolguard.Pending, toolguard.Blocked, toolguard.Escalated}

func (p *program) printReport(r reported) error {
	rows := [][]string{{"OUTCOME", "CALLS"}}
	for _, o := range outcomes {
		rows = append(rows, []string{string(o), fmt.Sprint(r.Outcomes[o])})
	}
	if err := table(p.stdout, rows); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout)
	rows = [][]string{{"TOOL", "OUTCOME", "REASON", "STATUS", "CALLS"}}
	for _, row := range r.Tools {
		rows = append(rows, []string{row.Tool, string(row.Outcome), dash(string(row.Reason)), dash(string(row.Status)), fmt.Sprint(row.Calls)})
	}
	return table(p.stdout, rows)
}
