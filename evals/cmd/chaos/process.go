package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"toolguard.dev/evals"
)

// processes makes the options those of a run on real processes, with what can be played there.
func (p *program) processes(o *evals.Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Process = &evals.Process{Server: strings.Fields(p.server), Front: []string{self, frontCommand}}
	if p.server == "" {
		return nil
	}
	if !o.Process.Behind() {
		return errors.New("--server: it names no command")
	}
	if _, err := exec.LookPath(o.Process.Server[0]); err != nil {
		return fmt.Errorf("--server: %q is no program that can be started", o.Process.Server[0])
	}
	played, left := apart(o.Arms, o.Policy)
	switch {
	case len(left) == 0:
		return nil
	case p.arms != "":
		return fmt.Errorf("--arms: a server of yours cannot be played in %s", strings.Join(left, ", "))
	}
	fmt.Fprintf(p.stderr, "left out, with a server of yours: %s\n", strings.Join(left, ", "))
	o.Arms = played
	return nil
}

// apart tells the arms that mean something with a user's own server, and of the others why not.
func apart(arms []evals.Arm, policy *evals.Policy) (played []evals.Arm, left []string) {
	for _, a := range arms {
		why := ""
		switch {
		case a.NeedsKey():
			why = policy.NoKey()
		case a.NeedsLookup():
			why = policy.NoLookup()
		}
		if why == "" {
			played = append(played, a)
		} else {
			left = append(left, fmt.Sprintf("%s (%s)", a.Name, why))
		}
	}
	return played, left
}

// frontCommand is the argument with which this program is the process before a downstream, see [evals.Front].
const frontCommand = "front-of-the-downstream"

// front is that process, if the arguments say so.
func front(args []string) (code int, ok bool) {
	if len(args) != 4 || args[1] != frontCommand {
		return 0, false
	}
	if err := evals.Front(os.Stdin, os.Stdout, args[2], args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// build makes the program mcp-server from this module.
func build(ctx context.Context, o *evals.Process) (end func(), err error) {
	dir, err := os.MkdirTemp("", "chaos-program-")
	if err != nil {
		return nil, err
	}
	end = func() { _ = os.RemoveAll(dir) }
	o.Program = filepath.Join(dir, "mcp-server")
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", o.Program, "./cmd/mcp-server")
	cmd.Dir = filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(file))))
	if out, err := cmd.CombinedOutput(); err != nil {
		end()
		return nil, fmt.Errorf("mcp-server cannot be built from %s: %w\n%s", cmd.Dir, err, out)
	}
	return end, nil
}
