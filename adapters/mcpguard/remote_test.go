package mcpguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// web is an MCP server over HTTP, written by hand so that it can misbehave. It counts what its tools did.
type web struct {
	t         *testing.T
	server    *httptest.Server
	stateless bool // it speaks 2026-07-28 only
	sessions  bool // it keeps sessions
	mute      bool // it does not answer server/discover
	loose     bool // and says with 400, not 404, that it does not know one

	mu       sync.Mutex
	effects  map[string]int
	session  string // the one that it knows
	made     int    // how many there were
	requests []*http.Request
	bodies   []string
	news     chan string   // for the stream that a GET opens; nil: there is none
	held     chan struct{} // closed to let slow answers go
}

func newWeb(t *testing.T, stateless, sessions bool) *web {
	t.Helper()
	s := &web{t: t, stateless: stateless, sessions: sessions, effects: map[string]int{}, held: make(chan struct{})}
	s.server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

func (s *web) at() mcpguard.Server {
	return mcpguard.Server{Name: "shop", URL: s.server.URL + "/mcp?token=s3cr3t-in-url", Header: http.Header{"authorization": {"Bearer s3cr3t-in-header"}}}
}

// did is how often a tool was executed.
func (s *web) did(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[tool]
}

func (s *web) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = ""
}

// saw are the bodies of the requests that contain a text.
func (s *web) saw(text string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bodies {
		if strings.Contains(b, text) {
			found = append(found, b)
		}
	}
	return found
}

// seen are the requests.
func (s *web) seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c rpcCall
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &c)
		c.raw = body
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.bodies = append(s.bodies, r.Method+" "+string(c.raw))
	known := !s.sessions || s.session != "" && r.Header.Get("Mcp-Session-Id") == s.session
	news := s.news
	s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer s3cr3t-in-header" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	switch {
	case r.Method == http.MethodPost && c.Method == "initialize" && !s.stateless:
		s.initialize(w, c)
	case s.mute && c.Method == "server/discover":
		<-r.Context().Done()
	case !s.stateless && c.Method == "server/discover":
		s.problem(w, c, 400, -32000, "Bad Request: no valid session")
	case s.stateless && c.Params.Meta.Version != "2026-07-28":
		s.problem(w, c, 400, -32602, "no handshake here")
	case !s.stateless && !known && s.loose:
		s.problem(w, c, 400, -32000, "Bad Request: No valid session ID provided")
	case !s.stateless && !known:
		s.problem(w, rpcCall{ID: json.RawMessage("null")}, 404, -32001, "Session not found")
	case r.Method == http.MethodDelete:
		s.forget()
	case r.Method == http.MethodGet && news != nil:
		s.stream(w, r, news)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case c.ID == nil || c.Method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		s.handle(w, r, c)
	}
}

func (s *web) initialize(w http.ResponseWriter, c rpcCall) {
	if s.sessions {
		s.mu.Lock()
		s.made++
		s.session = fmt.Sprintf("session-%d", s.made)
		w.Header().Set("Mcp-Session-Id", s.session)
		s.mu.Unlock()
	}
	s.result(w, c, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"shop","version":"3"},"instructions":"Buy with care."}`)
}

// stream is what a GET opens.
func (s *web) stream(w http.ResponseWriter, r *http.Request, news chan string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case n, ok := <-news:
			if !ok {
				return
			}
			tellEvent(w, n)
		case <-r.Context().Done():
			return
		}
	}
}

// tellEvent writes one event of a stream.
func tellEvent(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	fmt.Fprintf(w, ": a comment\nid: 7\nevent: message\ndata: %s\n\n", message)
	_ = http.NewResponseController(w).Flush()
}

func (s *web) result(w http.ResponseWriter, c rpcCall, result string) {
	s.json(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, c.ID, result))
}

func (s *web) problem(w http.ResponseWriter, c rpcCall, status, code int, message string) {
	s.json(w, status, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, c.ID, code, message))
}

func (s *web) json(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

var webTools = []string{"pay", "told", "exotic", "status_400", "status_401", "status_500", "status_502", "result_500", "refused_500", "truncated", "redirect", "lost", "reset",
	"bad_json", "wrong_id", "html", "huge", "early_end", "wrong_stream", "slow", "refused", "unnamed", "unnamed_result", "accepted", "batch", "echo", "header"}

func (s *web) handle(w http.ResponseWriter, r *http.Request, c rpcCall) {
	switch c.Method {
	case "server/discover":
		s.result(w, c, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"Stateless.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"shop","version":"4"}}}`)
	case "subscriptions/listen":
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		tellEvent(w, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		s.stream(w, r, news)
	case "tools/list":
		var tools []string
		for _, name := range webTools {
			tools = append(tools, tool(name, ""))
		}
		tools = append(tools, tool("get_slow", `,"annotations":{"readOnlyHint":true}`), tool("get_price", `,"annotations":{"readOnlyHint":true}`),
			`{"name":"routed","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`)
		s.result(w, c, `{"tools":[`+strings.Join(tools, ",")+`]}`)
	case "tools/call":
		s.call(w, r, c)
	default:
		s.result(w, c, `{}`)
	}
}

