package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

// demoTime is how long the whole story may take.
const demoTime = time.Minute

func (p *program) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Show it all in seconds, on real processes", Args: noArguments,
		Long: "demo runs the sample office behind toolguard and tells a story: a write, a crash in the middle of a payment, an agent that\n" +
			"plans again, a changed amount. It counts in the office's own books what really happened, and exits 1 if that is not right.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := refuse(c, "demo, which has an office and a ledger of its own", "config", "data"); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(c.Context(), demoTime, fmt.Errorf("no end within %s", demoTime))
			defer cancel()
			return p.demo(ctx)
		},
	}
}

// demo is the story, and what it stands on.
type demo struct {
	out    io.Writer
	self   string
	ledger string
	books  string
	calls  int // of the agent, to write
	wrong  error
}

func (p *program) demo(ctx context.Context) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "toolguard-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &demo{out: p.stdout, self: self, ledger: dir, books: filepath.Join(dir, officeFile)}
	if err := d.tell(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	connect, err := selfCommand()
	if err != nil {
		return err
	}
	d.say("")
	d.say("Connect Claude Code to the same office, and try to make it pay twice:")
	d.say("  claude mcp add toolguard -- %s serve --sample", shellLine(connect))
	return nil
}

var invoiceOne = map[string]any{"invoice_id": "INV-1001", "amount": 120.5}

func (d *demo) tell(ctx context.Context) error {
	d.say("toolguard demo: an agent, an office that does whatever it is told, and toolguard between them. All are real processes.")

	d.chapter("A write, and the same write again")
	agent, err := d.serve(ctx, "hang:pay_invoice") // the office will pay, and then say nothing
	if err != nil {
		return err
	}
	defer agent.kill()
	ticket := map[string]any{"title": "Order paper"}
	d.ask(ctx, agent, "create_ticket", ticket, toolguard.Fresh)
	d.ask(ctx, agent, "create_ticket", ticket, toolguard.Replayed)
	d.count(1, 0)

	d.chapter("kill -9 in the middle of a payment")
	if d.wrong != nil {
		return d.wrong
	}
	d.calls++
	d.say("  agent   pay_invoice %s", arguments(invoiceOne))
	if err := agent.begin("tools/call", map[string]any{"name": "pay_invoice", "arguments": invoiceOne}); err != nil {
		return err
	}
	paid, err := d.waitForPayment(ctx)
	if err != nil {
		return err
	}
	d.say("  office  has paid (%s), and has not answered yet", paid.ID)
	agent.kill()
	d.say("  crash   kill -9 of toolguard, process %d", agent.cmd.Process.Pid)

	d.chapter("A new process, and an agent that plans the same payment again")
	if agent, err = d.serve(ctx, ""); err != nil {
		return err
	}
	defer agent.kill()
	unknown := d.ask(ctx, agent, "pay_invoice", invoiceOne, toolguard.Escalated)
	d.count(1, 1)
	if err := agent.end(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}

	d.chapter("A person looks into the office's books and decides")
	if err := d.resolve(ctx, unknown.Meta.Verdict.Key, paid); err != nil {
		return err
	}

	d.chapter("From then on it is done")
	if agent, err = d.serve(ctx, ""); err != nil {
		return err
	}
	defer agent.kill()
	reworded := map[string]any{"invoice_id": "INV-1001", "amount": 120.5, "memo": "paper, second try"}
	more := map[string]any{"invoice_id": "INV-1001", "amount": 150}
	d.ask(ctx, agent, "pay_invoice", invoiceOne, toolguard.Replayed)
	d.ask(ctx, agent, "pay_invoice", reworded, toolguard.Replayed)
	changed := d.ask(ctx, agent, "pay_invoice", more, toolguard.Blocked)
	if !slices.Contains(changed.Meta.Verdict.Differs, "/amount") {
		d.fail("the answer does not name the field that was changed")
	}
	if err := agent.end(); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	d.audit(ctx)

	d.say("")
	d.say("The agent asked %d times for a write. What the office really saw:", d.calls)
	d.count(1, 1)
	return d.wrong
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) chapter(title string) { d.say("\n%s", title) }

