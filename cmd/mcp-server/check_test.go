package main

import (
	"encoding/json"
	"fmt"
	"slices"
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
	_, errs, code = d.run("serve", "--data", "ledger")
	if code != 2 || !strings.HasSuffix(errs, want) || !strings.Contains(errs, "toolguard.yaml:10: tools.office/x_*: fits no tool of any server") {
		t.Errorf("serve: exit %d\n%s", code, errs)
	}
	d.absent("ledger")
}

// A policy that names a tool which there is not is a fault of serve too, unless its server does not run.
func TestServeMistypedTool(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice+"tools:\n  office/pay_invoices: {once_per: [/invoice_id]}\n")
	want := "toolguard.yaml:5: tools.office/pay_invoices: the server office has no tool of this name; did you mean office/pay_invoice?\n"
	for _, command := range []string{"serve", "check"} {
		_, errs, code := d.run(command, "--data", "ledger")
		if code != 2 || errs != want {
			t.Errorf("%s: exit %d, %s", command, code, errs)
		}
	}
	d.write("toolguard.yaml", plainOffice+"  gone: {command: \"@DIR@/gone\"}\ntools:\n  gone/pay: {once_per: [/id]}\n")
	_, errs, code := d.run("serve", "--data", "ledger")
	if code != 0 || !strings.Contains(errs, `msg="the server does not run, so it was not checked that it has the tools which its policies name" server=gone`) {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// What makes a policy weaker than it looks.
func TestCheckWeak(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("n", 60)
	d.write("toolguard.yaml", `version: 1
mode: observe
mcpServers:
  my office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
  fake: {command: "@FAKE@", env: {FAKE_SERVER: '[{"name":"pay","inputSchema":{"type":"object"}},{"name":"`+long+`","inputSchema":{"type":"object"}}]'}}
context:
  source_event: {meta: /dev.toolguard/context/source_event}
  run: {env: RUN_ID}
  actor: {meta: /actor}
  tenant: {value: acme}
tools:
  fake/pay: {effect: write, downstream_key: {meta: key, window: 10m}, timeout: 5m}
  "my office/list_*": {effect: read, once_per: []}
  "my office/list_mail": {downstream_key: {meta: key}, owner: me, timeout: 1m}
  "my office/send_mail": {effect: deny, may_differ: [/body], timeout: 1m}
  "my office/*": {downstream_key: {meta: key, window: 24h}}
`)
	var r checked
	if err := json.Unmarshal([]byte(d.good("check", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	weak := map[string][]string{}
	for _, f := range r.Tools {
		weak[f.Tool] = f.Weak
	}
	for tool, want := range map[string]string{
		"my office/list_mail": "[downstream_key has no use with effect read once_per has no use with effect read]", "my office/list_tickets": "[once_per has no use with effect read]",
		"my office/send_mail": "[may_differ has no use with effect deny timeout has no use with effect deny]", "my office/pay_invoice": "[]",
		"fake/pay": "[the window of 10m is too short for timeout 5m: nothing will be sent again by itself (it takes a window of 11m7s, or a timeout of 4m30s)]"} {
		if got := fmt.Sprint(weak[tool]); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
	}
	lines := []string{
		"toolguard.yaml:7: context.source_event: guarded calls are not sent unless the client gives source_event in the request's _meta at /dev.toolguard/context/source_event",
		"toolguard.yaml:7: context.source_event: looks in the member dev.toolguard of _meta; if the member's name holds the slash, it is written ~1: /dev.toolguard~1context/source_event",
		"toolguard.yaml:8: context.run: guarded calls are not sent unless the environment variable RUN_ID is set where the server runs",
	}
	if !slices.Equal(r.Weak, lines) || r.Mode != "observe" {
		t.Errorf("mode %s, %q", r.Mode, r.Weak)
	}
	names := []string{"toolguard.yaml:4: mcpServers.my office: clients would see my office__comment_ticket, my office__create_ticket, my office__list_invoices and 6 more; many take only letters, digits, _ and -, at most 64 of them: give the server another name",
		"toolguard.yaml:5: mcpServers.fake: clients would see fake__" + long + "; many take only letters, digits, _ and -, at most 64 of them: give the server another name"}
	if !slices.Equal(r.Warnings, names) {
		t.Errorf("%q", r.Warnings)
	}
	out := d.good("check")
	if !strings.HasPrefix(out, "mode: observe: every call is sent") {
		t.Errorf("observe is not said first:\n%s", out)
	}
	for _, line := range slices.Concat(lines, names) {
		if !strings.Contains(out, "\n  "+line+"\n") {
			t.Errorf("no %q in\n%s", line, out)
		}
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
	if code != 1 || !strings.Contains(out, "Cannot be guarded") || !strings.Contains(out, "Not everything can be guarded; what cannot: odd/a, odd/c, the server down and the server gone.") ||
		!slices.Equal(r.Unguarded, []string{"odd/a", "odd/c", "the server down", "the server gone"}) {
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

// A fact may come over HTTP only, and who asks for an approval should be known.
func TestCheckFactsOverHTTP(t *testing.T) {
	d := newDesk(t)
	const over = `version: 1
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
context:
  source_event: {http: {header: Toolguard-Source-Event}}
tools:
  office/*: {effect: deny}
  office/pay_invoice: {effect: write, once_per: [source_event, /invoice_id], approval: always}
  office/send_mail: {effect: write}
`
	actor, blocked := "context names no actor", "over stdio no source is named for source_event"
	for config, want := range map[string]map[string]bool{
		over: {actor: true, blocked: true},
		strings.Replace(over, "context:\n", "context:\n  actor: {http: {header: Toolguard-Actor}}\n", 1):                     {actor: false, blocked: true},
		strings.Replace(over, "{http: {header: Toolguard-Source-Event}}", "{meta: /dev.toolguard~1context/source_event}", 1): {actor: true, blocked: false},
	} {
		d.write("toolguard.yaml", config)
		var r checked
		if err := json.Unmarshal([]byte(d.good("check", "--json")), &r); err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Tools {
			switch f.Tool {
			case "office/pay_invoice":
				for what, is := range want {
					if got := strings.Contains(strings.Join(f.Weak, "\n"), what); got != is || f.StableKey.Answer != "yes" {
						t.Errorf("%s\nsays %q, key %+v", config, f.Weak, f.StableKey)
					}
				}
			case "office/send_mail":
				if f.SameCall != "the same arguments with the same source_event; once done, it stays done" {
					t.Error(f.SameCall)
				}
			}
		}
	}
}
