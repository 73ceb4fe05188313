package mcpguard_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

func TestHTTPCallsAreExact(t *testing.T) {
	eras(t, func(t *testing.T, modern bool) {
		s := newWorld(t, nil, "normal").site(nil)
		b := s.browser(modern)
		list := b.call("tools/list", `{}`)
		if !strings.Contains(list, `"x-unknown":{"n":9007199254740993}`) || strings.Index(list, `"name":"pay_invoice"`) > strings.Index(list, `"name":"get_balance"`) {
			t.Errorf("list: %s", list)
		}
		first := b.tool("pay_invoice", `{"invoice_id":"I-1","amount":12.50}`)
		first.is(t, "fresh")
		if modern != strings.Contains(first.raw, `"resultType":"complete"`) {
			t.Error(first.raw)
		}
		b.tool("pay_invoice", `{"invoice_id":"I-1","amount":12.5}`).is(t, "replayed/done")
		b.tool("pay_invoice", `{"invoice_id":"I-1","amount":13}`).is(t, "blocked/arguments_changed")
		if got := s.noted("effects"); len(got) != 1 || got[0] != `pay_invoice {"invoice_id":"I-1","amount":12.50}` {
			t.Errorf("effects: %q", got)
		}
		got := b.tool("exotic", `{"x":9007199254740993}`)
		got.is(t, "fresh")
		same(t, without(t, without(t, string(got.Result), "_meta"), "resultType"), `{"content":[{"type":"hologram","beams":18446744073709551617},{"type":"text","text":"a<b\u00e9","annotations":{"n":1.10}}],"structuredContent":{"n":9007199254740993,"e":1e400},"futureMember":[1,2,{"x":null}]}`)
		if n := len(s.noted("wire")); n == 0 || !strings.Contains(strings.Join(s.noted("effects"), ""), `{"x":9007199254740993}`) {
			t.Error("the arguments did not arrive as they were sent")
		}
		if text := b.tool("toolguard_operation", `{}`).text(); !strings.Contains(text, "books/pay_invoice") {
			t.Error(text)
		}
	})
}

func TestHTTPFacts(t *testing.T) {
	w := newWorld(t, &mcpguard.GatewayOptions{Sources: mcpguard.Sources{Facts: map[string]mcpguard.FactSource{
		"tenant":       {HTTP: mcpguard.Source{Header: "Toolguard-Tenant"}},
		"source_event": {HTTP: mcpguard.Source{Meta: "/dev.toolguard~1context/source_event"}},
		"session":      {HTTP: mcpguard.Source{Header: "Mcp-Session-Id"}},
	}}}, "normal")
	eras(t, func(t *testing.T, modern bool) {
		b := w.site(nil).browser(modern)
		b.t = t
		event := func(e string) string {
			return `{"name":"noisy","arguments":{"x":"` + t.Name() + `"},"_meta":{"dev.toolguard/context":{"source_event":"` + e + `"}}}`
		}
		b.toolParams(event("e1")).is(t, "blocked/context_required")
		b.header.Set("Toolguard-Tenant", "acme")
		b.toolParams(`{"name":"noisy","arguments":{}}`).is(t, "blocked/context_required")
		b.toolParams(event("e1")).is(t, "fresh")
		b.toolParams(event("e1")).is(t, "replayed/done")
		b.header.Set("Toolguard-Source-Event", "e2")
		b.toolParams(event("e1")).is(t, "blocked/context_conflict")
		b.header.Del("Toolguard-Source-Event")
		b.header.Set("Toolguard-Tenant", "umbrella")
		b.toolParams(event("e1")).is(t, "fresh")
	})
}

func TestHTTPDelivery(t *testing.T) {
	eras(t, func(t *testing.T, modern bool) {
		s := newWorld(t, nil, "normal").site(nil)
		b, other := s.browser(modern), s.browser(modern)
		b.tool("noisy", `{}`).is(t, "fresh")
		other.call("tools/list", `{}`)
		if s.delivered("books/noisy") {
			t.Fatal("the message of another client is no proof")
		}
		if modern { // on another connection
			b.http.CloseIdleConnections()
			b.call("tools/list", `{}`)
			if s.delivered("books/noisy") {
				t.Fatal("a message on another connection is no proof")
			}
			other.tool("noisy", `{}`).is(t, "replayed/done")
			other.call("tools/list", `{}`)
		} else { // in the same session, on whichever connection
			b.http = other.http
			b.call("tools/list", `{}`)
		}
		s.untilDelivered("books/noisy") // a later message of the client is proof
		// Delivered, and after another write: the same call is a new one.
		b.tool("exotic", `{}`).is(t, "fresh")
		b.tool("noisy", `{}`).is(t, "fresh")
	})
}

