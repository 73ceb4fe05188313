package mcpguard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
)

func TestWriteIsDoneOnce(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()

	first := c.tool("pay_invoice", `{"invoice_id":"I-1","amount":12.50}`)
	first.is(t, "fresh")
	same(t, without(t, string(first.Result), "_meta"), `{"content":[{"type":"text","text":"paid"}],"structuredContent":{"payment_id":"P-1"}}`)

	second := c.tool("pay_invoice", `{"invoice_id":"I-1","amount":12.5}`)
	second.is(t, "replayed/done")
	if !strings.HasPrefix(second.text(), "ALREADY DONE") || second.body.IsError {
		t.Error(second.raw)
	}
	var structured map[string]json.RawMessage
	if json.Unmarshal(second.body.StructuredContent, &structured); structured["_toolguard"] == nil || structured["payment_id"] == nil {
		t.Errorf("the model that sees only structuredContent is not told: %s", second.raw)
	}
	third := c.tool("pay_invoice", `{"invoice_id":"I-1","amount":13}`)
	third.is(t, "blocked/arguments_changed")
	if !third.body.IsError || len(third.body.Content) != 1 || third.body.StructuredContent != nil {
		t.Error(third.raw)
	}
	if got := w.noted("effects"); len(got) != 1 {
		t.Errorf("effects: %q", got)
	}
	w.untilNoted("wire", `"dev.toolguard/key":"`+first.body.Meta.Verdict.Key+`"`)
}

func TestResultsAreEqualAsJSON(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	got := c.tool("exotic", `{}`)
	got.is(t, "fresh")
	var meta struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(got.Result, &meta); err != nil {
		t.Fatal(err)
	}
	same(t, without(t, string(got.Result), "_meta"), `{"content":[{"type":"hologram","beams":18446744073709551617},{"type":"text","text":"a<bé","annotations":{"n":1.1}}],"structuredContent":{"n":9007199254740993,"e":1e400},"futureMember":[1,2,{"x":null}]}`)
	same(t, without(t, string(meta.Meta), "dev.toolguard/verdict"), `{"trace":{"id":12345678901234567890}}`)

	// A read is not touched at all.
	read := c.tool("get_balance", `{}`)
	same(t, string(read.Result), `{"content":[{"type":"text","text":"done get_balance"}]}`)
}

func TestArgumentsGoAsTheyCame(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.tool("noisy", `{"x":9007199254740993, "y":1.10}`).is(t, "fresh")
	w.untilNoted("effects", `noisy {"x":9007199254740993, "y":1.10}`)
	c.tool("noisy", `{"x":1,"x":2}`).is(t, "blocked/invalid_arguments")
	c.tool("noisy", "{\"x\":\"\xff\"}").is(t, "blocked/invalid_arguments")
}

func TestListIsTheServersOwn(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	var list struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(c.call("tools/list", `{}`)), &list); err != nil {
		t.Fatal(err)
	}
	for _, raw := range list.Result.Tools {
		var tool struct {
			Name         string
			InputSchema  json.RawMessage
			OutputSchema json.RawMessage
		}
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		if tool.Name != "pay_invoice" {
			continue
		}
		if !strings.Contains(string(tool.OutputSchema), "_toolguard") {
			t.Errorf("the output schema has no room for the mark of a replay: %s", tool.OutputSchema)
		}
		same(t, without(t, without(t, string(raw), "outputSchema"), "inputSchema"),
			`{"name":"pay_invoice","title":"Pay","x-unknown":{"n":9007199254740993},"description":"pays","execution":{},"annotations":{"readOnlyHint":false}}`)
		return
	}
	t.Fatal("pay_invoice is not listed")
}

