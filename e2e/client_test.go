package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// client is a raw MCP client on the pipes of a process. It knows nothing but JSON-RPC lines, so it can do what no
// library would: leave in the middle, stop reading, send the same thing 64 times.
type client struct {
	t       testing.TB
	era     string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *stoppable
	stderr  lockedBuffer
	exited  chan struct{} // closed when the process has ended
	exitErr error

	writing sync.Mutex
	watch
	nextID   int
	answers  map[int]*response
	notes    []note
	outEnded bool
}

type response struct {
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int                       `json:"code"`
	Message string                    `json:"message"`
	Data    map[string]map[string]any `json:"data"`
}

type note struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// stoppable is a reader that can be told to take one more piece and then none.
type stoppable struct {
	f    *os.File
	mu   sync.Mutex
	stop bool
	got  chan int // the size of the last piece
	end  chan struct{}
}

func (s *stoppable) Read(p []byte) (int, error) {
	n, err := s.f.Read(p)
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	if stop && n > 0 {
		s.got <- n
		<-s.end
		return 0, io.EOF
	}
	return n, err
}

// startClient starts the command and shakes hands with it.
func startClient(t testing.TB, era string, argv []string, env map[string]string) *client {
	t.Helper()
	c := launch(t, era, argv, env)
	c.hello()
	return c
}

func launch(t testing.TB, era string, argv []string, env map[string]string) *client {
	t.Helper()
	c := &client{t: t, era: era, exited: make(chan struct{}), answers: map[int]*response{}}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = inW, &stoppable{f: outR, got: make(chan int, 1), end: make(chan struct{})}
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Env = environ(env)
	c.cmd.Dir = t.TempDir()
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = inR, outW, &c.stderr
	c.cmd.WaitDelay = time.Second // a child of it may hold its stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	go func() {
		err := c.cmd.Wait()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil
		}
		c.exitErr = err
		close(c.exited)
	}()
	go c.read()
	t.Cleanup(func() {
		close(c.out.end)
		c.in.Close()
		outR.Close()
		select {
		case <-c.exited:
		case <-time.After(20 * time.Second):
			t.Errorf("the server is still there 20 s after its pipes were closed")
			c.kill9()
		}
		text := c.stderr.String()
		for _, bad := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s on stderr", bad)
			}
		}
		if t.Failed() {
			t.Logf("stderr of %s:\n%.6000s", argv[0], text)
		}
	})
	return c
}

func (c *client) read() {
	lines := bufio.NewReaderSize(c.out, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 && err == nil {
			c.take(line)
		}
		if err != nil {
			c.update(func() { c.outEnded = true })
			return
		}
	}
}

func (c *client) take(line []byte) {
	var m struct {
		JSONRPC string           `json:"jsonrpc"`
		ID      *json.RawMessage `json:"id"`
		Method  string           `json:"method"`
		response
		Params map[string]any `json:"params"`
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil || m.JSONRPC != "2.0" {
		c.t.Errorf("not JSON-RPC on stdout: %.200q", line)
		return
	}
	switch {
	case m.Method != "" && m.ID == nil:
		c.update(func() { c.notes = append(c.notes, note{m.Method, m.Params}) })
	case m.Method == "ping":
		c.write(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{}})
	case m.Method != "":
		c.write(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "not here"}})
	default:
		var id int
		if m.ID == nil || json.Unmarshal(*m.ID, &id) != nil {
			c.t.Errorf("answer without an id of ours: %.200q", line)
			return
		}
		c.update(func() {
			if c.answers[id] != nil {
				c.t.Errorf("a second answer to request %d: %.200q", id, line)
			}
			c.answers[id] = &response{m.Result, m.Error}
		})
	}
}

// write sends one message. A broken pipe is no fault here: whoever waits for an answer finds out.
func (c *client) write(message any) {
	line := append(encode(c.t, message), '\n')
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.in.Write(line)
}

func (c *client) message(method string, params map[string]any) (int, map[string]any) {
	var id int
	c.update(func() { c.nextID++; id = c.nextID })
	if params == nil {
		params = map[string]any{}
	}
	if c.era == modern {
		meta := map[string]any{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
		if given, ok := params["_meta"].(map[string]any); ok {
			for k, v := range given {
				meta[k] = v
			}
		}
		params["_meta"] = meta
	}
	return id, map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}
}

