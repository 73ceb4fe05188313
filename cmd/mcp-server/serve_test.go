package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

const plainOffice = `version: 1
mcpServers:
  office: {command: "@BINARY@", args: [sample-office, --file, "@DIR@/office.json"]}
`

// On stdout there is nothing but JSON-RPC; at the end of stdin the server ends well.
func TestServeEnds(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice)
	cmd := d.command("serve")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"create_ticket","arguments":{"title":"x"}}}
`)
	out, errs, code := d.runCommand(cmd)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, errs)
	}
	answers := lines(out)
	for _, line := range answers {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) != nil || m["jsonrpc"] != "2.0" {
			t.Errorf("not JSON-RPC: %s", line)
		}
	}
	if len(answers) != 3 {
		t.Errorf("%d answers, want 3: %s", len(answers), out)
	}
	if n := strings.Count(errs, "new ledger"); n != 1 {
		t.Errorf("a new ledger is announced once, not %d times:\n%s", n, errs)
	}
	folders, err := filepath.Glob(filepath.Join(filepath.Dir(d.dir), "home/.local/state/toolguard/work-*"))
	if err != nil || len(folders) != 1 {
		t.Errorf("the ledger's folder: %v %v", folders, err)
	}
	out = d.good("ops", "list")
	if !strings.Contains(out, "office/create_ticket") || !strings.Contains(out, "succeeded") {
		t.Errorf("what was in flight at the end was not recorded:\n%s", out)
	}
}

func TestServeOnSignal(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		d := newDesk(t)
		c := d.office("")
		if err := c.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		for range c.lines {
		}
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", signal, err)
		}
	}
}

// A server that is told to end waits for what is in flight, but not for ever; then it is recorded as unknown.
func TestServeEndsInFlight(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", `version: 1
shutdown: 500ms
mcpServers:
  office:
    command: "@BINARY@"
    args: [sample-office, --file, "@DIR@/ledger/office.json"]
    env: {OFFICE_FAULT: "hang:pay_invoice"}
`)
	c := d.serve("serve", "--data", "ledger")
	if err := c.begin("tools/call", map[string]any{"name": "pay_invoice", "arguments": invoiceOne}); err != nil {
		t.Fatal(err)
	}
	if _, err := (&demo{books: filepath.Join(d.dir, "ledger", officeFile)}).waitForPayment(d.soon()); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range c.lines {
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("did not end well: %v", err)
	}
	list := d.operations()
	if len(list) != 1 || list[0].Status != toolguard.StatusEscalated || !list[0].Attempts[0].Finished {
		t.Errorf("%+v", list)
	}
	out := d.good("export", "--data", "ledger")
	if n := strings.Count(out, `"type":"call"`); n != 1 {
		t.Errorf("%d call events, want 1:\n%s", n, out)
	}
}

// The ledger's folder: --data, else store, else one in the state folder.
func TestLedgerFolder(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice+"store: badger:store\n")
	d.env = append(d.env, "XDG_STATE_HOME="+filepath.Join(d.dir, "state"))
	there := func(pattern string) bool {
		found, _ := filepath.Glob(filepath.Join(d.dir, pattern, "FORMAT"))
		return len(found) == 1
	}
	d.good("serve", "--data", "flag")
	if !there("flag") || there("store") {
		t.Error("--data is not where the ledger is")
	}
	d.good("serve")
	if !there("store") {
		t.Error("store is not where the ledger is")
	}
	d.good("wrap", "--name", "my office", "--", binary, "sample-office", "--file", "b.json")
	if !there("state/toolguard/my-office-*") {
		t.Error("wrap's ledger is not in the state folder")
	}
	d.good("serve", "--sample")
	if !there("state/toolguard/sample-office-*") {
		t.Error("the sample's ledger is not in the state folder")
	}
}

// Where not one server can be started there is nothing to serve; where some can, they are served.
func TestServersThatDoNotStart(t *testing.T) {
	d := newDesk(t)
	_, errs, code := d.run("wrap", "--name", "gone", "--", filepath.Join(d.dir, "gone"))
	if got := lines(errs); code != 1 || !strings.HasPrefix(got[len(got)-1], "mcp-server: the server gone cannot be started: ") {
		t.Errorf("exit %d\n%s", code, errs)
	}
	d.write("toolguard.yaml", plainOffice+"  gone: {command: \"@DIR@/gone\"}\n")
	c := d.serve("serve", "--data", "ledger")
	if a := d.call(c, "office__create_ticket", map[string]any{"title": "x"}); a.Meta.Verdict.Outcome != toolguard.Fresh {
		t.Errorf("%+v", a)
	}
	d.end(c)
}

// A wrapped server gets everything but our settings and the host's keys; its tools are guarded without a file.
func TestWrap(t *testing.T) {
	d := newDesk(t)
	fake, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d.env = append(d.env, "GITHUB_TOKEN=g", "ANTHROPIC_API_KEY=a", "OPENAI_API_KEY=o", "TOOLGUARD_TOKEN=t", `FAKE_SERVER=[{"name":"send","inputSchema":{"type":"object"}}]`)
	c := d.serve("wrap", "--pass", "OPENAI_API_KEY", "--data", "ledger", "--", fake, "--flag-of-its-own")
	a := d.call(c, "send", map[string]any{})
	if a.Meta.Verdict.Outcome != toolguard.Fresh || a.Meta.Verdict.Tool != "fake/send" {
		t.Errorf("%+v", a)
	}
	text := a.text()
	for name, want := range map[string]bool{"GITHUB_TOKEN=g": true, "OPENAI_API_KEY=o": true, "ANTHROPIC_API_KEY": false, "TOOLGUARD_TOKEN": false} {
		if strings.Contains(text, name) != want {
			t.Errorf("%s in the child's environment: not %v", name, want)
		}
	}
	d.end(c)
}

// A server of mcpServers gets the safe list and its own entry.
func TestEnvironmentOfServers(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", `version: 1
operation_tool: false
mcpServers:
  fake: {command: "@FAKE@", env: {FAKE_SERVER: '[{"name":"send","inputSchema":{"type":"object"}}]', KEY: "${KEY}"}}
