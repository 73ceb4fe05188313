package mcpguard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/toolguard"
)

func TestHTTPRefusals(t *testing.T) {
	s := newWorld(t, nil, "normal").site(&mcpguard.HTTPOptions{Body: 1000})
	_, port, _ := net.SplitHostPort(s.address)
	session := s.browser(false).session
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	modern := map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "noisy"}
	call := func(meta string) string {
		return `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"noisy","arguments":{},"_meta":{` + meta + `}}}`
	}
	for name, test := range map[string]struct {
		host, method, path string
		header             map[string]string
		body               string
		status             int
		says               string
	}{
		"localhost":         {host: "localhost:" + port, status: 200},
		"IPv6":              {host: "[::1]:" + port, status: 200},
		"another loopback":  {host: "127.8.9.1:" + port, status: 200},
		"rebound name":      {host: "evil.example:" + port, status: 403, says: "Host"},
		"rebound subdomain": {host: "localhost.evil.example:" + port, status: 403},
		"mapped":            {host: "[::ffff:127.0.0.1]:" + port, status: 403},
		"another port":      {host: "127.0.0.1:1", status: 403},
		"no port":           {host: "127.0.0.1", status: 403},
		"health, rebound":   {host: "evil.example", method: "GET", path: "/healthz", status: 403},
		"loopback origin":   {header: map[string]string{"Origin": "http://localhost:6274"}, status: 200},
		"foreign origin":    {header: map[string]string{"Origin": "https://evil.example"}, status: 403, says: "origin"},
		"sneaky origin":     {header: map[string]string{"Origin": "http://localhost@evil.example"}, status: 403},
		"null origin":       {header: map[string]string{"Origin": "null"}, status: 403},
		"no JSON type":      {header: map[string]string{"Content-Type": "text/plain"}, status: 415},
		"encoded":           {header: map[string]string{"Content-Encoding": "gzip"}, status: 415},
		"accepts no events": {header: map[string]string{"Accept": "application/json"}, status: 406},
		"accepts anything":  {header: map[string]string{"Accept": "*/*"}, status: 200},
		"declines JSON":     {header: map[string]string{"Accept": "application/json;q=0, text/event-stream"}, status: 406},
		"unknown version":   {header: map[string]string{"MCP-Protocol-Version": "1999-01-01"}, status: 400},
		"not JSON":          {body: `{"jsonrpc":`, status: 400, says: `"code":-32700`},
		"nothing":           {body: ` `, status: 400, says: `"code":-32700`},
		"batch":             {body: `[` + ping + `]`, status: 400, says: `"code":-32600`},
		"no version":        {body: `{"id":1,"method":"ping"}`, status: 400, says: `"code":-32600`},
		"odd id":            {body: `{"jsonrpc":"2.0","id":[],"method":"ping"}`, status: 400, says: `"code":-32600`},
		"twice the name":    {body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"noisy","name":"exotic"}}`, status: 200, says: `"code":-32602`},
		"_meta twice":       {body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"noisy","arguments":{},"_meta":{"a":{"b":1,"b":2}}}}`, status: 200, says: `"message":"_meta cannot be read: `},
		"too long":          {body: `"` + strings.Repeat("x", 1000) + `"`, status: 413},
		"put":               {method: "PUT", status: 405},
		"options":           {method: "OPTIONS", status: 405},
		"modern get":        {method: "GET", header: map[string]string{"MCP-Protocol-Version": "2026-07-28"}, status: 405},
		"another path":      {path: "/", status: 404},
		"health":            {method: "GET", path: "/healthz", status: 200, says: "ok"},
		"ready":             {method: "GET", path: "/readyz", status: 200, says: "ready"},
		"no method header":  {header: map[string]string{"MCP-Protocol-Version": "2026-07-28"}, body: call(modernMeta), status: 400, says: `"code":-32020`},
		"no name header":    {header: map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}, body: call(modernMeta), status: 400, says: `"code":-32020`},
		"no version header": {body: call(modernMeta), status: 400, says: `"code":-32020`},
		"no version inside": {header: modern, body: call(""), status: 400, says: `"code":-32602`},
		"future version":    {header: map[string]string{"MCP-Protocol-Version": "2027-01-01"}, body: call(`"io.modelcontextprotocol/protocolVersion":"2027-01-01"`), status: 400, says: `"supported":["2026-07-28"`},
		"resumes":           {header: map[string]string{"MCP-Protocol-Version": "2026-07-28", "Last-Event-ID": "1"}, body: call(modernMeta), status: 400, says: `"code":-32020`},
		"modern":            {header: modern, body: call(modernMeta), status: 200, says: `"outcome":"fresh"`},
	} {
		t.Run(name, func(t *testing.T) {
			method, path, message := test.method, test.path, test.body
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = "/mcp"
			}
			if message == "" {
				message = ping
			}
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+path, strings.NewReader(message))
			if err != nil {
				t.Fatal(err)
			}
			if test.host != "" {
				r.Host = test.host
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Mcp-Session-Id", session)
			for name, value := range test.header {
				r.Header.Set(name, value)
			}
			got, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if text := body(t, got); got.StatusCode != test.status || !strings.Contains(text, test.says) {
				t.Errorf("%d: %s", got.StatusCode, text)
			}
		})
	}
	if got := s.noted("effects"); len(got) != 1 {
		t.Errorf("effects: %q", got)
	}
}