func TestUpstreamMisbehaves(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	for _, test := range []struct{ tool, arguments, want, text string }{
		{"noisy", `{}`, "fresh", "worked"},
		{"wrong_id", `{}`, "fresh", "right"},
		{"duplicate", `{}`, "fresh", "first"},
		{"garbage", `{}`, "escalated/outcome_unknown", "OUTCOME UNKNOWN"},
		{"huge", `{}`, "escalated/outcome_unknown", "OUTCOME UNKNOWN"},
		{"error", `{}`, "fresh", "Error: invoice not found"},
		{"empty", `{}`, "fresh", "Done."},
		{"die", `{}`, "escalated/outcome_unknown", "OUTCOME UNKNOWN"},
	} {
		got := c.tool(test.tool, test.arguments)
		got.is(t, test.want)
		if !strings.Contains(got.text(), test.text) {
			t.Errorf("%s: %s", test.tool, got.raw)
		}
		if test.want != "fresh" && !got.body.IsError {
			t.Errorf("%s: not marked as an error: %s", test.tool, got.raw)
		}
	}
	// It was started again after it died; the dead call is not repeated.
	w.logs.until(t, "is started again")
	ready(t, w)
	c.tool("die", `{}`).is(t, "escalated/outcome_unknown")
	c.tool("noisy", `{"x":"again"}`).is(t, "fresh")
	if n := strings.Count(strings.Join(w.noted("effects"), "\n"), "die "); n != 1 {
		t.Errorf("it died %d times", n)
	}
}

// ready waits until the first upstream is up again.
func ready(t *testing.T, w *world) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if w.gateway.Upstreams()[0].Ready(t.Context()) == nil {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatal("it did not come up again")
}

func TestProtocolErrorsPassThrough(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	got := c.tool("rpc_error", `{"x":-32602}`)
	if got.Error == nil || got.Error.Code != -32602 || got.Error.Message != "as you wish" || !strings.Contains(string(got.Error.Data), `"outcome":"fresh"`) {
		t.Errorf("a refusal of the protocol: %s", got.raw)
	}
	c.tool("rpc_error", `{"x":-32000}`).is(t, "escalated/outcome_unknown")
	if got := c.tool("no_such_tool", `{}`); got.Error == nil || got.Error.Code != -32602 {
		t.Errorf("an unknown tool: %s", got.raw)
	}
}

func TestUpstreamDown(t *testing.T) {
	w := newWorld(t, nil, "normal", "exit")
	problems := w.gateway.Problems()
	if len(problems) != 1 || problems[0].Server != "books2" || problems[0].Tool != "" || !strings.Contains(problems[0].Err.Error(), "exit status 3") {
		t.Errorf("%+v", problems)
	}
	w.logs.until(t, "cannot find my configuration")
	c := w.client()
	c.initialize()
	c.tool("books__noisy", `{}`).is(t, "fresh") // one server's fall costs the other nothing
	if err := w.gateway.Upstreams()[0].Close(); err != nil {
		t.Fatal(err)
	}
	c.tool("books__noisy", `{"x":1}`).is(t, "blocked/tool_unavailable")
	if list := c.call("tools/list", `{}`); !strings.Contains(list, "books__noisy") {
		t.Errorf("its tools are gone: %s", list)
	}
}

func TestHostileTools(t *testing.T) {
	w := newWorld(t, nil, "hostile")
	c := w.client()
	c.initialize()
	list := c.call("tools/list", `{}`)
	for _, name := range []string{"fine", "headers", "hints"} {
		if !strings.Contains(list, `"name":"`+name+`"`) {
			t.Errorf("%s is not listed: %s", name, list)
		}
	}
	var got []string
	for _, p := range w.gateway.Problems() {
		got = append(got, p.Tool)
	}
	slices.Sort(got)
	if text := strings.Join(got, " "); !strings.Contains(text, "broken") || strings.Contains(text, "headers") {
		t.Errorf("problems: %q", got)
	}
	c.tool("headers", `{"b":"x"}`).is(t, "fresh")
}

func TestManyTools(t *testing.T) {
	w := newWorld(t, nil, "many")
	c := w.client()
	c.initialize()
	var list struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(c.call("tools/list", `{}`)), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Result.Tools) != 1001 {
		t.Errorf("%d tools", len(list.Result.Tools))
	}
	c.tool("tool_0999", `{}`).is(t, "fresh")
}

func TestPagesInACircle(t *testing.T) {
	w := newWorld(t, nil, "circle")
	if p := w.gateway.Problems(); len(p) != 1 || !strings.Contains(p[0].Err.Error(), "circle") {
		t.Errorf("%+v", p)
	}
}

