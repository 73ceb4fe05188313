package mcpguard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// offer is one tool as clients see it.
type offer struct {
	source *source // nil: ours
	tool   *toolguard.Tool
	raw    json.RawMessage // the tool object as its server sent it
	stands string          // what stood behind it then
	listed json.RawMessage // the tool object as it is listed
	place  int             // among all that is listed
}

// follow keeps the offers of one upstream as its tool list is, until ctx ends.
func (g *Gateway) follow(ctx context.Context, s *source, several bool) {
	tried := func() { s.once.Do(func() { close(s.listed) }) }
	first, done := context.WithCancel(ctx)
	g.running.Go(func() {
		defer done()
		if err := s.Ready(first); err != nil && ctx.Err() == nil {
			g.note(s, []Problem{{Server: s.Name(), Err: err}})
			tried()
		}
	})
	for {
		select {
		case <-ctx.Done():
			done()
			return
		case <-s.relist:
			if g.refresh(ctx, s, several) {
				tried()
			}
		}
	}
}

// note records what is wrong with an upstream's tools, and logs what is new.
func (g *Gateway) note(s *source, problems []Problem) {
	g.mu.Lock()
	before := g.problems[s]
	g.problems[s] = problems
	g.mu.Unlock()
	for _, p := range problems {
		known := slices.ContainsFunc(before, func(q Problem) bool { return q.Tool == p.Tool && q.Err.Error() == p.Err.Error() })
		switch {
		case known:
		case p.Tool == "":
			g.log.Error("the tools of an MCP server are not known", "server", p.Server, "err", p.Err)
		default:
			g.log.Error("a tool is not offered", "server", p.Server, "tool", p.Tool, "err", p.Err)
		}
	}
}

// refresh lists an upstream's tools and changes the offers accordingly. It reports false if the upstream is not up: it
// may say that its tools changed before it has answered the handshake, and they are listed when it has.
func (g *Gateway) refresh(ctx context.Context, s *source, several bool) bool {
	list, err := s.Tools(ctx)
	if errors.Is(err, registry.ErrNotSent) {
		return false
	}
	if err != nil {
		if ctx.Err() == nil {
			g.note(s, []Problem{{Server: s.Name(), Err: err}})
		}
		return true
	}
	stands := s.stands()
	g.offering.Lock()
	defer g.offering.Unlock()
	g.claim(s, list, several)
	var problems []Problem
	var fresh []server.ServerTool
	keep := map[string]bool{}
	for i, raw := range list {
		place := slices.Index(g.sources, s)*maxTools + i
		o, err := parseObject(raw)
		name := o.text("name")
		if err == nil && name == "" {
			err = errors.New("it has no name")
		}
		if err != nil {
			problems = append(problems, Problem{s.Name(), cut(name, raw), err})
			continue
		}
		shown := s.shows(name, several)
		if keep[shown] {
			problems = append(problems, Problem{s.Name(), name, errors.New("its server lists two tools of that name")})
			continue
		}
		g.mu.Lock()
		old := g.offers[shown]
		g.mu.Unlock()
		if err := g.claims.clash(shown); err != nil {
			problems = append(problems, Problem{s.Name(), name, err})
			continue
		}
		if old != nil && old.source != s {
			problems = append(problems, Problem{s.Name(), name, old.taken(shown)})
			continue
		}
		if old != nil && bytes.Equal(old.raw, raw) && old.stands == stands {
			keep[shown] = true
			g.mu.Lock()
			old.place = place
			g.mu.Unlock()
			continue
		}
		made, tool, err := g.makeOffer(ctx, s, o, name, shown, stands, list)
		if err != nil {
			problems = append(problems, Problem{s.Name(), name, err})
			continue
		}
		made.raw, made.place = raw, place
		keep[shown] = true
		g.mu.Lock()
		g.offers[shown] = made
		g.mu.Unlock()
		fresh = append(fresh, server.ServerTool{Tool: tool, Handler: g.handler(made)})
	}
	g.note(s, problems)
	g.withdraw(s, keep)
	if len(fresh) > 0 {
		g.server.AddTools(fresh...)
	}
	return true
}

// withdraw takes back the offers of an upstream that are not kept.
func (g *Gateway) withdraw(s *source, keep map[string]bool) {
	var gone []string
	g.mu.Lock()
	for shown, o := range g.offers {
		if o.source == s && !keep[shown] {
			delete(g.offers, shown)
			gone = append(gone, shown)
			g.guard.Unregister(o.tool.Action())
		}
	}
	g.mu.Unlock()
	if len(gone) > 0 {
		g.server.DeleteTools(gone...)
	}
}

