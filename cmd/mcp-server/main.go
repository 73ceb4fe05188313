// Command mcp-server stands between an AI agent and the MCP servers that write for it, and makes a repeated call safe:
// it has one effect, whatever times out, crashes, reconnects or plans again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"toolguard.dev/cmd/mcp-server/config"
)

// Exit codes.
const (
	exitGood   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
)

func main() {
	// A client that is gone is an error of a write, not the end of the program; children keep the signal's usual meaning.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{env: os.LookupEnv, stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.command()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	used, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitGood
	}
	if !p.began { // cobra's own complaint about flags and arguments
		err = usage{fmt.Errorf("%w (%s --help shows what there is)", err, used.CommandPath())}
	}
	code, lines := verdict(err)
	for _, line := range lines {
		fmt.Fprintln(stderr, line)
	}
	return code
}

// said is an error that the output shows already.
type said struct{ code int }

func (s said) Error() string { return fmt.Sprintf("exit %d", s.code) }

// verdict says how an error is reported, once, at the edge: one line per fault.
func verdict(err error) (code int, lines []string) {
	if s, ok := errors.AsType[said](err); ok {
		return s.code, nil
	}
	if errors.Is(err, syscall.EPIPE) { // whoever read the output, head(1) say, has seen enough
		return exitFailed, nil
	}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return exitUsage, strings.Split(faults.Error(), "\n")
	}
	line := "mcp-server: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	if _, ok := errors.AsType[usage](err); ok {
		return exitUsage, []string{line}
	}
	return exitFailed, []string{line}
}
