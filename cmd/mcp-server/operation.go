package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

// shown is one operation whole, as --json shows it.
type shown struct {
	*toolguard.Operation
	Arguments json.RawMessage   `json:"arguments,omitempty"`
	Result    json.RawMessage   `json:"result,omitempty"`
	Events    []toolguard.Event `json:"events"`
}

func (p *program) opsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show KEY", Short: "Show one operation with its attempts, arguments, result and events",
		Long: "show prints all that is recorded of one operation. KEY may be the first letters of a key, at least 8.", Args: oneKey,
		RunE: func(c *cobra.Command, args []string) error {
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				o, err := showOperation(c.Context(), s, args[0])
				if err != nil {
					return err
				}
				if p.json {
					return p.printJSON(o)
				}
				return p.printOperation(o)
			})
		},
	}
}

func showOperation(ctx context.Context, store toolguard.Store, key string) (*shown, error) {
	op, err := findOperation(ctx, store, key)
	if err != nil {
		return nil, err
	}
	o := &shown{Operation: op, Events: []toolguard.Event{}}
	body, err := store.Body(ctx, op.Key)
	if err != nil && !errors.Is(err, toolguard.ErrNotFound) {
		return nil, err
	}
	o.Arguments, o.Result = body.Arguments, body.Result
	for e, err := range toolguard.Events(ctx, store) {
		if err != nil {
			return nil, err
		}
		if e.Key == op.Key {
			o.Events = append(o.Events, e)
		}
	}
	return o, nil
}

// decidedBy says when a person decided what, and why.
func decidedBy(d *toolguard.Decision) string {
	weak := ""
	if d.Weak {
		weak = " (weak: without a token)"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s by %s%s %s", stamp(d.At), d.Verdict, d.By, weak, d.Note))
}

func (p *program) printOperation(o *shown) error {
	w := p.stdout
	rows := [][]string{{"key", o.Key}, {"tool", fmt.Sprintf("%s (%s)", o.Action, o.Effect)}, {"status", string(o.Status)},
		{"occurrence", fmt.Sprint(o.Occurrence)}, {"recorded", stamp(o.Created)}, {"settled", stamp(o.Settled)}, {"delivered", stamp(o.Delivered)}}
	for _, fact := range [][2]string{{"tenant", o.Facts.Tenant}, {"workflow", o.Facts.Workflow}, {"source_event", o.Facts.SourceEvent},
		{"request", o.Facts.Request}, {"run", o.Facts.Run}, {"step", o.Facts.Step}, {"session", o.Facts.Session}, {"actor", o.Facts.Actor},
		{"client", o.Facts.Client}, {"downstream id", o.DownstreamID}, {"conflict", o.Conflict}, {"needs", needs(o.Operation)}} {
		if fact[1] != "" {
			rows = append(rows, []string{fact[0], fact[1]})
		}
	}
	var asked *toolguard.Decision
	if a := o.Approval; a != nil {
		if asked = a.Decision; asked == nil {
			rows = append(rows, []string{"approval", fmt.Sprintf("%s, asked %s, expires %s: %s", a.ID, stamp(a.Requested), stamp(a.Expires), a.Stands(time.Now()))})
		}
	}
	for _, d := range []struct {
		what string
		*toolguard.Decision
	}{{"approval", asked}, {"resolved", o.Resolved}, {"looked at", o.Seen}, {"repeat ordered", o.Ordered}, {"next allowed", o.Allowed}} {
		if d.Decision != nil {
			rows = append(rows, []string{d.what, decidedBy(d.Decision)})
		}
	}
	rows = append(rows, []string{"arguments", dash(string(o.Arguments))}, []string{"result", dash(string(o.Result))})
	if err := table(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{{"ATTEMPT", "STARTED", "DEADLINE", "STATE", "ENDED", "THE TOOL SAID"}}
	for _, a := range o.Attempts {
		rows = append(rows, []string{fmt.Sprint(a.N), stamp(a.Started), stamp(a.Deadline), string(a.State), stamp(a.Ended), dash(short(a.Says, 100))})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{{"EVENT", "TIME", "OUTCOME", "REASON", "STATUS", "ATTEMPT", "BY"}}
	for _, e := range o.Events {
		outcome := string(e.Outcome)
		if verdict, ok := e.Detail["verdict"].(string); ok && outcome == "" { // a person's, or that a request expired or was withdrawn
			outcome = verdict
		}
		rows = append(rows, []string{string(e.Type), stamp(e.Time), dash(outcome), dash(string(e.Reason)), dash(string(e.Status)),
			fmt.Sprint(e.Attempt), dash(e.Reviewer)})
	}
	return table(w, rows)
}
