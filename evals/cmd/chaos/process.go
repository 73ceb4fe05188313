package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"toolguard.dev/evals"
)

// processes makes the options those of a run on real processes, with what can be played there.
func (p *program) processes(o *evals.Options) error {
	if p.policy != "" {
		return errors.New("--policy is for runs in process; on real processes the policies are derived")
	}
	o.Process = &evals.Process{Server: strings.Fields(p.server)}
	faults := slices.DeleteFunc(slices.Clone(o.Faults), func(f evals.Fault) bool { return !f.PlaysOnProcesses() })
	if p.faults != "" && len(faults) < len(o.Faults) {
		return errors.New("--faults: a person's no, a day away and a downstream that dies are played in process only")
	}
	o.Faults = faults
	arms := slices.DeleteFunc(slices.Clone(o.Arms), func(a evals.Arm) bool {
		return len(o.Process.Server) > 0 && a.NeedsOurDownstream()
	})
	if p.arms != "" && len(arms) < len(o.Arms) {
		return errors.New("--arms: whether a server of yours honours keys, and how it is asked, is not known here; with --server there are no-guard, cache, toolguard and policy")
	}
	o.Arms = arms
	return nil
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
