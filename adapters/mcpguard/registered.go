package mcpguard

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Tools are tools that are registered with the guard already, such as Go functions (package goguard), for an mcp-go
// server:
//
//	served, err := mcpguard.Tools(guard, nil, pay.Tool)
//	mcpServer.AddTools(served...)
//
// Of the options only Sources and Env count; nil is good. Facts in the Go context of a call count as for [Guard].
func Tools(g *toolguard.Guard, o *Options, tools ...*toolguard.Tool) ([]server.ServerTool, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.Sources.Check(); err != nil {
		return nil, err
	}
	d := doorOf(g, o)
	listed := make([]server.ServerTool, len(tools))
	for i, t := range tools {
		shape := shapeOf(t)
		listed[i] = server.ServerTool{
			Tool: listedTyped(mcp.Tool{
				Name: t.Name, Description: t.Description, Annotations: annotations(t),
			}, t.Entry),
			Handler: func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return d.typed(ctx, t, shape, req)
			},
		}
	}
	return listed, nil
}

// offerRegistered offers the tools that are registered already, behind those of the upstreams.
func (g *Gateway) offerRegistered(several bool) error {
	for i, t := range g.options.Tools {
		shown := t.Name
		if several {
			shown = t.Server + "__" + shown
		}
		listed := object{{"name", quote(shown)}}
		if t.Description != "" {
			listed = append(listed, member{"description", quote(t.Description)})
		}
		listed = append(listed, member{"inputSchema", t.ListedInput()})
		if output, _ := t.ListedOutput(); t.HasOutput {
			listed = append(listed, member{"outputSchema", output})
		}
		listed = append(listed, member{"annotations", encode(annotations(t))})
		o := &offer{tool: t, listed: listed.raw(), place: len(g.sources)*maxTools + i}
		g.mu.Lock()
		taken := g.offers[shown] != nil
		g.offers[shown] = o
		g.mu.Unlock()
		if taken {
			return fmt.Errorf("%w: %s would be offered as %s, as another tool is", ErrClash, t.Action(), shown)
		}
		g.server.AddTools(server.ServerTool{Tool: typed(o.listed, shown), Handler: g.handler(o)})
	}
	return nil
}

// severalServers tells whether the tools on offer have more than one server.
func (g *Gateway) severalServers(upstreams []Server) bool {
	names := map[string]bool{}
	for _, t := range g.options.Tools {
		names[t.Server] = true
	}
	return len(upstreams)+len(names) > 1
}

// annotations say what calling a registered tool does.
func annotations(t *toolguard.Tool) mcp.ToolAnnotation {
	reads, repeatable := t.Effective == registry.Read, t.Effective == registry.Idempotent
	return mcp.ToolAnnotation{ReadOnlyHint: &reads, IdempotentHint: &repeatable}
}

// taken says that an offer which is no upstream's has a name already.
func (o *offer) taken(shown string) error {
	if o.tool == nil {
		return fmt.Errorf("the name %s is taken by a tool of ours", shown)
	}
	return fmt.Errorf("%w: it would be offered as %s, as %s is; give one of the servers another name", ErrClash, shown, o.tool.Action())
}
