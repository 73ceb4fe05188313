package mcpguard_test

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
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// inProcess is an mcp-go server with guarded tools, and a session with it.
type inProcess struct {
	t       *testing.T
	server  *server.MCPServer
	session *plainSession
	store   *storetest.Memory
	ids     int

	mu   sync.Mutex
	done []string
}

// plainSession is a client session that hears nothing.
type plainSession struct {
	id   string
	news chan mcp.JSONRPCNotification
}

func (s *plainSession) Initialize()                                         {}
func (s *plainSession) Initialized() bool                                   { return true }
func (s *plainSession) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.news }
func (s *plainSession) SessionID() string                                   { return s.id }

func newInProcess(t *testing.T, tools ...server.ServerTool) *inProcess {
	t.Helper()
	p := &inProcess{t: t, store: storetest.NewMemory(), session: &plainSession{"one", make(chan mcp.JSONRPCNotification, 10)}}
	g, err := toolguard.Open(t.Context(), p.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := mcpguard.Guard(g, &mcpguard.Options{Server: "books"}, tools...)
	if err != nil {
		t.Fatal(err)
	}
	p.server = server.NewMCPServer("books", "1", server.WithTaskCapabilities(true, true, true))
	p.server.AddTools(append(guarded, mcpguard.OperationTool(g, nil))...)
	return p
}

func (p *inProcess) call(params string) answer {
	p.t.Helper()
	p.ids++
	ctx := p.server.WithContext(p.t.Context(), p.session)
	response := p.server.HandleMessage(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, p.ids, params))
	text, err := json.Marshal(response)
	if err != nil {
		p.t.Fatal(err)
	}
	return readAnswer(p.t, string(text))
}

func (p *inProcess) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = append(p.done, what)
}

func named(name string, handler server.ToolHandlerFunc) server.ServerTool {
	return server.ServerTool{Tool: mcp.NewTool(name, mcp.WithString("x"), mcp.WithTaskSupport(mcp.TaskSupportOptional)), Handler: handler}
}

func TestGuardInProcess(t *testing.T) {
	var p *inProcess
	p = newInProcess(t,
		named("pay", func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			p.note(string(req.Params.RawArguments))
			if server.ClientSessionFromContext(ctx) == nil || server.ServerFromContext(ctx) == nil {
				t.Error("the handler does not see whose call it is")
			}
			if key, _ := req.Params.Meta.AdditionalFields["dev.toolguard/key"].(string); key == "" {
				t.Error("the handler does not get the key")
			}
			return mcp.NewToolResultText("paid"), nil
		}),
		named("fail", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, fmt.Errorf("no such account: %w", registry.ErrNotApplied)
		}),
		named("lose", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("connection reset")
		}),
		named("panic", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { panic("oh") }),
		named("nothing", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil }),
		named("ask", func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if _, ok := server.InputResponse(req.Params.InputResponses, "sure"); !ok {
				return server.NewInputRequestBuilder("s1").Elicit("sure", mcp.ElicitationParams{Message: "sure?"}).ToolResult(), nil
			}
			return mcp.NewToolResultText("sure, " + req.Params.RequestState), nil
		}),
	)
	first := p.call(`{"name":"pay","arguments":{"x":"9007199254740993"}}`)
	first.is(t, "fresh")
	if first.text() != "paid" {
		t.Error(first.raw)
	}
	p.call(`{"name":"pay","arguments":{"x":"9007199254740993"}}`).is(t, "replayed/done")
	if len(p.done) != 1 {
		t.Errorf("done: %q", p.done)
	}
	p.call(`{"name":"pay","arguments":{"x":"as a task"},"task":{}}`).is(t, "fresh") // task support is off: answered like any call
	for tool, want := range map[string]string{
		"lose": "escalated/outcome_unknown", "panic": "escalated/outcome_unknown", "nothing": "escalated/outcome_unknown",
	} {
		p.call(`{"name":"`+tool+`","arguments":{}}`).is(t, want)
	}
	refused := p.call(`{"name":"fail","arguments":{}}`)
	if v := refused.body.Meta.Verdict; v == nil || v.Status != toolguard.StatusFailed || !strings.Contains(refused.text(), "no such account") || !strings.Contains(refused.raw, `"isError":true`) {
		t.Error(refused.raw)
	}
	meta := `"_meta":{` + modernMeta + `}`
	question := p.call(`{"name":"ask","arguments":{},` + meta + `}`)
	if !strings.Contains(question.raw, `"resultType":"input_required"`) {
		t.Fatal(question.raw)
	}
	got := p.call(`{"name":"ask","arguments":{},"inputResponses":{"sure":{"action":"accept"}},"requestState":"s1",` + meta + `}`)
	if !strings.Contains(got.text(), "sure, s1") {
		t.Error(got.raw)
	}
	list := p.call(`{"name":"toolguard_operation","arguments":{}}`)
	if !strings.Contains(list.text(), first.body.Meta.Verdict.Key) {
		t.Error(list.raw)
	}
}

