package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// office starts the guarded sample office on the desk's ledger.
func (d *desk) office(fault string) *client {
	d.Helper()
	cmd := d.command("serve", "--sample", "--data", "ledger")
	cmd.Env = append(slices.Clone(d.env), "OFFICE_FAULT="+fault)
	return d.serveCommand(cmd)
}

func (d *desk) end(c *client) {
	d.Helper()
	if err := c.end(); err != nil {
		d.Errorf("a server did not end well: %v", err)
	}
}

func (d *desk) books() books {
	d.Helper()
	b, err := readBooks(filepath.Join(d.dir, "ledger", officeFile))
	if err != nil {
		d.Fatal(err)
	}
	return b
}

// lost makes a ledger in which a payment was made and its answer lost.
func lost(t *testing.T) (d *desk, key string) {
	d = newDesk(t)
	c := d.office("die:pay_invoice")
	if a := d.call(c, "create_ticket", map[string]any{"title": "x"}); a.Meta.Verdict.Outcome != toolguard.Fresh {
		t.Fatalf("%+v", a)
	}
	a := d.call(c, "pay_invoice", invoiceOne)
	if a.Meta.Verdict.Outcome != toolguard.Escalated || a.Meta.Verdict.Key == "" {
		t.Fatalf("the payment's answer was lost, and yet: %+v", a)
	}
	d.end(c)
	return d, a.Meta.Verdict.Key
}

func (d *desk) operations(args ...string) []toolguard.Operation {
	d.Helper()
	var list []toolguard.Operation
	if err := json.Unmarshal([]byte(d.good(append([]string{"ops", "list", "--json", "--data", "ledger"}, args...)...)), &list); err != nil {
		d.Fatal(err)
	}
	return list
}

func TestOpsList(t *testing.T) {
	d, key := lost(t)
	for _, test := range []struct {
		args string
		want int
	}{
		{"", 2}, {"--status escalated", 1}, {"--status failed", 0}, {"--tool office/pay_invoice", 1}, {"--tool pay_invoice", 1},
		{"--tool invoice", 0}, {"--tenant default", 2}, {"--tenant other", 0}, {"--event e", 0}, {"--run r", 0}, {"--queue", 1}, {"--limit 1", 1},
	} {
		if got := d.operations(strings.Fields(test.args)...); len(got) != test.want {
			t.Errorf("%q: %d operations, want %d", test.args, len(got), test.want)
		}
	}
	out := d.good("ops", "list", "--data", "ledger")
	if got := lines(out); len(got) != 4 || !strings.HasPrefix(got[0], "KEY ") || !strings.HasPrefix(got[1], key) ||
		!strings.HasSuffix(got[1], "a decision") || got[3] != "1 of them wait for a person: ops show KEY, then ops resolve KEY" {
		t.Errorf("list:\n%s", out)
	}
	if out := d.good("ops", "list", "--data", "ledger", "--status", "failed"); out != "no operations\n" {
		t.Errorf("empty list: %q", out)
	}
}

