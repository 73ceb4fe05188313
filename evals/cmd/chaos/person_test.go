package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// payOnce is a run with one write.
const payOnce = `{"messages":[{"role":"user","content":"Pay it."},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"pay_invoice","arguments":"{\"invoice_id\":\"1\",\"amount\":5}"}}]},{"role":"tool","tool_call_id":"c","content":"ok"}]}`

func runFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPersonSaysNo: a no is a no, and each effect is of its step, whichever facts a policy declares and wherever it puts keys.
func TestPersonSaysNo(t *testing.T) {
	const head = "version: 1\nmcpServers: {books: {command: books}}\ncontext: {source_event: {env: EVENT}"
	const tool = "}\ntools: {books/pay_invoice: {effect: write, once_per: [source_event, /invoice_id], errors: refused"
	for name, text := range map[string]string{
		"no step":                 head + tool + "}}\n",
		"a step":                  head + ", step: {meta: /step}" + tool + "}}\n",
		"a step that means none":  head + `, step: {value: "7"}` + tool + "}}\n",
		"no step, a key argument": head + tool + ", downstream_key: {argument: /reference, window: 24h}}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := policyFile(t, text)
			for _, seed := range []string{"1", "2", "3"} {
				out := t.TempDir()
				table := report(t, "--runs", runFile(t, payOnce), "--policy", file, "--faults", "none,approval-rejected", "--seed", seed, "--out", out)
				for _, arm := range []string{"policy", "policy+key", "policy+lookup"} {
					if c := table.Cell("approval-rejected", arm); c.Duplicated+c.Missing+c.Effects+c.Stray > 0 || c.ToPerson != 1 {
						t.Errorf("seed %s, %s: %+v", seed, arm, c.Tally)
					}
					if c := table.Cell("none", arm); c.Effects != 1 || c.Stray > 0 {
						t.Errorf("seed %s, no fault, %s: %+v", seed, arm, c.Tally)
					}
				}
			}
		})
	}
}

// TestPersonSaysYes: under any other fault what waits for a person gets its yes, and what is then sent is of its step.
func TestPersonSaysYes(t *testing.T) {
	file := policyFile(t, `version: 1
mcpServers: {books: {command: books}}
context: {source_event: {env: EVENT}}
tools:
  books/pay_invoice: {effect: write, once_per: [source_event, /invoice_id], errors: refused, approval: always, downstream_key: {argument: /reference, window: 24h}}
`)
	table := report(t, "--runs", runFile(t, payOnce), "--policy", file, "--faults", "none,answer-lost")
	for _, fault := range []string{"none", "answer-lost"} {
		for _, arm := range []string{"policy+key", "policy+lookup"} {
			if c := table.Cell(fault, arm); c.Effects != 1 || c.Intended != 1 || c.Stray+c.Duplicated+c.Missing+c.ToPerson > 0 {
				t.Errorf("%s, %s: %+v", fault, arm, c.Tally)
			}
		}
	}
}

// TestPersonInStories: who said no is told in the story, also where nobody asked, and what the agent tells the user is true.
func TestPersonInStories(t *testing.T) {
	out := t.TempDir()
	if code, _, stderr := chaos(t, "--runs", runFile(t, payOnce), "--faults", "approval-rejected", "--arms", "no-guard,policy", "--out", out); code != 0 {
		t.Fatal(stderr)
	}
	text, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, right := range []string{
		"<em>person</em><q>says no to this, but nothing here asks before it is sent</q>", "<em>person</em><q>says no</q>",
		"1 of 1 intended writes happened more than once, or happened although a person had said no",
		"it tells the user that a person said no, and that this was not done",
	} {
		if !strings.Contains(page, right) {
			t.Errorf("the page lacks %q", right)
		}
	}
	if strings.Contains(page, "this is not known") {
		t.Error("the agent says that a rejected write is not known")
	}
}