// makeOffer registers a tool with the guard and makes what is listed of it.
func (g *Gateway) makeOffer(ctx context.Context, s *source, o object, name, shown, stands string, list []json.RawMessage) (*offer, mcp.Tool, error) {
	effect, from, policy, err := g.options.Describe(s.Name(), name, o.get("annotations"))
	if err != nil {
		return nil, mcp.Tool{}, err
	}
	if err := reachable(policy, s.server.URL != ""); err != nil {
		return nil, mcp.Tool{}, err
	}
	if policy.Lookups, err = g.lookups(s, policy.Lookups, list); err != nil {
		return nil, mcp.Tool{}, err
	}
	entry, err := registry.Compile(registry.Tool{
		Server: s.Name(), Name: name, Description: o.text("description"), InputSchema: o.get("inputSchema"), OutputSchema: o.get("outputSchema"),
		Version: stands, Effect: effect, EffectSource: from, Policy: policy,
		Handler: s.handler(name, o.raw(), policy.DownstreamKey),
	})
	if err != nil {
		return nil, mcp.Tool{}, err
	}
	tool, err := g.guard.Register(ctx, entry)
	if err != nil {
		return nil, mcp.Tool{}, err
	}
	for _, n := range tool.Notes {
		g.log.Warn(n, "server", s.Name(), "tool", name)
	}
	listed := listedTool(o, shown, tool)
	return &offer{source: s, tool: tool, stands: stands, listed: listed}, typed(listed, shown), nil
}

// reachable refuses a policy whose key would never arrive, and the downstream would be trusted to honour it.
func reachable(p registry.Policy, overHTTP bool) error {
	header := p.DownstreamKey.Header
	if header == "" {
		return nil
	}
	if !overHTTP {
		return fmt.Errorf("%w: downstream_key names the header %s, but this tool is not reached over HTTP", registry.ErrPolicy, header)
	}
	if err := CheckHeader(header); err != nil {
		return fmt.Errorf("%w: downstream_key: %w", registry.ErrPolicy, err)
	}
	return nil
}

// listedTool is a tool object as it is listed: the server's own, but for the name, the input schema, the output schema
// of a guarded tool, and task support, which nothing has here.
func listedTool(o object, shown string, t *toolguard.Tool) json.RawMessage {
	o = o.with("name", quote(shown)).with("inputSchema", t.ListedInput())
	if output, _ := t.ListedOutput(); t.HasOutput && t.Effective != registry.Read {
		o = o.with("outputSchema", output)
	}
	if execution, err := parseObject(o.get("execution")); err == nil && execution.text("taskSupport") != "forbidden" {
		o = o.with("execution", execution.without(func(name string) bool { return name == "taskSupport" }).raw())
	}
	return o.raw()
}

// typed is a listed tool as mcp-go knows it, as far as that goes. mcp-go panics on some annotations in schemas; such
// a schema is kept from it.
func typed(listed json.RawMessage, shown string) mcp.Tool {
	o, err := parseObject(listed)
	if err != nil {
		o = nil
	}
	t := mcp.Tool{}
	if json.Unmarshal(o.without(func(n string) bool { return n == "inputSchema" || n == "outputSchema" || n == "execution" }).raw(), &t) != nil {
		t = mcp.Tool{Description: o.text("description")}
	}
	t.Name = shown
	t.InputSchema, t.OutputSchema = mcp.ToolInputSchema{}, mcp.ToolOutputSchema{}
	t.RawInputSchema, t.RawOutputSchema = o.get("inputSchema"), o.get("outputSchema")
	if _, err := parseObject(t.RawInputSchema); err != nil || mcp.ValidateParamHeaderAnnotations(&t) != nil {
		t.RawInputSchema = json.RawMessage(`{"type":"object"}`)
	}
	return t
}

// rawResult is a result of mcp-go as JSON, with the listed tools as their servers made them.
func (g *Gateway) rawResult(result any) json.RawMessage {
	var names []string
	switch r := result.(type) {
	case mcp.ListToolsResult:
		for _, t := range r.Tools {
			names = append(names, t.Name)
		}
		r.Tools = []mcp.Tool{}
		result = r
	default:
		return encode(result)
	}
	o, err := parseObject(encode(result))
	if err != nil {
		return encode(result)
	}
	var offers []*offer
	g.mu.Lock()
	for _, name := range names {
		if offer := g.offers[name]; offer != nil {
			offers = append(offers, offer)
		}
	}
	slices.SortFunc(offers, func(a, b *offer) int { return cmp.Compare(a.place, b.place) })
	tools := make([]json.RawMessage, len(offers))
	for i, offer := range offers {
		tools[i] = offer.listed
	}
	g.mu.Unlock()
	return o.with("tools", array(tools...)).raw()
}

func cut(name string, raw json.RawMessage) string {
	if name != "" {
		return clip([]byte(name), 100)
	}
	return clip(raw, 60)
}
