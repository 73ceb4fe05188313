package evals_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toolguard.dev/evals"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// declare is a policy for every tool, whose downstream is asked in the way of one lookup.
func declare(t *testing.T, arguments, applied, absent string) *evals.Policy {
	t.Helper()
	l := registry.Lookup{Tool: "find_it", Settle: 30 * time.Second}
	var err error
	if l.Arguments, err = registry.ParseTemplate(json.RawMessage(arguments)); err != nil {
		t.Fatal(err)
	}
	for into, source := range map[**registry.Expression]string{&l.Applied: applied, &l.Absent: absent} {
		if *into, err = registry.CompileExpression(source, registry.KindAnswer); err != nil {
			t.Fatal(err)
		}
	}
	return &evals.Policy{
		Known: func(*keyderive.Facts) {},
		Of: func(server, _ string) evals.Declared {
			return evals.Declared{Server: server, Effect: registry.Write, Source: "declared", Policy: registry.Policy{
				OncePer: []string{"source_event", "step"}, Errors: registry.ErrorRefused, Timeout: 30 * time.Second, Lookups: []registry.Lookup{l},
			}}
		},
	}
}

// TestLookupsOfAPolicy: the downstream answers in the words of the policy's own conditions, so that what became of a lost call
// is found out, whatever they are.
func TestLookupsOfAPolicy(t *testing.T) {
	faults, err := evals.SelectFaults("answer-lost,timeout")
	if err != nil {
		t.Fatal(err)
	}
	arms, err := evals.SelectArms("policy+lookup")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, applied, absent string }{
		{`{"reference":"{{key}}"}`, "size(result.json.payments) == 1", "size(result.json.payments) == 0"},
		{`{"filter":{"ref":"idem-{{key}}"},"limit":10}`, "result.json.total >= 1", "result.json.total == 0"},
		{`{"ref":"{{key}}","tenant":"{{context.tenant}}"}`, "result.json.data[0].status == 'paid'", "!has(result.json.data) || size(result.json.data) == 0"},
		{`{"ref":"{{key}}"}`, "result.json.exists(p, p.state == 'done')", "!result.json.exists(p, p.state == 'done')"},
		{`{"ref":"{{key}}"}`, `result.text.contains("booked")`, `result.text.contains("nothing there")`},
		{`{"ref":"{{key}}"}`, "!result.is_error && result.json.id != null", "result.is_error && result.text == 'no such payment'"},
		{`{"ref":"{{key}}"}`, "result.status == 200", "result.status == 404"},
		{`{"ref":"{{key}}"}`, "result.json.items.filter(i, i.kind == 'payment' && i.open).size() == 1", "result.json.items.filter(i, i.kind == 'payment').size() == 0"},
	} {
		table := play(t, builtin(t), evals.Options{Seed: 1, Faults: faults, Arms: arms, Policy: declare(t, c.arguments, c.applied, c.absent)})
		for _, row := range table.Rows {
			if cell := &row.Cells[0]; cell.Duplicated+cell.Missing+cell.Held+cell.Stray > 0 || cell.ToPerson > 0 || cell.Effects != cell.Intended || cell.Hit == 0 {
				t.Errorf("%s, applied: %s, absent: %s\n%+v", row.Fault, c.applied, c.absent, cell.Tally)
			}
		}
	}
}

// TestLookupByArguments: one that does not ask for the key sees what others did, and the guard takes that into account.
func TestLookupByArguments(t *testing.T) {
	faults, _ := evals.SelectFaults("answer-lost,timeout")
	arms, _ := evals.SelectArms("policy+lookup")
	o := evals.Options{Seed: 1, Faults: faults, Arms: arms, Policy: declare(t, `{"to":"{{args.recipient}}"}`, "size(result.json.found) > 0", "size(result.json.found) == 0")}
	for _, row := range play(t, builtin(t), o).Rows {
		if c := &row.Cells[0]; c.Duplicated+c.Missing+c.Held+c.Stray > 0 || c.ToPerson == 0 {
			t.Errorf("%s: %+v", row.Fault, c.Tally)
		}
	}
}

func TestLookupThatCannotBeAnswered(t *testing.T) {
	r := builtin(t)
	_, err := evals.Run(t.Context(), r.all, evals.Options{Policy: declare(t, `{"ref":"{{key}}"}`, "result.json.sum == 12345 * 1000003", "result.json.sum == 0")})
	if err == nil || !strings.Contains(err.Error(), "12345 * 1000003") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
