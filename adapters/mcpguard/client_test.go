package mcpguard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// patience bounds every wait of a test.
const patience = 20 * time.Second

// world is a guard, a gateway with real child processes, and the folder in which they note what they saw.
type world struct {
	t       *testing.T
	store   *storetest.Memory
	guard   *toolguard.Guard
	gateway *mcpguard.Gateway
	folder  string
	logs    *logs
}

// logs collects what was logged.
type logs struct{ lines chan string }

func (l *logs) Write(p []byte) (int, error) {
	select {
	case l.lines <- string(p):
	default:
	}
	return len(p), nil
}

// until waits for a log line that contains text.
func (l *logs) until(t *testing.T, text string) {
	t.Helper()
	over := time.After(patience)
	for {
		select {
		case line := <-l.lines:
			if strings.Contains(line, text) {
				return
			}
		case <-over:
			t.Fatalf("nothing was logged about %q", text)
		}
	}
}

func newWorld(t *testing.T, o *mcpguard.GatewayOptions, modes ...string) *world {
	t.Helper()
	var servers []namedServer
	for i, mode := range modes {
		name := "books"
		if i > 0 {
			name = fmt.Sprintf("books%d", i+1)
		}
		servers = append(servers, namedServer{name, mode})
	}
	return newWorldOf(t, o, servers...)
}

// namedServer is a child process that misbehaves in its own way.
type namedServer struct{ name, mode string }

func newWorldOf(t *testing.T, o *mcpguard.GatewayOptions, servers ...namedServer) *world {
	t.Helper()
	w := newGuard(t)
	var all []mcpguard.Server
	for _, s := range servers {
		all = append(all, w.command(s.name, s.mode))
	}
	w.open(o, all...)
	return w
}

// newGuard is a world without a gateway as yet.
func newGuard(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: storetest.NewMemory(), folder: t.TempDir(), logs: &logs{make(chan string, 10_000)}}
	var err error
	w.guard, err = toolguard.Open(t.Context(), w.store, &toolguard.Options{Log: w.log()})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// open opens the gateway.