func TestOpsShow(t *testing.T) {
	d, key := lost(t)
	out := d.good("ops", "show", key, "--data", "ledger")
	for _, want := range []string{"office/pay_invoice (write)", "escalated", `"invoice_id":"INV-1001"`, "a decision", "ATTEMPT", "dispatched", "call"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var o struct {
		Key       string            `json:"key"`
		Status    toolguard.Status  `json:"status"`
		Arguments map[string]any    `json:"arguments"`
		Attempts  []any             `json:"attempts"`
		Events    []toolguard.Event `json:"events"`
	}
	if err := json.Unmarshal([]byte(d.good("ops", "show", key, "--data", "ledger", "--json")), &o); err != nil {
		t.Fatal(err)
	}
	if o.Key != key || o.Status != toolguard.StatusEscalated || o.Arguments["invoice_id"] != "INV-1001" || len(o.Attempts) != 1 || len(o.Events) < 2 {
		t.Errorf("%+v", o)
	}
	if _, errs, code := d.run("ops", "show", "nobody", "--data", "ledger"); code != 1 || errs != "mcp-server: operation nobody: not found; ops list shows the keys, of which the first 8 letters are enough\n" {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestOpsResolveApplied(t *testing.T) {
	d, key := lost(t)
	out := d.good("ops", "resolve", key, "--verdict", "applied", "--result", `{"payment_id":"PAY-1"}`, "--downstream-id", "PAY-1", "--note", "seen", "--data", "ledger")
	if out != "office/pay_invoice "+key+": recorded as applied; it is succeeded now, and the next call gets the result\n" {
		t.Error(out)
	}
	again := []string{"ops", "resolve", key, "--verdict", "applied", "--downstream-id", "PAY-1", "--data", "ledger"}
	if out := d.good(again...); out != "office/pay_invoice "+key+": nothing changed: it was decided so already\n" {
		t.Error(out)
	}
	if out := d.good(append(again, "--json")...); !strings.Contains(out, `"changed": false`) {
		t.Error(out)
	}
	again[6] = "PAY-2"
	if out, errs, code := d.run(again...); code != 1 || out != "" || !strings.Contains(errs, "decided already") {
		t.Errorf("another downstream id: exit %d, %s%s", code, out, errs)
	}
	_, errs, code := d.run("ops", "resolve", key, "--verdict", "abandoned", "--data", "ledger")
	if code != 1 || !strings.Contains(errs, "is succeeded: it can only be allowed to be done once more") || !strings.Contains(errs, "not possible in this status") || len(lines(errs)) != 1 {
		t.Errorf("a second verdict: exit %d, %s", code, errs)
	}
	c := d.office("")
	a := d.call(c, "pay_invoice", invoiceOne)
	if a.Meta.Verdict.Outcome != toolguard.Replayed || !strings.Contains(a.text(), "PAY-1") {
		t.Errorf("after applied: %+v", a)
	}
	d.end(c)
	if got := len(d.books().Payments); got != 1 {
		t.Errorf("%d payments", got)
	}
	var o shown
	if err := json.Unmarshal([]byte(d.good("ops", "show", key, "--data", "ledger", "--json")), &o); err != nil {
		t.Fatal(err)
	}
	if o.Resolved == nil || !strings.HasPrefix(o.Resolved.By, "local") || o.Resolved.Note != "seen" || !o.Resolved.Weak || o.DownstreamID != "PAY-1" {
		t.Errorf("%+v", o.Resolved)
	}
}

func TestOpsResolveNotApplied(t *testing.T) {
	d, key := lost(t)
	_, errs, code := d.run("ops", "resolve", key, "--verdict", "not_applied", "--data", "ledger")
	op := d.operations("--queue")[0]
	deadline := stamp(op.Attempts[0].Deadline)
	if code != 1 || !strings.Contains(errs, "too early; wait until then ("+deadline+"), or order with --force that the same bytes are sent again, which happens after that moment only") || len(lines(errs)) != 1 {
		t.Errorf("before the deadline: exit %d, %s", code, errs)
	}
	out := d.good("ops", "resolve", key, "--verdict", "not_applied", "--force", "--data", "ledger")
	if !strings.Contains(out, ": ordered to be sent again, the same bytes under the same key, by the server that runs, or the next one, not before "+deadline+"\n") {
		t.Error(out)
	}
}

func TestOpsAbandonAndRepeat(t *testing.T) {
	d, key := lost(t)
	d.good("ops", "resolve", key, "--verdict", "abandoned", "--data", "ledger")
	c := d.office("")
	if a := d.call(c, "pay_invoice", invoiceOne); a.Meta.Verdict.Outcome != toolguard.Blocked || a.Meta.Verdict.Reason != toolguard.ReasonAbandoned {
		t.Errorf("after abandoned: %+v", a)
	}
	d.end(c)
	if out := d.good("ops", "repeat", key, "--note", "pay it", "--data", "ledger"); !strings.Contains(out, "the next call is its next occurrence") {
		t.Error(out)
	}
	c = d.office("")
	if a := d.call(c, "pay_invoice", invoiceOne); a.Meta.Verdict.Outcome != toolguard.Fresh || a.Meta.Verdict.Occurrence != 2 {
		t.Errorf("after repeat: %+v", a)
	}
	d.end(c)
	if got := len(d.books().Payments); got != 2 {
		t.Errorf("%d payments: the lost one and the ordered one", got)
	}
}

// A key may be named by its beginning.
func TestPrefixOfKey(t *testing.T) {
	d, key := lost(t)
	out := d.good("ops", "show", key[:8], "--data", "ledger", "--json")
	if !strings.Contains(out, `"key": "`+key+`"`) || !strings.Contains(out, `"type": "dispatched"`) {
		t.Errorf("not the operation with its events:\n%s", out)
	}
	if out := d.good("ops", "resolve", key[:9], "--verdict", "abandoned", "--data", "ledger"); !strings.HasPrefix(out, "office/pay_invoice "+key+": recorded as abandoned") {
		t.Error(out)
	}
	if out := d.good("ops", "repeat", key[:20], "--data", "ledger"); !strings.HasPrefix(out, "office/pay_invoice "+key+": it stays abandoned, and may be done once more") {
		t.Error(out)
	}
	for _, args := range []string{"show " + key[:7], "resolve --verdict abandoned 00000000", "repeat 00000000-nobody"} {
		if _, errs, code := d.run(append([]string{"ops", "--data", "ledger"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(errs, "not found; ops list shows the keys") {
			t.Errorf("%s: exit %d, %s", args, code, errs)
		}
	}
}

func TestAmbiguousPrefix(t *testing.T) {
	var all []*toolguard.Operation
	for i := range 12 {
		all = append(all, &toolguard.Operation{Key: fmt.Sprintf("01234567-%d", i), Action: "a/b"})
	}
	_, err := findOperation(t.Context(), manyOperations{list: all[:2]}, "01234567")
	if err == nil || err.Error() != "01234567 is the beginning of several keys: 01234567-0 (a/b) and 01234567-1 (a/b)" {
		t.Error(err)
	}
	_, err = findOperation(t.Context(), manyOperations{list: all}, "01234567")
	if err == nil || !strings.HasSuffix(err.Error(), "01234567-9 (a/b) and 2 more") {
		t.Error(err)
	}
}

// manyOperations answers like a store, a few a page.
type manyOperations struct {
	toolguard.Store
	list []*toolguard.Operation
}

func (m manyOperations) Operations(_ context.Context, q toolguard.Query) (toolguard.Page, error) {
	if q.Key != "" {
		return toolguard.Page{}, nil
	}
	end := min(int(q.Before)+5, len(m.list))
	p := toolguard.Page{Operations: m.list[q.Before:end]}
	if end < len(m.list) {
		p.Next = uint64(end)
	}
	return p, nil
}

func TestAsResult(t *testing.T) {
	for in, want := range map[string]string{
		`{"content":[],"x":1}`: `{"content":[],"x":1}`,
		`{"id":1}`:             `{"content":[{"text":"{\"id\":1}","type":"text"}],"structuredContent":{"id":1}}`,
		`[1]`:                  `{"content":[{"text":"[1]","type":"text"}]}`,
		`"paid"`:               `{"content":[{"text":"paid","type":"text"}]}`,
		`paid, PAY-1`:          `{"content":[{"text":"paid, PAY-1","type":"text"}]}`,
		`  `:                   `{"content":[{"text":"  ","type":"text"}]}`,
		` {"id":`:              "--result is no JSON: {\"id\":",
		``:                     "",
	} {
		got, err := asResult(in)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	help := newDesk(t).good("ops", "resolve", "--help")
	if !strings.Contains(help, "any other JSON, or plain text, as the text of a result") {
		t.Error(help)
	}
}

// The command line works while servers run, and two servers on one ledger know of each other's work.
func TestLedgerIsShared(t *testing.T) {
	d := newDesk(t)
	c := d.office("")
	first := d.call(c, "create_ticket", map[string]any{"title": "x"})
	if first.Meta.Verdict.Outcome != toolguard.Fresh {
		t.Fatalf("%+v", first)
	}
	if got := d.operations(); len(got) != 1 || got[0].Key != first.Meta.Verdict.Key {
		t.Errorf("%d operations", len(got))
	}
	if out := d.good("verify", "--data", "ledger"); !strings.HasPrefix(out, "the audit is intact") {
		t.Error(out)
	}
	if got := lines(d.good("export", "--data", "ledger")); len(got) < 3 {
		t.Errorf("export: %v", got)
	}
	d.good("report", "--data", "ledger")
	other := d.office("")
	if a := d.call(other, "create_ticket", map[string]any{"title": "x"}); a.Meta.Verdict.Outcome != toolguard.Replayed || a.Meta.Verdict.Key != first.Meta.Verdict.Key {
		t.Errorf("the same call in another process: %+v", a)
	}
	c.kill() // the owner of the ledger
	if a := d.call(other, "create_ticket", map[string]any{"title": "x"}); a.Meta.Verdict.Outcome != toolguard.Replayed {
		t.Errorf("after the owner's death: %+v", a)
	}
	if a := d.call(other, "create_ticket", map[string]any{"title": "y"}); a.Meta.Verdict.Outcome != toolguard.Fresh {
		t.Errorf("after the owner's death: %+v", a)
	}
	d.good("verify", "--data", "ledger")
	d.end(other)
	d.good("verify", "--data", "ledger")
}

// When a server dies in the middle of a call, another one on the ledger finds that out by itself, whoever owns it.
func TestDeathOfAnotherServer(t *testing.T) {
	for _, ownerDies := range []bool{true, false} {
		d := newDesk(t)
		var dies, stays *client
		if ownerDies {
			dies, stays = d.office("hang:pay_invoice"), d.office("")
		} else {
			stays, dies = d.office(""), d.office("hang:pay_invoice")
		}
		if err := dies.begin("tools/call", map[string]any{"name": "pay_invoice", "arguments": invoiceOne}); err != nil {
			t.Fatal(err)
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
			if b, err := readBooks(filepath.Join(d.dir, "ledger", officeFile)); err == nil && len(b.Payments) == 1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing is paid")
			}
		}
		dies.kill()
		if a := d.call(stays, "pay_invoice", invoiceOne); a.Meta.Verdict.Outcome != toolguard.Escalated {
			t.Errorf("owner dies: %v: %+v", ownerDies, a)
		}
		if n := len(d.books().Payments); n != 1 {
			t.Errorf("%d payments", n)
		}
		d.end(stays)
	}
}

// A decision by the command line takes effect in the servers that run: an order is carried out, a verdict is what the
// next call gets.
func TestDecisionWhileServing(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", `version: 1
mcpServers:
  office:
    command: "@BINARY@"
    args: [sample-office, --file, "@DIR@/office.json"]
    env: {OFFICE_FAULT: "die:pay_invoice"}
tools:
  office/pay_invoice: {effect: write, once_per: [/invoice_id], timeout: 3s}
`)
	c := d.serve("serve", "--data", "ledger")
	a := d.call(c, "pay_invoice", invoiceOne)
	if a.Meta.Verdict.Outcome != toolguard.Escalated {
		t.Fatalf("%+v", a)
	}
	key := a.Meta.Verdict.Key
	d.good("ops", "repeat", key, "--force", "--data", "ledger")
	paid := func() int {
		b, _ := readBooks(filepath.Join(d.dir, officeFile))
		return len(b.Payments)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); paid() < 2; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the order is not carried out")
		}
	}
	status := func() toolguard.Status { return d.operations()[0].Status }
	for deadline := time.Now().Add(30 * time.Second); status() != toolguard.StatusEscalated; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("the operation is %s", status())
		}
	}
	d.good("ops", "resolve", key, "--verdict", "applied", "--result", `{"payment_id":"PAY-2"}`, "--data", "ledger")
	if a := d.call(c, "pay_invoice", invoiceOne); a.Meta.Verdict.Outcome != toolguard.Replayed || !strings.Contains(a.text(), "PAY-2") {
		t.Errorf("after the verdict: %+v", a)
	}
	d.end(c)
	if n := paid(); n != 2 {
		t.Errorf("%d payments: the lost one and the ordered one", n)
	}
}

func TestAudit(t *testing.T) {
	d, key := lost(t)
	jsonl := lines(d.good("export", "--data", "ledger"))
	var events []toolguard.Event
	for _, line := range jsonl {
		var e toolguard.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if !slices.ContainsFunc(events, func(e toolguard.Event) bool {
		return e.Key == key && e.Type == toolguard.EventCall && e.Outcome == toolguard.Escalated
	}) {
		t.Errorf("no event of the call: %v", jsonl)
	}
	rows, err := csv.NewReader(strings.NewReader(d.good("export", "--format", "csv", "--data", "ledger"))).ReadAll()
	if err != nil || len(rows) != len(events)+1 || rows[0][0] != "chain" || rows[1][len(rows[1])-1] != events[0].Hash {
		t.Errorf("csv: %v, %v", rows, err)
	}
	var v toolguard.Verification
	if err := json.Unmarshal([]byte(d.good("verify", "--data", "ledger", "--json")), &v); err != nil || v.Events != len(events) || v.Break != "" {
		t.Errorf("verify: %+v, %v", v, err)
	}
	last := events[len(events)-1].Hash
	if out := d.good("verify", "--against", last, "--data", "ledger"); !strings.Contains(out, fmt.Sprintf("; the event given is in it, as number %d of %d in its chain\n", len(events), len(events))) {
		t.Error(out)
	}
	var against verified
	if err := json.Unmarshal([]byte(d.good("verify", "--against", events[0].Hash, "--data", "ledger", "--json")), &against); err != nil || !against.Against.Found || against.Against.Seq != 1 || against.Events != len(events) {
		t.Errorf("verify: %+v, %v", against, err)
	}
	for _, more := range []string{"", "--json"} {
		out, errs, code := d.run(append(strings.Fields("verify --data ledger --against "+strings.Repeat("a", 64)), strings.Fields(more)...)...)
		if code != 1 || more == "" && errs != "mcp-server: the event given with --against is not in the audit: its tail was cut off, or this is another ledger\n" || more != "" && !strings.Contains(out, `"found": false`) {
			t.Errorf("a hash that is not there: exit %d, %s%s", code, out, errs)
		}
	}
	var r people.Report
	if err := json.Unmarshal([]byte(d.good("report", "--data", "ledger", "--json")), &r); err != nil || r.Calls != 2 || r.Outcomes["fresh"] != 1 || r.Outcomes["escalated"] != 1 || len(r.Tools) != 2 {
		t.Errorf("report: %+v, %v", r, err)
	}
	for args, want := range map[string]int{"--since 1h": 2, "--since 2100-01-01": 0, "--run r": 0, "--event e": 0} {
		if err := json.Unmarshal([]byte(d.good(append(strings.Fields(args), "report", "--data", "ledger", "--json")...)), &r); err != nil || r.Calls != want {
			t.Errorf("report %s: %+v, %v", args, r, err)
		}
	}
	if out := d.good("report", "--data", "ledger"); !strings.Contains(out, "OUTCOME") || !strings.Contains(out, "office/pay_invoice") {
		t.Error(out)
	}
}

// What comes from others is no formula in a spreadsheet, and is text as it was in JSON lines.
func TestExportedCells(t *testing.T) {
	for in, want := range map[string]string{"": "", "evt-1": "evt-1", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@a": "'@a", "\t=1": "' =1", "\r=1": "' =1", " =1": "' =1", "a=1": "a=1", "é": "é", "a\x1b[31m\u202e": "a [31m "} {
		var b bytes.Buffer
		write, finish := csvLines(&b)
		if err := errors.Join(write(toolguard.Event{Tool: "books/pay", SourceEvent: in, DownstreamID: in, Occurrence: 1}), finish()); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range []string{"source_event", "downstream_id"} {
			if got := rows[1][slices.Index(csvColumns, column)]; got != want {
				t.Errorf("%s %q is exported as %q, want %q", column, in, got, want)
			}
		}
	}
}

// Every column of the audit is in the CSV.
func TestColumnsOfExport(t *testing.T) {
	text, err := os.ReadFile("../../toolguard/event.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "type Event struct {")
	body, _, _ = strings.Cut(body, "\n}")
	for part := range strings.SplitSeq(body, "`json:\"") {
		name, _, _ := strings.Cut(part, "\"")
		name, _, _ = strings.Cut(name, ",")
		if strings.ContainsAny(name, " \n\t") || name == "-" {
			continue
		}
		if !slices.Contains(csvColumns, name) {
			t.Errorf("no column %s", name)
		}
	}
}
