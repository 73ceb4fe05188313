package mcpguard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
)

// site is a gateway served over HTTP.
type site struct {
	*world
	address string
	stop    context.CancelFunc
	ended   chan error
}

func (w *world) site(o *mcpguard.HTTPOptions) *site {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &site{world: w, address: l.Addr().String(), stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- w.gateway.ServeHTTP(ctx, l, o) }()
	w.t.Cleanup(s.end)
	return s
}

// end ends the serving; it is harmless to do so twice.
func (s *site) end() {
	s.stop()
	err := <-s.ended
	s.ended <- nil
	if err != nil {
		s.t.Error(err)
	}
}

// browser is an MCP client over HTTP that sends and receives raw messages.
type browser struct {
	t       testing.TB
	site    *site
	http    *http.Client
	modern  bool
	session string
	header  http.Header // more of them

	mu    sync.Mutex
	ids   int
	other []string // what came on streams before the replies
}

// browser makes a client with connections of its own.
func (s *site) browser(modern bool) *browser {
	t := &http.Transport{}
	s.t.Cleanup(t.CloseIdleConnections)
	b := &browser{t: s.t, site: s, http: &http.Client{Transport: t}, modern: modern, header: http.Header{}}
	if !modern {
		b.initialize()
	}
	return b
}

func (b *browser) initialize() {
	b.t.Helper()
	r, err := b.send(context.Background(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}`, "initialize", "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.session = r.Header.Get("Mcp-Session-Id")
	if text := body(b.t, r); len(b.session) < 20 || !strings.Contains(text, `"protocolVersion":"2025-11-25"`) {
		b.t.Fatalf("%d, session %q: %s", r.StatusCode, b.session, text)
	}
	b.tell(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// send posts one message.
func (b *browser) send(ctx context.Context, message, method, name string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.site.address+"/mcp", strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if b.modern {
		r.Header.Set("MCP-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		if name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	} else if b.session != "" {
		r.Header.Set("Mcp-Session-Id", b.session)
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	for name, values := range b.header {
		r.Header[name] = values
	}
	return b.http.Do(r)
}

func body(t testing.TB, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// tell sends a message that wants no answer.
func (b *browser) tell(message string) {
	b.t.Helper()
	r, err := b.send(context.Background(), message, "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	if text := body(b.t, r); r.StatusCode != http.StatusAccepted || text != "" {
		b.t.Fatalf("%d: %s", r.StatusCode, text)
	}
}

// request is one request of the client's era; params is an object, with or without members.
func (b *browser) request(method, params string) string {
	b.mu.Lock()
	b.ids++
	id := b.ids
	b.mu.Unlock()
	if b.modern {
		if at := strings.Index(params, `"_meta":{`); at >= 0 {
			params = params[:at] + `"_meta":{` + modernMeta + "," + params[at+len(`"_meta":{`):]
		} else {
			params = strings.TrimSuffix(params, "}")
			if params != "{" {
				params += ","
			}
			params += `"_meta":{` + modernMeta + `}}`
		}
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
}

// ask sends a request and returns its reply.
func (b *browser) ask(ctx context.Context, method, params string) (string, error) {
	var p struct{ Name, URI string }
	_ = json.Unmarshal([]byte(params), &p)
	r, err := b.send(ctx, b.request(method, params), method, p.Name+p.URI)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	if r.Header.Get("Content-Type") != "text/event-stream" {
		text, err := io.ReadAll(r.Body)
		return string(text), err
	}
	events := bufio.NewReader(r.Body)
	last := ""
	for {
		data, err := event(events)
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return "", err
		}
		if strings.Contains(data, `"method":`) {
			b.mu.Lock()
			b.other = append(b.other, data)
			b.mu.Unlock()
			continue
		}
		last = data
	}
}

// event reads the data of the next event of a stream.
func event(in *bufio.Reader) (string, error) {
	data := ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimSuffix(line, "\n")
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			data = text
		}
		if line == "" && data != "" {
			return data, nil
		}
	}
}

func (b *browser) call(method, params string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	text, err := b.ask(ctx, method, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func (b *browser) tool(name, arguments string) answer {
	b.t.Helper()
	return b.toolParams(fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

func (b *browser) toolParams(params string) answer {
	b.t.Helper()
	return readAnswer(b.t, b.call("tools/call", params))
}

// listen opens the stream on which news come, and returns a reader of its events.
func (b *browser) listen() func() string { return b.listenTo(`{"toolsListChanged":true}`) }

// listenTo is listen to what a stateless client names.
func (b *browser) listenTo(wanted string) func() string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	var r *http.Response
	var err error
	if b.modern {
		r, err = b.send(ctx, b.request("subscriptions/listen", `{"notifications":`+wanted+`}`), "subscriptions/listen", "")
	} else {
		var req *http.Request
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.site.address+"/mcp", nil)
		if err == nil {
			req.Header.Set("Accept", "text/event-stream")
			req.Header.Set("Mcp-Session-Id", b.session)
			r, err = b.http.Do(req)
		}
	}
	if err != nil {
		cancel()
		b.t.Fatal(err)
	}
	b.site.t.Cleanup(func() { cancel(); _ = r.Body.Close() })
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
		b.t.Fatalf("%d: %s", r.StatusCode, body(b.t, r))
	}
	in := bufio.NewReader(r.Body)
	return func() string {
		b.t.Helper()
		data, err := event(in)
		if err != nil {
			return err.Error()
		}
		return data
	}
}

// raw opens a connection and writes text on it.
func (s *site) raw(text string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// untilWelcome waits until there is room for one more connection.
func (s *site) untilWelcome() {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			s.t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, "GET /healthz HTTP/1.0\r\nHost: %s\r\n\r\n", s.address)
		got, _ := io.ReadAll(c)
		_ = c.Close()
		if strings.Contains(string(got), " 200 OK") {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	s.t.Fatal("no connection becomes free")
}

// eras runs a test with a client of each era.
func eras(t *testing.T, run func(t *testing.T, modern bool)) {
	for name, modern := range map[string]bool{"handshake": false, "stateless": true} {
		t.Run(name, func(t *testing.T) { run(t, modern) })
	}
}

// patient lets callers wait for the tools that hang.
func patient(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
	effect, source, p, err := describe(server, tool, annotations)
	p.AnswerWithin = 0
	return effect, source, p, err
}

// del ends the client's session.
func (b *browser) del() (status int, err error) {
	r, err := http.NewRequest(http.MethodDelete, "http://"+b.site.address+"/mcp", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Mcp-Session-Id", b.session)
	response, err := b.http.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
