package evals_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
)

// BenchmarkHTTP has 64 clients call one tool of an mcp-go server over streamable HTTP, the tool as it is and guarded, in
// turns within one run. The tool does nothing but one sync, as the least that a tool with an effect does; guarded there
// are the two of the ledger besides.
//
//	go test ./evals -run ^$ -bench HTTP -benchtime 1x
func BenchmarkHTTP(b *testing.B) {
	const rounds, clients = 7, 64
	plain := newMCP(b, nil)
	guard := newGuarded(b)
	guarded := newMCP(b, func(t server.ServerTool) server.ServerTool {
		all, err := mcpguard.Guard(guard.g, &mcpguard.Options{
			Server: "shop", // books/pay_invoice is known to this ledger already: every call would look under that definition too
			Describe: func(string, string, json.RawMessage) (registry.Effect, string, registry.Policy, error) {
				return registry.Write, "declared", registry.Policy{OncePer: []string{"/invoice_id"}}, nil
			},
		}, t)
		if err != nil {
			b.Fatal(err)
		}
		return all[0]
	})
	var rates [2][]float64
	for b.Loop() {
		for range rounds {
			for i, call := range []func(int) error{plain, guarded} {
				rate, _, _ := load(b, clients, time.Second, call)
				rates[i] = append(rates[i], rate)
			}
		}
	}
	of := median(rates[1]) / median(rates[0])
	b.Logf("plain %.0f/s, guarded %.0f/s", median(rates[0]), median(rates[1]))
	b.ReportMetric(median(rates[0]), "plain/s")
	b.ReportMetric(median(rates[1]), "guarded/s")
	b.ReportMetric(of, "of-plain")
	if of < 0.6 {
		b.Errorf("guarded %.2f of the calls a second, want at least 0.6", of)
	}
}

// newMCP serves a tool that makes one sync a call, as wrap makes it, and returns a client's call.
func newMCP(b *testing.B, wrap func(server.ServerTool) server.ServerTool) func(int) error {
	file, err := os.Create(filepath.Join(b.TempDir(), "effects"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	tool := server.ServerTool{
		Tool: mcp.NewTool("pay_invoice", mcp.WithString("invoice_id", mcp.Required()), mcp.WithNumber("amount"), mcp.WithString("currency"), mcp.WithString("memo"), mcp.WithBoolean("urgent")),
		Handler: func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if _, err := file.Write(resultBytes); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText("paid, thank you"), file.Sync()
		},
	}
	if wrap != nil {
		tool = wrap(tool)
	}
	s := server.NewMCPServer("books", "1")
	s.AddTools(tool)
	site := httptest.NewServer(server.NewStreamableHTTPServer(s))
	b.Cleanup(site.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.Cleanup(client.CloseIdleConnections)
	return func(n int) error {
		message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"pay_invoice","arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, n, argumentsOf(n))
		r, err := http.NewRequest(http.MethodPost, site.URL+"/mcp", strings.NewReader(message))
		if err != nil {
			return err
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"pay_invoice"},
		}
		got, err := client.Do(r)
		if err != nil {
			return err
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err == nil && (got.StatusCode != http.StatusOK || !strings.Contains(string(text), "paid, thank you") || strings.Contains(string(text), "ALREADY DONE")) {
			err = fmt.Errorf("call %d: %d: %s", n, got.StatusCode, text)
		}
		return err
	}
}
