package mcpguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// registered is an mcp-go server that serves a tool which was registered before.
func registered(t *testing.T, sources mcpguard.Sources) (p *inProcess, seen *[]keyderive.Facts) {
	t.Helper()
	p = &inProcess{t: t, store: storetest.NewMemory(), session: &plainSession{"one", nil}}
	g, err := toolguard.Open(t.Context(), p.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen = new([]keyderive.Facts)
	entry, err := registry.Compile(registry.Tool{
		Server: "books", Name: "pay", Description: "Pays.", Effect: registry.Write, EffectSource: "declared",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"x":{"type":"string"}}}`),
		Handler: func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
			*seen = append(*seen, toolguard.FactsFrom(ctx))
			return registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"paid"}]}`)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := g.Register(t.Context(), entry)
	if err != nil {
		t.Fatal(err)
	}
	o := &mcpguard.Options{Sources: sources}
	tools, err := mcpguard.Tools(g, o, tool)
	if err != nil {
		t.Fatal(err)
	}
	p.server = server.NewMCPServer("books", "1")
	p.server.AddTools(append(tools, mcpguard.OperationTool(g, o))...)
	return p, seen
}

// with calls with facts in the Go context.
func (p *inProcess) with(f keyderive.Facts, params string) answer {
	p.t.Helper()
	ctx := p.server.WithContext(toolguard.WithFacts(p.t.Context(), f), p.session)
	text, err := json.Marshal(p.server.HandleMessage(ctx, json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`)))
	if err != nil {
		p.t.Fatal(err)
	}
	return readAnswer(p.t, string(text))
}

func TestRegisteredToolInProcess(t *testing.T) {
	p, seen := registered(t, mcpguard.Sources{})
	list, err := json.Marshal(p.server.HandleMessage(t.Context(), json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)))
	if err != nil || !strings.Contains(string(list), `"description":"Pays."`) || !strings.Contains(string(list), `"readOnlyHint":false`) {
		t.Errorf("%s, %v", list, err)
	}
	event := keyderive.Facts{Tenant: "acme", SourceEvent: "evt-1"}
	p.with(event, `{"name":"pay","arguments":{"x":"a"}}`).is(t, "fresh")
	p.with(event, `{"name":"pay","arguments":{"x":"a"}}`).is(t, "replayed/done")
	p.with(keyderive.Facts{Tenant: "other", SourceEvent: "evt-1"}, `{"name":"pay","arguments":{"x":"a"}}`).is(t, "fresh")
	if len(*seen) != 2 || (*seen)[0].Tenant != "acme" || (*seen)[0].SourceEvent != "evt-1" || (*seen)[1].Tenant != "other" {
		t.Errorf("%+v", *seen)
	}
	mine := p.with(event, `{"name":"toolguard_operation","arguments":{}}`)
	if n := strings.Count(mine.raw, `\"key\"`); n != 1 { // the other tenant's does not exist for it
		t.Errorf("%d operations are shown: %s", n, mine.raw)
	}
}

func TestContextAgainstDeclaredSource(t *testing.T) {
	p, seen := registered(t, mcpguard.Sources{Facts: map[string]mcpguard.FactSource{
		"source_event": mcpguard.From(mcpguard.Source{Meta: "/event"}),
		"tenant":       mcpguard.From(mcpguard.Source{Value: "acme"}),
	}})
	pay := func(meta string) string { return `{"name":"pay","arguments":{"x":"a"},"_meta":` + meta + `}` }
	p.with(keyderive.Facts{SourceEvent: "evt-1"}, pay(`{"event":"evt-1"}`)).is(t, "fresh")
	p.with(keyderive.Facts{SourceEvent: "evt-2"}, pay(`{"event":"evt-1"}`)).is(t, "blocked/context_conflict")
	p.with(keyderive.Facts{Tenant: "other"}, pay(`{"event":"evt-2"}`)).is(t, "blocked/context_conflict")
	p.with(keyderive.Facts{SourceEvent: "evt-3"}, pay(`{}`)).is(t, "blocked/context_required") // it has a source, and that is silent
	if len(*seen) != 1 {
		t.Errorf("%d calls", len(*seen))
	}
}

// own registers a tool that answers with its own name.
func (w *world) own(server, name string, effect registry.Effect) *toolguard.Tool {
	w.t.Helper()
	entry, err := registry.Compile(registry.Tool{
		Server: server, Name: name, Description: "<own>", Effect: effect, EffectSource: "declared",
		Handler: func(context.Context, *registry.Dispatch) (registry.Answer, error) {
			return registry.Answer{Result: json.RawMessage(`{"content":[{"type":"text","text":"from ` + name + `"}]}`)}, nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	tool, err := w.guard.Register(w.t.Context(), entry)
	if err != nil {
		w.t.Fatal(err)
	}
	return tool
}

// A gateway offers tools that are registered already behind those of its upstreams.
func TestGatewayWithRegisteredTools(t *testing.T) {
	w := newGuard(t)
	w.open(&mcpguard.GatewayOptions{Tools: []*toolguard.Tool{w.own("api", "refund", registry.Write), w.own("api", "get", registry.Read)}}, w.command("books", "normal"))
	c := w.client()
	c.initialize()
	list := c.call("tools/list", `{}`)
	want := `{"name":"api__refund","description":"<own>","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"idempotentHint":false}},` +
		`{"name":"api__get","description":"<own>","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"idempotentHint":false}},{"name":"toolguard_operation"`
	if !strings.Contains(list, want) || !strings.Contains(list, `"name":"books__pay_invoice"`) {
		t.Errorf("%s\nis not in %s", want, list)
	}
	c.tool("api__refund", `{"x":1}`).is(t, "fresh")
	again := c.tool("api__refund", `{"x":1}`)
	again.is(t, "replayed/done")
	if !strings.Contains(again.raw, "from refund") {
		t.Error(again.raw)
	}
	if got := c.tool("api__get", `{}`); !strings.Contains(got.raw, "from get") {
		t.Error(got.raw)
	}
}

func TestRegisteredToolsClash(t *testing.T) {
	w := newGuard(t)
	w.open(&mcpguard.GatewayOptions{Tools: []*toolguard.Tool{w.own("books__x", "y", registry.Write)}}, w.command("books", "left")) // it has x__y
	problems := w.gateway.Problems()
	if len(problems) != 1 || problems[0].Tool != "x__y" || !errors.Is(problems[0].Err, mcpguard.ErrClash) || !strings.Contains(problems[0].Err.Error(), "books__x/y") {
		t.Errorf("%+v", problems)
	}
	_, err := mcpguard.OpenGateway(t.Context(), w.guard, nil, &mcpguard.GatewayOptions{
		Tools: []*toolguard.Tool{w.own("a", "b__c", registry.Write), w.own("a__b", "c", registry.Write)}})
	if !errors.Is(err, mcpguard.ErrClash) {
		t.Errorf("two of ours: %v", err)
	}
}
