package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

func (p *program) exportCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "export", Short: "Write the audit out, one event a line", Args: noArguments,
		Long: "export writes the audit to stdout, as JSON lines, which are exactly what verify reads, or as CSV for a spreadsheet: there a '\n" +
			"stands before what would be taken for a formula (text that begins with =, +, - or @), and control characters are spaces.",
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

// cell makes what others wrote harmless where it is looked at: a ' stands before what a spreadsheet would take for a
// formula, and no terminal acts on it.
func cell(s string) string {
	s = printable(s)
	if first := strings.TrimSpace(s); first != "" && strings.ContainsRune("=+-@", rune(first[0])) {
		return "'" + s
	}
	return s
}

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
			row[i] = cell(s)
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
