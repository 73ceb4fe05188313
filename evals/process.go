package evals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Process has runs played on real processes, in real time: the arms with toolguard get the program mcp-server as a child,
// which reaches the downstream over MCP on HTTP, and which is killed by SIGKILL at the faults that say so.
type Process struct {
	Program string   // path of mcp-server
	Server  []string // command of an MCP server on stdio that is the downstream; none: there is one of our own

	offered map[string]json.RawMessage // by name: the tools of Server
}

// offers asks the server for its tools.
func (o *Process) offers(ctx context.Context) error {
	c, err := startChild(ctx, o.Server)
	if err != nil {
		return err
	}
	defer c.kill()
	o.offered = map[string]json.RawMessage{}
	for cursor := ""; ; {
		params := map[string]string{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		answer, err := c.call(ctx, "tools/list", params)
		if err != nil {
			return fmt.Errorf("%s does not list its tools: %w", o.Server[0], err)
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(answer.Result, &page); err != nil {
			return fmt.Errorf("%s lists its tools in a form that cannot be read: %w", o.Server[0], err)
		}
		for _, text := range page.Tools {
			var t struct {
				Name string `json:"name"`
			}
			if json.Unmarshal(text, &t) == nil && t.Name != "" {
				o.offered[t.Name] = text
			}
		}
		if cursor = page.Next; cursor == "" || len(o.offered) > maxEntries {
			return nil
		}
	}
}

// fits reports whether the server has every tool that a run writes with.
func (o *Process) fits(p *Plan) bool {
	if o == nil || len(o.Server) == 0 {
		return true
	}
	for i := range p.Steps {
		if o.offered[p.Steps[i].call.Tool] == nil {
			return false
		}
	}
	return true
}

// behind starts the server for one run, as the real downstream of a World.
func (o *Process) behind(ctx context.Context, w *World) (end func(), err error) {
	if o == nil || len(o.Server) == 0 {
		return func() {}, nil
	}
	c, err := startChild(ctx, o.Server)
	if err != nil {
		return nil, err
	}
	w.Real = func(tool string, args json.RawMessage) (registry.Answer, error) {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		return c.call(ctx, "tools/call", map[string]any{"name": tool, "arguments": args})
	}
	return c.kill, nil
}

// pace is how much faster than in its own time a run is played on real processes.
const pace = 20

// processFaults are those that are played on real processes: a person's no, and a day away, are not.
var processFaults = []string{"none", "answer-lost", "timeout", "late-commit", "event-redelivered", "crash-before-dispatch", "crash-after-dispatch",
	"crash-after-answer", "prompt-resent", "respelled", "reworded", "changed-parameter", "changed-amount", "parallel", "reconnect", "two-processes",
	"refused-then-fixed", "already-exists"}

// PlaysOnProcesses reports whether a fault is played on real processes.
func (f *Fault) PlaysOnProcesses() bool { return slices.Contains(processFaults, f.Name) }

// processes is a line with real ones in it.
type processes struct {
	program string
	arm     *Arm
	event   string
	dir     string
	servers map[string]string // names in the configuration, by server
	world   *World
	http    *http.Server
	several bool

	mu  sync.Mutex
	now [2]*child
	all []*child
}

// newProcesses starts the program, or two of them on one ledger.
func newProcesses(ctx context.Context, o *Process, a *Arm, w *World, event string, list []*shape, n int) (p *processes, err error) {
	p = &processes{program: o.Program, arm: a, world: w, event: event, servers: map[string]string{}}
	if p.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	servers := map[string]any{}
	tools := map[string]any{}
	for _, s := range list {
		name := p.servers[s.server]
		if name == "" {
			name = fmt.Sprintf("s%d", len(p.servers))
			p.servers[s.server] = name
			servers[name] = map[string]any{"url": fmt.Sprintf("http://%s/%s", listener.Addr(), name)}
			mux.Handle("/"+name, &endpoint{world: w, name: name, tools: o.toolsOf(list, s.server)})
		}
		if a.policy {
			tools[name+"/"+s.tool] = s.declaration(a)
		}
	}
	p.several = len(servers) > 1
	p.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.http.Serve(listener) }()
	config := map[string]any{"version": 1, "mcpServers": servers, "shutdown": "1s"}
	if a.policy {
		source := func(fact string) any { return map[string]string{"meta": "/dev.toolguard~1context/" + fact} }
		config["tools"] = tools
		config["context"] = map[string]any{"source_event": source("source_event"), "step": source("step"), "run": source("run"), "request": source("request")}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.config(), text, 0o600); err != nil {
		return nil, err
	}
	for i := range n {
		if p.now[i], err = p.begin(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *processes) config() string { return filepath.Join(p.dir, "toolguard.yaml") }

// flags are those by which each of the program's commands finds the same ledger.
func (p *processes) flags() []string {
	return []string{"--config", p.config(), "--data", filepath.Join(p.dir, "ledger")}
}

func (p *processes) begin(ctx context.Context) (*child, error) {
	c, err := startChild(ctx, append([]string{p.program, "serve"}, p.flags()...))
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, c)
	return c, nil
}

// declaration is the policy of a tool, as a configuration has it, at the pace of real processes.
func (s *shape) declaration(a *Arm) map[string]any {
	at := func(d time.Duration) string { return (d / pace).String() }
	once := []string{"source_event", "step"}
	for _, name := range s.target {
		once = append(once, "/"+name)
	}
	d := map[string]any{"effect": "write", "once_per": once, "timeout": at(timeout), "answer_within": at(registry.DefaultAnswerWithin),
		"classify": map[string]any{"not_applied": []string{"result.is_error"}}}
	if len(s.free) > 0 {
		var free []string
		for _, name := range s.free {
			free = append(free, "/"+name)
		}
		d["may_differ"] = free
	}
	if a.keyed {
		d["downstream_key"] = map[string]string{"meta": "idempotency-key", "window": "24h"}
	}
	if a.lookup {
		d["lookup"] = []any{map[string]any{"tool": lookupTool, "arguments": map[string]string{"reference": "{{key}}"},
			"applied": "result.json.found > 0", "absent": "result.json.found == 0", "settle": at(settles)}}
	}
	return d
}

func (p *processes) do(q *question) said {
	p.mu.Lock()
	c := p.now[q.process]
	p.mu.Unlock()
	if c == nil {
		return said{kind: saidNothing}
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.patience/pace)
	defer cancel()
	name := q.tool
	if p.several {
		name = p.servers[q.server] + "__" + q.tool
	}
	meta := map[string]any{tag: q.step}
	if p.arm.policy {
		meta["dev.toolguard/context"] = map[string]string{"source_event": p.event, "step": strconv.Itoa(q.step),
			"run": fmt.Sprintf("run %d", q.played), "request": fmt.Sprintf("turn %d", q.turn)}
	}
	answer, err := c.call(ctx, "tools/call", map[string]any{"name": name, "arguments": q.args, "_meta": meta})
	switch {
	case errors.Is(err, errGone):
		return said{kind: saidNothing}
	case errors.Is(err, context.DeadlineExceeded):
		return said{kind: saidError, text: "timed out"}
	case err != nil:
		return said{kind: saidError, text: err.Error()}
	}
	var r struct {
		Meta struct {
			Verdict toolguard.Verdict `json:"dev.toolguard/verdict"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(answer.Result, &r); err != nil || r.Meta.Verdict.Outcome == "" {
		return heard(answer, nil)
	}
	if key := r.Meta.Verdict.Key; key != "" {
		p.world.mu.Lock()
		if _, known := p.world.stepOf[key]; !known {
			p.world.stepOf[key] = q.step
		}
		p.world.mu.Unlock()
	}
	return understood(&toolguard.Result{Verdict: r.Meta.Verdict, Answer: answer})
}

// die is kill -9.
func (p *processes) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.now {
		if c != nil {
			c.kill()
			p.now[i] = nil
		}
	}
}

func (p *processes) restart() {
	c, err := p.begin(context.Background())
	if err != nil {
		p.world.note(-1, "the program does not start again: "+err.Error())
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[0] = c
}

func (p *processes) decide(func(int) bool) {}

// list asks the program for operations.
func (p *processes) list(flags ...string) (list []*toolguard.Operation, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, append(append([]string{"ops", "list", "--json", "--limit", "1000"}, p.flags()...), flags...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = json.NewDecoder(out).Decode(&list)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, errors.Join(err, cmd.Wait())
}

func (p *processes) settle() {
	for range 40 {
		list, err := p.list()
		if err != nil {
			p.world.note(-1, "the ledger cannot be read: "+err.Error())
			return
		}
		if !slices.ContainsFunc(list, func(op *toolguard.Operation) bool {
			return op.Status == toolguard.StatusDispatching || op.Status == toolguard.StatusUnknown
		}) {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (p *processes) waiting() map[int]bool {
	steps := map[int]bool{}
	list, err := p.list("--queue")
	if err != nil {
		p.world.note(-1, "the queue cannot be read: "+err.Error())
	}
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, op := range list {
		step, known := p.world.stepOf[op.Key]
		if n, err := strconv.Atoi(op.Facts.Step); !known && err == nil {
			step, known = n, true
		}
		if known {
			steps[step] = true
		}
	}
	return steps
}

func (p *processes) end() {
	p.mu.Lock()
	all := p.all
	p.mu.Unlock()
	for _, c := range all {
		c.kill()
	}
	if p.http != nil {
		_ = p.http.Close()
	}
	_ = os.RemoveAll(p.dir)
}
