package mcpguard

import (
	"context"

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
		reads, repeatable := t.Effective == registry.Read, t.Effective == registry.Idempotent
		listed[i] = server.ServerTool{
			Tool: listedTyped(mcp.Tool{
				Name: t.Name, Description: t.Description,
				Annotations: mcp.ToolAnnotation{ReadOnlyHint: &reads, IdempotentHint: &repeatable},
			}, t.Entry),
			Handler: func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return d.typed(ctx, t, shape, req)
			},
		}
	}
	return listed, nil
}
