package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/user"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

func (p *program) opsResolveCommand() *cobra.Command {
	var r toolguard.Resolution
	var result string
	c := &cobra.Command{
		Use: "resolve KEY --verdict applied|not_applied|abandoned", Short: "Decide what became of an operation whose outcome nobody knows", Args: cobra.ExactArgs(1),
		Long: "resolve records what a person found out: applied (it happened), not_applied (it did not and will not any more: the next\n" +
			"call may send it), abandoned (leave it; only ops repeat opens it again). With applied, --result is what later callers get.",
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
			r.Key, r.By = args[0], whoami()
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				op, err := toolguard.Resolve(c.Context(), s, r)
				if err != nil {
					return advise(err, "--force takes it as an order to send the same bytes again")
				}
				return p.printDecision(op)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.Verdict, "verdict", "", "applied, not_applied or abandoned")
	flags.StringVar(&result, "result", "", "what the tool would have answered, as `JSON`: an MCP result, or what stands in one")
	flags.StringVar(&r.DownstreamID, "downstream-id", "", "the downstream's own name for what was made")
	flags.StringVar(&r.Note, "note", "", "why, for the record")
	flags.IntVar(&r.Attempt, "attempt", 0, "refuse if another attempt than this `number` is the latest")
	flags.BoolVar(&r.Force, "force", false, "not_applied although the attempt may still arrive: an order to send the same bytes again")
	return c
}

func (p *program) opsRepeatCommand() *cobra.Command {
	var r toolguard.RepeatOrder
	c := &cobra.Command{
		Use: "repeat KEY", Short: "Send an operation of unknown outcome again, or allow a done one to be done anew", Args: cobra.ExactArgs(1),
		Long: "repeat orders what nothing else may: an unknown or escalated operation is sent again, the same bytes under the same key, by\n" +
			"a server that runs, or the next one; after a final one, the next call is its next occurrence. Anything else is refused.",
		RunE: func(c *cobra.Command, args []string) error {
			r.Key, r.By = args[0], whoami()
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				op, err := toolguard.Repeat(c.Context(), s, r)
				if err != nil {
					return advise(err, "--force orders it all the same")
				}
				return p.printDecision(op)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&r.Note, "note", "", "why, for the record")
	flags.BoolVar(&r.Force, "force", false, "although an attempt may still be on its way")
	return c
}

// advise adds what to do about a decision that came too early.
func advise(err error, what string) error {
	if errors.Is(err, toolguard.ErrTooEarly) {
		return fmt.Errorf("%w; %s", err, what)
	}
	return err
}

func (p *program) printDecision(op *toolguard.Operation) error {
	if p.json {
		return p.printJSON(op)
	}
	next := ""
	switch {
	case op.Status.Final() && op.Allowed != nil:
		next = "; the next call is its next occurrence"
	case op.Ordered != nil:
		next = "; it is sent again by the server that runs, or the next one, never before the deadline of the attempt on its way"
	case op.Status == toolguard.StatusFailed:
		next = "; the next call may send it"
	case op.Status == toolguard.StatusSucceeded:
		next = "; the next call gets the result"
	case op.Status == toolguard.StatusAbandoned:
		next = "; only ops repeat opens the next occurrence"
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s: %s%s\n", op.Action, op.Key, op.Status, next)
	return err
}

// asResult makes an MCP result of what a person says that the tool answered.
func asResult(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, errors.New("--result is no JSON")
	}
	raw := json.RawMessage(text)
	var members map[string]json.RawMessage
	isObject := json.Unmarshal(raw, &members) == nil && members != nil
	if _, ok := members["content"]; ok {
		return raw, nil
	}
	var plain string
	if json.Unmarshal(raw, &plain) != nil {
		plain = text
	}
	result := map[string]any{"content": []any{map[string]string{"type": "text", "text": plain}}}
	if isObject {
		result["structuredContent"] = raw
	}
	return json.Marshal(result)
}

// whoami names the local user in the record.
func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "local:" + u.Username
	}
	return "local"
}