func TestHTTPOnlyLoopback(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:7420": true, "127.9.9.9:0": true, "[::1]:1": true, "localhost:80": true, "LOCALHOST:80": true,
		"0.0.0.0:7420": false, ":7420": false, "[::]:1": false, "192.168.1.1:1": false, "example.com:1": false, "127.0.0.1": false,
		"localhost.example.com:1": false, "127.0.0.1:": false, "127.0.0.1:x": false, "127.0.0.1:70000": false, "[fe80::1%lo]:1": false, "": false,
	} {
		if err := mcpguard.CheckLoopback(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
	w := newWorld(t, nil, "normal")
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Skip(err)
	}
	if err := w.gateway.ServeHTTP(t.Context(), l, nil); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Error(err)
	}
}

func TestHTTPLimits(t *testing.T) {
	s := newWorld(t, &mcpguard.GatewayOptions{Describe: patient}, "normal").site(&mcpguard.HTTPOptions{Requests: 2, Streams: 1, Sessions: 2})
	b, c := s.browser(false), s.browser(true)
	over := &browser{t: t, site: s, http: b.http, header: http.Header{}}
	busy := func(b *browser, message, method string) {
		t.Helper()
		r, err := b.send(t.Context(), message, method, "")
		if err != nil {
			t.Fatal(err)
		}
		if text := body(t, r); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(text, "busy") {
			t.Errorf("%d %v: %s", r.StatusCode, r.Header, text)
		}
	}
	start := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	s.browser(false)
	busy(over, start, "")
	b.listen()
	busy(c, c.request("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`), "subscriptions/listen")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { // until there is room
			for ctx.Err() == nil {
				_, _ = b.ask(ctx, "tools/call", `{"name":"get_slow","arguments":{}}`)
			}
		})
	}
	for end := time.Now().Add(patience); len(s.noted("held")) < 2 && time.Now().Before(end); {
		<-time.After(5 * time.Millisecond)
	}
	busy(c, c.request("tools/list", `{}`), "tools/list")
	cancel()
	wg.Wait()
	for end := time.Now().Add(patience); ; {
		if text := c.call("tools/list", `{}`); strings.Contains(text, `"tools":[`) {
			break
		} else if time.Now().After(end) {
			t.Fatal(text)
		}
	}
}

// Clients that are slow or hostile cost no more than their connection, and not for long.
func TestHTTPHostileClients(t *testing.T) {
	s := newWorld(t, nil, "normal").site(&mcpguard.HTTPOptions{
		HeaderTime: 200 * time.Millisecond, BodyTime: 200 * time.Millisecond, WriteTime: 200 * time.Millisecond, Connections: 2000,
	})
	b := s.browser(true)
	b.tool("noisy", `{}`).is(t, "fresh")
	before := runtime.NumGoroutine()
	head := "POST /mcp HTTP/1.1\r\nHost: " + s.address + "\r\nContent-Type: application/json\r\n"

	end := func(c net.Conn, what string) {
		t.Helper()
		defer c.Close()
		if _, err := io.Copy(io.Discard, c); err != nil {
			if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
				t.Errorf("%s: the connection stays", what)
			}
		}
	}
	end(s.raw(head[:30]), "half a header")
	end(s.raw(head+"Content-Length: 1000\r\n\r\n{"), "half a body")
	end(s.raw(strings.Replace(head, "json", "yaml", 1)+"Content-Length: 1000\r\n\r\n{"), "half a body that nobody wants")
	c := s.raw(head + "X: ")
	_, _ = io.WriteString(c, strings.Repeat("x", 1<<20))
	end(c, "a header without an end")
	m := b.request("tools/call", `{"name":"vast","arguments":{}}`)
	c = s.raw("")
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, _ = io.WriteString(c, fmt.Sprintf("%sMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: vast\r\nContent-Length: %d\r\n\r\n%s", head, len(m), m))
	s.untilNoted("effects", "vast") // and does not read the answer
	if got := b.tool("vast", `{}`).body.Meta.Verdict; got.Outcome != toolguard.Replayed {
		t.Errorf("%+v", got)
	}
	s.logs.until(t, "was not written")
	_ = c.Close()

	var most runtime.MemStats
	c = s.raw(head + "Transfer-Encoding: chunked\r\n\r\n")
	block := fmt.Sprintf("%x\r\n%s\r\n", 1<<20, strings.Repeat("[", 1<<20))
	for range 1 << 10 { // 1 GB
		if _, err := io.WriteString(c, block); err != nil {
			break
		}
	}
	runtime.ReadMemStats(&most)
	if most.HeapInuse > 300<<20 {
		t.Errorf("%d MB in use", most.HeapInuse>>20)
	}
	_ = c.Close()

	var idle []net.Conn
	for range 1000 {
		idle = append(idle, s.raw("GET /mcp HTT"))
	}
	b.tool("get_balance", `{}`) // others are served meanwhile
	for _, c := range idle {
		end(c, "an idle one")
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before+10; {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
		<-time.After(10 * time.Millisecond)
	}
	b.call("tools/list", `{}`)
}

