package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// typed takes a call from mcp-go's types to the guard and back.
func (d *door) typed(ctx context.Context, t *toolguard.Tool, s shape, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	c, err := typedCall(ctx, req)
	if err != nil {
		return nil, err
	}
	from := lineOf(ctx)
	if from != nil {
		d.proofs.prove(from)
	}
	r := d.call(ctx, t, c)
	if from != nil && ctx.Err() == nil {
		d.proofs.expect(from, r.Delivered)
	}
	return typedReply(render(r, s))
}

// typedCall reads a call from mcp-go's types.
func typedCall(ctx context.Context, req mcp.CallToolRequest) (*toolCall, error) {
	c := &toolCall{arguments: req.Params.RawArguments, headers: req.Header, client: clientName(ctx)}
	var err error
	if len(c.arguments) == 0 && req.Params.Arguments != nil {
		if c.arguments, err = json.Marshal(req.Params.Arguments); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
	}
	if req.Params.Meta != nil {
		if c.meta, err = json.Marshal(req.Params.Meta); err != nil {
			return nil, fmt.Errorf("_meta: %w", err)
		}
	}
	if p := req.Params.MultiRoundTripParams; len(p.InputResponses) > 0 || p.RequestState != "" {
		if c.input, err = json.Marshal(p); err != nil {
			return nil, fmt.Errorf("input responses: %w", err)
		}
	}
	return c, nil
}

// typedReply is a reply in mcp-go's types. Content of a type that they do not know is kept raw.
func typedReply(r reply) (*mcp.CallToolResult, error) {
	if r.problem != nil {
		return nil, errors.New(r.problem.Message)
	}
	o, err := parseObject(r.result)
	if err != nil {
		return nil, err
	}
	result := &mcp.CallToolResult{}
	if err := json.Unmarshal(o.without(func(n string) bool { return n == "content" }).raw(), result); err != nil {
		return nil, err
	}
	result.Content = []mcp.Content{}
	for _, raw := range parseArray(o.get("content")) {
		content, err := mcp.UnmarshalContent(raw)
		if err != nil {
			content = rawContent{raw: raw}
		}
		result.Content = append(result.Content, content)
	}
	if meta, err := parseObject(o.get("_meta")); err == nil && result.Meta != nil {
		for _, m := range meta { // exact numbers
			if m.name != "progressToken" {
				result.Meta.SetMetaField(m.name, m.value)
			}
		}
	}
	return result, nil
}

// rawContent is content of any type, as it came.
type rawContent struct {
	mcp.TextContent
	raw json.RawMessage
}

// MarshalJSON returns the content as it came.
func (c rawContent) MarshalJSON() ([]byte, error) { return c.raw, nil }

// typedHandler calls the handler of a tool that mcp-go knows.
func (d *door) typedHandler(t server.ServerTool, keyMeta string) registry.Handler {
	return func(ctx context.Context, a *registry.Dispatch) (answer registry.Answer, err error) {
		req, err := typedRequest(t.Tool.Name, keyMeta, a)
		if err != nil {
			return registry.Answer{}, fmt.Errorf("%w: %w", registry.ErrNotSent, err)
		}
		if err := a.Sending(); err != nil {
			return registry.Answer{}, err
		}
		defer func() {
			if p := recover(); p != nil {
				answer, err = registry.Answer{}, fmt.Errorf("the handler panicked: %v", p)
			}
		}()
		result, err := t.Handler(ctx, req)
		if err != nil {
			return registry.Answer{}, err
		}
		if result == nil {
			return registry.Answer{}, errors.New("the handler returned neither a result nor an error")
		}
		text, err := json.Marshal(result)
		if err != nil {
			return registry.Answer{}, fmt.Errorf("the handler's result cannot be read: %w", err)
		}
		return registry.Answer{Result: text}, nil
	}
}

// typedRequest is an attempt as a request in mcp-go's types.
func typedRequest(name, keyMeta string, a *registry.Dispatch) (mcp.CallToolRequest, error) {
	o, err := callParams(name, keyMeta, a)
	if err != nil {
		return mcp.CallToolRequest{}, err
	}
	if meta, _ := parseObject(o.get("_meta")); len(meta) > 0 {
		// In the same process nothing is one hop away: the handler sees what the caller said about the protocol.
		caller, _ := parseObject(a.Meta)
		for _, m := range caller {
			if meta.get(m.name) == nil {
				meta = append(meta, m)
			}
		}
		o = o.with("_meta", meta.raw())
	}
	req := mcp.CallToolRequest{Request: mcp.Request{Method: string(mcp.MethodToolsCall)}}
	if err := json.Unmarshal(o.raw(), &req.Params); err != nil {
		return mcp.CallToolRequest{}, err
	}
	return req, nil
}
