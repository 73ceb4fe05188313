package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// branch is a real server in front of a bank, with a ledger that outlives its processes, and the people of the company.
type branch struct {
	*desk
	bank  *bank
	staff staff
	cmd   *exec.Cmd
	at    string // where it serves; "": it does not

	probes int
}

// banking guards pay of a bank; what else its policy says is each test's own. Calls are erin's.
const banking = `version: 1
mcpServers: {bank: {type: http, url: "${BANK}"}}
context: {tenant: {value: acme}, actor: {value: erin}, source_event: {http: {header: Toolguard-Source-Event}}}
tools:
  bank/pay: {effect: write, once_per: [source_event, /invoice_id], errors: words, may_differ: [/memo], `

// newBranch starts a server whose policy of pay ends with the given words, and with parts of its configuration, in pairs, replaced.
func newBranch(t *testing.T, policy string, replaced ...string) *branch {
	t.Helper()
	c := &branch{desk: newDesk(t), bank: newBank(t)}
	c.env = append(c.env, "BANK=http://"+c.bank.address+"/mcp")
	c.declare(policy, replaced...)
	c.start()
	return c
}

// declare writes the configuration.
func (c *branch) declare(policy string, replaced ...string) {
	c.staff = c.hire(strings.NewReplacer(replaced...).Replace(banking+policy+"}\n"), company...)
}

func (c *branch) start() {
	c.Helper()
	c.cmd, c.at = c.serveHTTP("--http", "127.0.0.1:0", "--data", "ledger")
}

// kill ends the server at once, as a crash does.
func (c *branch) kill() {
	c.Helper()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.at = ""
}

func order(invoice string, amount int) string {
	return fmt.Sprintf(`{"invoice_id":%q,"amount":%d}`, invoice, amount)
}

// pay calls pay for a source event.
func (c *branch) pay(event, invoice string, amount int) answered {
	c.Helper()
	return c.event(c.at, event, "pay", order(invoice, amount))
}

// leave calls pay and does not care for the answer. The caller is there until it is told to go.
func (c *branch) leave(event, invoice string, amount int) (gone func()) {
	r := c.calling(c.at, event, "pay", order(invoice, amount))
	ctx, gone := context.WithCancel(r.Context())
	r = r.WithContext(ctx)
	c.Cleanup(gone)
	go func() {
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close()
		}
	}()
	return gone
}

// got fails the test unless an answer has this outcome and reason.
func (c *branch) got(a answered, outcome toolguard.Outcome, reason toolguard.Reason) toolguard.Verdict {
	c.Helper()
	v := a.Meta.Verdict
	if v.Outcome != outcome || v.Reason != reason {
		c.Fatalf("got %s/%s, want %s/%s: %s", v.Outcome, v.Reason, outcome, reason, a.text())
	}
	return v
}

// recordOf is an operation with its events.
type recordOf struct {
	toolguard.Operation
	Events []toolguard.Event
}

func (c *branch) record(key string) (op recordOf) {
	c.Helper()
	status, text := c.ask(c.at, c.staff["olga"], "GET", "operations/"+key, "")
	if err := json.Unmarshal([]byte(text), &op); err != nil || status != http.StatusOK {
		c.Fatalf("%d %s: %v", status, text, err)
	}
	return op
}

// until waits for something that only others know.
func (c *branch) until(what string, yes func() bool) {
	c.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx := c.soon(); !yes(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.Fatalf("waited in vain until %s", what)
		}
	}
}

// becomes waits until an operation has a status, and returns it.
func (c *branch) becomes(key string, want toolguard.Status) (op recordOf) {
	c.Helper()
	c.until(fmt.Sprintf("%s is %s", key, want), func() bool { op = c.record(key); return op.Status == want })
	return op
}

// decides posts a decision to the API and returns the status.
func (c *branch) decides(who, path, body string) int {
	c.Helper()
	status, text, head := c.try(c.at, c.staff[who], "POST", path, body)
	if status >= 400 && (head.Get("Content-Type") != "application/problem+json" || !strings.Contains(text, `"detail":"`)) {
		c.Errorf("%s: %s", path, text)
	}
	return status
}

// must posts a decision that is to be taken.
func (c *branch) must(who, path, body string) {
	c.Helper()
	if status := c.decides(who, path, body); status != http.StatusOK {
		c.Fatalf("%s %s: %d", path, body, status)
	}
}

// happened counts an operation's events of a type; detail is a member of theirs and its value, if any.
func (op recordOf) happened(typ toolguard.EventType, detail ...any) (n int) {
	for _, e := range op.Events {
		if e.Type == typ && (len(detail) == 0 || e.Detail[detail[0].(string)] == detail[1]) {
			n++
		}
	}
	return n
}
