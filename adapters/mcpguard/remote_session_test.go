package mcpguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// until waits for something that only the server knows.
func (s *web) until(what string, yes func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if yes() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	s.t.Fatalf("waited in vain until %s", what)
}

// A 404 for the session is no proof that a call had no effect, for it may come while the call is worked on; the next
// session begins by itself.
func TestRemoteLosesItsSession(t *testing.T) {
	for _, loose := range []bool{false, true} {
		t.Run(fmt.Sprint(loose), func(t *testing.T) {
			s := newWeb(t, false, true)
			s.loose = loose
			losesItsSession(t, s)
		})
	}
}

func losesItsSession(t *testing.T, s *web) {
	w := newWebWorld(t, s)
	c := w.client()
	c.initialize()
	c.tool("lost", `{}`).is(t, "escalated/outcome_unknown")
	if got := w.status("shop/lost"); got != toolguard.StatusEscalated {
		t.Error(got)
	}
	s.until("there is a second session", func() bool { return len(s.saw("notifications/initialized")) == 2 })
	ready(t, w)
	c.tool("lost", `{}`).is(t, "escalated/outcome_unknown")
	if s.did("lost") != 1 {
		t.Errorf("executed %d times", s.did("lost"))
	}
	c.tool("pay", `{}`).is(t, "fresh")

	// A session that was silent for long is asked before a write goes out in it: then nothing was sent.
	s.forget()
	mcpguard.Old(w.gateway.Upstreams()[0])
	c.tool("echo", `{}`).is(t, "fresh")
	if s.did("echo") != 1 || len(s.saw(`"echo"`)) != 1 {
		t.Errorf("sent %d times", len(s.saw(`"echo"`)))
	}

	// A read has no effect, and goes to the next session by itself.
	s.forget()
	if got := c.tool("get_price", `{}`); got.text() != "paid" {
		t.Error(got.raw)
	}
}