func TestDeliveryInProcess(t *testing.T) {
	calls := 0
	p := newInProcess(t, named("pay", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls++
		return mcp.NewToolResultText("paid"), nil
	}), named("note", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("noted"), nil
	}))
	p.call(`{"name":"pay","arguments":{}}`).is(t, "fresh")
	p.session = &plainSession{"two", nil}
	p.call(`{"name":"note","arguments":{}}`).is(t, "fresh")
	p.call(`{"name":"pay","arguments":{}}`).is(t, "replayed/done") // a call in another session proves nothing
	p.call(`{"name":"note","arguments":{"x":"b"}}`).is(t, "fresh")
	p.call(`{"name":"pay","arguments":{}}`).is(t, "fresh") // delivered, and another write since: it is meant
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// A result that mcp-go's types cannot hold is not what the caller gets: it stays owed.
func TestResultThatCannotBeShownIsNotDelivered(t *testing.T) {
	var p *inProcess
	p = newInProcess(t, named("pay", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.note("paid")
		token := json.RawMessage("1e400") // no float64
		return &mcp.CallToolResult{Result: mcp.Result{Meta: &mcp.Meta{ProgressToken: token}}, Content: []mcp.Content{mcp.NewTextContent("paid")}}, nil
	}), named("note", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("noted"), nil
	}))
	p.call(`{"name":"pay"}`)
	p.call(`{"name":"note"}`)
	p.call(`{"name":"note","arguments":{"x":"b"}}`)
	if p.call(`{"name":"pay"}`); len(p.done) != 1 {
		t.Errorf("paid %d times", len(p.done))
	}
}

// In the stateless protocol all clients have the session "". Only a call on the same connection proves a delivery.
func TestDeliveryWithoutSessions(t *testing.T) {
	g, err := toolguard.Open(t.Context(), storetest.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	done := func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("done"), nil
	}
	tools, err := mcpguard.Guard(g, &mcpguard.Options{Server: "books"}, named("pay", done), named("note", done))
	if err != nil {
		t.Fatal(err)
	}
	s := server.NewMCPServer("books", "1")
	s.AddTools(tools...)
	site := httptest.NewServer(server.NewStreamableHTTPServer(s))
	t.Cleanup(site.Close)
	dial := func() func(tool, arguments string) answer {
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		return func(tool, arguments string) answer {
			t.Helper()
			message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}}}`, tool, arguments, modernMeta)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL+"/mcp", strings.NewReader(message))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
			}
			got, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			text, err := io.ReadAll(got.Body)
			if err != nil {
				t.Fatal(err)
			}
			return readAnswer(t, string(text))
		}
	}
	one, two := dial(), dial()
	one("pay", `{}`).is(t, "fresh")
	two("note", `{}`).is(t, "fresh")
	two("pay", `{}`).is(t, "replayed/done") // another connection proves nothing: this may be the first caller, after its connection broke
	two("note", `{"x":"b"}`).is(t, "fresh")
	two("pay", `{}`).is(t, "fresh") // delivered on its connection, and another write since: it is meant
}

func TestGuardRefuses(t *testing.T) {
	if _, err := mcpguard.Guard(nil, nil); err == nil {
		t.Error("no server name: no error")
	}
	bad := server.ServerTool{Tool: mcp.NewToolWithRawSchema("x", "", json.RawMessage(`{"type":"object","$ref":"file:///x"}`))}
	if _, err := mcpguard.Guard(nil, &mcpguard.Options{Server: "s"}, bad); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a schema that does not compile: %v", err)
	}
}
