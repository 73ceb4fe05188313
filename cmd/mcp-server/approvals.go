package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

func (p *program) approvalsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "approvals", Short: "Calls that wait for a person's word",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %s", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return usage{fmt.Errorf("which one? %s --help shows list, approve and reject", c.CommandPath())}
		},
	}
	c.AddCommand(p.approvalsListCommand(), p.approvalCommand(true), p.approvalCommand(false))
	return c
}

var approvalStates = []string{string(toolguard.ApprovalOpen), string(toolguard.ApprovalApproved), string(toolguard.ApprovalRejected),
	string(toolguard.ApprovalSpent), string(toolguard.ApprovalExpired)}

func (p *program) approvalsListCommand() *cobra.Command {
	var state string
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List requests for approval, the latest first, with exactly the arguments that would be sent", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if state != "all" && !slices.Contains(approvalStates, state) {
				return usage{fmt.Errorf("--state %s: there is %s and all", state, listed(approvalStates))}
			}
			if limit < 1 {
				return usage{errors.New("--limit must be at least 1")}
			}
			return p.withLedger(c.Context(), func(s toolguard.Store) error {
				desk := &people.Desk{Store: s}
				if token, _ := p.env(tokenVariable); token != "" {
					var err error
					if desk, err = p.desk(c.Context(), s); err != nil {
						return err
					}
				}
				return p.listApprovals(c.Context(), desk, toolguard.ApprovalState(strings.TrimPrefix(state, "all")), limit)
			})
		},
	}
	c.Flags().StringVar(&state, "state", string(toolguard.ApprovalOpen), "only in this `state`: "+strings.Join(approvalStates, ", ")+", or all")
	c.Flags().IntVar(&limit, "limit", 100, "at most so many")
	return c
}

// shownRequest is a request for approval as --json shows it.
type shownRequest struct {
	*toolguard.Approval
	Key         string          `json:"key"`
	Tool        string          `json:"tool"`
	Occurrence  int             `json:"occurrence"`
	Tenant      string          `json:"tenant"`
	Workflow    string          `json:"workflow"`
	SourceEvent string          `json:"source_event,omitempty"`
	Run         string          `json:"run,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
}

func (p *program) listApprovals(ctx context.Context, desk *people.Desk, state toolguard.ApprovalState, limit int) error {
	found := []people.Request{}
	next := uint64(0)
	for len(found) < limit {
		page, after, err := desk.Requests(ctx, state, next, min(limit-len(found), people.MaxPage))
		if err != nil {
			return err
		}
		found = append(found, page...)
		if next = after; next == 0 {
			break
		}
	}
	if p.json {
		out := []shownRequest{}
		for _, r := range found {
			op := r.Operation
			out = append(out, shownRequest{r.Approval, op.Key, op.Action, op.Occurrence, op.Facts.Tenant, op.Facts.Workflow, op.Facts.SourceEvent, op.Facts.Run, r.Arguments})
		}
		return p.printJSON(out)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no requests for approval")
		return err
	}
	for i, r := range found {
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		if err := p.printRequest(r); err != nil {
			return err
		}
	}
	if next != 0 {
		fmt.Fprintf(p.stdout, "\nonly the latest %d are shown: --limit shows more\n", limit)
	}
	if state == toolguard.ApprovalOpen {
		fmt.Fprintln(p.stdout, "\nTo decide: approvals approve ID, or approvals reject ID")
	}
	return nil
}

func (p *program) printRequest(r people.Request) error {
	op := r.Operation
	until := "until " + stamp(r.Expires) + left(r.Expires, time.Now())
	if r.State != toolguard.ApprovalOpen {
		until = string(r.State)
	}
	asked := stamp(r.Requested)
	if len(r.Requesters) > 0 {
		asked += " by " + strings.Join(r.Requesters, ", ")
	}
	rows := [][]string{{"id", r.ID}, {"tool", op.Action}, {"asked", asked + "; " + until}}
	if n := op.Asked; n > 1 {
		rows = append(rows, []string{"before", fmt.Sprintf("asked for %d times: the earlier requests were withdrawn, expired or spent; see ops show %.8s", n, op.Key)})
	}
	for _, row := range [][2]string{{"tenant", op.Facts.Tenant}, {"workflow", op.Facts.Workflow}, {"event", op.Facts.SourceEvent}, {"run", op.Facts.Run}, {"reviewers", strings.Join(r.Reviewers, ", ")}} {
		if row[1] != "" && row[1] != "default" {
			rows = append(rows, row[:])
		}
	}
	if d := r.Decision; d != nil {
		rows = append(rows, []string{"decided", decidedBy(d)})
	}
	return table(p.stdout, append(rows, []string{"arguments", exact(r.Arguments)}))
}

// exact writes a JSON text on one line, as it is but for what a terminal would act on, which is written as JSON's escapes.
func exact(text json.RawMessage) string {
	if text == nil {
		return "(not kept any more)"
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteByte(' ')
		case unicode.IsControl(r) || !unicode.IsPrint(r) && r < 0x10000:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// left says how long there is until a moment.
func left(t, now time.Time) string {
	if d := t.Sub(now).Round(time.Minute); d > 0 {
		return " (" + brief(d) + " left)"
	}
	return ""
}

func (p *program) approvalCommand(approve bool) *cobra.Command {
	v := toolguard.ApprovalVerdict{Approve: approve}
	c := &cobra.Command{
		Use: "approve ID", Short: "Say yes: exactly these arguments may be sent, once",
		Long: "approve lets a call through. The server that serves the tool sends it by itself, and the agent's next identical call gets the\n" +
			"result. Who asked for it may not approve it. ID may be shortened to the first letters of its key, at least 8, with its number.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("which one? approvals list shows the IDs")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return p.withLedger(c.Context(), func(s toolguard.Store) error { return p.decideApproval(c.Context(), s, args[0], v) })
		},
	}
	if !approve {
		c.Use, c.Short = "reject ID", "Say no: these arguments stay blocked"
		c.Long = "reject refuses a call. The same arguments stay blocked then; other ones ask anew. ID may be shortened to the first letters of\nits key, at least 8, with its number."
	}
	c.Flags().StringVar(&v.Note, "note", "", "why, for the record")
	c.Flags().StringVar(&v.Digest, "digest", "", "refuse if the request is not the one with this `digest`")
	return c
}

func (p *program) decideApproval(ctx context.Context, s toolguard.Store, id string, v toolguard.ApprovalVerdict) error {
	desk, err := p.desk(ctx, s)
	if err != nil {
		return err
	}
	v.ID = id
	if key, n, ok := strings.Cut(id, "."); ok && len(key) >= minPrefix {
		op, err := findOperation(ctx, s, key)
		if err != nil || !desk.Sees(op.Facts.Tenant) {
			return fmt.Errorf("approval %s: %w; approvals list shows the IDs", short(id, 80), toolguard.ErrNotFound)
		}
		v.ID = op.Key + "." + n
	}
	op, err := desk.Decide(ctx, v)
	if errors.Is(err, toolguard.ErrNotFound) {
		return fmt.Errorf("%w; approvals list shows the IDs", err)
	}
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(op)
	}
	what := "approved; the server that runs sends it, or the next one, and the agent's next identical call gets the result"
	if !v.Approve {
		what = "rejected; the same arguments stay blocked"
	}
	_, err = fmt.Fprintf(p.stdout, "%s %s: %s\n", printable(op.Action), v.ID, what)
	return err
}