// A kept-alive connection that is reset after the write, with a key in a header for which net/http would send again.
func TestRemoteResetAfterTheWrite(t *testing.T) {
	s := newWeb(t, false, true)
	w := newWebWorld(t, s)
	c := w.client()
	c.initialize()
	got := c.tool("header", `{}`)
	got.is(t, "fresh")
	key := got.body.Meta.Verdict.Key
	if want := "header " + key + " meta " + key; got.text() != want {
		t.Errorf("got %q, want %q", got.text(), want)
	}
	c.tool("reset", `{}`).is(t, "escalated/outcome_unknown")
	c.tool("reset", `{}`).is(t, "escalated/outcome_unknown")
	if s.did("reset") != 1 {
		t.Errorf("executed %d times", s.did("reset"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := map[string][]string{}
	for i, r := range s.requests {
		for _, name := range []string{"header", "reset"} {
			if strings.Contains(s.bodies[i], fmt.Sprintf(`"name":%q`, name)) {
				from[name] = append(from[name], r.RemoteAddr+" "+r.Header.Get("Idempotency-Key"))
			}
		}
	}
	one, _, _ := strings.Cut(strings.Join(from["header"], "!"), " ")
	two, sent, _ := strings.Cut(strings.Join(from["reset"], "!"), " ")
	if one != two || sent == "" {
		t.Errorf("not one connection, or without a key: %v", from)
	}
}

// Only the policy knows that a status of this server means that nothing happened.
func TestRemoteStatusIsClassified(t *testing.T) {
	refusal, err := registry.CompileExpression("result.status == 401", registry.KindAnswer)
	if err != nil {
		t.Fatal(err)
	}
	s := newWeb(t, false, true)
	w := newGuard(t)
	w.open(&mcpguard.GatewayOptions{Describe: func(string, string, json.RawMessage) (registry.Effect, string, registry.Policy, error) {
		return registry.Write, "declared", registry.Policy{NotApplied: []*registry.Expression{refusal}}, nil
	}}, s.at())
	c := w.client()
	c.initialize()
	if got := c.tool("status_401", `{}`); got.Error == nil || !strings.Contains(string(got.Error.Data), `"status":"failed"`) {
		t.Error(got.raw)
	}
	c.tool("status_500", `{}`).is(t, "escalated/outcome_unknown")
}

func TestRemoteProgressAndRequests(t *testing.T) {
	s := newWeb(t, false, true)
	w := newWebWorld(t, s)
	c := w.client()
	if got := c.initialize(); !strings.Contains(got, "Buy with care.") {
		t.Errorf("instructions: %s", got)
	}
	c.toolParams(`{"name":"told","arguments":{},"_meta":{"progressToken":7}}`).is(t, "fresh")
	if len(c.other) != 2 {
		t.Fatalf("%q", c.other)
	}
	same(t, c.other[0], `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"total":9007199254740993}}`)
	same(t, c.other[1], `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"careful"}}`)
	s.until("its requests are answered", func() bool {
		return len(s.saw(`"id":"q1","result":{}`)) == 1 && len(s.saw(`"id":"q2","error":{"code":-32601`)) == 1
	})
	c.call("logging/setLevel", `{"level":"error"}`)
	s.until("the level is asked for", func() bool { return len(s.saw(`"level":"error"`)) > 0 })
	if err := w.gateway.Close(); err != nil {
		t.Fatal(err)
	}
	if len(s.saw("DELETE")) != 1 {
		t.Error("the session was not ended")
	}
}

func TestRemoteTellsThatItsListChanged(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		s := newWeb(t, stateless, !stateless)
		s.news = make(chan string)
		w := newWebWorld(t, s)
		before := len(s.saw("tools/list"))
		select {
		case s.news <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`:
		case <-time.After(patience):
			t.Fatal("no stream was opened")
		}
		s.until("the list is asked for again", func() bool { return len(s.saw("tools/list")) > before })
		if err := w.gateway.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRemoteStateless(t *testing.T) {
	s := newWeb(t, true, false)
	w := newWebWorld(t, s)
	c := w.client()
	if got := c.initialize(); !strings.Contains(got, "Stateless.") {
		t.Errorf("instructions: %s", got)
	}
	if got := c.tool("routed", `{"region":"eu"}`); got.text() != "eu tools/call routed 2026-07-28" {
		t.Error(got.raw)
	}
	if len(s.saw(`"initialize"`)) > 0 {
		t.Error("a handshake was tried")
	}
}

// Headers that come after the attempt's deadline: unknown, and the late answer settles it.
func TestRemoteAnswersLate(t *testing.T) {
	s := newWeb(t, false, true)
	w := newWebWorld(t, s)
	c := w.client()
	c.initialize()
	c.tool("slow", `{}`).is(t, "escalated/outcome_unknown")
	close(s.held)
	s.until("the late answer is recorded", func() bool { return w.status("shop/slow") == toolguard.StatusSucceeded })
	c.tool("slow", `{}`).is(t, "replayed/done")
	if s.did("slow") != 1 {
		t.Errorf("executed %d times", s.did("slow"))
	}
}

// The caller of a read gives up: the request ends, and its server is told.
func TestRemoteReadIsGivenUp(t *testing.T) {
	s := newWeb(t, false, true)
	w := newWebWorld(t, s)
	c := w.client()
	c.initialize()
	c.send(`{"jsonrpc":"2.0","id":"r","method":"tools/call","params":{"name":"get_slow","arguments":{}}}`)
	s.until("it is asked", func() bool { return s.did("get_slow") == 1 })
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"r"}}`)
	s.until("it is told", func() bool { return s.did("given up") == 1 && len(s.saw("notifications/cancelled")) == 1 })
}

// A server that is not there: nothing is sent. When it is there again, it is connected to anew.
func TestRemoteIsDown(t *testing.T) {
	s := newWeb(t, false, true)
	w := newWebWorld(t, s)
	c := w.client()
	c.initialize()
	address := s.server.Listener.Addr().String()
	s.server.CloseClientConnections()
	s.server.Close()
	mcpguard.Old(w.gateway.Upstreams()[0]) // the end of the connections may not have been noticed
	c.tool("pay", `{}`).is(t, "blocked/tool_unavailable")
	if got := w.status("shop/pay"); got != toolguard.StatusFailed {
		t.Error(got)
	}
	w.logs.until(t, "is connected to again")
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.forget()
	s.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	s.server.Start()
	ready(t, w)
	c.tool("pay", `{}`).is(t, "fresh")
	if s.did("pay") != 1 {
		t.Errorf("executed %d times", s.did("pay"))
	}
}

// What must not leave any more does not, and its server never hears of it.
func TestRemoteIsKeptFromSending(t *testing.T) {
	s := newWeb(t, false, true)
	w := newWebWorld(t, s)
	u := w.gateway.Upstreams()[0]
	late := fmt.Errorf("too late: %w", registry.ErrNotSent)
	if err := mcpguard.Write(t.Context(), u, "tools/none", func() error { return late }); !errors.Is(err, late) {
		t.Error(err)
	}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := mcpguard.Write(ended, u, "tools/none", nil); !errors.Is(err, registry.ErrNotSent) {
		t.Error(err)
	}
	if got := s.saw("tools/none"); len(got) > 0 {
		t.Errorf("%q", got)
	}
	if err := mcpguard.Write(t.Context(), u, "tools/none", func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestServersThatCannotBeReached(t *testing.T) {
	for what, s := range map[string]mcpguard.Server{
		"nothing":    {},
		"both":       {Command: "x", URL: "http://x"},
		"scheme":     {URL: "ftp://x"},
		"no host":    {URL: "http:///mcp"},
		"user":       {URL: "http://me:s3cr3t@x/mcp"},
		"fragment":   {URL: "http://x/mcp#top"},
		"no url":     {URL: "http://[::1"},
		"bad header": {URL: "http://x", Header: http.Header{"a b": {"c"}}},
		"bad value":  {URL: "http://x", Header: http.Header{"A": {"b\r\nC: s3cr3t"}}},
		"ours":       {URL: "http://x", Header: http.Header{"mcp-session-id": {"1"}}},
		"transport":  {URL: "http://x", Header: http.Header{"Content-Length": {"1"}}},
	} {
		u, err := mcpguard.StartUpstream(s, nil)
		if err == nil {
			t.Errorf("%s: taken", what)
			_ = u.Close()
		} else if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Nobody there: the reason has no address beyond the host.
	u, err := mcpguard.StartUpstream(mcpguard.Server{Name: "gone", URL: "http://127.0.0.1:1/mcp?token=s3cr3t"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.Ready(t.Context()); err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// A server of the handshake eras that does not answer what it does not know.
func TestRemoteThatDoesNotKnowTheQuestion(t *testing.T) {
	t.Parallel() // it takes its time
	s := newWeb(t, false, true)
	s.mute = true
	w := newGuard(t)
	began := time.Now()
	w.open(nil, s.at())
	if len(w.gateway.Tools()) == 0 {
		t.Errorf("after %s: %v", time.Since(began), w.gateway.Problems())
	}
}