const paid = `{"content":[{"type":"text","text":"paid"}]}`

func (s *web) call(w http.ResponseWriter, r *http.Request, c rpcCall) {
	name := c.Params.Name
	s.mu.Lock()
	s.effects[name]++
	s.mu.Unlock()
	whole := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, c.ID, paid)
	switch name {
	case "told":
		tellEvent(w, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"total":9007199254740993}}`, c.Params.Meta.Progress))
		tellEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"careful"}}`)
		tellEvent(w, `{"jsonrpc":"2.0","id":"q1","method":"ping"}`)
		tellEvent(w, `{"jsonrpc":"2.0","id":"q2","method":"sampling/createMessage","params":{}}`)
		tellEvent(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":987654,"result":%s}`, paid))
		tellEvent(w, whole)
	case "exotic":
		s.result(w, c, `{"content":[{"type":"hologram","beams":18446744073709551617}],"structuredContent":{"n":9007199254740993,"e":1e400},"futureMember":[1,{"x":null}]}`)
	case "status_400", "status_401", "status_500", "status_502":
		code := 0
		fmt.Sscanf(name, "status_%d", &code)
		http.Error(w, "the page shows "+r.Header.Get("Authorization")+" not found", code)
	case "result_500":
		s.json(w, 500, whole)
	case "refused_500":
		s.problem(w, c, 500, -32602, "invalid")
	case "truncated":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, whole[:len(whole)/2])
	case "redirect":
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	case "lost":
		s.forget()
		s.problem(w, rpcCall{ID: json.RawMessage("null")}, 404, -32001, "Session not found")
	case "reset":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	case "bad_json":
		s.json(w, 200, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"result":{`)
	case "wrong_id":
		s.json(w, 200, `{"jsonrpc":"2.0","id":987654,"result":`+paid+`}`)
	case "html":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, whole)
	case "huge":
		s.result(w, c, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 33<<20)+`"}]}`)
	case "early_end":
		tellEvent(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"nearly"}}`)
	case "wrong_stream":
		tellEvent(w, `{"jsonrpc":"2.0","id":"`+string(c.ID)+`","result":`+paid+`}`)
	case "slow", "get_slow":
		select {
		case <-s.held:
			s.json(w, 200, whole)
		case <-r.Context().Done():
			s.mu.Lock()
			s.effects["given up"]++
			s.mu.Unlock()
		}
	case "refused":
		s.problem(w, c, 400, -32602, "no such customer")
	case "unnamed":
		s.problem(w, rpcCall{ID: json.RawMessage("null")}, 400, -32700, "cannot parse that")
	case "unnamed_result":
		s.json(w, 200, `{"jsonrpc":"2.0","id":null,"result":`+paid+`}`)
	case "accepted":
		w.WriteHeader(202)
	case "batch":
		s.json(w, 200, "["+whole+"]")
	case "header":
		s.result(w, c, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, "header "+r.Header.Get("Idempotency-Key")+" meta "+c.Params.Meta.Key))
	case "routed":
		s.result(w, c, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, r.Header.Get("Mcp-Param-Region")+" "+r.Header.Get("Mcp-Method")+" "+r.Header.Get("Mcp-Name")+" "+r.Header.Get("Mcp-Protocol-Version")))
	default:
		s.json(w, 200, whole)
	}
}

// webPolicy: one policy for all tools of a web.
func webPolicy(tool string) registry.Policy {
	p := registry.Policy{AnswerWithin: patience}
	switch tool {
	case "header", "reset":
		p.DownstreamKey = registry.DownstreamKey{Header: "Idempotency-Key"}
	case "slow":
		p.Timeout = 300 * time.Millisecond
	}
	return p
}

func newWebWorld(t *testing.T, s *web) *world {
	t.Helper()
	w := newGuard(t)
	w.open(&mcpguard.GatewayOptions{Describe: func(_, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
		effect, from := registry.PresumedEffect(tool, annotations)
		return effect, from, webPolicy(tool), nil
	}}, s.at())
	if problems := w.gateway.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	return w
}

// status is the status of the one operation of a tool.
func (w *world) status(action string) toolguard.Status {
	w.t.Helper()
	page, err := w.store.Operations(context.Background(), toolguard.Query{Tenant: "default", All: true, Limit: 100})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, op := range page.Operations {
		if op.Action == action {
			return op.Status
		}
	}
	w.t.Fatalf("there is no operation of %s", action)
	return ""
}

// What a server over HTTP answers, or does not, and the status that it comes to. Each call reached the tool, once.
func TestRemoteAnswers(t *testing.T) {
	for era, s := range map[string]func() *web{
		"session":   func() *web { return newWeb(t, false, true) },
		"stateless": func() *web { return newWeb(t, true, false) },
		"plain":     func() *web { return newWeb(t, false, false) },
	} {
		t.Run(era, func(t *testing.T) {
			s := s()
			w := newWebWorld(t, s)
			c := w.client()
			c.initialize()
			for _, test := range []struct {
				tool, want string
				status     toolguard.Status
				text       string
			}{
				{"pay", "fresh", toolguard.StatusSucceeded, "paid"},
				{"told", "fresh", toolguard.StatusSucceeded, "paid"},
				{"status_400", "escalated/outcome_unknown", toolguard.StatusEscalated, "HTTP 400"},
				{"status_401", "escalated/outcome_unknown", toolguard.StatusEscalated, "under headers"},
				{"status_500", "escalated/outcome_unknown", toolguard.StatusEscalated, "HTTP 500"},
				{"status_502", "escalated/outcome_unknown", toolguard.StatusEscalated, "HTTP 502"},
				{"result_500", "escalated/outcome_unknown", toolguard.StatusEscalated, "paid"},
				{"refused_500", "escalated/outcome_unknown", toolguard.StatusEscalated, "invalid"},
				{"truncated", "escalated/outcome_unknown", toolguard.StatusEscalated, "broke off"},
				{"redirect", "escalated/outcome_unknown", toolguard.StatusEscalated, "a redirect, which is not followed"},
				{"reset", "escalated/outcome_unknown", toolguard.StatusEscalated, "did not answer"},
				{"bad_json", "escalated/outcome_unknown", toolguard.StatusEscalated, "cannot be read"},
				{"wrong_id", "escalated/outcome_unknown", toolguard.StatusEscalated, "the id is 987654"},
				{"html", "escalated/outcome_unknown", toolguard.StatusEscalated, "text/html"},
				{"huge", "escalated/outcome_unknown", toolguard.StatusEscalated, "more than"},
				{"early_end", "escalated/outcome_unknown", toolguard.StatusEscalated, "ended before the answer"},
				{"wrong_stream", "escalated/outcome_unknown", toolguard.StatusEscalated, "ended before the answer"},
				{"accepted", "escalated/outcome_unknown", toolguard.StatusEscalated, "cannot be read"},
				{"batch", "escalated/outcome_unknown", toolguard.StatusEscalated, "not a JSON object"},
				{"unnamed_result", "escalated/outcome_unknown", toolguard.StatusEscalated, "cannot be read"},
				{"pay", "fresh", toolguard.StatusSucceeded, "paid"},
			} {
				n := s.did(test.tool)
				got := c.tool(test.tool, fmt.Sprintf(`{"x":%d}`, n))
				got.is(t, test.want)
				if !strings.Contains(got.text(), test.text) {
					t.Errorf("%s: %q is not in %s", test.tool, test.text, got.raw)
				}
				if strings.Contains(got.raw, "s3cr3t") {
					t.Errorf("%s shows a secret: %s", test.tool, got.raw)
				}
				if got := w.status("shop/" + test.tool); got != test.status {
					t.Errorf("%s: the operation is %s, want %s", test.tool, got, test.status)
				}
				c.tool(test.tool, fmt.Sprintf(`{"x":%d}`, n)) // once more
				if did := s.did(test.tool); did != n+1 {
					t.Errorf("%s: executed %d times", test.tool, did-n)
				}
			}
			for _, name := range []string{"refused", "unnamed"} {
				if got := c.tool(name, `{}`); got.Error == nil || !strings.Contains(string(got.Error.Data), `"status":"failed"`) {
					t.Errorf("%s: a refusal of the protocol is one over HTTP too: %s", name, got.raw)
				}
			}
			got := c.tool("exotic", `{}`)
			same(t, without(t, string(got.Result), "_meta"), `{"content":[{"type":"hologram","beams":18446744073709551617}],"structuredContent":{"n":9007199254740993,"e":1e400},"futureMember":[1,{"x":null}]}`)
			for _, r := range s.seen() {
				if r.Header.Get("Last-Event-Id") != "" {
					t.Error("a stream was resumed")
				}
			}
			for len(w.logs.lines) > 0 {
				if line := <-w.logs.lines; strings.Contains(line, "s3cr3t") {
					t.Errorf("a secret was logged: %s", line)
				}
			}
		})
	}
}
