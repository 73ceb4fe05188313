package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
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
		switch result := b.read(c.Params.Name, c.Params.Arguments); result {
		case "":
			b.wait(r.Context().Done())
		case timedOut:
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			answer(result)
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

// timedOut is what a read answers when something before the bank has no patience.
const timedOut = "504"

// finds is the answer of a read that found so many payments.
func finds(n int) string {
	return `{"content":[],"structuredContent":{"payments":[` + strings.TrimSuffix(strings.Repeat("{},", n), ",") + `]}}`
}
