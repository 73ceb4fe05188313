package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

func (p *program) opsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ops", Short: "Operations, and what waits for a person",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %s", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return usage{fmt.Errorf("which one? %s --help shows list, show, resolve and repeat", c.CommandPath())}
		},
	}
	c.AddCommand(p.opsListCommand(), p.opsShowCommand(), p.opsResolveCommand(), p.opsRepeatCommand())
	return c
}

// filter narrows a list of operations; "" does not.
type filter struct {
	status, tool, tenant, event, run string
	queue                            bool
	limit                            int
}

func (f *filter) takes(op *toolguard.Operation) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.status, string(op.Status)) && is(f.tenant, op.Facts.Tenant) && is(f.event, op.Facts.SourceEvent) &&
		is(f.run, op.Facts.Run) && (is(f.tool, op.Action) || strings.HasSuffix(op.Action, "/"+f.tool)) &&
		(!f.queue || needs(op) != "")
}

var statuses = []string{"awaiting_approval", "approved", "rejected", "dispatching", "succeeded", "failed", "unknown", "escalated", "abandoned"}

func (p *program) opsListCommand() *cobra.Command {
	var f filter
	c := &cobra.Command{
		Use: "list", Short: "List operations, the latest first", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.status != "" && !slices.Contains(statuses, f.status) {
				return usage{fmt.Errorf("--status %s: there is %s", f.status, listed(statuses))}
			}
			if f.limit < 1 {
				return usage{errors.New("--limit must be at least 1")}
			}
			return p.withLedger(c.Context(), func(s toolguard.Store) error { return p.listOperations(c.Context(), s, f) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.status, "status", "", "only with this `status`: "+strings.Join(statuses, ", "))
	flags.StringVar(&f.tool, "tool", "", "only of this `tool`: SERVER/TOOL, or TOOL")
	flags.StringVar(&f.tenant, "tenant", "", "only of this `tenant`")
	flags.StringVar(&f.event, "event", "", "only of this source `event`")
	flags.StringVar(&f.run, "run", "", "only of this `run`")
	flags.BoolVar(&f.queue, "queue", false, "only what waits for a person")
	flags.IntVar(&f.limit, "limit", 100, "at most so many")
	return c
}

func (p *program) listOperations(ctx context.Context, store toolguard.Store, f filter) error {
	found := []*toolguard.Operation{}
	more := false
	for before := uint64(0); !more; {
		page, err := store.Operations(ctx, toolguard.Query{All: true, Tenant: f.tenant, Before: before, Limit: 500})
		if err != nil {
			return err
		}
		for _, op := range page.Operations {
			if !f.takes(op) {
				continue
			}
			if more = len(found) == f.limit; more {
				break
			}
			found = append(found, op)
		}
		if before = page.Next; before == 0 {
			break
		}
	}
	if p.json {
		return p.printJSON(found)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(p.stdout, "no operations")
		return err
	}
	rows := [][]string{{"KEY", "TOOL", "STATUS", "OCCURRENCE", "ATTEMPTS", "RECORDED", "TENANT", "EVENT", "RUN", "NEEDS"}}
	approvals, decisions := 0, 0
	for _, op := range found {
		need := needs(op)
		switch need {
		case "", needsCall:
		case needsApproval:
			approvals++
		default:
			decisions++
		}
		rows = append(rows, []string{op.Key, op.Action, string(op.Status), fmt.Sprint(op.Occurrence), fmt.Sprint(op.Sent),
			stamp(op.Created), op.Facts.Tenant, dash(op.Facts.SourceEvent), dash(op.Facts.Run), dash(need)})
	}
	if err := table(p.stdout, rows); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(p.stdout, "only the latest %d are shown: --limit shows more\n", f.limit)
	}
	if approvals > 0 {
		fmt.Fprintf(p.stdout, "%d of them wait for an approval: approvals list, then approvals approve ID or reject ID\n", approvals)
	}
	if decisions > 0 {
		fmt.Fprintf(p.stdout, "%d of them wait for a person: ops show KEY, then ops resolve KEY\n", decisions)
	}
	return nil
}

const (
	needsApproval = "an approval"
	needsCall     = "nothing: its request expired, and the next call asks again"
)

// needs says what an operation needs from a person; "" for nothing.
func needs(op *toolguard.Operation) string {
	switch {
	case op.Contradicted():
		return "a look: evidence contradicts it"
	case op.Status == toolguard.StatusEscalated && op.Ordered != nil:
		return "" // a person has ordered it to be sent again
	case op.Status == toolguard.StatusAwaitingApproval && op.Approval.Stands(time.Now()) == toolguard.ApprovalOpen:
		return needsApproval
	case op.Status == toolguard.StatusAwaitingApproval:
		return needsCall
	case op.Status == toolguard.StatusEscalated:
		return "a decision"
	}
	return ""
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
