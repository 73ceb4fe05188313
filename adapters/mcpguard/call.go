package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// toolCall is one tools/call as it arrived.
type toolCall struct {
	arguments json.RawMessage
	meta      json.RawMessage
	input     json.RawMessage // inputResponses and requestState, if it has any
	headers   http.Header     // of the HTTP request, or nil
	client    string
}

func (c *toolCall) transport() string {
	if len(c.headers) > 0 {
		return "http"
	}
	return "stdio"
}

// door is where calls go to the guard.
type door struct {
	guard   *toolguard.Guard
	sources Sources
	env     func(string) string

	// For the calls that come through mcp-go's types:
	proofs proofs
}

func newDoor(g *toolguard.Guard, s Sources, env func(string) string) *door {
	return &door{guard: g, sources: s, env: env}
}

// call gives one call to the guard and returns what it got.
func (d *door) call(ctx context.Context, t *toolguard.Tool, c *toolCall) *toolguard.Result {
	facts, missing, conflict := d.gather(ctx, c)
	return d.guard.Do(ctx, toolguard.Call{
		Tool: t, Arguments: c.arguments, Facts: facts, Missing: missing, Conflict: conflict, Meta: traced(c.meta, c.headers), Input: c.input,
	})
}

// gather collects what the runtime says about a call: with it, and in its Go context.
func (d *door) gather(ctx context.Context, c *toolCall) (f keyderive.Facts, missing, conflict []string) {
	f, missing, conflict = d.sources.Gather(c.transport(), c.meta, c.headers, d.env, c.client)
	return f, missing, append(conflict, d.sources.carried(c.transport(), toolguard.FactsFrom(ctx), &f)...)
}

// handler takes the calls of one offer from mcp-go. Those of our own connections carry the message as it came, and
// take back the raw reply; for others the reply is made of mcp-go's types.
func (g *Gateway) handler(o *offer) server.ToolHandlerFunc {
	shape := shapeOf(o.tool)
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		x, ok := ctx.Value(exchangeKey{}).(*exchange)
		if !ok {
			return g.door.typed(ctx, o.tool, shape, req)
		}
		c := x.call(ctx)
		meta, forget := g.expectProgress(x.teller, c.meta)
		defer forget()
		c.meta = meta
		r := g.door.call(ctx, o.tool, c)
		rendered := render(r, shape)
		x.reply, x.delivered, x.modern = &rendered, r.Delivered, server.IsModernRequest(ctx)
		return &mcp.CallToolResult{}, nil
	}
}

// call reads a tools/call from the message as it came.
func (x *exchange) call(ctx context.Context) *toolCall {
	c := &toolCall{arguments: x.params.get("arguments"), meta: x.params.get("_meta"), headers: x.header, client: clientName(ctx)}
	if responses, state := x.params.get("inputResponses"), x.params.get("requestState"); responses != nil || state != nil {
		input := object{}
		if responses != nil {
			input = append(input, member{"inputResponses", responses})
		}
		if state != nil {
			input = append(input, member{"requestState", state})
		}
		c.input = input.raw()
	}
	return c
}

// checkMeta refuses a request's _meta that cannot be read beyond doubt: the facts in it, which say whose call this is
// and which work it belongs to, would go unseen.
func checkMeta(meta json.RawMessage) error {
	if len(meta) == 0 || string(meta) == "null" {
		return nil
	}
	v, err := keyderive.Parse(meta)
	if err != nil {
		return fmt.Errorf("_meta cannot be read: %w", err)
	}
	if _, ok := v.(map[string]any); !ok {
		return errors.New("_meta cannot be read: it is no object")
	}
	return nil
}

// clientName is the name that the client gives itself, for this request or in the handshake.
func clientName(ctx context.Context) string {
	if info := server.RequestProtocolInfoFromContext(ctx); info != nil && info.ClientInfo != nil {
		return info.ClientInfo.Name
	}
	if s, ok := server.ClientSessionFromContext(ctx).(server.SessionWithClientInfo); ok {
		return s.GetClientInfo().Name
	}
	return ""
}

// handler sends the attempts of one tool to its server. raw is the tool as the server listed it.
func (s *source) handler(name string, raw json.RawMessage, key registry.DownstreamKey) registry.Handler {
	var tool *mcp.Tool
	if s.server.URL != "" {
		known := typed(raw, name)
		tool = &known
	}
	return func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		params, err := callParams(name, key.Meta, d)
		if err != nil {
			return registry.Answer{}, fmt.Errorf("%w: %w", registry.ErrNotSent, err)
		}
		x, _ := ctx.Value(exchangeKey{}).(*exchange)
		defer s.calling.enter(x)()
		r := &request{
			method: string(mcp.MethodToolsCall), params: params.raw(), meta: d.Meta, tool: tool, read: d.Operation == "", sending: d.Sending, sent: d.Sent,
		}
		if key.Header != "" && d.Key != "" {
			r.header = http.Header{}
			r.header.Set(key.Header, d.Key)
		}
		a, err := s.call(ctx, r)
		if err != nil || a.Error != nil {
			return a, err
		}
		if _, err := parseObject(a.Result); err != nil {
			return registry.Answer{}, fmt.Errorf("%s answered with a result that cannot be read: %w", s.Name(), err)
		}
		return a, nil
	}
}

// callParams are the parameters of a tools/call upstream.
func callParams(name, keyMeta string, d *registry.Dispatch) (object, error) {
	meta := object{}
	if len(d.Meta) > 0 {
		caller, err := parseObject(d.Meta)
		if err != nil && string(d.Meta) != "null" {
			return nil, fmt.Errorf("_meta: %w", err)
		}
		meta = caller.without(func(n string) bool { return ofOneHop(n) || n == keyMeta })
	}
	if d.Key != "" {
		meta = meta.with(keyMember, quote(d.Key))
		if keyMeta != "" {
			meta = meta.with(keyMeta, quote(d.Key))
		}
	}
	params := object{{"name", quote(name)}, {"arguments", d.Arguments}}
	if len(meta) > 0 {
		params = params.with("_meta", meta.raw())
	}
	if d.Input != nil {
		input, err := parseObject(d.Input)
		if err != nil {
			return nil, errors.New("the input responses cannot be read")
		}
		for _, m := range input {
			params = params.with(m.name, m.value)
		}
	}
	return params, nil
}
