package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/evals"
)

// Arguments with which this test is another program.
const (
	bankCommand   = "bank-that-honours-keys"
	carelessBank  = "bank-that-honours-nothing"
	oldBank       = "bank-that-paid-before"
	bankThatIsBad = "no-bank-at-all"

	programCommand = "the-program" // the first: chaos itself, with what follows
)

func TestMain(m *testing.M) {
	if code, ok := front(os.Args); ok {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == programCommand {
		os.Exit(run(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	switch os.Args[len(os.Args)-1] {
	case bankCommand:
		os.Exit(bank(true))
	case carelessBank:
		os.Exit(bank(false))
	case oldBank:
		os.Exit(bank(false, ""))
	case bankThatIsBad:
		fmt.Fprintln(os.Stderr, "the bank has no licence")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// bank is a user's own MCP server on stdio: send_money takes a key as its argument reference, and find_payment finds a payment
// by it. It may have paid before, under some references.
func bank(honours bool, paid ...string) int {
	const tools = `{"tools":[{"name":"send_money","inputSchema":{"type":"object","properties":{"recipient":{"type":"string"},"amount":{},"reference":{"type":"string"}}}},
		{"name":"find_payment","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","properties":{"reference":{"type":"string"}}}}]}`
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string `json:"name"`
				Arguments struct{ Reference string }
			} `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bank","version":"1"}}`
		ref := m.Params.Arguments.Reference
		switch {
		case m.Method == "tools/list":
			result = strings.ReplaceAll(tools, "\n", "")
		case m.Method != "tools/call":
		case m.Params.Name == "find_payment":
			n := 0
			for _, r := range paid {
				if r == ref {
					n++
				}
			}
			text, _ := json.Marshal(fmt.Sprintf(`{"found":%d}`, n))
			result = fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, text)
		default:
			at := slices.Index(paid, ref)
			if at < 0 || !honours || ref == "" {
				at, paid = len(paid), append(paid, ref)
			}
			result = fmt.Sprintf(`{"content":[{"type":"text","text":"paid, number %d"}]}`, at+1)
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, bytes.TrimSpace([]byte(result)))
	}
	return 0
}

const bankPolicy = `version: 1
mcpServers: {bank: {command: bank}, notUsedHere: {command: x}}
context:
  source_event: {env: EVENT}
  step: {meta: /step}
tools:
  bank/send_money:
    effect: write
    once_per: [source_event, step, /recipient]
    may_differ: [/subject]
    timeout: 30s
    errors: refused
    approval: {when: args.amount > 5000, reviewers: [dana]}
    downstream_key: {argument: /reference, window: 24h}
    lookup:
      - tool: find_payment
        arguments: {reference: "{{key}}"}
        applied: result.json.found > 0
        absent: result.json.found == 0
        settle: 60s
reviewers: {dana: {token_sha256: "1111111111111111111111111111111111111111111111111111111111111111", roles: [reviewer]}}
`

func policyFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "toolguard.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var rent = filepath.Join("..", "..", "builtin", "rent.agentdojo.json")

// clean reports what toolguard promises of a cell with a policy.
func clean(t *testing.T, table *evals.Table, arms ...string) {
	t.Helper()
	for _, row := range table.Rows {
		for _, arm := range arms {
			c := table.Cell(row.Fault, arm)
			if c.Duplicated+c.Missing+c.Held+c.Stray > 0 || row.Fault != "none" && c.Hit == 0 {
				t.Errorf("%s, %s: %+v", row.Fault, arm, c.Tally)
			}
		}
	}
}

// TestProcess plays a run on real processes: SIGKILL in the middle of a write, of the guard or of the downstream; a person who
// says no over HTTP; a downstream that forgets keys. By the derived policy, and by a file.
func TestProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	const faults = "none,crash-after-dispatch,approval-rejected,key-forgotten,downstream-dies"
	for name, more := range map[string][]string{"derived": nil, "file": {"--policy", policyFile(t, bankPolicy)}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--process", "--runs", rent, "--faults", faults, "--arms", "no-guard,policy,policy+key,policy+lookup"}, more...)
			table := report(t, args...)
			clean(t, table, "policy", "policy+key", "policy+lookup")
			for _, fault := range []string{"crash-after-dispatch", "approval-rejected", "key-forgotten", "downstream-dies"} {
				if c := table.Cell(fault, "no-guard"); c.Duplicated == 0 {
					t.Errorf("no guard, %s: %+v", fault, c.Tally)
				}
				if c := table.Cell(fault, "policy"); c.ToPerson == 0 {
					t.Errorf("policy, %s: %+v", fault, c.Tally)
				}
			}
			for fault, arms := range map[string][]string{
				"none": {"policy", "policy+key", "policy+lookup"}, "crash-after-dispatch": {"policy+key", "policy+lookup"},
				"key-forgotten": {"policy+lookup"}, "downstream-dies": {"policy+key", "policy+lookup"},
			} {
				for _, arm := range arms {
					if c := table.Cell(fault, arm); c.Effects != c.Intended || c.ToPerson > 0 {
						t.Errorf("%s, %s: %+v", fault, arm, c.Tally)
					}
				}
			}
			if c := table.Cell("key-forgotten", "policy+key"); c.ToPerson == 0 {
				t.Errorf("the key is forgotten, and nobody sees it: %+v", c.Tally)
			}
			if c := table.Cell("approval-rejected", "policy"); c.Effects != c.Intended-c.Hit {
				t.Errorf("a person said no to %d: %+v", c.Hit, c.Tally)
			}
		})
	}
}

