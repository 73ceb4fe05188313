package mcpguard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// One line guards the tools of a server that exists already.
func ExampleGuard() {
	ctx := context.Background()
	guard, err := toolguard.Open(ctx, storetest.NewMemory(), nil) // a real server opens a ledger on disk
	if err != nil {
		log.Fatal(err)
	}
	sent := 0
	tools := []server.ServerTool{{
		Tool: mcp.NewTool("send_mail", mcp.WithString("to", mcp.Required())),
		Handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			sent++
			return mcp.NewToolResultText("sent"), nil
		},
	}}

	tools, err = mcpguard.Guard(guard, &mcpguard.Options{Server: "mail"}, tools...)
	if err != nil {
		log.Fatal(err)
	}

	s := server.NewMCPServer("mail", "1.0")
	s.AddTools(tools...)
	call := json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_mail","arguments":{"to":"ann@example.org"}}}`)
	s.HandleMessage(ctx, call)
	s.HandleMessage(ctx, call) // the agent did not see the first answer
	fmt.Println(sent)
	// Output: 1
}

// A gateway guards servers that are programs of their own, whatever they are written in.
func ExampleOpenGateway() {
	ctx := context.Background()
	guard, err := toolguard.Open(ctx, storetest.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	gateway, err := mcpguard.OpenGateway(ctx, guard, []mcpguard.Server{
		{Name: "books", Command: "node", Args: []string{"books.js"}, Env: []string{"PATH=/usr/bin:/bin"}},
	}, &mcpguard.GatewayOptions{
		Sources: mcpguard.Sources{
			Preset: "auto",
			Facts: map[string]mcpguard.FactSource{
				"source_event": mcpguard.From(mcpguard.Source{Meta: "/dev.toolguard~1context/source_event"}),
			},
		},
		Describe: func(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
			if tool == "pay_invoice" {
				return registry.Write, "declared", registry.Policy{OncePer: []string{"source_event", "/invoice_id"}}, nil
			}
			effect, source := registry.PresumedEffect(tool, annotations)
			return effect, source, registry.Policy{}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer gateway.Close()
	if err := gateway.ServeStdio(ctx, os.Stdin, os.Stdout); err != nil {
		log.Print(err)
	}
}
