package mcpguard

import (
	"bytes"
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
	result, err := typedAnswer(r, s)
	if from != nil && err == nil && ctx.Err() == nil {
		d.proofs.expect(from, r.Delivered)
	}
	return result, err
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
		if c.meta, err = req.Params.Meta.MarshalJSON(); err != nil {
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

// typedAnswer is what the guard answered in mcp-go's types: what render would write, read again.
func typedAnswer(r *toolguard.Result, s shape) (*mcp.CallToolResult, error) {
	if !r.Guarded {
		return typedReply(render(r, s))
	}
	verdict := encode(r.Verdict)
	o, problem := guarded(r, s, verdict)
	if problem != nil {
		return nil, errors.New(problem.Message)
	}
	return typedResult(o, verdict)
}

// typedReply is a reply in mcp-go's types.
func typedReply(r reply) (*mcp.CallToolResult, error) {
	if r.problem != nil {
		return nil, errors.New(r.problem.Message)
	}
	o, err := parseObject(r.result)
	if err != nil {
		return nil, err
	}
	return typedResult(o, nil)
}

// typedResult is a result in mcp-go's types, with the verdict if there is one. Content of a type that they do not know
// is kept raw.
func typedResult(o object, verdict json.RawMessage) (*mcp.CallToolResult, error) {
	meta, err := parseObject(o.get("_meta"))
	if verdict != nil {
		meta, err = meta.with(verdictMember, verdict), nil
	}
	readable := err == nil
	result := &mcp.CallToolResult{}
	rest := o.without(func(n string) bool { return n == "content" || n == "_meta" && readable })
	if len(rest) > 0 {
		if err := result.UnmarshalJSON(rest.raw()); err != nil {
			return nil, err
		}
	}
	blocks := parseArray(o.get("content"))
	result.Content = make([]mcp.Content, len(blocks))
	for i, raw := range blocks {
		result.Content[i] = typedContent(raw)
	}
	if !readable {
		return result, nil
	}
	result.Meta = &mcp.Meta{AdditionalFields: make(map[string]any, len(meta))}
	for _, m := range meta {
		if m.name != "progressToken" {
			result.Meta.AdditionalFields[m.name] = m.value // exact numbers
		} else if result.Meta.ProgressToken, err = decoded(m.value); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// typedContent is a content block in mcp-go's types. What most are, a text and nothing else, is not decoded at length.
func typedContent(raw json.RawMessage) mcp.Content {
	if b, err := parseObject(raw); err == nil && len(b) == 2 && b.text("type") == mcp.ContentTypeText {
		if text := b.get("text"); len(text) > 0 && text[0] == '"' {
			return mcp.TextContent{Type: mcp.ContentTypeText, Text: unquote(text)}
		}
	}
	content, err := mcp.UnmarshalContent(raw)
	if err != nil {
		return rawContent{raw: raw}
	}
	return content
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
		text, err := result.MarshalJSON()
		if err != nil {
			return registry.Answer{}, fmt.Errorf("the handler's result cannot be read: %w", err)
		}
		return registry.Answer{Result: text}, nil
	}
}

// typedRequest is an attempt as a request in mcp-go's types, as they would read it from the wire. In the same process
// nothing is one hop away: the handler sees what the caller said about the protocol too.
func typedRequest(name, keyMeta string, a *registry.Dispatch) (mcp.CallToolRequest, error) {
	req := mcp.CallToolRequest{Request: mcp.Request{Method: string(mcp.MethodToolsCall)}}
	p := &req.Params
	p.Name, p.RawArguments = name, bytes.Clone(bytes.TrimSpace(a.Arguments))
	err := json.Unmarshal(p.RawArguments, &p.Arguments)
	if err != nil {
		return req, err
	}
	if p.Meta, err = typedMeta(keyMeta, a); err != nil {
		return req, fmt.Errorf("_meta: %w", err)
	}
	if a.Input != nil {
		if err := json.Unmarshal(a.Input, &p.MultiRoundTripParams); err != nil {
			return req, fmt.Errorf("the input responses cannot be read: %w", err)
		}
	}
	return req, nil
}

// typedMeta is the _meta of an attempt: the caller's and the operation's key; nil if it is empty.
func typedMeta(keyMeta string, a *registry.Dispatch) (*mcp.Meta, error) {
	caller, err := parseObject(a.Meta)
	if err != nil && len(a.Meta) > 0 && string(a.Meta) != "null" {
		return nil, err
	}
	fields := make(map[string]any, len(caller)+1)
	for _, m := range caller {
		if fields[m.name], err = decoded(m.value); err != nil {
			return nil, err
		}
	}
	if a.Key != "" {
		fields[keyMember] = a.Key
		if keyMeta != "" {
			fields[keyMeta] = a.Key
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	token := fields["progressToken"]
	delete(fields, "progressToken")
	return &mcp.Meta{ProgressToken: token, AdditionalFields: fields}, nil
}