// TestServer has a server of the user's behind the guard, with a key and a lookup where the policy names them.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := policyFile(t, bankPolicy)
	args := []string{"--runs", rent, "--faults", "none,answer-lost,crash-after-dispatch", "--policy", file, "--server"}
	table := report(t, append(args, self+" "+bankCommand)...)
	if len(table.Total) != len(evals.Arms) {
		t.Errorf("%d arms of %d", len(table.Total), len(evals.Arms))
	}
	clean(t, table, "policy", "policy+key", "policy+lookup")
	for _, arm := range []string{"no-guard", "random-key"} {
		if c := table.Cell("answer-lost", arm); c.Duplicated == 0 {
			t.Errorf("%s: %+v", arm, c.Tally)
		}
	}
	if c := table.Cell("answer-lost", "model-key"); c.Duplicated > 0 || c.Effects != c.Intended {
		t.Errorf("the model's own key, sent again: %+v", c.Tally)
	}
	for _, arm := range []string{"policy+key", "policy+lookup"} {
		if c := table.Cell("crash-after-dispatch", arm); c.Effects != c.Intended || c.ToPerson > 0 {
			t.Errorf("%s: %+v", arm, c.Tally)
		}
	}
	careless := report(t, append(args, self+" "+carelessBank, "--arms", "model-key,policy+key")...)
	for _, arm := range []string{"model-key", "policy+key"} {
		if c := careless.Cell("answer-lost", arm); c.Duplicated == 0 {
			t.Errorf("a server that does not honour keys, whatever its policy says, %s: %+v", arm, c.Tally)
		}
	}
}

// TestServerArms says which columns mean nothing with a user's own server, and why.
func TestServerArms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	bank := self + " " + bankCommand
	code, stdout, stderr := chaos(t, "--runs", rent, "--faults", "none", "--server", bank)
	if code != 0 || !strings.Contains(stderr, "left out, with a server of yours: random-key (no --policy says where a tool takes its key), model-key") ||
		!strings.Contains(stderr, "policy+lookup (no --policy has a lookup)") || strings.Contains(stdout, "policy+key") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	code, _, stderr = chaos(t, "--runs", rent, "--server", bank, "--arms", "policy+lookup")
	if code != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "no --policy has a lookup") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	code, _, stderr = chaos(t, "--runs", rent, "--server", self+" "+bankThatIsBad)
	if code != 1 || !strings.Contains(stderr, "the bank has no licence") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	other := strings.Replace(bankPolicy, "tool: find_payment", "tool: get_balance", 1)
	code, _, stderr = chaos(t, "--runs", rent, "--server", bank, "--faults", "none", "--policy", policyFile(t, other))
	if code != 1 || !strings.Contains(stderr, "get_balance, which the server does not have") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// TestNothingCanBeFound: a lookup without the key, at a server that has paid before, proves nothing. The replay ends all the same,
// soon after the agent gave up; the write is with a person, and meanwhile it is said that something is waited for.
func TestNothingCanBeFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs, and takes a minute")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	policy := strings.NewReplacer(`{reference: "{{key}}"}`, `{reference: ""}`, "timeout: 30s", "timeout: 20s", "settle: 60s", "settle: 40s").Replace(bankPolicy)
	once := strings.NewReplacer("pay_invoice", "send_money", "invoice_id", "recipient").Replace(payOnce)
	out := t.TempDir()
	code, stdout, stderr := chaos(t, "--out", out, "--runs", runFile(t, once), "--policy", policyFile(t, policy), "--faults", "downstream-dies", "--arms", "policy+lookup", "--server", self+" "+oldBank, "--json")
	var table evals.Table
	if err := json.Unmarshal([]byte(stdout), &table); code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s", code, err, stderr)
	}
	if c := table.Cell("downstream-dies", "policy+lookup"); c.ToPerson == 0 || c.Duplicated+c.Missing+c.Held > 0 {
		t.Errorf("%+v", c.Tally)
	}
	if !strings.Contains(stderr, "0 runs played (0 replays, 1 for each run); nothing has ended for 15 s\n") {
		t.Errorf("nothing is said meanwhile: %s", stderr)
	}
	page, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil || !strings.Contains(string(page), "is not waited for any longer") {
		t.Errorf("it was waited for to the end (%v)", err)
	}
}
