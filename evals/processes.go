package evals

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/toolguard"
)

// processes is a line with real ones in it: mcp-server, once or twice, before a downstream over HTTP.
type processes struct {
	ctx     context.Context
	options *Options
	arm     *Arm
	event   string
	dir     string
	world   *World
	list    []*shape
	homes   map[string]string // names of servers in the configuration, by server and tool
	several bool              // the configuration has more than one
	http    *http.Server
	front   *front // where the downstream may lose its process
	desk    *desk
	release func() bool

	mu  sync.Mutex
	now [2]*child
	all []*child
}

// newProcesses starts the program, or two of them on one ledger.
func newProcesses(ctx context.Context, o *Options, a *Arm, f *Fault, w *World, event string, list []*shape) (_ *processes, err error) {
	p := &processes{ctx: ctx, options: o, arm: a, world: w, event: event, list: list, desk: newDesk()}
	p.release = context.AfterFunc(ctx, p.die)
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
	address := listener.Addr().String()
	if slices.ContainsFunc(slices.Concat(f.trouble, f.trouble2), func(t Trouble) bool { return t == LosesProcess || t == FailsBefore }) {
		if p.front, err = newFront(o.Process.Front, address); err != nil {
			_ = listener.Close()
			return nil, err
		}
		address, w.Lose = p.front.address, p.lose(w.Lose)
	}
	c, err := configure(o, a, f, list)
	if err != nil {
		return nil, err
	}
	p.homes, p.several = c.homes, len(c.servers) > 1
	mux := http.NewServeMux()
	for name, s := range c.servers {
		mux.Handle("/"+name, &endpoint{world: w, name: name, tools: s.list(), queries: s.queries})
	}
	p.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.http.Serve(listener) }()
	text, err := json.Marshal(c.file("http://"+address, p.desk))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.config(), text, 0o600); err != nil {
		return nil, err
	}
	for i := range f.processes() {
		if err = p.begin(i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// lose takes the downstream away, and the server of the user's behind it.
func (p *processes) lose(more func()) func() {
	return func() {
		p.front.lose(p.ctx, p.world.Away)
		if more != nil {
			more()
		}
	}
}

func (p *processes) config() string { return filepath.Join(p.dir, "toolguard.yaml") }

// begin starts the program in the i-th place.
func (p *processes) begin(i int) error {
	c, err := p.options.Process.start(p.ctx, []string{p.options.Process.Program, "serve", "--http", "127.0.0.1:0", "--config", p.config(), "--data", filepath.Join(p.dir, "ledger")})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[i], p.all = c, append(p.all, c)
	return nil
}

func (p *processes) do(q *question) said {
	p.mu.Lock()
	c := p.now[q.process]
	p.mu.Unlock()
	if c == nil {
		return said{kind: saidNothing}
	}
	ctx, cancel := context.WithTimeout(p.ctx, q.patience/pace)
	defer cancel()
	home, name := p.homes[q.server+"/"+q.tool], q.tool
	if p.several {
		name = home + "__" + q.tool
	}
	meta := map[string]any{tag: q.step}
	if p.arm.policy {
		meta["dev.toolguard/context"] = named(q.facts(p.arm, p.event, p.options.Policy))
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
	p.world.know(r.Meta.Verdict.Key, q.step)
	return understood(&toolguard.Result{Verdict: r.Meta.Verdict, Answer: answer})
}

// named are the facts that a host says in _meta.
func named(f keyderive.Facts) map[string]string {
	out := map[string]string{}
	for _, name := range factNames {
		if value, _ := f.Get(name); value != "" {
			out[name] = value
		}
	}
	return out
}

// factNames are the facts that a runtime may know.
var factNames = []string{"tenant", "workflow", "source_event", "request", "run", "step"}

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

func (p *processes) restart() error { return p.begin(0) }

// operations asks the program for all operations.
func (p *processes) operations() ([]*toolguard.Operation, error) {
	return p.desk.operations(p.ctx, p.address())
}

// address is where a living process serves.
func (p *processes) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.now {
		if c != nil {
			return c.address()
		}
	}
	return ""
}

func (p *processes) decide(approve func(step int) bool) {
	list, err := p.operations()
	if err != nil {
		p.world.note(-1, "what waits for a yes cannot be read: "+err.Error())
		return
	}
	for _, op := range list {
		if op.Status != toolguard.StatusAwaitingApproval || !waits(op) {
			continue
		}
		step := p.world.known(op.Key)
		if err := p.desk.decide(p.ctx, p.address(), op.Approval, approve(step)); err != nil {
			p.world.note(step, "which does not count: "+err.Error())
		}
	}
}

// settleTime is how long something may be on its way at the end: a declared time-out may be long. What is not known is waited
// for only until lookups could have proved it, and lookTime: where they prove nothing, the guard goes on asking for minutes.
const (
	settleTime = time.Minute
	lookTime   = 10 * time.Second
)

func (p *processes) settle() {
	provable := min(settleTime, promisesOf(p.list, p.options.Policy).provable/pace+lookTime)
	for began := time.Now(); time.Since(began) < settleTime && p.ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		list, err := p.operations()
		if err != nil {
			p.world.note(-1, "the ledger cannot be read: "+err.Error())
			return
		}
		sent := slices.ContainsFunc(list, func(op *toolguard.Operation) bool {
			return op.Status == toolguard.StatusDispatching || op.Status == toolguard.StatusApproved
		})
		unknown := slices.ContainsFunc(list, isUnknown)
		switch {
		case !sent && !unknown:
			return
		case !sent && time.Since(began) > provable:
			p.world.note(-1, "the guard still does not know what became of a write, and is not waited for any longer: it is for a person")
			return
		}
	}
}

func isUnknown(op *toolguard.Operation) bool { return op.Status == toolguard.StatusUnknown }

// waiting counts what nobody knows at the end, too.
func (p *processes) waiting() map[int]bool {
	steps := map[int]bool{}
	list, err := p.operations()
	if err != nil {
		p.world.note(-1, "the queue cannot be read: "+err.Error())
	}
	for _, op := range list {
		if step := p.world.known(op.Key); step >= 0 && (waits(op) || isUnknown(op)) {
			steps[step] = true
		}
	}
	return steps
}

func (p *processes) end() {
	p.release()
	p.mu.Lock()
	all := p.all
	p.mu.Unlock()
	for _, c := range all {
		c.kill()
	}
	if p.front != nil {
		p.front.end()
	}
	if p.http != nil {
		_ = p.http.Close()
	}
	_ = os.RemoveAll(p.dir)
}
