//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestConstantMemory runs the whole program, as a process of its own, on some runs and on ten times as many: at its peak it
// may not need noticeably more. The runs are large, so that to keep them, or what came of them, would show. It is built for
// that: the race detector's own memory would count in the test's.
func TestConstantMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("plays thousands of runs")
	}
	const few, many, each = 200, 2000, 32 << 10
	const grows = 24 << 20 // to keep the runs would take far more than 60 MiB
	program := filepath.Join(t.TempDir(), "chaos")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	small, large := peak(t, program, few, each), peak(t, program, many, each)
	t.Logf("%d runs: %.1f MiB, %d runs: %.1f MiB", few, float64(small)/(1<<20), many, float64(large)/(1<<20))
	if large-small > grows {
		t.Errorf("%d runs take %d MiB more than %d", many, (large-small)>>20, few)
	}
}

// peak is the most memory that the program had resident while it played n runs of about so many bytes each.
func peak(t *testing.T, program string, n, each int) int64 {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "runs.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if i%2 == 0 { // half of them in one file, the others in one each
			_, err = fmt.Fprintln(file, bulky(i, each))
		} else {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("run-%d.json", i)), []byte(bulky(i, each)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--runs", dir, "--faults", "answer-lost", "--arms", "no-guard,policy")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), fmt.Sprintf("%d runs", n)) {
		t.Fatalf("%v: %s\n%s", err, out, errs.String())
	}
	most := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if runtime.GOOS != "darwin" { // where it is told in bytes
		most *= 1024
	}
	return most
}

// bulky is a run of one write, with a long read before it and long text in it.
func bulky(i, size int) string {
	long := strings.Repeat(fmt.Sprintf("line %d. ", i), size/2/10)
	return fmt.Sprintf(`{"messages":[{"role":"user","content":"Pay it."},`+
		`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"read_bill","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":%q},`+
		`{"role":"assistant","tool_calls":[{"id":"b","function":{"name":"pay","arguments":"{\"invoice_id\":\"%d\",\"memo\":%s}"}}]},{"role":"tool","tool_call_id":"b","content":"ok"}]}`,
		long, i, strings.ReplaceAll(fmt.Sprintf("%q", long), `"`, `\"`))
}
