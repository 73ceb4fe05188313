package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

func (p *program) opsResolveCommand() *cobra.Command {
	var r toolguard.Resolution
	var result string
	c := &cobra.Command{
		Use: "resolve KEY --verdict applied|not_applied|abandoned", Short: "Decide what became of an operation whose outcome nobody knows", Args: oneKey,
		Long: "resolve records what a person found out: applied (it happened), not_applied (it did not and will not any more: the next\n" +
			"call may send it), abandoned (leave it; only ops repeat opens it again). KEY may be the first letters of a key, at least 8.\n\n" +
			"With applied, --result is what later callers get: an MCP result (a JSON object with content), as it is; any other JSON\n" +
			"object as the structuredContent of a result, and as its text; any other JSON, or plain text, as the text of a result.",
		RunE: func(c *cobra.Command, args []string) error {
			switch r.Verdict {
			case toolguard.VerdictApplied, toolguard.VerdictNotApplied, toolguard.VerdictAbandoned:
			case "":
				return usage{errors.New("--verdict is missing: applied, not_applied or abandoned")}
			default:
				return usage{fmt.Errorf("--verdict %s: it is applied, not_applied or abandoned", r.Verdict)}
			}
			if r.Verdict != toolguard.VerdictApplied && (result != "" || r.DownstreamID != "") {
				return usage{errors.New("--result and --downstream-id go with --verdict applied only")}
			}
			if r.Force && r.Verdict != toolguard.VerdictNotApplied {
				return usage{errors.New("--force goes with --verdict not_applied only")}
			}
			var err error
			if r.Result, err = asResult(result); err != nil {
				return usage{err}
			}
			return p.decide(c.Context(), args[0], r.Verdict, func(d *people.Desk, key string) (*toolguard.Operation, error) {
				r.Key = key
				return d.Resolve(c.Context(), r)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.Verdict, "verdict", "", "applied, not_applied or abandoned")
	flags.StringVar(&result, "result", "", "what the tool would have answered, as `JSON`: an MCP result, or what stands in one (see above)")
	flags.StringVar(&r.DownstreamID, "downstream-id", "", "the downstream's own name for what was made")
	flags.StringVar(&r.Note, "note", "", "why, for the record")
	flags.IntVar(&r.Attempt, "attempt", 0, "refuse if another attempt than this `number` is the latest")
	flags.BoolVar(&r.Force, "force", false, "not_applied although the attempt may still arrive: an order to send the same bytes again, once it cannot arrive any more")
	return c
}

func (p *program) opsRepeatCommand() *cobra.Command {
	var r toolguard.RepeatOrder
	c := &cobra.Command{
		Use: "repeat KEY", Short: "Send an operation of unknown outcome again, or allow a done one to be done anew", Args: oneKey,
		Long: "repeat orders what nothing else may: an unknown or escalated operation is sent again, the same bytes under the same key, by\n" +
			"a server that runs, or the next one; after a final one, the next call is its next occurrence. Anything else is refused.\n" +
			"KEY may be the first letters of a key, at least 8.",
		RunE: func(c *cobra.Command, args []string) error {
			return p.decide(c.Context(), args[0], "repeat", func(d *people.Desk, key string) (*toolguard.Operation, error) {
				r.Key = key
				return d.Repeat(c.Context(), r)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.Note, "note", "", "why, for the record")
	flags.BoolVar(&r.Force, "force", false, "although an attempt may still be on its way: it is sent again once that one cannot arrive any more")
	return c
}

// decide has a decision recorded, and says what it came to.
func (p *program) decide(ctx context.Context, key, verdict string, record func(*people.Desk, string) (*toolguard.Operation, error)) error {
	return p.withLedger(ctx, func(s toolguard.Store) error {
		desk, err := p.desk(ctx, s)
		if err != nil {
			return err
		}
		before, err := findOperation(ctx, s, key)
		if err != nil {
			return err
		}
		op, err := record(desk, before.Key)
		if errors.Is(err, toolguard.ErrTooEarly) {
			return fmt.Errorf("%w; wait until then (%s), or order with --force that the same bytes are sent again, which happens after that moment only", err, stamp(arrival(before)))
		}
		if err != nil {
			return err
		}
		changed := op.Rev != before.Rev
		if p.json {
			return p.printJSON(struct {
				*toolguard.Operation
				Changed bool `json:"changed"` // by this decision; false: it was decided so already
			}{op, changed})
		}
		what := decided(op, verdict)
		if !changed {
			what = "nothing changed: it was decided so already"
		}
		_, err = fmt.Fprintf(p.stdout, "%s %s: %s\n", printable(op.Action), op.Key, what)
		return err
	})
}

// arrival is until when an attempt may still arrive.
func arrival(op *toolguard.Operation) (t time.Time) {
	for _, a := range op.Attempts {
		if a.State != toolguard.AttemptUnsent && a.State != toolguard.AttemptRefused && a.Deadline.After(t) {
			t = a.Deadline
		}
	}
	return t
}

// decided says what was done to an operation, and what comes next.
func decided(op *toolguard.Operation, verdict string) string {
	switch {
	case !op.Status.Final() && op.Ordered != nil:
		what := "ordered to be sent again, the same bytes under the same key, by the server that runs, or the next one"
		if at := arrival(op); time.Now().Before(at) {
			what += ", not before " + stamp(at)
		}
		return what
	case verdict == "repeat":
		return fmt.Sprintf("it stays %s, and may be done once more: the next call is its next occurrence", op.Status)
	case op.Seen != nil:
		return fmt.Sprintf("recorded as looked at, %s; it stays %s, and does not wait for a person any more", verdict, op.Status)
	case verdict == toolguard.VerdictApplied:
		return "recorded as applied; it is succeeded now, and the next call gets the result"
	case verdict == toolguard.VerdictNotApplied:
		return "recorded as not applied; it is failed now, and the next call may send it"
	}
	return "recorded as abandoned; only ops repeat opens the next occurrence"
}

// asResult makes an MCP result of what a person says that the tool answered.
func asResult(text string) (json.RawMessage, error) {
	result, err := people.Result(text)
	if err != nil {
		return nil, fmt.Errorf("--result is %w", err)
	}
	return result, nil
}
