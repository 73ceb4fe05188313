// Chaos replays recorded agent runs under faults, with and without toolguard, and counts what really happened.
//
//	go run ./evals/cmd/chaos                       # the runs that come with it
//	go run ./evals/cmd/chaos --runs ~/runs --policy toolguard.yaml --out report
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	if code, ok := front(os.Args); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// wrong is what the user has to change: exit 2.
type wrong struct{ error }

func (w wrong) Unwrap() error { return w.error }

// run is the command: 0 good, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := command(stdout, stderr)
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "chaos: %v\n", err)
	var w wrong
	if errors.As(err, &w) {
		return 2
	}
	return 1
}

func command(stdout, stderr io.Writer) *cobra.Command {
	p := &program{stdout: stdout, stderr: stderr}
	c := &cobra.Command{
		Use: "chaos", Short: "Replay recorded agent runs under faults and count the real effects",
		Long: "chaos replays recorded agent runs under faults, with and without toolguard, and counts what a downstream really did:\n" +
			"how many writes happened twice, how many were lost, how many needed repeats were held back, how many a person must\n" +
			"look at. Without --runs it plays the runs that come with it.",
		SilenceUsage: true, SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && len(p.runs) == 0 {
				return wrong{fmt.Errorf("%q is no flag; paths of runs follow --runs", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			p.runs = append(p.runs, args...)
			return p.run(c.Context())
		},
	}
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrong{err} })
	f := c.Flags()
	f.StringArrayVar(&p.runs, "runs", nil, "`paths` of files and folders with recorded runs; more may follow, or be divided by commas")
	f.StringVar(&p.labels, "labels", "", "`file` that says what the runs were meant to do (else labels.jsonl in their folder, or above it)")
	f.StringVar(&p.faults, "faults", "", "which rows: a `list` of names (else all)")
	f.StringVar(&p.arms, "arms", "", "which columns: a `list` of names (else all)")
	f.StringVar(&p.policy, "policy", "", "a toolguard.yaml whose policies the arms with a policy have (else one derived for each tool)")
	f.StringVar(&p.seed, "seed", "1", "a `number`: what the choice of the writes that are hit starts from")
	f.BoolVar(&p.process, "process", false, "play on real processes, in real time: mcp-server is a child, and is killed by SIGKILL")
	f.StringVar(&p.server, "server", "", "a `command` that starts an MCP server of yours on stdio, to stand behind mcp-server in place of the built-in downstream (with --process)")
	f.StringVar(&p.out, "out", "", "write report.json and index.html to this `folder`")
	f.BoolVar(&p.json, "json", false, "print the report as JSON")
	return c
}
