//go:build unix

package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// A process that makes one guarded call on a real ledger, and may kill itself at a store call.
const (
	envDir   = "EVALS_KILL_DIR"
	envPoint = "EVALS_KILL_POINT" // "3 before-commit"; "" for none
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		if err := oneCall(dir, os.Getenv(envPoint)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if job := os.Getenv(envJob); job != "" {
		if err := largeJob(job, os.Getenv(envLedger)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func oneCall(dir, point string) error {
	n := map[badgerstore.Stage]int{}
	store, err := badgerstore.Open(filepath.Join(dir, "ledger"), &badgerstore.Options{Fail: func(s badgerstore.Stage) error {
		if fmt.Sprint(n[s], " ", s) == point {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		n[s]++
		return nil
	}})
	if err != nil {
		return err
	}
	ctx := context.Background()
	g, err := toolguard.Open(ctx, store, nil)
	if err != nil {
		return err
	}
	entry, err := registry.Compile(registry.Tool{
		Server: "books", Name: "pay", Effect: registry.Write, EffectSource: "declared",
		Policy: registry.Policy{OncePer: []string{"source_event"}},
		Handler: func(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
			f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return registry.Answer{}, err
			}
			defer f.Close()
			_, err = fmt.Fprintln(f, d.Operation, d.Attempt)
			return registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"paid"}]}`)}, errors.Join(err, f.Sync())
		},
	})
	if err != nil {
		return err
	}
	tool, err := g.Register(ctx, entry)
	if err != nil {
		return err
	}
	r := g.Do(ctx, toolguard.Call{Tool: tool, Arguments: json.RawMessage(`{"amount":1}`), Facts: keyderive.Facts{SourceEvent: "evt 1"}})
	fmt.Println(r.Verdict.Outcome, r.Verdict.Reason)
	r.Delivered()
	if err := g.Close(ctx); err != nil {
		return err
	}
	return store.Close()
}

// TestKilledAtEveryStoreCallOnDisk kills a real process by SIGKILL right before and right after every group that its
// ledger writes for one call, and then makes the call again, twice, in new processes.
func TestKilledAtEveryStoreCallOnDisk(t *testing.T) {
	run := func(t *testing.T, dir, point string) (said string, killed bool) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envDir+"="+dir, envPoint+"="+point)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err == nil {
			return strings.TrimSpace(string(out)), false
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the process ended with %v\n%s", err, errs.String())
		}
		return strings.TrimSpace(string(out)), true
	}
	effects := func(dir string) int {
		data, err := os.ReadFile(filepath.Join(dir, "effects"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(data), "\n")
	}
	points := 0
	for _, stage := range []badgerstore.Stage{badgerstore.BeforeCommit, badgerstore.AfterCommit} {
		for n := 0; ; n++ {
			point := fmt.Sprint(n, " ", stage)
			dir := t.TempDir()
			first, killed := run(t, dir, point)
			if !killed {
				break
			}
			points++
			before := effects(dir)
			second, _ := run(t, dir, "")
			third, _ := run(t, dir, "")
			now := effects(dir)
			ok := false
			switch second {
			case "fresh": // nothing was on record: this was the first time
				ok = before == 0 && now == 1 && third == "replayed done"
			case "replayed done":
				ok = before == 1 && now == 1 && third == "replayed done"
			case "escalated outcome_unknown":
				ok = now == before && third == second && first == ""
			}
			if !ok || now > 1 {
				t.Errorf("killed at %s after %d effects and %q; then %q and %q, %d effects", point, before, first, second, third, now)
			}
			t.Logf("%-16s %d effects, said %q; then %q, %q", point, before, first, second, third)
		}
	}
	if points < 6 {
		t.Errorf("only %d points", points)
	}
}
