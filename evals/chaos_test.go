package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/evals"
	"toolguard.dev/evals/recorded"
)

// envRuns names a folder of recorded runs, with their labels, that the tests are held on too.
const envRuns = "EVALS_RUNS"

type runs struct {
	all    iter.Seq2[*recorded.Run, error]
	labels func(*recorded.Run) *recorded.Label
}

func builtin(t *testing.T) runs {
	t.Helper()
	all, labels, err := evals.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return runs{all, labels}
}

func shared(t *testing.T) runs {
	t.Helper()
	dir := os.Getenv(envRuns)
	if dir == "" {
		t.Skip(envRuns + " names no folder of recorded runs")
	}
	labels, err := recorded.FindLabels(dir)
	if err != nil {
		t.Fatal(err)
	}
	return runs{recorded.Files(dir), labels.Of}
}

func play(t *testing.T, r runs, o evals.Options) *evals.Table {
	t.Helper()
	o.Labels = r.labels
	table, err := evals.Run(t.Context(), r.all, o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestMustShow(t *testing.T)             { mustShow(t, play(t, builtin(t), evals.Options{Seed: 1})) }
func TestMustShowOnSharedRuns(t *testing.T) { mustShow(t, play(t, shared(t), evals.Options{Seed: 1})) }

// mustShow holds a table to what toolguard promises, and sees that the arms without it break just that.
func mustShow(t *testing.T, table *evals.Table) {
	t.Helper()
	if table.Runs == 0 {
		t.Fatal("no run was played")
	}
	for _, row := range table.Rows {
		damage := 0
		for i := range row.Cells {
			c := &row.Cells[i]
			wrong := fmt.Sprintf("%d of %d twice, %d lost, %d of %d needed held back, %d strays", c.Duplicated, c.Intended, c.Missing, c.Held, c.Needed, c.Stray)
			switch arm := armOf(t, c.Arm); {
			case !arm.Guarded():
				damage += c.Duplicated + c.Missing + c.Held
			case arm.Declared():
				if c.Duplicated+c.Missing+c.Held+c.Stray > 0 {
					t.Errorf("%s, %s: %s; the worst is %s", row.Fault, c.Arm, wrong, c.WorstRun)
				}
				if c.Needed == 0 {
					t.Errorf("%s, %s: no run needs a repeat: that nothing was held back says nothing", row.Fault, c.Arm)
				}
			default: // what is unknown is with a person
				t.Logf("%s, no policy: %s, %d with a person", row.Fault, wrong, c.ToPerson)
			}
			if row.Fault != "none" && c.Hit == 0 {
				t.Errorf("%s, %s: the fault hit nothing", row.Fault, c.Arm)
			}
		}
		if damage == 0 {
			t.Errorf("%s: no arm without toolguard shows any damage: the row cannot fail", row.Fault)
		}
	}
	everythingHappens(t, table)
	notJustHeld(t, table)
}

// everythingHappens: where each outcome can be known, what was meant happened; a person sees what somebody changed, or said no to.
func everythingHappens(t *testing.T, table *evals.Table) {
	t.Helper()
	for _, row := range table.Rows {
		for i := range row.Cells {
			c := &row.Cells[i]
			if !c.Known || row.Fault == "approval-rejected" {
				continue
			}
			if missing := c.Intended - (c.Effects - c.Extra); missing*100 > c.Intended {
				t.Errorf("%s, %s: of %d intended writes %d did not happen", row.Fault, c.Arm, c.Intended, missing)
			}
		}
	}
}

// notJustHeld: without a fault a policy stands in nobody's way, so that "0 twice" is not bought by stopping everything.
func notJustHeld(t *testing.T, table *evals.Table) {
	t.Helper()
	for _, arm := range []string{"policy", "policy+key", "policy+lookup"} {
		c := table.Cell("none", arm)
		if c.Effects != c.Intended || c.ToPerson*100 > c.Asked {
			t.Errorf("no fault, %s: %d effects of %d intended writes, %d with a person", arm, c.Effects, c.Intended, c.ToPerson)
		}
	}
	for _, fault := range []string{"answer-lost", "event-redelivered", "crash-after-dispatch", "prompt-resent", "changed-amount"} {
		if c := table.Cell(fault, "no-guard"); c.Duplicates.Low == 0 {
			t.Errorf("%s, no guard: %d duplicates of %d: is the fault played at all?", fault, c.Duplicated, c.Intended)
		}
	}
}

func armOf(t *testing.T, name string) *evals.Arm {
	t.Helper()
	i := slices.IndexFunc(evals.Arms, func(a evals.Arm) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("there is no arm %q", name)
	}
	return &evals.Arms[i]
}

// TestSameSeedSameTable plays twice what has the most going on at once, and once from another seed.
func TestSameSeedSameTable(t *testing.T) {
	faults, err := evals.SelectFaults("answer-lost,late-commit,crash-before-dispatch,parallel,two-processes,approval-rejected,downstream-dies")
	if err != nil {
		t.Fatal(err)
	}
	from := func(seed uint64) *evals.Table { return play(t, builtin(t), evals.Options{Seed: seed, Faults: faults}) }
	first, second, other := from(7), from(7), from(8)
	text := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text(first) != text(second) {
		t.Error("the same seed gave two tables")
	}
	for r := range first.Rows {
		for c := range first.Rows[r].Cells {
			if a, b := text(first.Rows[r].Cells[c]), text(second.Rows[r].Cells[c]); a != b {
				t.Errorf("%s: two cells:\n%s\n%s", first.Rows[r].Fault, a, b)
			}
		}
	}
	other.Seed = first.Seed
	if text(first) == text(other) {
		t.Error("another seed gave the same table: what is it for?")
	}
}

// TestNoRunIsLost: a run that cannot be read is counted and named, and so is one that writes nothing.
func TestNoRunIsLost(t *testing.T) {
	writes := &recorded.Run{Name: "writes", Calls: []recorded.Call{{Tool: "pay", Arguments: json.RawMessage(`{"invoice_id":"1","amount":5}`)}}}
	reads := &recorded.Run{Name: "reads", Calls: []recorded.Call{{Tool: "get_invoice", Arguments: json.RawMessage(`{}`)}}}
	all := func(yield func(*recorded.Run, error) bool) {
		_ = yield(writes, nil) && yield(nil, &recorded.Malformed{File: "f", Run: "run 2", Err: recorded.ErrForm}) && yield(reads, nil)
	}
	faults, err := evals.SelectFaults("none, answer-lost")
	if err != nil {
		t.Fatal(err)
	}
	table := play(t, runs{all: all}, evals.Options{Faults: faults})
	if table.Runs != 1 || table.Skipped != 1 || table.Idle != 1 || len(table.Why) != 1 || !strings.Contains(table.Why[0], "f: run 2") {
		t.Errorf("%d played, %d skipped (%q), %d idle", table.Runs, table.Skipped, table.Why, table.Idle)
	}
	if c := table.Cell("answer-lost", "no-guard"); c.Duplicated != 1 || c.Effects != 2 || c.Worst == nil || c.WorstRun == "" {
		t.Errorf("no guard: %+v", c)
	}
	if c := table.Cell("answer-lost", "policy"); c.Duplicated != 0 || c.Effects != 1 || c.ToPerson != 1 {
		t.Errorf("policy: %+v", c)
	}
}

func TestEndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := builtin(t)
	if _, err := evals.Run(ctx, r.all, evals.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}

func TestSelect(t *testing.T) {
	if all, err := evals.SelectArms(""); err != nil || len(all) != len(evals.Arms) {
		t.Errorf("all arms: %d, %v", len(all), err)
	}
	if some, err := evals.SelectArms("policy,no-guard"); err != nil || len(some) != 2 || some[0].Name != "no-guard" {
		t.Errorf("two arms, in the table's order: %v, %v", some, err)
	}
	if _, err := evals.SelectFaults("nonsense"); err == nil || !strings.Contains(err.Error(), "answer-lost") {
		t.Errorf("an unknown fault: %v", err)
	}
}

// TestShare compares with values computed elsewhere.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		k, n            int
		value, low, top float64
	}{
		{0, 0, 0, 0, 0}, {0, 48, 0, 0, 7.4}, {1, 10, 10, 1.8, 40.4}, {5, 10, 50, 23.7, 76.3}, {10, 10, 100, 72.2, 100},
	} {
		if s := evals.ShareOf(c.k, c.n); s.Value != c.value || s.Low != c.low || s.High != c.top {
			t.Errorf("%d of %d: %+v", c.k, c.n, s)
		}
	}
}