// send sends a request and returns its id.
func (c *client) send(method string, params map[string]any) int {
	id, message := c.message(method, params)
	c.write(message)
	return id
}

// answer waits for the response to a request.
func (c *client) answer(id int) *response {
	c.t.Helper()
	c.until(c.t, fmt.Sprintf("request %d is answered", id), func() bool { return c.answers[id] != nil || c.outEnded })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers[id] == nil {
		c.t.Fatalf("the server went away before it answered request %d\n%s", id, c.stderr.String())
	}
	return c.answers[id]
}

func (c *client) answered(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[id] != nil
}

func (c *client) request(method string, params map[string]any) json.RawMessage {
	c.t.Helper()
	r := c.answer(c.send(method, params))
	if r.Error != nil {
		c.t.Fatalf("%s: error %d: %s", method, r.Error.Code, r.Error.Message)
	}
	return r.Result
}

// hello does what a client of the era does first.
func (c *client) hello() map[string]any {
	c.t.Helper()
	if c.era == modern {
		return decode(c.t, c.request("server/discover", nil)).(map[string]any)
	}
	raw := c.request("initialize", map[string]any{
		"protocolVersion": legacy, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "e2e", "version": "1"},
	})
	c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return decode(c.t, raw).(map[string]any)
}

// list returns the listed tools, in order.
func (c *client) list() []any {
	c.t.Helper()
	var tools []any
	params := map[string]any{}
	for {
		page := decode(c.t, c.request("tools/list", params)).(map[string]any)
		tools = append(tools, page["tools"].([]any)...)
		next, ok := page["nextCursor"].(string)
		if !ok || next == "" {
			return tools
		}
		params = map[string]any{"cursor": next}
	}
}

type args = map[string]any

func (c *client) sendCall(name string, arguments args) int {
	return c.send("tools/call", map[string]any{"name": name, "arguments": arguments})
}

// call calls a tool and waits for its result.
func (c *client) call(name string, arguments args) *result {
	c.t.Helper()
	return c.result(c.sendCall(name, arguments))
}

// result waits for the result of a call.
func (c *client) result(id int) *result {
	c.t.Helper()
	r := c.answer(id)
	if r.Error != nil {
		c.t.Fatalf("call %d: error %d: %s", id, r.Error.Code, r.Error.Message)
	}
	return parseResult(c.t, r.Result)
}

// attempt calls a tool that may answer with an error of the protocol, of which the verdict is given.
func (c *client) attempt(name string, arguments args) *result {
	c.t.Helper()
	r := c.answer(c.sendCall(name, arguments))
	if r.Error != nil {
		return &result{t: c.t, raw: map[string]any{"error": r.Error.Message}, verdict: r.Error.Data[verdictKey]}
	}
	return parseResult(c.t, r.Result)
}

func (c *client) cancel(id int) {
	c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled",
		"params": map[string]any{"requestId": id, "reason": "enough"}})
}

// waitNote waits for a notification that fits.
func (c *client) waitNote(what string, fits func(note) bool) {
	c.t.Helper()
	c.until(c.t, what, func() bool {
		for _, n := range c.notes {
			if fits(n) {
				return true
			}
		}
		return false
	})
}

// noted returns the notifications of a method so far.
func (c *client) noted(method string) []note {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []note
	for _, n := range c.notes {
		if n.Method == method {
			all = append(all, n)
		}
	}
	return all
}

// kill9 kills the server, and only it: what becomes of its children is its business.
func (c *client) kill9() {
	_ = c.cmd.Process.Kill()
	recv(c.t, "the killed server to end", c.exited)
}

// leave closes both pipes, as a client that dies does.
func (c *client) leave() {
	c.in.Close()
	c.out.f.Close()
}

// end closes stdin, as a client that is done does, and expects the server to end well.
func (c *client) end() {
	c.t.Helper()
	c.in.Close()
	c.ended()
}

// ended waits for the server to end, and for its exit code 0.
func (c *client) ended() {
	c.t.Helper()
	recv(c.t, "the server to end after EOF", c.exited)
	if c.exitErr != nil && !unguarded {
		c.t.Errorf("the server ended with %v after EOF, not with 0", c.exitErr)
	}
}

// stopReading makes the client take one more piece of at most 64 KB of what the server writes, and no more.
// The channel tells when it has it.
func (c *client) stopReading() <-chan int {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.stop = true
	return c.out.got
}