// A client that went away without having read the reply, and goes on in the same session, does not have it.
func TestHTTPResetIsNoDelivery(t *testing.T) {
	s := newWorld(t, nil, "normal").site(&mcpguard.HTTPOptions{Connections: 2})
	b := s.browser(false)
	m := b.request("tools/call", `{"name":"noisy","arguments":{}}`)
	c := s.raw(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", s.address, b.session, len(m), m))
	_, _ = c.Read(make([]byte, 1)) // the reply is there, and lost
	_ = c.Close()
	s.untilWelcome()
	b.tool("exotic", `{}`).is(t, "fresh")
	b.tool("noisy", `{}`).is(t, "replayed/done")
}

// What was sent before the reply began says nothing about it.
func TestHTTPPipelinedIsNoProof(t *testing.T) {
	for name, early := range map[string]func(list string) string{
		"all of it": func(list string) string { return list },
		"a byte":    func(list string) string { return list[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorld(t, nil, "normal").site(nil)
			b := s.browser(true)
			message := func(method, name, params string) string {
				m := b.request(method, params)
				return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\nMcp-Name: %s\r\nContent-Length: %d\r\n\r\n%s",
					s.address, method, name, len(m), m)
			}
			list := message("tools/list", "", `{}`)
			sent := early(list)
			c := s.raw(message("tools/call", "noisy", `{"name":"noisy","arguments":{}}`) + sent)
			until(t, c, `"dev.toolguard/verdict"`)
			_, _ = io.WriteString(c, list[len(sent):])
			if sent != list {
				until(t, c, `"tools":[`)
			}
			other := s.browser(true)
			other.tool("exotic", `{}`).is(t, "fresh")
			other.tool("noisy", `{}`).is(t, "replayed/done") // it is owed
		})
	}
}

// until reads until text has come.
func until(t *testing.T, c net.Conn, text string) {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 64<<10)
	for !strings.Contains(got.String(), text) {
		n, err := c.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("no %q: %v: %s", text, err, got.String())
		}
	}
}

func TestHTTPLostStream(t *testing.T) {
	eras(t, func(t *testing.T, modern bool) {
		s := newWorld(t, &mcpguard.GatewayOptions{Describe: patient}, "normal").site(nil)
		b := s.browser(modern)
		ctx, cancel := context.WithCancel(t.Context())
		lost := make(chan error, 1)
		go func() {
			_, err := b.ask(ctx, "tools/call", `{"name":"hang","arguments":{"x":1}}`)
			lost <- err
		}()
		s.untilNoted("held", "hang")
		cancel()
		if err := <-lost; err == nil {
			t.Fatal("the stream was not lost")
		}
		// Under a new id; it waits for the first call's answer.
		again := make(chan answer, 1)
		go func() { again <- b.tool("hang", `{"x":1}`) }()
		s.browser(modern).tool("get_release", `{}`)
		got := <-again
		got.is(t, "replayed/done")
		if !strings.Contains(got.text(), "late") {
			t.Error(got.raw)
		}
		if got := s.noted("effects"); len(got) != 1 {
			t.Errorf("effects: %q", got)
		}
		if strings.Contains(strings.Join(s.noted("wire"), "\n"), "notifications/cancelled") {
			t.Error("the end of a stream cancelled a write")
		}
	})
}

