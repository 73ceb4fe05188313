package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// library is a real client library in a process of its own, see node/client.mjs.
type library struct {
	t  testing.TB
	in interface{ Write([]byte) (int, error) }
	watch
	next     int
	reports  map[int]libraryReport
	progress map[int]int
}

type libraryReport struct {
	ID       *int            `json:"id"`
	OK       bool            `json:"ok"`
	Result   json.RawMessage `json:"result"`
	Error    string          `json:"error"`
	Progress *int            `json:"progress"`
}

var libraries = []struct{ name, sdk, era string }{
	{"sdk 1.32.2", "v1", "legacy"},
	{"client 2.3.1 legacy", "v2", "legacy"},
	{"client 2.3.1 modern", "v2", "modern"},
}

// connect starts a client library on a command.
func connect(t testing.TB, sdk, era string, command []string) *library {
	t.Helper()
	return startLibrary(t, map[string]any{"op": "connect", "sdk": sdk, "era": era, "command": command[0], "args": command[1:]})
}

// startLibrary starts a client library and has it connect.
func startLibrary(t testing.TB, connect map[string]any) *library {
	t.Helper()
	cmd := exec.Command(needNode(t), nodePath(t, "client.mjs"))
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &library{t: t, in: in, reports: map[int]libraryReport{}, progress: map[int]int{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var r libraryReport
			if err := json.Unmarshal(line, &r); err != nil {
				t.Errorf("client.mjs says %.200q", line)
				return
			}
			l.update(func() {
				if r.Progress != nil {
					l.progress[*r.Progress]++
				} else {
					l.reports[*r.ID] = r
				}
			})
		}
	}()
	t.Cleanup(func() {
		in.Close()
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("stderr of the client and its server:\n%.6000s", stderr.String())
		}
	})
	l.do(connect)
	return l
}

func (l *library) order(order map[string]any) int {
	var id int
	l.update(func() { l.next++; id = l.next })
	order["id"] = id
	if _, err := l.in.Write(append(encode(l.t, order), '\n')); err != nil {
		l.t.Fatal(err)
	}
	return id
}

// wait waits for an order to be done, and fails the test if the library threw.
func (l *library) wait(id int) json.RawMessage {
	l.t.Helper()
	l.until(l.t, "the library is done", func() bool { _, ok := l.reports[id]; return ok })
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.reports[id]; !r.OK {
		l.t.Fatalf("the library threw: %s", r.Error)
	}
	return l.reports[id].Result
}

func (l *library) do(order map[string]any) json.RawMessage {
	l.t.Helper()
	return l.wait(l.order(order))
}

func (l *library) call(name string, arguments args) *result {
	l.t.Helper()
	return parseResult(l.t, l.do(map[string]any{"op": "call", "name": name, "arguments": arguments}))
}

// TestClientLibrariesTakeEveryAnswer: they check structuredContent against the listed outputSchema and throw. Each
// outcome of a tool with an outputSchema that allows nothing extra passes them.
func TestClientLibrariesTakeEveryAnswer(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			w := emptyCommit(t)
			repo := w.args["path"]
			g := serve(t, w.tap.up, `
defaults: {answer_within: 2s, timeout: 4s}
tools:
  git/git_commit: {once_per: [/path, /message]}
  git/git_tag: {effect: deny}
`)
			l := connect(t, lib.sdk, lib.era, g.command(t))
			var listed struct {
				Tools []struct{ Name string }
			}
			if err := json.Unmarshal(l.do(map[string]any{"op": "list"}), &listed); err != nil || len(listed.Tools) < 28 {
				t.Fatalf("%d tools listed, %v", len(listed.Tools), err)
			}
			commit := func(message string) args { return args{"path": repo, "message": message, "allowEmpty": true} }

			first := l.call("git_commit", commit("one")).is("fresh", "")
			l.call("git_commit", commit("one")).repeats(first)
			changed := commit("one")
			changed["noVerify"] = true
			blocked := l.call("git_commit", changed).is("blocked", "arguments_changed")
			sameJSON(t, "what differs", blocked.verdict["differs"], []any{"/noVerify"})
			l.call("git_commit", args{"path": repo, "message": 7}).is("blocked", "invalid_arguments")
			l.call("git_tag", args{"path": repo, "mode": "list"}).is("blocked", "denied")
			refused := l.call("git_commit", args{"path": filepath.Join(repo.(string), "nowhere"), "message": "x", "allowEmpty": true})
			if !refused.isError || refused.says("outcome") == "replayed" {
				t.Errorf("a folder that is not there: %s", refused)
			}
			if r := l.call("git_log", args{"path": repo}); r.isError || r.structured == nil {
				t.Errorf("a read: %s", r)
			}

			h := w.tap.holdAnswer("git_commit")
			l.call("git_commit", commit("two")).is("pending", "in_progress")
			h.at()
			h.let(die)
			l.call("git_commit", commit("two")).is("escalated", "outcome_unknown")
			l.call("git_commit", commit("two")).is("escalated", "outcome_unknown")
			l.call("toolguard_operation", args{})
			l.do(map[string]any{"op": "close"})
			w.happened(t, 2)
		})
	}
}

