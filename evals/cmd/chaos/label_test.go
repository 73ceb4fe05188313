package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// paidTwice is a run with a read and the same payment twice.
func paidTwice(t *testing.T) string {
	t.Helper()
	_, run, _ := documented(t)
	return run
}

// documented is the example of the documentation: a run, and its label.
func documented(t *testing.T) (dir, run, label string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "chaos.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, rest, _ := strings.Cut(string(text), "\n```"+language+"\n")
		block, _, ok := strings.Cut(rest, "\n```\n")
		if !ok {
			t.Fatalf("the documentation has no block of %s", language)
		}
		return block
	}
	dir, run, label = t.TempDir(), block("json"), block("jsonl")
	put(t, filepath.Join(dir, "rent.json"), run)
	put(t, filepath.Join(dir, "labels.jsonl"), label)
	return dir, run, label
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedLabels holds the documentation to what it says of labels.
func TestDocumentedLabels(t *testing.T) {
	dir, _, label := documented(t)
	table := report(t, "--runs", dir, "--faults", "none")
	if c := table.Cell("none", "policy"); table.Labels != 1 || table.Doubted != 0 || c.Needed != 1 || c.Intended != 2 {
		t.Errorf("%d labelled, %q, %+v", table.Labels, table.Doubts, c.Tally)
	}
	for name, words := range map[string][2]string{
		"unwanted": {"must_run_again", "unwanted_effect"}, "refused": {"must_run_again", "unwanted_but_refused_downstream"}, "by the file's name": {`"rent", `, `"rent.json", `},
	} {
		put(t, filepath.Join(dir, "labels.jsonl"), strings.Replace(label, words[0], words[1], 1))
		table = report(t, "--runs", dir, "--faults", "none")
		want := 1
		if words[0] != "must_run_again" {
			want = 2
		}
		if c := table.Cell("none", "policy"); table.Labels != 1 || c.Intended != want {
			t.Errorf("%s: %d labelled, %+v", name, table.Labels, c.Tally)
		}
	}
}

// TestWrongLabels: what is no label is an error, and what the run does not bear out is named and changes nothing.
func TestWrongLabels(t *testing.T) {
	dir, _, label := documented(t)
	file := filepath.Join(dir, "mine.jsonl")
	for name, c := range map[string]struct {
		line string
		code int
		says string
	}{
		"no JSON":            {`{"file":`, 2, "not a label"},
		"an unknown word":    {strings.Replace(label, "must_run_again", "must_rerun", 1), 2, `no hand_label "must_rerun"`},
		"label":              {strings.Replace(label, "hand_label", "label", 1), 2, "repeat 1 has no hand_label"},
		"no first call":      {strings.Replace(label, "first_call", "first", 1), 2, "repeat 1 has no first_call"},
		"the wrong way":      {strings.Replace(label, `"second_call": 2`, `"second_call": 0`, 1), 2, "does not come after"},
		"no repeats":         {strings.Replace(label, "repeats", "repeat", 1), 2, "it has no repeats, but a list named repeat"},
		"no run":             {strings.Replace(label, `"run"`, `"name"`, 1), 2, "it names no file, or no run"},
		"twice":              {label + "\n" + label, 2, "labelled in " + file + ":1 already"},
		"out of range":       {strings.Replace(label, `"second_call": 2`, `"second_call": 9`, 1), 0, "the agent makes no call 9"},
		"a read":             {strings.Replace(label, `"first_call": 1`, `"first_call": 0`, 1), 0, "call 0, get_rent, only reads"},
		"a count of calls":   {strings.Replace(label, `"calls": 3`, `"calls": 4`, 1), 0, "counts 4 calls, the run has 3"},
		"a count of writes":  {strings.Replace(label, `"writes": 2`, `"writes": 0`, 1), 0, "counts 0 writes, the run has 2"},
		"another file":       {strings.Replace(label, "rent.json", "rant.json", 1), 0, "there is no run rent in rant.json that was read\nlabels: 1 label matched no run\n"},
		"another run":        {strings.Replace(label, `"run": "rent"`, `"run": "run 1"`, 1), 0, "there is no run run 1 in rent.json that was read"},
		"one that nobody is": {strings.Replace(label, `"rent", "calls": 3, `, `"rent", `, 1), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, file, c.line)
			code, _, stderr := chaos(t, "--runs", dir, "--labels", file, "--faults", "none", "--arms", "policy")
			at := file + ":1"
			if name == "twice" {
				at = file + ":2"
			}
			if code != c.code || !strings.Contains(stderr, c.says) || strings.Contains(stderr, at) != (c.says != "") || strings.Contains(stderr, "/labels.jsonl") {
				t.Errorf("exit %d: %s", code, stderr)
			}
			if code == 2 && strings.Count(stderr, "\n") != 1 {
				t.Errorf("more than a line: %q", stderr)
			}
		})
	}
	put(t, file, strings.Replace(label, `"first_call": 1`, `"first_call": 0`, 1))
	if c := report(t, "--runs", dir, "--labels", file, "--faults", "none").Cell("none", "policy"); c.Needed != 0 || c.Intended != 2 {
		t.Errorf("a repeat of a read is used: %+v", c.Tally)
	}
	out := t.TempDir()
	_, _, stderr := chaos(t, "--runs", dir, "--labels", file, "--faults", "none", "--arms", "policy", "--out", out)
	if page, err := os.ReadFile(filepath.Join(out, "index.html")); err != nil || !strings.Contains(string(page), "call 0, get_rent, only reads") {
		t.Errorf("the page does not say so: %v, %s", err, stderr)
	}
}

// TestLabelsElsewhere: labels of the folder above are not missed where only some of its runs are played.
func TestLabelsElsewhere(t *testing.T) {
	dir, _, label := documented(t)
	put(t, filepath.Join(dir, "labels.jsonl"), label+"\n"+strings.Replace(label, "rent.json", "more.json", 1))
	if _, _, stderr := chaos(t, "--runs", filepath.Join(dir, "rent.json"), "--faults", "none", "--arms", "policy"); strings.Contains(stderr, "labels:") {
		t.Error(stderr)
	}
	if _, _, stderr := chaos(t, "--runs", dir, "--faults", "none", "--arms", "policy"); !strings.Contains(stderr, "labels.jsonl:2: there is no run rent in more.json") {
		t.Error(stderr)
	}
}

// TestPolicyWithoutRule: tools that the policy says nothing of are named.
func TestPolicyWithoutRule(t *testing.T) {
	const head = "version: 1\nmcpServers: {bank: {command: bank}, books: {command: books}}\ncontext: {step: {meta: /step}}\ntools: {"
	for rule, says := range map[string]string{
		"bank/paid": "has a rule for 0 of the 1 tool that these runs write with, and only its defaults for pay\n", "bank/pay": "", "books/p*": "",
	} {
		_, _, stderr := chaos(t, "--runs", runFile(t, paidTwice(t)), "--faults", "none", "--arms", "policy", "--policy", policyFile(t, head+rule+": {effect: write}}\n"))
		if !strings.Contains(stderr, says) || strings.Contains(stderr, "policy:") != (says != "") {
			t.Errorf("%s: %s", rule, stderr)
		}
	}
}

// TestNoMinusNought: latencies that are next to nothing are not less.
func TestNoMinusNought(t *testing.T) {
	code, stdout, _ := chaos(t, "--runs", filepath.Join("..", "..", "builtin", "bill.agentdojo.json"), "--seed", "2", "--json")
	if code != 0 || strings.Contains(stdout, ": -0,") || strings.Contains(stdout, ": -0\n") {
		t.Error("the report has -0")
	}
}
