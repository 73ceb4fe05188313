package storetest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// court is a guard on a store whose writes can be watched and stopped, and a tool that does what a law needs.
type court struct {
	*testing.T
	opener Opener
	under  toolguard.Store
	store  *watched
	guard  *toolguard.Guard

	mu       sync.Mutex
	effects  int
	handled  []registry.Dispatch
	handle   func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error)
	policies map[string]registry.Tool
	tools    map[string]*toolguard.Tool
}

// watched passes writes through before and after.
type watched struct {
	toolguard.Store
	before func(w *toolguard.Write) error
	query  func(q toolguard.Query) error
}

func (s *watched) Commit(ctx context.Context, w *toolguard.Write) error {
	if s.before != nil {
		if err := s.before(w); err != nil {
			return err
		}
	}
	return s.Store.Commit(ctx, w)
}

func (s *watched) Operations(ctx context.Context, q toolguard.Query) (toolguard.Page, error) {
	if s.query != nil {
		if err := s.query(q); err != nil {
			return toolguard.Page{}, err
		}
	}
	return s.Store.Operations(ctx, q)
}

func (c *court) open() {
	c.Helper()
	c.under = c.opener(c.T)
	c.store = &watched{Store: c.under}
	c.guard = c.newGuard()
	c.tools = map[string]*toolguard.Tool{}
	for name := range c.policies {
		c.tools[name] = c.register(c.guard, c.policies[name])
	}
}

func (c *court) newGuard() *toolguard.Guard {
	c.Helper()
	g, err := toolguard.Open(context.Background(), c.store, &toolguard.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		c.Fatal(err)
	}
	return g
}

func (c *court) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c.guard.Close(ctx)
	c.under.Close()
}

func (c *court) reopen() {
	c.Helper()
	c.close()
	c.open()
}

func (c *court) register(g *toolguard.Guard, spec registry.Tool) *toolguard.Tool {
	c.Helper()
	spec.Handler = func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		c.mu.Lock()
		c.handled = append(c.handled, *d)
		handle := c.handle
		c.mu.Unlock()
		if handle != nil {
			return handle(ctx, d)
		}
		c.effect()
		return says("ok", false), nil
	}
	e, err := registry.Compile(spec)
	if err != nil {
		c.Fatal(err)
	}
	tool, err := g.Register(context.Background(), e)
	if err != nil {
		c.Fatal(err)
	}
	return tool
}

// tool serves a write tool of that name.
func (c *court) tool(name string, p registry.Policy) {
	c.Helper()
	if p.Timeout == 0 {
		p.Timeout = 10 * time.Second
	}
	spec := registry.Tool{Server: "srv", Name: name, Effect: registry.Write, EffectSource: "declared", Policy: p}
	if c.policies == nil {
		c.policies = map[string]registry.Tool{}
	}
	c.policies[name] = spec
	c.tools[name] = c.register(c.guard, spec)
}

func (c *court) effect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effects++
}

func (c *court) had(n int) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.effects != n {
		c.Errorf("the tool had %d effects, want %d", c.effects, n)
	}
}

func (c *court) dispatched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.handled)
}

func (c *court) call(tool, args string, f keyderive.Facts) *toolguard.Result {
	c.Helper()
	return c.guard.Do(context.Background(), toolguard.Call{Tool: c.tools[tool], Arguments: json.RawMessage(args), Facts: f})
}

func (c *court) want(r *toolguard.Result, outcome toolguard.Outcome, reason toolguard.Reason) {
	c.Helper()
	if r.Verdict.Outcome != outcome || r.Verdict.Reason != reason {
		c.Errorf("the call got %s/%s, want %s/%s\n%s", r.Verdict.Outcome, r.Verdict.Reason, outcome, reason, r.Text)
	}
}

func (c *court) operation(key string) *toolguard.Operation {
	c.Helper()
	page, err := c.under.Operations(context.Background(), toolguard.Query{Key: key})
	if err != nil || len(page.Operations) != 1 {
		c.Fatalf("operation %s: %d found, %v", key, len(page.Operations), err)
	}
	return page.Operations[0]
}

func says(text string, isError bool) registry.Answer {
	r, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": isError})
	return registry.Answer{Result: r}
}

func facts(event string) keyderive.Facts { return keyderive.Facts{SourceEvent: event} }

const payment = `{"invoice_id":"INV-1","amount":900,"memo":"a"}`

var oncePerInvoice = registry.Policy{OncePer: []string{"source_event", "/invoice_id"}, MayDiffer: []string{"/memo"}}