func (w *world) open(o *mcpguard.GatewayOptions, servers ...mcpguard.Server) {
	w.t.Helper()
	if o == nil {
		o = &mcpguard.GatewayOptions{}
	}
	o.Log = w.log()
	if o.Describe == nil {
		o.Describe = describe
	}
	var err error
	w.gateway, err = mcpguard.OpenGateway(w.t.Context(), w.guard, servers, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = w.gateway.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.guard.Close(ctx); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) command(name, mode string) mcpguard.Server {
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	return mcpguard.Server{Name: name, Command: exe, Env: []string{"MCP_TEST_SERVER=" + mode, "MCP_TEST_FOLDER=" + w.folder, "GORACE=atexit_sleep_ms=0"}}
}

// describe lets callers wait only shortly for the tools that never answer.
func describe(_, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
	effect, source := registry.PresumedEffect(tool, annotations)
	p := registry.Policy{}
	if tool == "hang" {
		p.AnswerWithin = 50 * time.Millisecond
	}
	if tool == "task" {
		p.Timeout = time.Second
	}
	if tool == "noisy" {
		p.Timeout = 5 * time.Second
	}
	if tool == "pay_invoice" {
		p.OncePer = []string{"/invoice_id"}
	}
	return effect, source, p, nil
}

// noted are the lines that the children wrote down.
func (w *world) noted(what string) []string {
	text, _ := os.ReadFile(filepath.Join(w.folder, what))
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// untilNoted waits until the children wrote something down.
func (w *world) untilNoted(what, text string) {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		for _, line := range w.noted(what) {
			if strings.Contains(line, text) {
				return
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	w.t.Fatalf("the children noted no %q in %s: %q", text, what, w.noted(what))
}

// delivered tells whether the operation of a tool is marked as delivered.
func (w *world) delivered(action string) bool {
	page, err := w.store.Operations(context.Background(), toolguard.Query{Tenant: "default", All: true, Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, op := range page.Operations {
		if op.Action == action {
			return !op.Delivered.IsZero()
		}
	}
	w.t.Fatalf("there is no operation of %s", action)
	return false
}

// client is an MCP client on pipes that sends and receives raw lines.
type client struct {
	t      *testing.T
	in     *os.File
	lines  chan string
	ended  chan error
	cancel context.CancelFunc
	ids    int
	other  []string // notifications that came in between
}

func (w *world) client() *client {
	w.t.Helper()
	inR, inW, err := os.Pipe() // of the kernel: what waits in it can be seen
	if err != nil {
		w.t.Fatal(err)
	}
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{t: w.t, in: inW, lines: make(chan string, 1000), ended: make(chan error, 1), cancel: cancel}
	go func() {
		c.ended <- w.gateway.ServeStdio(ctx, inR, outW)
		_ = outW.Close()
	}()
	go func() {
		defer close(c.lines)
		in := bufio.NewReader(outR)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			c.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	w.t.Cleanup(func() {
		_ = inW.Close()
		cancel()
		go func() {
			for range c.lines { // a client that does not read would be waited for
			}
		}()
		<-c.ended
		_ = outR.Close()
		_ = inR.Close()
	})
	return c
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the connection ended")
		}
		return line
	case <-time.After(patience):
		c.t.Fatal("nothing came")
	}
	return ""
}

// call sends a request and returns its whole answer. Notifications that come before it are kept.
func (c *client) call(method, params string) string {
	c.t.Helper()
	c.ids++
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.ids, method, params))
	for {
		line := c.receive()
		var m struct {
			ID     int    `json:"id"`
			Method string `json:"method"`
		}
		_ = json.Unmarshal([]byte(line), &m)
		if m.Method == "" && m.ID == c.ids {
			return line
		}
		c.other = append(c.other, line)
	}
}

// tool calls a tool.
func (c *client) tool(name, arguments string) answer {
	c.t.Helper()
	return c.toolParams(fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

func (c *client) toolParams(params string) answer {
	c.t.Helper()
	return readAnswer(c.t, c.call("tools/call", params))
}

// initialize makes the handshake of the older era.
func (c *client) initialize() string {
	c.t.Helper()
	got := c.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return got
}

// answer is the answer to a tools/call.
type answer struct {
	raw    string
	Result json.RawMessage
	Error  *registry.ProtocolError
	body   struct {
		Content []struct{ Type, Text string }
		IsError bool
		Meta    struct {
			Verdict *toolguard.Verdict `json:"dev.toolguard/verdict"`
		} `json:"_meta"`
		StructuredContent json.RawMessage
	}
}

func readAnswer(t testing.TB, line string) answer {
	t.Helper()
	a := answer{raw: line}
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if a.Result != nil {
		if err := json.Unmarshal(a.Result, &a.body); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	return a
}

// is checks the verdict: "outcome" or "outcome/reason".
func (a answer) is(t *testing.T, want string) {
	t.Helper()
	v := a.body.Meta.Verdict
	if v == nil {
		t.Fatalf("there is no verdict, want %s: %s", want, a.raw)
	}
	got := string(v.Outcome)
	if v.Reason != "" {
		got += "/" + string(v.Reason)
	}
	if got != want {
		t.Fatalf("got %s, want %s: %s", got, want, a.raw)
	}
}

func (a answer) text() string {
	var parts []string
	for _, c := range a.body.Content {
		parts = append(parts, c.Text)
	}
	return strings.Join(parts, "\n")
}

// same checks that two JSON texts are equal as JSON, with exact numbers.
func same(t testing.TB, got, want string) {
	t.Helper()
	g, err := keyderive.Canonical([]byte(got))
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	w, err := keyderive.Canonical([]byte(want))
	if err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	if string(g) != string(w) {
		t.Fatalf("got\n%s\nwant\n%s", g, w)
	}
}

// without is a JSON object without one member.
func without(t *testing.T, object, name string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		t.Fatal(err)
	}
	delete(m, name)
	out, _ := json.Marshal(m)
	return string(out)
}