// TestClientLibrariesOnEveryServer: list, write, write again, read, on each server that has outputSchemas.
func TestClientLibrariesOnEveryServer(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			w := appendLine(t)
			l := connect(t, lib.sdk, lib.era, wrap(t, w.tap.up).command(t))
			l.do(map[string]any{"op": "list"})
			first := l.call(w.tool, w.args).is("fresh", "")
			l.call(w.tool, w.args).repeats(first)
			if r := l.call("read_text_file", args{"path": w.args["path"]}); r.isError {
				t.Errorf("a read: %s", r)
			}
			l.do(map[string]any{"op": "close"})
			w.happened(t, 1)

			tp := tapped(t, memory(t, filepath.Join(t.TempDir(), "m.jsonl")))
			l = connect(t, lib.sdk, lib.era, wrap(t, tp.up).command(t))
			l.do(map[string]any{"op": "list"})
			first = l.call("create_entities", ada).is("fresh", "")
			l.call("create_entities", ada).repeats(first)
			l.do(map[string]any{"op": "close"})
			tp.executed("create_entities", 1)
		})
	}
}

// TestClientLibraryGivesUp: the library's own abort (it sends a cancel), then the same call again, which gets the
// answer; and progress on the way.
func TestClientLibraryGivesUp(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			tp := tapped(t, everything(t))
			g := serve(t, tp.up, "tools: {everything/*: {effect: write}}")
			l := connect(t, lib.sdk, lib.era, g.command(t))
			l.do(map[string]any{"op": "list"})
			h := tp.holdAnswer(long)
			order := map[string]any{"op": "call", "name": long, "arguments": args{"duration": 0.3, "steps": 3}, "progress": true}
			id := l.order(order)
			h.at()
			l.until(t, "all progress has come", func() bool { return l.progress[id] == 3 })
			l.do(map[string]any{"op": "abort", "call": id})
			l.until(t, "the library has given up", func() bool { r, ok := l.reports[id]; return ok && !r.OK })
			again := l.order(map[string]any{"op": "call", "name": long, "arguments": args{"duration": 0.3, "steps": 3}})
			l.do(map[string]any{"op": "list"})
			h.let(pass)
			parseResult(t, l.wait(again)).is("replayed", "done")
			l.do(map[string]any{"op": "close"})
			tp.executed(long, 1)
		})
	}
}

// inspect runs the inspector's command line on a server and returns what it prints.
func inspect(t testing.TB, era string, command []string, argv ...string) (json.RawMessage, error) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.json")
	writeFile(t, config, string(encode(t, map[string]any{"mcpServers": map[string]any{
		"it": map[string]any{"command": command[0], "args": command[1:]},
	}})))
	if era == modern {
		era = "modern"
	} else {
		era = "legacy"
	}
	cmd := exec.Command(needNode(t), append([]string{
		nodePath(t, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli",
		"--config", config, "--server", "it", "--protocol-era", era, "--format", "json", "--quiet", "--connect-timeout", "60000",
	}, argv...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Logf("inspector %v: %v\n%s\n%.3000s", argv, err, &out, &errs)
		return out.Bytes(), err
	}
	return out.Bytes(), nil
}

// TestInspector: each run is a session of its own, ends with its answer and so never shows that it had it: the second
// run gets what is recorded.
func TestInspector(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := appendLine(t)
			command := wrap(t, w.tap.up).command(t)
			out, err := inspect(t, era, command, "--method", "tools/list")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"edit_file", "read_text_file", "toolguard_operation"} {
				if !bytes.Contains(out, []byte(`"name":"`+name+`"`)) {
					t.Errorf("%s is not listed: %.500s", name, out)
				}
			}
			call := []string{"--method", "tools/call", "--tool-name", w.tool, "--tool-args-json", string(encode(t, w.args))}
			var results []*result
			for range 2 {
				out, err := inspect(t, era, command, call...)
				if err != nil {
					t.Fatal(err)
				}
				var wrapped struct{ Result json.RawMessage }
				if err := json.Unmarshal(out, &wrapped); err != nil {
					t.Fatalf("%v: %.500s", err, out)
				}
				results = append(results, parseResult(t, wrapped.Result))
			}
			results[0].is("fresh", "")
			results[1].repeats(results[0])
			w.happened(t, 1)
		})
	}
}
