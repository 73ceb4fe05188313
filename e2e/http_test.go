package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"
)

var servedAt = regexp.MustCompile(`msg="serving HTTP" url=(\S+)`)

// process is the guard as a server of its own, for many clients.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr lockedBuffer
	url    string
	ended  bool
}

// startProcess starts the guard with HTTP and without stdio.
func (g *guard) startProcess(t testing.TB) *process {
	t.Helper()
	if unguarded {
		t.Skip("the servers themselves speak stdio only")
	}
	command := append(g.command(t), "--http", "127.0.0.1:0", "--no-stdio")
	p := &process{t: t, cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	poll(t, "the server says where it is", func() bool {
		m := servedAt.FindStringSubmatch(p.stderr.String())
		if m != nil {
			p.url = m[1]
		}
		return m != nil
	})
	return p
}

// stop ends the server as a person would, if it has not ended.
func (p *process) stop() {
	if p.ended {
		return
	}
	p.ended = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the server did not end well: %v\n%.6000s", err, p.stderr.String())
	}
}

// startHTTP starts the guard with HTTP and returns where it is, and how to end it.
func (g *guard) startHTTP(t testing.TB) (url string, stop func()) {
	t.Helper()
	p := g.startProcess(t)
	return p.url, p.stop
}

// TestClientLibrariesOverHTTP: list, call, replay to the same and to another client, blocked, progress, give up and call
// again, with each library over streamable HTTP.
func TestClientLibrariesOverHTTP(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
			url, stop := serve(t, tp.up, `
tools:
  memory/create_entities: {once_per: [/entities]}
  memory/delete_entities: {effect: deny}
`).startHTTP(t)
			open := func() *library {
				return startLibrary(t, map[string]any{"op": "connect", "sdk": lib.sdk, "era": lib.era, "url": url})
			}
			l, other := open(), open()
			var listed struct {
				Tools []struct{ Name string }
			}
			if err := json.Unmarshal(l.do(map[string]any{"op": "list"}), &listed); err != nil || len(listed.Tools) < 9 {
				t.Fatalf("%d tools listed, %v", len(listed.Tools), err)
			}
			other.do(map[string]any{"op": "list"})
			first := l.call("create_entities", ada).is("fresh", "")
			l.call("create_entities", ada).repeats(first)
			other.call("create_entities", ada).repeats(first)
			l.call("delete_entities", args{"entityNames": []any{"Ada"}}).is("blocked", "denied")
			l.call("create_entities", args{"entities": 7}).is("blocked", "invalid_arguments")
			if r := other.call("read_graph", args{}); r.isError {
				t.Errorf("a read: %s", r)
			}
			l.do(map[string]any{"op": "close"})
			other.do(map[string]any{"op": "close"})
			stop()
			tp.executed("create_entities", 1)
		})
	}
}

// TestClientLibraryGivesUpOverHTTP: the library's own abort, then the same call again, which gets the answer; and
// progress on the way.
func TestClientLibraryGivesUpOverHTTP(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			url, stop := serve(t, tp.up, "tools: {everything/*: {effect: write}}").startHTTP(t)
			l := startLibrary(t, map[string]any{"op": "connect", "sdk": lib.sdk, "era": lib.era, "url": url})
			l.do(map[string]any{"op": "list"})
			h := tp.holdAnswer(long)
			call := map[string]any{"op": "call", "name": long, "arguments": args{"duration": 0.3, "steps": 3}, "progress": true}
			id := l.order(call)
			h.at()
			l.until(t, "all progress has come", func() bool { return l.progress[id] == 3 })
			l.do(map[string]any{"op": "abort", "call": id})
			l.until(t, "the library has given up", func() bool { r, ok := l.reports[id]; return ok && !r.OK })
			again := l.order(map[string]any{"op": "call", "name": long, "arguments": args{"duration": 0.3, "steps": 3}})
			l.do(map[string]any{"op": "list"})
			h.let(pass)
			parseResult(t, l.wait(again)).is("replayed", "done")
			l.do(map[string]any{"op": "close"})
			stop()
			tp.executed(long, 1)
		})
	}
}