// result is what a call got.
type result struct {
	t          testing.TB
	raw        map[string]any
	content    []any
	structured map[string]any // nil: none
	isError    bool
	verdict    map[string]any // nil: none
}

const verdictKey = "dev.toolguard/verdict"

func parseResult(t testing.TB, raw []byte) *result {
	t.Helper()
	m, ok := decode(t, raw).(map[string]any)
	if !ok {
		t.Fatalf("a result that is no object: %.200s", raw)
	}
	r := &result{t: t, raw: m}
	r.content, _ = m["content"].([]any)
	r.structured, _ = m["structuredContent"].(map[string]any)
	r.isError, _ = m["isError"].(bool)
	if meta, ok := m["_meta"].(map[string]any); ok {
		r.verdict, _ = meta[verdictKey].(map[string]any)
	}
	return r
}

func (r *result) String() string { return string(encode(r.t, r.raw)) }

func (r *result) says(member string) string {
	switch v := r.verdict[member].(type) {
	case nil:
		return ""
	case json.Number:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}

// own is the result without what the guard and the protocol era add to it.
func (r *result) own() map[string]any {
	own := map[string]any{}
	for k, v := range r.raw {
		if k != "resultType" && k != "_meta" {
			own[k] = v
		}
	}
	if meta, ok := r.raw["_meta"].(map[string]any); ok {
		rest := map[string]any{}
		for k, v := range meta {
			if k != verdictKey && k != "io.modelcontextprotocol/serverInfo" {
				rest[k] = v
			}
		}
		if len(rest) > 0 {
			own["_meta"] = rest
		}
	}
	return own
}

// is checks outcome and reason, and the words that the caller reads.
func (r *result) is(outcome, reason string) *result {
	r.t.Helper()
	if r.says("outcome") != outcome || r.says("reason") != reason {
		r.t.Fatalf("outcome %q %q, want %q %q: %.1500s", r.says("outcome"), r.says("reason"), outcome, reason, r)
	}
	begins := map[string][]string{
		"replayed":  {"ALREADY DONE, not repeated."},
		"pending":   {"STILL RUNNING", "NOT DONE YET", "OUTCOME NOT KNOWN YET"},
		"blocked":   {"NOT SENT.", "NOT DONE."},
		"escalated": {"OUTCOME UNKNOWN"},
	}[outcome]
	if begins == nil {
		return r
	}
	first, _ := append(r.content, map[string]any{})[0].(map[string]any)["text"].(string)
	fits := false
	for _, b := range begins {
		fits = fits || strings.HasPrefix(first, b)
	}
	if !fits {
		r.t.Errorf("the text of %s %s begins %.80q, want one of %q", outcome, reason, first, begins)
	}
	if outcome != "replayed" {
		if !r.isError || len(r.content) != 1 || r.raw["structuredContent"] != nil {
			r.t.Errorf("a refusal of ours is isError with one text and no structuredContent: %.1500s", r)
		}
	}
	return r
}

// repeats checks that r is the recorded result first, marked as a replay.
func (r *result) repeats(first *result) *result {
	r.t.Helper()
	r.is("replayed", "done")
	want := first.own()
	got := r.own()
	if content, ok := got["content"].([]any); ok && len(content) > 0 {
		got["content"] = content[1:]
	}
	if structured, ok := got["structuredContent"].(map[string]any); ok {
		marked, found := structured["_toolguard"]
		if !found {
			r.t.Errorf("structuredContent of a replay without _toolguard: %.1500s", r)
		} else {
			sameJSON(r.t, "_toolguard and the verdict", marked, r.verdict)
		}
		rest := map[string]any{}
		for k, v := range structured {
			if k != "_toolguard" {
				rest[k] = v
			}
		}
		got["structuredContent"] = rest
	}
	sameJSON(r.t, "the replay and the recorded result", got, want)
	for _, member := range []string{"key", "occurrence", "attempt"} {
		if first.verdict != nil && r.says(member) != first.says(member) {
			r.t.Errorf("%s of the replay is %q, of the first answer %q", member, r.says(member), first.says(member))
		}
	}
	return r
}

// callUntilSettled calls until the outcome is no longer pending.
func (c *client) callUntilSettled(name string, arguments args) *result {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		r := c.call(name, arguments)
		if r.says("outcome") != "pending" {
			return r
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("still pending after %s: %.500s", patience, r)
		}
	}
}
