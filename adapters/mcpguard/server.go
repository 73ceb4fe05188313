package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Options are the options of [Guard].
type Options struct {
	Server  string // the server's name in keys and policies; needed
	Version string // what stands behind the tools; part of what an approval is for
	// Describe says what calling a tool does, where that comes from, and how its calls are guarded. nil: what the
	// annotations and the name say, with an empty policy.
	Describe func(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error)

	Sources Sources             // where runtime facts come from
	Env     func(string) string // reads the environment; nil: os.Getenv
}

// Guard wraps tools of an mcp-go server, so that their handlers are called through the guard:
//
//	guarded, err := mcpguard.Guard(g, &mcpguard.Options{Server: "books"}, tools...)
//	mcpServer.AddTools(guarded...)
//
// An error that a handler returns leaves open what it did, unless it wraps [registry.ErrNotApplied] (known not to
// have done it) or [registry.ErrNotSent]; a panic does too. Handlers get the key of their operation and the number of
// the attempt from [registry.DispatchFrom], and the key in the request's _meta, as dev.toolguard/key. Facts that the Go
// context of a call carries ([toolguard.WithFacts], as a middleware may put there) count where Sources does not declare
// them, and block the call where it does and they differ. Task support is taken off, because a task's outcome would go past the guard. A result
// counts as delivered when a later guarded call comes in on the same session, or, where the protocol knows none, on the
// same connection; a proxy that shares connections among clients makes them one, and so does a listener whose connections
// have one and the same local address, as those of tunnels may.
func Guard(g *toolguard.Guard, o *Options, tools ...server.ServerTool) ([]server.ServerTool, error) {
	if o == nil || o.Server == "" {
		return nil, errors.New("mcpguard: Options.Server is needed: it is part of every key")
	}
	if err := o.Sources.Check(); err != nil {
		return nil, err
	}
	describe := o.Describe
	if describe == nil {
		describe = presume
	}
	d := doorOf(g, o)
	guarded := make([]server.ServerTool, len(tools))
	for i, t := range tools {
		entry, err := d.compileTyped(t, o, describe)
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", t.Tool.Name, err)
		}
		registered, err := g.Register(context.Background(), entry)
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", t.Tool.Name, err)
		}
		shape := shapeOf(registered)
		guarded[i] = server.ServerTool{
			Tool: listedTyped(t.Tool, entry),
			Handler: func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return d.typed(ctx, registered, shape, req)
			},
		}
	}
	return guarded, nil
}

func doorOf(g *toolguard.Guard, o *Options) *door {
	if o == nil {
		o = &Options{}
	}
	env := o.Env
	if env == nil {
		env = os.Getenv
	}
	return newDoor(g, o.Sources, env)
}

// compileTyped makes the entry of a tool that mcp-go knows.
func (d *door) compileTyped(t server.ServerTool, o *Options, describe func(string, string, json.RawMessage) (registry.Effect, string, registry.Policy, error)) (*registry.Entry, error) {
	text, err := json.Marshal(t.Tool)
	if err != nil {
		return nil, err
	}
	raw, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	effect, from, policy, err := describe(o.Server, t.Tool.Name, raw.get("annotations"))
	if err != nil {
		return nil, err
	}
	if err := reachable(policy, false); err != nil {
		return nil, err
	}
	return registry.Compile(registry.Tool{
		Server: o.Server, Name: t.Tool.Name, Description: t.Tool.Description, InputSchema: raw.get("inputSchema"), OutputSchema: raw.get("outputSchema"),
		Version: o.Version, Effect: effect, EffectSource: from, Policy: policy,
		Handler: d.typedHandler(t, policy.DownstreamKey.Meta),
	})
}

// listedTyped is a tool as it is listed.
func listedTyped(t mcp.Tool, e *registry.Entry) mcp.Tool {
	t.InputSchema, t.RawInputSchema = mcp.ToolInputSchema{}, e.ListedInput()
	if output, _ := e.ListedOutput(); e.HasOutput {
		t.OutputSchema, t.RawOutputSchema = mcp.ToolOutputSchema{}, output
	}
	t.Execution = nil
	return t
}