// fail keeps the first thing that did not come out right.
func (d *demo) fail(format string, args ...any) {
	what := fmt.Errorf(format, args...)
	d.say("  WRONG   %s", what)
	if d.wrong == nil {
		d.wrong = fmt.Errorf("the story did not come out right: %w", what)
	}
}

// serve starts a guarded office.
func (d *demo) serve(ctx context.Context, fault string) (*client, error) {
	cmd := exec.Command(d.self, "serve", "--sample", "--data", d.ledger)
	cmd.Env = append(wrappedEnvironment(os.Environ(), nil), "OFFICE_FAULT="+fault)
	words := newTail()
	cmd.Stderr = words
	c, err := startClient(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("serve: %w; it said: %s", err, short(words.String(), 500))
	}
	return c, nil
}

// ask has the agent call a tool, and shows what it got.
func (d *demo) ask(ctx context.Context, agent *client, tool string, args map[string]any, want toolguard.Outcome) answered {
	if d.wrong != nil {
		return answered{}
	}
	d.calls++
	d.say("  agent   %s %s", tool, arguments(args))
	a, err := agent.call(ctx, tool, args)
	if err != nil {
		d.fail("%w", err)
		return a
	}
	d.say("  answer  %s", folded(a.text(), "          "))
	if got := a.Meta.Verdict.Outcome; got != want {
		d.fail("the outcome is %q; it should be %q", got, want)
	}
	return a
}

func arguments(args map[string]any) string {
	text, _ := json.Marshal(args) // strings and numbers always can be
	return string(text)
}

// waitForPayment waits until the office's books show a payment.
func (d *demo) waitForPayment(ctx context.Context) (payment, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := readBooks(d.books); err == nil && len(b.Payments) > 0 {
			return b.Payments[0], nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return payment{}, fmt.Errorf("the office pays nothing: %w", context.Cause(ctx))
		}
	}
}

// count compares the office's books with what there should be.
func (d *demo) count(tickets, payments int) {
	if d.wrong != nil {
		return
	}
	b, err := readBooks(d.books)
	if err != nil {
		d.fail("%w", err)
		return
	}
	line := fmt.Sprintf("%d ticket", len(b.Tickets))
	for _, p := range b.Payments {
		line += fmt.Sprintf(", payment %s of %.2f for %s", p.ID, p.Amount, p.Invoice)
	}
	d.say("  books   %s", line)
	if len(b.Tickets) != tickets || len(b.Payments) != payments {
		d.fail("the books have %d tickets and %d payments; there should be %d and %d", len(b.Tickets), len(b.Payments), tickets, payments)
	}
}

// resolve decides by what the books show, with the command line.
func (d *demo) resolve(ctx context.Context, key string, paid payment) error {
	if d.wrong != nil {
		return d.wrong
	}
	result, err := json.Marshal(paid)
	if err != nil {
		return err
	}
	args := []string{"ops", "resolve", key, "--verdict", "applied", "--downstream-id", paid.ID, "--note", "it is in the books"}
	d.say("  person  mcp-server %s --result …", shellLine(args))
	out, err := d.run(ctx, append(args, "--result", string(result))...)
	if err != nil {
		return err
	}
	d.say("  ledger  %s", folded(out, "          "))
	return nil
}

// audit has the record checked.
func (d *demo) audit(ctx context.Context) {
	out, err := d.run(ctx, "verify")
	if err != nil {
		d.fail("%w", err)
		return
	}
	d.say("  ledger  %s", folded(out, "          "))
}

func (d *demo) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.self, append(args, "--data", d.ledger)...)
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("mcp-server %s: %w: %s", args[0], err, short(words.String(), 500))
	}
	return string(out), nil
}
