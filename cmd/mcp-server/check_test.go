package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const checkedOffice = `version: 1
store: badger:@DIR@/ledger
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
context:
  source_event: {meta: /dev.toolguard~1context/source_event}
tools:
  office/pay_invoice: {effect: write, once_per: [source_event, /invoice_id], may_differ: [/memo], repeat_after: 24h, downstream_key: {meta: key, window: 1h}}
  office/create_ticket: {once_per: [], reads_when: 'args.title == "" '}
  office/update_ticket: {effect: idempotent, entity: [/id]}
  office/send_mail: {effect: deny}
`

func TestCheck(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", checkedOffice)
	d.golden("check.txt", d.good("check"))
	d.golden("check.json", d.good("check", "--json"))
}

// What only the servers can tell is a fault of the configuration too.
func TestCheckFaults(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", `version: 1
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
tools:
  office/pay_invoice:
    once_per: [/invoice]
    may_differ: [/memo, /text]
  office/pay_invoices: {effect: write}
  office/creat*: {effect: write}
  office/x_*: {effect: write}
`)
	want := `toolguard.yaml:6: tools.office/pay_invoice.once_per[0]: once_per names /invoice, which the tool's input schema does not have
toolguard.yaml:7: tools.office/pay_invoice.may_differ[1]: may_differ names /text, which the tool's input schema does not have
toolguard.yaml:8: tools.office/pay_invoices: the server office has no tool of this name; did you mean office/pay_invoice?
`
	out, errs, code := d.run("check")
	if code != 2 || errs != want || !strings.Contains(out, "toolguard.yaml:10: tools.office/x_*: fits no tool of any server") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	// A server does not begin with a policy that does not fit.
	want = strings.Join(strings.SplitAfter(want, "\n")[:2], "")
	_, errs, code = d.run("serve")
	if code != 2 || !strings.HasSuffix(errs, want) {
		t.Errorf("serve: exit %d\n%s", code, errs)
	}
}

func TestCheckWhatCannotBeGuarded(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", `version: 1
mcpServers:
  odd:
    command: "@FAKE@"
    env: {FAKE_SERVER: '[{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string","pattern":"(?=y)"}}}},{"name":"b","inputSchema":{"type":"object"}},{"name":"c"}]'}
  down: {command: "@FAKE@", env: {FAKE_SERVER: ""}}
  gone: {command: "@DIR@/gone"}
context:
  run: {header: Run}
tools:
  odd/c: {once_per: [source_event]}
  down/x: {effect: write}
`)
	out, errs, code := d.run("check", "--json")
	if code != 1 || errs != "" {
		t.Errorf("exit %d, %s", code, errs)
	}
	var r checked
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.OK || len(r.Servers) != 3 || r.Servers[0].Tools != 3 || !strings.Contains(r.Servers[1].Error, "no licence found") || !strings.Contains(r.Servers[2].Error, "gone") {
		t.Errorf("%+v", r.Servers)
	}
	if len(r.Tools) != 3 || !strings.Contains(r.Tools[0].Error, "schema") || r.Tools[1].Error != "" ||
		r.Tools[2].Error != "once_per has source_event, but context names no source for it: every call would be blocked" {
		t.Errorf("%+v", r.Tools)
	}
	if len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "toolguard.yaml:9: context.run: comes from the header Run") {
		t.Errorf("%v", r.Warnings)
	}
	out, _, code = d.run("check")
	if code != 1 || !strings.Contains(out, "Cannot be guarded") || !strings.Contains(out, "Not everything can be guarded.") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 45 * time.Second: "45s",
		720 * time.Hour: "720h", 90 * time.Minute: "1h30m", 100 * time.Millisecond: "100ms"} {
		if got := brief(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