`)
	d.env = append(d.env, "GITHUB_TOKEN=g", "KEY=k", "LC_ALL=C")
	c := d.serve("serve")
	text := d.call(c, "send", map[string]any{}).text()
	for name, want := range map[string]bool{"KEY=k": true, "LC_ALL=C": true, "PATH=": true, "GITHUB_TOKEN": false} {
		if strings.Contains(text, name) != want {
			t.Errorf("%s in the child's environment: not %v", name, want)
		}
	}
	var list struct {
		Tools []struct{ Name string } `json:"tools"`
	}
	if err := c.request(d.soon(), "tools/list", map[string]any{}, &list); err != nil || len(list.Tools) != 1 {
		t.Errorf("operation_tool: false, and yet %+v, %v", list, err)
	}
	d.end(c)
}

// In observe mode everything is dispatched.
func TestObserve(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice+"mode: observe\ntools: {office/pay_invoice: {once_per: [/invoice_id]}}\n")
	c := d.serve("serve", "--data", "ledger")
	for range 2 {
		if a := d.call(c, "pay_invoice", invoiceOne); a.IsError || a.Meta.Verdict.Outcome != "" {
			t.Errorf("%+v", a)
		}
	}
	d.end(c)
	b, err := readBooks(filepath.Join(d.dir, "office.json"))
	if err != nil || len(b.Payments) != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	var r people.Report
	if err := json.Unmarshal([]byte(d.good("report", "--data", "ledger", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Calls != 0 || r.Outcomes["replayed"] != 0 || r.Observed.Calls != 2 || r.Observed.Outcomes["replayed"] != 1 || len(r.Observed.Tools) != 2 {
		t.Errorf("what would have been is not counted apart: %+v", r)
	}
	if out := d.good("report", "--data", "ledger"); !strings.Contains(out, "Observed (mode: observe): 2 calls; each was sent") || !strings.Contains(out, "WOULD HAVE BEEN") {
		t.Error(out)
	}
	_, errs, code := d.run("serve", "--data", "ledger")
	if code != 0 || !strings.Contains(errs, `level=WARN msg="mode: observe: every call is sent`) {
		t.Errorf("exit %d, %s", code, errs)
	}
}