func TestListChanges(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.tool("grow", `{}`).is(t, "fresh")
	heard := func() {
		t.Helper()
		for !slices.ContainsFunc(c.other, func(l string) bool { return strings.Contains(l, "notifications/tools/list_changed") }) {
			c.other = append(c.other, c.receive())
		}
		c.other = nil
	}
	heard()
	if got := c.tool("get_grown", `{}`); got.Error != nil {
		t.Fatal(got.raw)
	}
	c.tool("shrink", `{}`).is(t, "fresh")
	heard()
	if got := c.tool("get_grown", `{}`); got.Error == nil || got.Error.Code != -32602 {
		t.Fatal(got.raw)
	}
}

func TestProgressAndLogs(t *testing.T) {
	w := newWorld(t, nil, "normal")
	one, two := w.client(), w.client()
	one.initialize()
	two.initialize()
	for _, c := range []*client{one, two} { // the same token on both
		got := c.toolParams(fmt.Sprintf(`{"name":"steps","arguments":{"x":"%p"},"_meta":{"progressToken":7}}`, c))
		got.is(t, "fresh")
		if len(c.other) != 2 {
			t.Fatalf("progress: %q", c.other)
		}
		same(t, c.other[1], `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":2,"total":9007199254740993}}`)
		c.other = nil
	}
	one.call("logging/setLevel", `{"level":"error"}`)
	w.untilNoted("wire", `"level":"error"`)
	two.tool("tell", `{}`).is(t, "fresh")
	if len(two.other) != 2 {
		t.Errorf("a client that set no level hears all: %q", two.other)
	}
	one.tool("get_balance", `{}`)
	if len(one.other) != 1 {
		t.Fatalf("a client hears its level: %q", one.other)
	}
	same(t, one.other[0], `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"books","data":{"n":9007199254740993}}}`)
}

func TestModernUpstream(t *testing.T) {
	w := newWorld(t, nil, "modern")
	c := w.client()
	if got := c.initialize(); !strings.Contains(got, "Stateless.") {
		t.Errorf("instructions: %s", got)
	}
	c.tool("pay_invoice", `{"invoice_id":"I-1"}`).is(t, "fresh")
	w.untilNoted("wire", `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)
	w.untilNoted("wire", "subscriptions/listen")
	if info := w.gateway.Upstreams()[0].Info(); info.Name != "books" || info.Version != "2" {
		t.Errorf("%+v", info)
	}
}

func TestNewsBeforeTheHandshake(t *testing.T) {
	w := newWorld(t, nil, "early")
	if problems := w.gateway.Problems(); len(problems) > 0 || len(w.gateway.Tools()) == 0 {
		t.Errorf("%d tools, problems %v", len(w.gateway.Tools()), problems)
	}
}

func TestInstructionsAndIdentity(t *testing.T) {
	w := newWorld(t, &mcpguard.GatewayOptions{Version: "0.9"}, "normal")
	got := w.client().initialize()
	for _, want := range []string{`"instructions":"Pay with care.\n\nCalls of these tools go through toolguard`, `"name":"toolguard"`, `"version":"0.9"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

func TestWrongConfiguration(t *testing.T) {
	for name, o := range map[string]*mcpguard.GatewayOptions{
		"preset":  {Sources: mcpguard.Sources{Preset: "emacs"}},
		"fact":    {Sources: mcpguard.Sources{Facts: map[string]mcpguard.FactSource{"mood": {}}}},
		"sources": {Sources: mcpguard.Sources{Facts: map[string]mcpguard.FactSource{"run": mcpguard.From(mcpguard.Source{Env: "A", Value: "b"})}}},
		"pointer": {Sources: mcpguard.Sources{Facts: map[string]mcpguard.FactSource{"run": mcpguard.From(mcpguard.Source{Meta: "run"})}}},
	} {
		if _, err := mcpguard.OpenGateway(t.Context(), nil, nil, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := mcpguard.OpenGateway(t.Context(), nil, []mcpguard.Server{{Name: "a", Command: "x"}, {Name: "a", Command: "y"}}, nil); err == nil {
		t.Error("two servers of one name: no error")
	}
}
