package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolguard.dev/evals"
)

// chaos runs the command.
func chaos(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func report(t *testing.T, args ...string) *evals.Table {
	t.Helper()
	code, stdout, stderr := chaos(t, append(args, "--json")...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var table evals.Table
	if err := json.Unmarshal([]byte(stdout), &table); err != nil {
		t.Fatal(err)
	}
	return &table
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--faults", "nonsense"}, "answer-lost"},
		{[]string{"--arms", "nonsense"}, "no-guard"},
		{[]string{"--seed", "x"}, `--seed: "x" is not a whole number`},
		{[]string{"--seed", "-1"}, `--seed: "-1" is not a whole number`},
		{[]string{"--server", "/nonexistent"}, `--server: "/nonexistent" is no program`},
		{[]string{"--server", " "}, "--server: it names no command"},
		{[]string{"--runs", filepath.Join(t.TempDir(), "nowhere")}, "nowhere"},
		{[]string{"--policy", filepath.Join(t.TempDir(), "nowhere.yaml")}, "nowhere.yaml"},
		{[]string{"--labels", "x"}, "--runs"},
		{[]string{"a/path"}, "--runs"},
		{[]string{"--server", "true", "--arms", "policy+key"}, "says where a tool takes its key"},
	} {
		code, stdout, stderr := chaos(t, c.args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
}

// TestRunsByPath: a folder with runs, one that cannot be read, and labels of its own.
func TestRunsByPath(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.json": `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"pay","arguments":"{\"invoice_id\":\"1\"}"}}]},{"role":"tool","tool_call_id":"c","content":"ok"},
			{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"pay","arguments":"{\"invoice_id\":\"1\"}"}}]},{"role":"tool","tool_call_id":"d","content":"ok"}]}`,
		"bad.json":     `{"messages":[`,
		"labels.jsonl": `{"file":"good.json","run":"good","repeats":[{"first_call":0,"second_call":1,"hand_label":"must_run_again"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table := report(t, "--runs", dir, "--faults", "answer-lost")
	if table.Runs != 1 || table.Skipped != 1 || table.Labels != 1 || table.Cell("answer-lost", "policy").Needed != 1 {
		t.Errorf("%d runs, %d skipped, %d labelled", table.Runs, table.Skipped, table.Labels)
	}
	worse := filepath.Join(t.TempDir(), "worse.json")
	if err := os.WriteFile(worse, []byte(`7`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := chaos(t, "--runs", filepath.Join(dir, "bad.json"), worse)
	if code != 1 || !strings.Contains(stderr, "bad.json: ") || !strings.Contains(stderr, worse) || strings.Count(stderr, "\n") != 3 {
		t.Errorf("nothing to play: exit %d, %q", code, stderr)
	}
}

// TestPolicyFile: the arms with a policy have that of the file, and only the facts that it declares.
func TestPolicyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "toolguard.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "version: 1\nmcpServers: {bank: {command: bank}}\n"
	runs := filepath.Join("..", "..", "builtin", "rent.agentdojo.json")
	held := func() int {
		return report(t, "--runs", runs, "--policy", file, "--faults", "none", "--arms", "policy").Cell("none", "policy").Held
	}
	write(head + "tools: {bank/send_money: {effect: write, once_per: [/recipient, /amount]}}\n")
	if n := held(); n != 1 {
		t.Errorf("once per recipient and amount: %d of the two rents were held back", n)
	}
	write(head + "context: {step: {meta: /step}}\ntools: {bank/send_money: {effect: write, once_per: [step, /recipient, /amount]}}\n")
	if n := held(); n != 0 {
		t.Errorf("once per step: %d of the two rents were held back", n)
	}
}

// TestPolicyFiles: whatever a file says of a tool is played, and a lost answer is found by its key and by its lookup.
func TestPolicyFiles(t *testing.T) {
	const head = "version: 1\ncontext: {source_event: {env: EVENT}, step: {meta: /step}}\n"
	const lookup = "lookup: [{tool: find, arguments: {ref: '{{key}}'}, applied: size(result.json.found) == 1, absent: size(result.json.found) == 0, settle: 5s}]"
	for name, text := range map[string]string{
		"a lookup and a key": head + "mcpServers: {bank: {command: bank}}\ntools:\n  bank/send_money: {effect: write, once_per: [source_event, step], errors: refused, downstream_key: {argument: /ref, window: 1h}, " + lookup + "}\n",
		"a pattern":          head + "mcpServers: {bank: {command: bank}}\ndefaults: {timeout: 20s}\ntools:\n  bank/*: {effect: write, once_per: [source_event, step], errors: refused, " + lookup + "}\n",
		"a secret":           head + "mcpServers: {bank: {command: bank}}\ntools:\n  bank/send_money: {effect: write, once_per: [source_event, step, /recipient], errors: refused, secret: [/amount], " + lookup + "}\n",
		"an HTTP tool": head + `httpTools:
  bank/send_money: {input: {type: object}, method: POST, url: "https://bank.example/pay", json: {to: "{{args.recipient}}"}}
tools:
  bank/send_money:
    effect: write
    once_per: [source_event, step]
    errors: refused
    downstream_key: {header: Idempotency-Key, window: 24h}
    lookup: [{request: {method: GET, url: "https://bank.example/find?ref={{key}}"}, applied: result.status == 200, absent: result.status == 404, settle: 30s}]
`,
	} {
		t.Run(name, func(t *testing.T) {
			table := report(t, "--runs", rent, "--policy", policyFile(t, text), "--faults", "none,answer-lost,late-commit,key-forgotten", "--arms", "policy,policy+key,policy+lookup")
			clean(t, table, "policy", "policy+key", "policy+lookup")
			for _, row := range table.Rows {
				if c := table.Cell(row.Fault, "policy+lookup"); c.ToPerson > 0 || c.Effects != c.Intended {
					t.Errorf("%s: %+v", row.Fault, c.Tally)
				}
			}
			if c := table.Cell("answer-lost", "policy+key"); c.ToPerson > 0 || c.Effects != c.Intended {
				t.Errorf("with its key: %+v", c.Tally)
			}
			if c := table.Cell("answer-lost", "policy"); c.ToPerson != c.Hit {
				t.Errorf("without both: %+v", c.Tally)
			}
		})
	}
}

// TestPage: the page needs nothing from elsewhere, and nothing of the runs is more than text in it.
func TestPage(t *testing.T) {
	out := t.TempDir()
	code, stdout, stderr := chaos(t, "--runs", filepath.Join("..", "..", "builtin", "bill.agentdojo.json"), "--faults", "answer-lost", "--out", out)
	if code != 0 || !strings.Contains(stdout, "answer-lost") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	text, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	html := string(text)
	for _, wrong := range []string{"<script", "http://", "https://", "src=", "@import", "url(", "\x1b", "<no value>"} {
		if strings.Contains(html, wrong) {
			t.Errorf("the page has %q", wrong)
		}
	}
	for _, right := range []string{"MALLORY", `href="#run-answer-lost-no-guard"`, `id="run-answer-lost-no-guard"`, "EFFECT send_money, for the second time"} {
		if !strings.Contains(html, right) {
			t.Errorf("the page lacks %q", right)
		}
	}
	report, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil || !json.Valid(report) {
		t.Errorf("report.json: %v", err)
	}
}

// TestReadme holds the table in the README to what the command prints.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := chaos(t)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	_, total, _ := strings.Cut(stdout, "All faults together")
	total, _, _ = strings.Cut(total, "\n\nEach fault")
	_, total, _ = strings.Cut(total, "\n\n")
	if total == "" || !strings.Contains(string(readme), "\n"+total+"\n") {
		t.Errorf("the README does not have what the command prints:\n%s", total)
	}
}
