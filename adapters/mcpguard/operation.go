package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/toolguard"
)

const (
	operationTool = "toolguard_operation"
	maxOperations = 20       // without a key
	maxAnswer     = 48 << 10 // bytes of what it answers with
)

// operationListed is the tool as it is listed. It declares no output schema: what it shows depends on the operation.
var operationListed = json.RawMessage(`{"name":"toolguard_operation",` +
	`"title":"What became of earlier calls",` +
	`"description":"Shows what became of earlier calls of the guarded tools, also those made before a crash, a restart or in another conversation. ` +
	`Without key: the latest calls that changed something. With key (the key in a call's verdict or text): that one, with its result. ` +
	`Use it when you do not know whether something was already done. It changes nothing.",` +
	`"inputSchema":{"type":"object","properties":{"key":{"type":"string","description":"The key of one call; leave it out for the latest calls."}},"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`)

// offerOperationTool adds the tool that shows earlier calls.
func (g *Gateway) offerOperationTool() {
	o := &offer{listed: operationListed, place: math.MaxInt}
	g.mu.Lock()
	g.offers[operationTool] = o
	g.mu.Unlock()
	g.server.AddTools(server.ServerTool{
		Tool: typed(operationListed, operationTool),
		Handler: func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			x, ok := ctx.Value(exchangeKey{}).(*exchange)
			if !ok {
				return g.door.operationTyped(ctx, req)
			}
			x.reply, x.modern = &reply{result: g.door.operation(ctx, x.call(ctx))}, server.IsModernRequest(ctx)
			return &mcp.CallToolResult{}, nil
		},
	})
}

// OperationTool is the read-only tool toolguard_operation for an mcp-go server whose tools were wrapped with [Guard]:
// it shows what became of earlier calls.
func OperationTool(g *toolguard.Guard, o *Options) server.ServerTool {
	d := doorOf(g, o)
	return server.ServerTool{Tool: typed(operationListed, operationTool), Handler: d.operationTyped}
}

func (d *door) operationTyped(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	c, err := typedCall(ctx, req)
	if err != nil {
		return nil, err
	}
	return typedReply(reply{result: d.operation(ctx, c)})
}

// operation answers a call of the tool: within the caller's tenant and workflow, never beyond.
func (d *door) operation(ctx context.Context, c *toolCall) json.RawMessage {
	facts, missing, conflict := d.gather(ctx, c)
	for _, name := range append(missing, conflict...) {
		if name == "tenant" || name == "workflow" {
			return textResult("NOT DONE. The runtime did not say, or not clearly, which "+name+" this is, so no operation can be shown.", true).raw()
		}
	}
	var args struct {
		Key *string `json:"key"`
	}
	if len(c.arguments) > 0 {
		if err := json.Unmarshal(c.arguments, &args); err != nil {
			return textResult("NOT DONE. The argument key must be a text.", true).raw()
		}
	}
	if args.Key != nil && *args.Key != "" {
		summary, err := d.guard.Lookup(ctx, facts, *args.Key)
		if errors.Is(err, toolguard.ErrNotFound) {
			return textResult("There is no operation with that key.", true).raw()
		}
		if err != nil {
			return textResult("NOT DONE. The ledger could not be read.", true).raw()
		}
		return shown(object{{"operation", bounded(encode(summary), maxAnswer)}})
	}
	list, err := d.guard.Recent(ctx, facts, maxOperations)
	if err != nil {
		return textResult("NOT DONE. The ledger could not be read.", true).raw()
	}
	blocks := make([]json.RawMessage, 0, len(list))
	for _, summary := range list {
		blocks = append(blocks, bounded(encode(summary), maxAnswer/maxOperations))
	}
	return shown(object{{"operations", array(blocks...)}})
}

// shown is a result that says the same in text and structured.
func shown(o object) json.RawMessage {
	return object{{"content", array(textBlock(string(o.raw())))}, {"structuredContent", o.raw()}}.raw()
}

// bounded is an operation with its result left out where it is too large to be shown.
func bounded(summary json.RawMessage, limit int) json.RawMessage {
	o, err := parseObject(summary)
	if err != nil || len(summary) <= limit {
		return summary
	}
	o = o.with("result", quote(fmt.Sprintf("left out: %d bytes", len(o.get("result")))))
	out := object{}
	for _, m := range o {
		if len(m.value) > limit/4 {
			m.value = quote(strings.TrimSpace(clip(m.value, limit/4)))
		}
		out = append(out, m)
	}
	return out.raw()
}
