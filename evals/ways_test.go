package evals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/sashabaranov/go-openai"

	"toolguard.dev/adapters/eventguard"
	"toolguard.dev/adapters/goguard"
	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/adapters/openaiguard"
	"toolguard.dev/badgerstore"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

type invoice struct {
	ID    string `json:"invoice_id"`
	Cents int64  `json:"cents"`
}

type payment struct {
	ID string `json:"payment_id"`
}

// house is one tool on one ledger, and every way to it.
type house struct {
	t     *testing.T
	guard *toolguard.Guard
	pay   *goguard.Func[invoice, payment]
	paid  atomic.Int64
}

// work is what the runtime knows of the work, by whatever way it says so.
var work = keyderive.Facts{Tenant: "acme", Workflow: "dunning", SourceEvent: "evt_1"}

func newHouse(t *testing.T, ledger string) *house {
	t.Helper()
	store, err := badgerstore.Open(ledger, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t}
	if h.guard, err = toolguard.Open(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.guard.Close(context.Background())
		_ = store.Close()
	})
	h.pay, err = goguard.New(h.guard, registry.Tool{
		Server: "books", Name: "pay_invoice", Policy: registry.Policy{OncePer: []string{"source_event", "/invoice_id"}},
	}, func(_ context.Context, in invoice) (payment, error) {
		return payment{fmt.Sprintf("PAY-%d", h.paid.Add(1))}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// serve starts a server for the length of a call.
func (h *house) serve(handler http.Handler) string {
	s := httptest.NewServer(handler)
	h.t.Cleanup(s.Close)
	return s.URL
}

// ways are the ways to the tool. Each calls it once and returns what the caller was told.
var ways = map[string]func(*house) (string, error){
	"MCP over HTTP": func(h *house) (string, error) {
		fact := func(header string) mcpguard.FactSource { return mcpguard.From(mcpguard.Source{Header: header}) }
		tools, err := mcpguard.Tools(h.guard, &mcpguard.Options{Sources: mcpguard.Sources{Facts: map[string]mcpguard.FactSource{
			"tenant": fact("Toolguard-Tenant"), "workflow": fact("Toolguard-Workflow"), "source_event": fact("Toolguard-Source-Event"),
		}}}, h.pay.Tool)
		if err != nil {
			return "", err
		}
		s := server.NewMCPServer("books", "1")
		s.AddTools(tools...)
		c, err := client.NewStreamableHttpClient(h.serve(server.NewStreamableHTTPServer(s)), transport.WithHTTPHeaders(map[string]string{
			"Toolguard-Tenant": work.Tenant, "Toolguard-Workflow": work.Workflow, "Toolguard-Source-Event": work.SourceEvent,
		}))
		if err != nil {
			return "", err
		}
		defer c.Close()
		if err := c.Start(h.t.Context()); err != nil {
			return "", err
		}
		if _, err := c.Initialize(h.t.Context(), mcp.InitializeRequest{Params: mcp.InitializeParams{ProtocolVersion: "2025-11-25"}}); err != nil {
			return "", err
		}
		req := mcp.CallToolRequest{}
		req.Params.Name, req.Params.Arguments = "pay_invoice", map[string]any{"cents": 4200, "invoice_id": "INV-7"}
		r, err := c.CallTool(h.t.Context(), req)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(r)
		return string(text), err
	},
	"OpenAI": func(h *house) (string, error) {
		tools, err := openaiguard.New(h.guard, nil, h.pay.Tool)
		if err != nil {
			return "", err
		}
		config := openai.DefaultConfig("no secret")
		config.BaseURL = h.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), `"role":"tool"`) {
				fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}`)
				return
			}
			fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":`+
				`{"name":"pay_invoice","arguments":"{\"invoice_id\":\"INV-7\",\"cents\":4.2e3}"}}]},"finish_reason":"tool_calls"}]}`)
		}))
		conversation, err := tools.Run(toolguard.WithFacts(h.t.Context(), work), openai.NewClientWithConfig(config), openai.ChatCompletionRequest{
			Model: "m", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Pay it."}},
		}, nil)
		if err != nil {
			return "", err
		}
		return conversation[2].Content, nil
	},
	"in process": func(h *house) (string, error) {
		out, _, err := h.pay.Call(toolguard.WithFacts(h.t.Context(), work), invoice{"INV-7", 4200})
		return out.ID, err
	},
	"an event": func(h *house) (string, error) {
		var said string
		var failed error
		event := eventguard.Handler(eventguard.Stripe, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			out, _, err := h.pay.Call(r.Context(), invoice{"INV-7", 4200})
			said, failed = out.ID, err
		}))
		url := h.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // who it is for is known to the endpoint
			event.ServeHTTP(w, r.WithContext(toolguard.WithFacts(r.Context(), keyderive.Facts{Tenant: work.Tenant, Workflow: work.Workflow})))
		}))
		r, err := http.Post(url, "application/json", strings.NewReader(`{"id":"evt_1","type":"invoice.finalized"}`))
		if err != nil {
			return "", err
		}
		return said, errors.Join(failed, r.Body.Close())
	},
}

