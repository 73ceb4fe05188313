package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// bank is an MCP server over HTTP in the test's own process, so that it outlives every guard that calls it. It counts what
// arrived and what it did, and does with a payment what the test says.
type bank struct {
	t       *testing.T
	server  *httptest.Server
	address string

	mu      sync.Mutex
	session int    // the one that it knows
	version string // as it names itself
	memo    string // the schema of an argument of pay
	honours bool   // it pays nothing twice under one key
	sent    []transfer
	paid    []transfer
	next    []deed                      // what becomes of the payments to come; then they are paid and answered
	reads   map[string]func(int) string // what a read answers of so many payments found; "": nothing, ever
	news    chan struct{}               // closed, and made anew, when its tools changed
}

// transfer is a payment as it arrived.
type transfer struct {
	Key     string
	Invoice string `json:"invoice_id"`
	Amount  int    `json:"amount"`
}

// deed is what becomes of a payment. pay does it and returns the answer; "" is a connection that breaks.
type deed func(pay func() string) string

func losing(pay func() string) string    { pay(); return "" } // done, and its answer lost
func dropping(func() string) string      { return "" }        // lost on its way
func happening(pay func() string) string { return pay() }

// refusing has no effect, and answers with an error in these words.
func refusing(words string) deed {
	return func(func() string) string {
		return fmt.Sprintf(`{"isError":true,"content":[{"type":"text","text":%q}]}`, words)
	}
}

// late does it at once and answers when it is let.
func (b *bank) late(let <-chan struct{}) deed {
	return func(pay func() string) string {
		answer := pay()
		b.wait(let)
		return answer
	}
}

// slow does it, and answers, when it is let.
func (b *bank) slow(let <-chan struct{}) deed {
	return func(pay func() string) string {
		b.wait(let)
		return pay()
	}
}

func (b *bank) wait(let <-chan struct{}) {
	select {
	case <-let:
	case <-b.t.Context().Done():
	}
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{t: t, session: 1, version: "1", memo: `{"type":"string"}`, reads: map[string]func(int) string{}, news: make(chan struct{})}
	b.open("127.0.0.1:0")
	t.Cleanup(b.close)
	return b
}

func (b *bank) open(address string) {
	b.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.address = l.Addr().String()
	b.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: b}}
	b.server.Start()
}

// close ends it: it cannot be reached any more.
func (b *bank) close() {
	b.server.CloseClientConnections()
	b.server.Close()
}

// then says what becomes of the payments to come.
func (b *bank) then(next ...deed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = append(b.next, next...)
}

// says says what a read answers from now on.
func (b *bank) says(read string, answer func(found int) string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads[read] = answer
}

// lists has it list its tools anew, after a change.
func (b *bank) lists(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	close(b.news)
	b.news = make(chan struct{})
}

// restarts has it forget its sessions, after a change.
func (b *bank) restarts(change func()) {
	b.mu.Lock()
	change()
	b.session++
	b.mu.Unlock()
	b.server.CloseClientConnections()
}

// count is how many payments of an amount arrived, and how many it did; 0 is any amount.
func (b *bank) count(amount int) (sent, paid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := func(all []transfer) (n int) {
		for _, t := range all {
			if amount == 0 || t.Amount == amount {
				n++
			}
		}
		return n
	}
	return of(b.sent), of(b.paid)
}

// had fails the test unless so many payments arrived, and so many were made.
func (b *bank) had(sent, paid int) {
	b.t.Helper()
	if s, p := b.count(0); s != sent || p != paid {
		b.t.Errorf("%d payments arrived and %d were made, want %d and %d: %+v", s, p, sent, paid, b.all())
	}
}

// all are the payments that arrived.
func (b *bank) all() []transfer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sent)
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			Meta      struct {
				Key string `json:"dev.toolguard/key"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &c)
	}
	b.mu.Lock()
	session, version, memo := strconv.Itoa(b.session), b.version, b.memo
	b.mu.Unlock()
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, c.ID, result)
	}
	switch known := r.Header.Get("Mcp-Session-Id") == session; {
	case c.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", session)
		answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"bank","version":"` + version + `"}}`)
	case c.Method == "server/discover":
		w.WriteHeader(http.StatusBadRequest)
	case !known:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		b.tell(w, r)
	case r.Method != http.MethodPost:
	case c.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case c.Method == "tools/list":
		answer(`{"tools":[{"name":"pay","inputSchema":{"type":"object","required":["invoice_id","amount"],"properties":{"invoice_id":{"type":"string"},"amount":{"type":"integer"},"memo":` + memo + `}}},` +
			`{"name":"find_payment","inputSchema":{"type":"object","properties":{"reference":{"type":"string"},"invoice":{"type":"string"}}}},` +
			`{"name":"read_statement","inputSchema":{"type":"object","properties":{"reference":{"type":"string"}}}}]}`)
	case c.Method == "tools/call" && c.Params.Name == "pay":
		t := transfer{Key: c.Params.Meta.Key}
		_ = json.Unmarshal(c.Params.Arguments, &t)
		if result := b.pay(t); result != "" {
			answer(result)
		} else if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	case c.Method == "tools/call":
		if result := b.read(c.Params.Name, c.Params.Arguments); result != "" {
			answer(result)
		} else {
			b.wait(r.Context().Done())
		}
	default:
		answer(`{}`)
	}
}

// tell is the stream of what it says by itself.
func (b *bank) tell(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	news := b.news
	b.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
		b.mu.Lock()
		news = b.news
		b.mu.Unlock()
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n\n")
	}
}

// pay is one call of pay, and returns its answer.
func (b *bank) pay(t transfer) string {
	b.mu.Lock()
	b.sent = append(b.sent, t)
	n, act := len(b.sent), deed(happening)
	if len(b.next) > 0 {
		act, b.next = b.next[0], b.next[1:]
	}
	b.mu.Unlock()
	return act(func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.honours || !slices.ContainsFunc(b.paid, func(p transfer) bool { return p.Key == t.Key }) {
			b.paid = append(b.paid, t)
		}
		return fmt.Sprintf(`{"content":[{"type":"text","text":"paid, PAY-%d"}]}`, n)
	})
}

// read answers a read with the payments of a reference or an invoice.
func (b *bank) read(name string, arguments json.RawMessage) string {
	var by struct{ Reference, Invoice string }
	_ = json.Unmarshal(arguments, &by)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, p := range b.paid {
		if by.Reference != "" && p.Key == by.Reference || by.Invoice != "" && p.Invoice == by.Invoice {
			n++
		}
	}
	if answer := b.reads[name]; answer != nil {
		return answer(n)
	}
	return finds(n)
}

// finds is the answer of a read that found so many payments.
func finds(n int) string {
	return `{"content":[],"structuredContent":{"payments":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}}`
}

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
