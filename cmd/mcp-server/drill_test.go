package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const drilledOffice = `version: 1
store: badger:@DIR@/ledger
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
context:
  source_event: {meta: /dev.toolguard~1context/source_event}
tools:
  office/*: {effect: deny}
  office/pay_invoice: {effect: write, once_per: [source_event, /invoice_id], may_differ: [/memo], owner: finance-ops}
`

// The rehearsals of a user's own policies: which passed, which do not apply, and nothing is sent or left.
func TestDrill(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", drilledOffice)
	out := d.good("check", "--drill")
	for _, want := range []string{"office/pay_invoice  {", "  pass           the same event twice\n", "  not applicable approval rejected\n", "\n4 passed, 0 FAILED, 1 not applicable, which is no pass.\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	d.absent("ledger")
	if text, err := os.ReadFile(filepath.Join(d.dir, "office.json")); err == nil && strings.Contains(string(text), "drill") {
		t.Errorf("the office was called: %s", text)
	}
}

// Tools of which there is the same to say stand together, however many they are.
func TestDrillSaysItOnce(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", strings.Replace(drilledOffice, "  office/pay_invoice:", "  office/send_mail: {effect: idempotent}\n  office/create_ticket: {effect: idempotent}\n  office/pay_invoice:", 1))
	out := d.good("check", "--drill")
	ticket, mail := strings.Index(out, "\noffice/create_ticket  {"), strings.Index(out, "\noffice/send_mail  {")
	if ticket < 0 || mail < 0 || strings.Count(out, "the same event twice") != 2 || strings.Count(out[min(ticket, mail)+1:max(ticket, mail)], "\n") != 0 {
		t.Errorf("%s", out)
	}
	if !strings.HasSuffix(out, "\n8 passed, 0 FAILED, 7 not applicable, which is no pass.\n") {
		t.Errorf("%s", out)
	}
}

func TestDrillFails(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", strings.Replace(strings.Replace(drilledOffice, "once_per: [source_event, /invoice_id], may_differ: [/memo], ", "", 1),
		"context:\n  source_event: {meta: /dev.toolguard~1context/source_event}\n", "", 1))
	out, errs, code := d.run("check", "--drill", "--json")
	var r drilled
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 || errs != "" {
		t.Fatalf("exit %d, %v\n%s%s", code, err, out, errs)
	}
	if r.OK || r.Failed != 1 || r.Passed != 2 || r.Not != 2 || len(r.Tools) != 1 || len(r.Tools[0].Rehearsals) != 5 {
		t.Errorf("%+v", r)
	}
	if first := r.Tools[0].Rehearsals[0]; first.Result != "FAIL" || first.Effect != 2 || !strings.Contains(first.Why, "nothing stable says") {
		t.Errorf("%+v", first)
	}
	// What cannot be guarded was not rehearsed, and that is no pass either.
	d.write("toolguard.yaml", "version: 1\nmcpServers:\n  gone: {command: \"@DIR@/gone\"}\n")
	out, errs, code = d.run("check", "--drill")
	if code != 1 || !strings.Contains(out, "Not rehearsed, because it cannot be guarded (mcp-server check says why): the server gone\n") || !strings.Contains(out, "nothing was rehearsed") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