// check sees that there was one effect, one operation, and that everybody was told of it.
func (h *house) check(said map[string]string) {
	h.t.Helper()
	for way, text := range said {
		if !strings.Contains(text, "PAY-1") {
			h.t.Errorf("%s: told %s", way, text)
		}
	}
	if n := h.paid.Load(); n > 1 {
		h.t.Errorf("paid %d times", n)
	}
	list, err := h.guard.Recent(h.t.Context(), work, 10)
	if err != nil || len(list) != 1 || list[0].Attempts != 1 {
		h.t.Errorf("operations: %+v, %v", list, err)
	}
}

// TestOneEffectWhicheverWay comes by each way first, goes on by the others, and comes by all of them again in a process
// that starts anew on the ledger.
func TestOneEffectWhicheverWay(t *testing.T) {
	for first := range ways {
		t.Run(first+" first", func(t *testing.T) {
			ledger := t.TempDir()
			t.Run("one after the other", func(t *testing.T) {
				h, said := newHouse(t, ledger), map[string]string{}
				order := []string{first}
				for way := range ways {
					order = append(order, way)
				}
				for _, way := range order {
					var err error
					if said[way], err = ways[way](h); err != nil {
						t.Fatalf("%s: %v", way, err)
					}
				}
				h.check(said)
				if h.paid.Load() != 1 {
					t.Errorf("paid %d times", h.paid.Load())
				}
			})
			t.Run("and again after a restart", func(t *testing.T) {
				h, said := newHouse(t, ledger), map[string]string{}
				for way, call := range ways {
					var err error
					if said[way], err = call(h); err != nil {
						t.Fatalf("%s: %v", way, err)
					}
				}
				h.check(said)
				if h.paid.Load() != 0 {
					t.Errorf("paid %d times", h.paid.Load())
				}
			})
		})
	}
}

// TestOneEffectAllWaysAtOnce comes by all ways at the same moment.
func TestOneEffectAllWaysAtOnce(t *testing.T) {
	h := newHouse(t, t.TempDir())
	var mu sync.Mutex
	var calls sync.WaitGroup
	said := map[string]string{}
	for way, call := range ways {
		for n := range 4 {
			calls.Go(func() {
				text, err := call(h)
				if err != nil {
					t.Errorf("%s: %v", way, err)
				}
				mu.Lock()
				defer mu.Unlock()
				said[fmt.Sprint(way, n)] = text
			})
		}
	}
	calls.Wait()
	h.check(said)
	if h.paid.Load() != 1 || len(said) != 4*len(ways) {
		t.Errorf("paid %d times; %q", h.paid.Load(), said)
	}
}
