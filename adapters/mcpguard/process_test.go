//go:build linux

package mcpguard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
)

// gone waits until a process is gone, or only its parent has to notice.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func (w *world) pids() []int {
	var list []int
	for _, line := range w.noted("pids") {
		if pid, err := strconv.Atoi(line); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

func TestClosingEndsEverythingThatWasStarted(t *testing.T) {
	w := newWorld(t, nil, "stubborn")
	pids := w.pids()
	if len(pids) != 2 {
		t.Fatalf("processes: %v", pids)
	}
	if err := w.gateway.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		gone(t, pid)
	}
}

func TestAnUpstreamDiesWithItsParent(t *testing.T) {
	w := &world{t: t, folder: t.TempDir()}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = []string{"MCP_TEST_SERVER=host", "MCP_TEST_FOLDER=" + w.folder}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.untilNoted("held", "up")
	pids := w.pids()
	if len(pids) != 2 {
		t.Fatalf("processes: %v", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, pids[1])                           // the child itself; what it started would need its help
	_ = syscall.Kill(pids[0], syscall.SIGKILL) // tidy up
}

// A server that does not read its input: the call whose bytes began to leave is unknown, the one behind it was not sent.
func TestDeafUpstream(t *testing.T) {
	options := &mcpguard.GatewayOptions{Describe: func(string, string, json.RawMessage) (registry.Effect, string, registry.Policy, error) {
		return registry.Write, "declared", registry.Policy{Timeout: 1500 * time.Millisecond}, nil
	}}
	w := newWorld(t, options, "deaf")
	w.untilNoted("held", "deaf")
	c := w.client()
	c.initialize()
	c.tool("noisy", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`).is(t, "escalated/outcome_unknown")
	c.tool("exotic", `{}`).is(t, "blocked/tool_unavailable")
}
