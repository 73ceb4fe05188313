package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// remote is a real MCP server on streamable HTTP, with a proxy in front that counts its calls and can lose their answers.
type remote struct {
	t     testing.TB
	url   string // of the proxy
	port  string // of the server
	proc  *exec.Cmd
	front *httptest.Server

	watch
	calls map[string]int    // answered by the server: executed
	fail  map[string]string // by tool: drop or 502, after the server has answered
}

// everythingByURL starts server-everything in its streamable HTTP mode.
func everythingByURL(t testing.TB) *remote {
	t.Helper()
	if unguarded {
		t.Skip("the client speaks stdio only")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	r := &remote{t: t, port: port, calls: map[string]int{}, fail: map[string]string{}}
	r.start()
	target := &url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: &http.Transport{DisableKeepAlives: true}, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	r.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.forward(proxy, w, q) }))
	r.url = r.front.URL + "/mcp"
	t.Cleanup(func() {
		r.front.CloseClientConnections()
		r.front.Close()
		r.kill()
	})
	return r
}

func (r *remote) start() {
	r.t.Helper()
	r.proc = exec.Command(needNode(r.t), nodePath(r.t, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp")
	r.proc.Env = environ(map[string]string{"PORT": r.port})
	if err := r.proc.Start(); err != nil {
		r.t.Fatal(err)
	}
	poll(r.t, "the server listens", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+r.port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (r *remote) kill() {
	_ = r.proc.Process.Kill()
	_ = r.proc.Wait()
}

func (r *remote) forward(proxy *httputil.ReverseProxy, w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	q.Body = io.NopCloser(bytes.NewReader(body))
	var m struct {
		Method string
		Params struct{ Name string }
	}
	_ = json.Unmarshal(body, &m)
	if q.Method != http.MethodPost || m.Method != "tools/call" {
		proxy.ServeHTTP(w, q)
		return
	}
	r.mu.Lock()
	fail := r.fail[m.Params.Name]
	r.mu.Unlock()
	if fail == "" {
		proxy.ServeHTTP(w, q)
		r.update(func() { r.calls[m.Params.Name]++ })
		return
	}
	kept := httptest.NewRecorder()
	proxy.ServeHTTP(kept, q)
	if strings.Contains(kept.Body.String(), `"result"`) {
		r.update(func() { r.calls[m.Params.Name]++ })
	}
	if fail == "502" {
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func (r *remote) executed(tool string, n int) {
	r.t.Helper()
	r.until(r.t, fmt.Sprintf("%s was executed %d times", tool, n), func() bool { return r.calls[tool] >= n })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls[tool] != n {
		r.t.Errorf("%s was executed %d times, want %d", tool, r.calls[tool], n)
	}
}

// guarded is mcp-server in front of it.
func (r *remote) guarded(settings string) *guard {
	r.t.Helper()
	config := filepath.Join(r.t.TempDir(), "toolguard.yaml")
	writeFile(r.t, config, fmt.Sprintf("version: 1\nmcpServers: {everything: {type: http, url: %q, headers: {X-Token: abc}}}\n%s\n", r.url, settings))
	return &guard{up: upstream{name: "everything"}, data: r.t.TempDir(), config: config}
}

// TestServerByURL: what a server on HTTP lists and answers is the client's, member for member.
func TestServerByURL(t *testing.T) {
	t.Parallel()
	own := direct(t, everything(t))
	want := own.list()
	answers := map[int]any{}
	for i, call := range oddCalls {
		answers[i] = own.call(call.name, call.args).own()
	}
	own.end()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			r := everythingByURL(t)
			c := r.guarded("tools: {everything/*: {effect: write}}").start(t, era)
			got := c.list()
			sameJSON(t, "the names", names(got[:len(got)-1]), names(want))
			for i, call := range oddCalls {
				first := c.call(call.name, call.args).is("fresh", "")
				if !strings.HasPrefix(call.name, "gzip") && call.name != "get-resource-reference" { // these have the time in them
					sameJSON(t, call.name+": guarded and own", first.own(), answers[i])
				}
				c.call(call.name, call.args).repeats(first)
			}
			c.end()
		})
	}
}

// TestServerByURLLosesAnswers: the answer is lost on the way, or something in front says 502 after the effect. Nothing
// is sent twice. A server that was started again has lost the session; it is connected to anew.
func TestServerByURLLosesAnswers(t *testing.T) {
	t.Parallel()
	r := everythingByURL(t)
	c := r.guarded("tools: {everything/*: {effect: write}}").start(t, legacy)
	for _, fail := range []string{"drop", "502"} {
		r.update(func() { r.fail["echo"] = fail })
		message := args{"message": fail}
		c.call("echo", message).is("escalated", "outcome_unknown")
		c.call("echo", message).is("escalated", "outcome_unknown")
	}
	r.executed("echo", 2) // one each
	r.kill()
	r.start()
	poll(t, "it answers again", func() bool {
		return c.call("get-tiny-image", args{}).verdict["outcome"] != "blocked"
	})
	c.call("get-sum", args{"a": 1, "b": 2}).is("fresh", "")
	r.executed("get-sum", 1)
	c.end()
}