func TestPlanOf(t *testing.T) {
	call := func(i int, tool, args string, failed bool) recorded.Call {
		return recorded.Call{Index: i, Tool: tool, Arguments: json.RawMessage(args), Failed: failed}
	}
	run := &recorded.Run{Calls: []recorded.Call{
		call(0, "get_bill", `{}`, false),
		call(1, "pay", `{"to":"a","amount":1}`, true),  // step 0, refused
		call(2, "pay", `{"to":"a","amount":2}`, false), // step 0, corrected
		call(3, "pay", `{"to":"a","amount":2}`, false), // the agent repeats itself
		call(4, "pay", `{"to":"a","amount":2}`, false), // wanted once more: step 1
		call(5, "mail", `{"to":"a"}`, false),           // step 2
		call(6, "mail", `{"to":"a"}`, false),           // nobody can tell: step 3
		call(7, "mail", `{"to":"b"}`, true),            // step 4, refused to the end
	}}
	label := &recorded.Label{Repeats: []recorded.Repeat{
		{First: 2, Second: 3, Verdict: recorded.UnwantedEffect}, {First: 3, Second: 4, Verdict: recorded.MustRunAgain},
		{First: 5, Second: 6, Verdict: recorded.Ambiguous},
	}}
	p := evals.PlanOf(run, label)
	var steps []int
	for _, c := range p.Calls {
		steps = append(steps, c.Step)
	}
	if !slices.Equal(steps, []int{-1, 0, 0, 0, 1, 2, 3, 4}) || p.Writes() != 7 {
		t.Errorf("steps %v, %d writes", steps, p.Writes())
	}
	var meant, needed []int
	for _, s := range p.Steps {
		if s.Meant() {
			meant = append(meant, s.Number)
		}
		if s.Needed {
			needed = append(needed, s.Number)
		}
	}
	if !slices.Equal(meant, []int{0, 1, 2}) || !slices.Equal(needed, []int{1}) {
		t.Errorf("meant %v, needed %v", meant, needed)
	}
	if p := evals.PlanOf(run, nil); len(p.Steps) != 6 {
		t.Errorf("without a label there are %d steps", len(p.Steps))
	}
}

// TestCountsOfSharedRuns compares with the labels how many calls and writes a run has: both were counted by others.
func TestCountsOfSharedRuns(t *testing.T) {
	r := shared(t)
	labelled := 0
	for run, err := range r.all {
		if err != nil {
			t.Logf("skipped: %v", err)
			continue
		}
		label := r.labels(run)
		if label == nil {
			continue
		}
		labelled++
		if run.Made != label.Calls {
			t.Errorf("%s %s: %d calls, by its label %d", run.File, run.Name, run.Made, label.Calls)
		}
		if n := evals.PlanOf(run, label).Writes(); n != label.Writes {
			t.Errorf("%s %s: %d writes, by its label %d", run.File, run.Name, n, label.Writes)
		}
	}
	if labelled == 0 {
		t.Error("no run has a label")
	}
	t.Logf("%d labelled runs", labelled)
}
