package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// caller is a raw client over HTTP.
type caller struct {
	url, era, session string
	http              *http.Client
	next              int
}

// newCaller makes a client with a connection of its own and shakes hands where the era wants it.
func newCaller(ctx context.Context, url, era string) (*caller, error) {
	c := &caller{url: url, era: era, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	if era == modern {
		return c, nil
	}
	_, err := c.ask(ctx, "initialize", map[string]any{
		"protocolVersion": legacy, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "e2e", "version": "1"},
	})
	return c, err
}

// ask sends a request and returns its reply.
func (c *caller) ask(ctx context.Context, method string, params map[string]any) (*response, error) {
	c.next++
	if c.era == modern {
		params["_meta"] = map[string]any{"io.modelcontextprotocol/protocolVersion": modern, "io.modelcontextprotocol/clientCapabilities": map[string]any{}}
	}
	message, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.era == modern {
		name, _ := params["name"].(string)
		r.Header.Set("Mcp-Protocol-Version", modern)
		r.Header.Set("Mcp-Method", method)
		r.Header.Set("Mcp-Name", name)
	} else if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	got, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	if id := got.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, err
	}
	if got.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %d: %s", method, got.StatusCode, text)
	}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "text/event-stream") {
		for line := range bytes.Lines(text) {
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && !bytes.Contains(data, []byte(`"method":`)) {
				text = data
			}
		}
	}
	answer := &response{}
	return answer, json.Unmarshal(text, answer)
}

// leave ends the session and the connection.
func (c *caller) leave() {
	if r, err := http.NewRequest(http.MethodDelete, c.url, nil); err == nil && c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		if got, err := c.http.Do(r); err == nil {
			got.Body.Close()
		}
	}
	c.http.CloseIdleConnections()
}

// crowd has clients of both eras make calls of the stub's tool, for the given intents, and counts the outcomes.
func crowd(t *testing.T, url string, clients int, intents []int) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	share := len(intents) / clients
	for i := range clients {
		all.Go(func() {
			c, err := newCaller(ctx, url, eras[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			defer c.leave()
			for _, intent := range intents[i*share : (i+1)*share] {
				r, err := c.ask(ctx, "tools/call", map[string]any{"name": "note", "arguments": args{"text": fmt.Sprint("intent ", intent)}})
				if err != nil {
					t.Error(err)
					return
				}
				outcome := parseResult(t, r.Result).says("outcome")
				mu.Lock()
				got[outcome]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return got
}

// TestTwoHundredClientsOverHTTP: of both eras, 10,000 calls, a third of them for what another client calls for as well.
// Each intent has one effect; nothing of the clients is left in the process afterwards: no connection, no goroutine, and
// no more memory for the second ten thousand than for the first.
func TestTwoHundredClientsOverHTTP(t *testing.T) {
	const clients, calls = 200, 10_000
	const intents = calls * 2 / 3
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "effects")
	up := upstream{name: "stub", argv: []string{self, "stub", file}}
	policy := "tools: {stub/note: {once_per: [/text]}}"
	g := serve(t, up, policy)
	p := g.startProcess(t)
	sockets := p.visit(t)
	all := make([]int, calls)
	for i := range all {
		all[i] = i % intents
	}
	rand.Shuffle(calls, func(i, j int) { all[i], all[j] = all[j], all[i] })
	got := crowd(t, p.url, clients, all)
	if got["fresh"] != intents || got["replayed"] != calls-intents {
		t.Errorf("outcomes %v, want %d fresh and %d replayed", got, intents, calls-intents)
	}
	first := p.memory(t)
	if got := crowd(t, p.url, clients, all); got["replayed"] != calls {
		t.Errorf("outcomes %v the second time, want %d replayed", got, calls)
	}
	second := p.memory(t)
	t.Logf("%d MB after %d calls, %d MB after %d", first>>20, calls, second>>20, 2*calls)
	// Badger may have begun another memory table in between, of 64 MiB, and gives the one before back: what leaks never comes
	// back. What the race detector keeps of 10,000 calls says nothing; CI measures without it.
	for round := 0; second > first+64<<20 && !raceEnabled; round++ {
		if round == 4 {
			t.Errorf("%d MB after the first %d calls, %d MB after %d", first>>20, calls, second>>20, (round+2)*calls)
			break
		}
		crowd(t, p.url, clients, all)
		second = p.memory(t)
		t.Logf("%d MB after %d", second>>20, (round+3)*calls)
	}
	poll(t, "no connection is left", func() bool { return p.sockets(t) < max(sockets, 1) })
	left := p.quit(t)
	other := serve(t, upstream{name: "stub", argv: []string{self, "stub", "-"}}, policy).startProcess(t)
	sockets = other.visit(t)
	poll(t, "the one connection is gone", func() bool { return other.sockets(t) < max(sockets, 1) })
	if alone := other.quit(t); left > alone+5 {
		t.Errorf("%d goroutines are left, %d are in a process that had one client", left, alone)
	}
	effects := map[string]int{}
	lines := strings.Fields(strings.ReplaceAll(readFile(t, file), "intent ", ""))
	for _, line := range lines {
		effects[line]++
	}
	if len(lines) != intents || len(effects) != intents {
		t.Errorf("%d effects for %d intents, want %d", len(lines), len(effects), intents)
	}
	g.cli(t, "verify")
}

// visit is one client that calls once and leaves; it returns how many sockets there were while it was there.
func (p *process) visit(t *testing.T) int {
	t.Helper()
	c, err := newCaller(t.Context(), p.url, legacy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.leave()
	r, err := c.ask(t.Context(), "tools/call", map[string]any{"name": "toolguard_operation", "arguments": args{}})
	if err != nil || r.Error != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	return p.sockets(t)
}

// sockets is how many the process has open; 0 where it is not told.
func (p *process) sockets(t *testing.T) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	all, _ := os.ReadDir(dir)
	n := 0
	for _, fd := range all {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// memory is what the process holds that is no file, in bytes; 0 where it is not told.
func (p *process) memory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kb, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	return kb << 10
}

// quit has the process show its goroutines, which ends it, and counts them.
func (p *process) quit(t *testing.T) int {
	t.Helper()
	p.ended = true
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	_ = p.cmd.Wait()
	n := strings.Count("\n"+p.stderr.String(), "\ngoroutine ")
	if n == 0 {
		t.Fatalf("no goroutines shown:\n%.2000s", p.stderr.String())
	}
	return n
}