// Many clients of both eras call for the same intents: each has one effect, every call an answer, and nothing is left.
func TestHTTPManyClients(t *testing.T) {
	const clients, each = 50, 40
	const intents = clients * each * 2 / 3
	s := newWorld(t, nil, "normal").site(nil)
	first := s.browser(false)
	first.call("ping", `{}`)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[toolguard.Outcome]int{}
	all := make([]int, 0, clients*each)
	for i := range clients * each {
		all = append(all, i%intents)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range clients {
		wg.Go(func() {
			b := s.browser(i%2 == 0)
			defer b.http.CloseIdleConnections()
			for _, intent := range all[i*each : (i+1)*each] {
				text, err := b.ask(context.Background(), "tools/call", fmt.Sprintf(`{"name":"pay_invoice","arguments":{"invoice_id":"I-%d"}}`, intent))
				if err != nil {
					t.Error(err)
					return
				}
				a := readAnswer(t, text)
				if a.body.Meta.Verdict == nil {
					t.Error(text)
					return
				}
				mu.Lock()
				got[a.body.Meta.Verdict.Outcome]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	first.http.CloseIdleConnections()
	if got[toolguard.Fresh] != intents || got[toolguard.Replayed] != clients*each-intents {
		t.Errorf("outcomes: %v, want %d fresh", got, intents)
	}
	effects := map[string]int{}
	for _, line := range s.noted("effects") {
		effects[line]++
	}
	if len(effects) != intents || len(s.noted("effects")) != intents {
		t.Errorf("%d effects of %d intents, want %d", len(s.noted("effects")), len(effects), intents)
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestHTTPShutdown(t *testing.T) {
	s := newWorld(t, &mcpguard.GatewayOptions{Describe: patient}, "normal").site(nil)
	b, c := s.browser(false), s.browser(true)
	c.call("tools/list", `{}`)
	last := make(chan answer, 1)
	go func() { last <- b.tool("hang", `{}`) }()
	s.untilNoted("held", "hang")
	other := make(chan string, 1)
	go func() { other <- b.call("tools/call", `{"name":"get_slow","arguments":{}}`) }()
	s.untilNoted("held", "get_slow")
	s.stop()
	for end := time.Now().Add(patience); ; { // nothing more is taken on
		r, err := c.send(t.Context(), c.request("tools/list", `{}`), "tools/list", "")
		if err != nil || r.StatusCode == http.StatusServiceUnavailable {
			break
		}
		body(t, r)
		if time.Now().After(end) {
			t.Fatal("it goes on")
		}
	}
	direct := s.client() // what is in flight is finished, answered and recorded
	direct.initialize()
	direct.tool("get_release", `{}`)
	(<-last).is(t, "fresh")
	if text := <-other; !strings.Contains(text, "late") {
		t.Error(text)
	}
	s.end()
	direct.tool("hang", `{}`).is(t, "replayed/done")
}

func TestHTTPShutdownDoesNotWaitForEver(t *testing.T) {
	s := newWorld(t, &mcpguard.GatewayOptions{Describe: patient, Shutdown: 20 * time.Millisecond}, "normal").site(nil)
	b := s.browser(true)
	last := make(chan answer, 1)
	go func() { last <- b.tool("hang", `{}`) }()
	s.untilNoted("held", "hang")
	s.raw("POST /mcp HTTP/1.1\r\nHo")
	s.end()
	(<-last).is(t, "pending/in_progress")
	direct := s.client()
	direct.initialize()
	direct.tool("get_release", `{}`)
	direct.tool("hang", `{}`).is(t, "replayed/done")
}

// A request that is nested too deeply is refused under its own id.
func TestHTTPTooDeep(t *testing.T) {
	w := newWorld(t, nil, "normal")
	s := w.site(nil)
	b := s.browser(false)
	r, err := b.send(t.Context(), `{"jsonrpc":"2.0","id":71,"method":"ping","params":{"x":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+`}}`, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, r); r.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"id":71,`) || !strings.Contains(text, "nested too deeply") {
		t.Errorf("%d: %s", r.StatusCode, text)
	}
}