func TestHTTPCancel(t *testing.T) {
	s := newWorld(t, &mcpguard.GatewayOptions{Describe: patient}, "normal").site(nil)
	one, two, three := s.browser(false), s.browser(false), s.browser(true)
	one.ids, two.ids, three.ids = 6, 6, 6 // the same ids everywhere
	answers := make(chan string, 3)
	for _, b := range []*browser{one, two, three} {
		go func() { answers <- b.call("tools/call", `{"name":"get_slow","arguments":{}}`) }()
	}
	for end := time.Now().Add(patience); len(s.noted("held")) < 3 && time.Now().Before(end); {
		<-time.After(5 * time.Millisecond)
	}
	three.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"_meta":{` + modernMeta + `}}}`)
	one.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	if got := <-answers; got != "" {
		t.Errorf("a cancelled request is answered: %s", got)
	}
	s.untilNoted("wire", "notifications/cancelled")
	s.browser(false).tool("get_release", `{}`)
	for range 2 {
		if got := <-answers; !strings.Contains(got, "late") {
			t.Errorf("another client's call: %s", got)
		}
	}
	if n := strings.Count(strings.Join(s.noted("wire"), "\n"), "notifications/cancelled"); n != 1 {
		t.Errorf("cancelled %d times", n)
	}
}

func TestHTTPNews(t *testing.T) {
	eras(t, func(t *testing.T, modern bool) {
		s := newWorld(t, nil, "normal").site(&mcpguard.HTTPOptions{Heartbeat: 10 * time.Millisecond})
		b := s.browser(modern)
		next := b.listen()
		if modern {
			if ack := next(); !strings.Contains(ack, "acknowledged") || !strings.Contains(ack, `"io.modelcontextprotocol/subscriptionId":1`) {
				t.Fatal(ack)
			}
		}
		b.tool("grow", `{}`).is(t, "fresh")
		if got := next(); !strings.Contains(got, "notifications/tools/list_changed") || modern != strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":1`) {
			t.Error(got)
		}
		if got := b.call("tools/list", `{}`); !strings.Contains(got, "get_grown") {
			t.Error(got)
		}
		b.toolParams(`{"name":"steps","arguments":{},"_meta":{"progressToken":9007199254740993}}`).is(t, "fresh")
		if len(b.other) != 2 {
			t.Fatalf("progress: %q", b.other)
		}
		same(t, b.other[1], `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9007199254740993,"progress":2,"total":9007199254740993}}`)
		b.other = nil
		if modern {
			b.toolParams(`{"name":"tell","arguments":{},"_meta":{"io.modelcontextprotocol/logLevel":"error"}}`).is(t, "fresh")
		} else {
			b.call("logging/setLevel", `{"level":"error"}`)
			b.tool("tell", `{}`).is(t, "fresh")
		}
		if len(b.other) != 1 || !strings.Contains(b.other[0], `"level":"error"`) {
			t.Errorf("log: %q", b.other)
		}
		s.stop()
		last := next()
		if modern && strings.Contains(last, `"result"`) {
			last = next()
		}
		if last != io.EOF.Error() {
			t.Errorf("the stream does not end with the server: %s", last)
		}
	})
}

func TestHTTPSessions(t *testing.T) {
	s := newWorld(t, nil, "normal").site(nil)
	b := s.browser(false)
	if got := b.call("ping", `{}`); !strings.Contains(got, `"result":{}`) {
		t.Error(got)
	}
	id := b.session
	status := func(session, method string) int {
		t.Helper()
		message := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		if method != http.MethodPost {
			message = ""
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+"/mcp", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		got, err := b.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body(t, got)
		return got.StatusCode
	}
	for _, test := range []struct {
		session, method string
		want            int
	}{
		{"", http.MethodPost, 400}, {"no", http.MethodPost, 404}, {"no", http.MethodGet, 404}, {"no", http.MethodDelete, 404}, {"", http.MethodDelete, 400},
		{id, http.MethodPut, 405}, {id, http.MethodPost, 200}, {id, http.MethodDelete, 204}, {id, http.MethodPost, 404},
	} {
		if got := status(test.session, test.method); got != test.want {
			t.Errorf("%s %q: %d, want %d", test.method, test.session, got, test.want)
		}
	}
	s = newWorld(t, nil, "normal").site(&mcpguard.HTTPOptions{SessionIdle: time.Nanosecond, Sessions: 2})
	for range 5 { // those that have ended make room
		b = &browser{t: t, site: s, http: http.DefaultClient, header: http.Header{}}
		r, err := b.send(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}`, "", "")
		if err != nil {
			t.Fatal(err)
		}
		b.session = r.Header.Get("Mcp-Session-Id")
		if text := body(t, r); r.StatusCode != 200 || !strings.Contains(text, "2025-03-26") {
			t.Fatalf("%d: %s", r.StatusCode, text)
		}
	}
	if got := status(b.session, http.MethodPost); got != 404 {
		t.Errorf("a session that was idle for too long: %d", got)
	}
}

// A handler in a server of one's own: everything but proof of delivery to stateless clients.
func TestHTTPHandler(t *testing.T) {
	w := newWorld(t, nil, "normal")
	server := httptest.NewServer(w.gateway.HTTPHandler(nil))
	defer server.Close()
	s := &site{world: w, address: strings.TrimPrefix(server.URL, "http://")}
	b := s.browser(false)
	b.tool("noisy", `{}`).is(t, "fresh")
	b.call("ping", `{}`)
	w.untilDelivered("books/noisy")
	b = s.browser(true)
	b.tool("exotic", `{}`).is(t, "fresh")
	b.call("tools/list", `{}`)
	if w.delivered("books/exotic") {
		t.Error("delivered, though nobody knows the connection")
	}
	b.http.CloseIdleConnections()
}
