package mcpguard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/registry"
)

func TestDelivery(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.tool("noisy", `{}`).is(t, "fresh")
	if w.delivered("books/noisy") {
		t.Fatal("written is not delivered")
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	c.call("ping", `{}`) // the message before it was handled
	w.untilDelivered("books/noisy")
}

// untilDelivered waits until the mark of a delivery is visible.
func (w *world) untilDelivered(action string) {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if w.delivered(action) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	w.t.Fatalf("%s is not marked as delivered", action)
}

func TestDeliveryIsKnownBeforeTheNextCall(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	// Nothing declared, no event, run or request: once delivered, and after another write, the same call is a new one.
	c.tool("noisy", `{}`).is(t, "fresh")
	c.tool("exotic", `{}`).is(t, "fresh")
	c.tool("noisy", `{}`).is(t, "fresh")
	if got := w.noted("effects"); len(got) != 3 {
		t.Errorf("effects: %q", got)
	}
}

func TestACancelIsNoProof(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.tool("noisy", `{}`).is(t, "fresh")
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, c.ids))
	c.tool("exotic", `{}`).is(t, "fresh")
	if w.delivered("books/noisy") {
		t.Error("a cancelled result counts as delivered")
	}
	c.tool("noisy", `{}`).is(t, "replayed/done") // it is owed
}

func TestABrokenStreamIsNoDelivery(t *testing.T) {
	w := newWorld(t, nil, "normal")
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- w.gateway.ServeStdio(t.Context(), inR, outW) }()
	_ = outR.CloseWithError(io.ErrClosedPipe)
	_, _ = io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"noisy","arguments":{}}}`+"\n")
	if err := <-ended; err == nil {
		t.Error("no error though nothing could be written")
	}
	c := w.client()
	c.initialize()
	c.tool("exotic", `{}`).is(t, "fresh")
	c.tool("noisy", `{}`).is(t, "replayed/done")
}

func TestCancelledCall(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c, other := w.client(), w.client()
	c.initialize()
	other.initialize()

	// A read: the cancelling goes on to the server, and no answer comes.
	c.send(`{"jsonrpc":"2.0","id":"slow","method":"tools/call","params":{"name":"get_slow","arguments":{}}}`)
	w.untilNoted("held", "get_slow")
	other.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slow"}}`) // of another client: nothing
	other.call("ping", `{}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slow"}}`)
	w.untilNoted("wire", "notifications/cancelled")
	if n := strings.Count(strings.Join(w.noted("wire"), "\n"), "notifications/cancelled"); n != 1 {
		t.Errorf("cancelled %d times", n)
	}

	// A write: it goes on, and what became of it is owed.
	c.send(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"hang","arguments":{"x":1}}}`)
	w.untilNoted("held", "hang")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}`)
	c.tool("get_release", `{}`)
	for end := time.Now().Add(patience); ; {
		got := c.tool("hang", `{"x":1}`)
		if got.body.Meta.Verdict.Outcome == "replayed" {
			break
		}
		if time.Now().After(end) {
			t.Fatal(got.raw)
		}
	}
	if n := strings.Count(strings.Join(w.noted("wire"), "\n"), "notifications/cancelled"); n != 1 {
		t.Errorf("the cancelling of a write went upstream")
	}
	if got := w.noted("effects"); len(got) != 1 {
		t.Errorf("effects: %q", got)
	}
}

func TestPendingAndLateAnswer(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	got := c.tool("hang", `{}`)
	got.is(t, "pending/in_progress")
	if !got.body.IsError || !strings.HasPrefix(got.text(), "STILL RUNNING") {
		t.Error(got.raw)
	}
	c.tool("get_release", `{}`)
	key := got.body.Meta.Verdict.Key
	for end := time.Now().Add(patience); ; {
		seen := c.tool("toolguard_operation", fmt.Sprintf(`{"key":%q}`, key))
		if strings.Contains(seen.text(), `"status":"succeeded"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal(seen.raw)
		}
	}
}

func TestEndOfInput(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	c.send(`{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"hang","arguments":{}}}`)
	w.untilNoted("held", "hang")
	c.send(`{"jsonrpc":"2.0","id":"release","method":"tools/call","params":{"name":"get_release","arguments":{}}}`)
	_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":"unended","method":"ping"}`) // no line end
	_ = c.in.Close()
	got := map[string]bool{}
	for line := range c.lines {
		for _, id := range []string{"last", "release", "unended"} {
			if strings.Contains(line, `"id":"`+id+`"`) {
				got[id] = true
			}
		}
	}
	if len(got) != 3 {
		t.Errorf("answered at the end: %v", got)
	}
	err := <-c.ended
	c.ended <- err
	if err != nil {
		t.Error(err)
	}
}

func TestEndOfInputDoesNotWaitForEver(t *testing.T) {
	w := newWorld(t, &mcpguard.GatewayOptions{Shutdown: 20 * time.Millisecond}, "normal")
	c := w.client()
	c.initialize()
	c.send(`{"jsonrpc":"2.0","id":"slow","method":"tools/call","params":{"name":"get_slow","arguments":{}}}`)
	w.untilNoted("held", "get_slow")
	_ = c.in.Close()
	select {
	case err := <-c.ended:
		c.ended <- err
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it waits")
	}
}

func TestBadMessages(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	for _, test := range []struct{ line, id, code string }{
		{`this is no JSON`, `null`, `-32700`},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `null`, `-32600`},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, `1`, `-32600`},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `null`, `-32600`},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, `null`, `-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `null`, `-32600`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"pay_invoice","name":"get_balance"}}`, `3`, `-32602`},
		{`{"jsonrpc":"2.0","id":4,"method":"no/such"}`, `4`, `-32601`},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"no/such"}`, `9007199254740993`, `-32601`},
		{strings.Repeat("[", 2000), `null`, `-32600`},
		{`{"jsonrpc":"2.0","id":5,"method":"x","params":"` + strings.Repeat("x", 33<<20) + `"}`, `5`, `-32700`},
		{`{"jsonrpc":"2.0","id":6,"method":"x","params":` + deep(1001) + `}`, `6`, `-32600`},
		{`{"params":{"id":8,"x":` + deep(20_000) + `},"method":"x","id": "s\"even"}`, `"s\"even"`, `-32600`},
		{`{"id":9,"result":` + deep(2000) + `}`, `null`, `-32600`}, // an answer, to nothing that was asked
		{`{"method":"x","id":{"a":9},"x":` + deep(2000) + `}`, `null`, `-32600`},
		{`{"method":"x","id":"` + strings.Repeat("x", 300) + `","x":` + deep(2000) + `}`, `null`, `-32600`},
	} {
		c.send(test.line)
		got := c.receive()
		var m struct {
			ID    json.RawMessage
			Error struct{ Code json.RawMessage }
		}
		if err := json.Unmarshal([]byte(got), &m); err != nil || string(m.ID) != test.id || string(m.Error.Code) != test.code {
			t.Errorf("%.80s: %s", test.line, got)
		}
	}
	c.send("")
	if got := c.call("ping", `{}`); !strings.Contains(got, `"result":{}`) {
		t.Errorf("the connection does not live on: %s", got)
	}
}

// deep is a value that is nested n times.
func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestOneIdAtATime(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_slow","arguments":{}}}`)
	w.untilNoted("held", "get_slow")
	c.send(`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`)
	if got := c.receive(); !strings.Contains(got, "still open") {
		t.Error(got)
	}
	c.ids = 1
	c.tool("get_release", `{}`)
}

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"claude-code","version":"3"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`

func TestModernClient(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	if got := c.call("server/discover", `{"_meta":{`+modernMeta+`}}`); !strings.Contains(got, "2026-07-28") || !strings.Contains(got, "Pay with care.") {
		t.Errorf("discover: %s", got)
	}
	list := c.call("tools/list", `{"_meta":{`+modernMeta+`}}`)
	if !strings.Contains(list, `"x-unknown":{"n":9007199254740993}`) || !strings.Contains(list, `"resultType":"complete"`) {
		t.Errorf("list: %s", list)
	}
	got := c.toolParams(`{"name":"pay_invoice","arguments":{"invoice_id":"I-1"},"_meta":{` + modernMeta + `,"claudecode/toolUseId":"tu_1"}}`)
	got.is(t, "fresh")
	for _, want := range []string{`"resultType":"complete"`, `"io.modelcontextprotocol/serverInfo":{"name":"toolguard"`} {
		if !strings.Contains(string(got.Result), want) {
			t.Errorf("%s is not in %s", want, got.Result)
		}
	}
	wire := strings.Join(w.noted("wire"), "\n")
	if strings.Contains(wire, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`) || !strings.Contains(wire, `"claudecode/toolUseId":"tu_1"`) {
		t.Error("what went upstream: the protocol's own members, or not the caller's")
	}

	// Nothing is told that was not asked for.
	c.toolParams(`{"name":"grow","arguments":{},"_meta":{`+modernMeta+`}}`).is(t, "fresh")
	c.toolParams(`{"name":"tell","arguments":{},"_meta":{`+modernMeta+`}}`).is(t, "fresh")
	if len(c.other) != 0 {
		t.Errorf("told: %q", c.other)
	}
	c.send(`{"jsonrpc":"2.0","id":"stream","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` + modernMeta + `}}}`)
	if ack := c.receive(); !strings.Contains(ack, "acknowledged") {
		t.Fatal(ack)
	}
	c.toolParams(`{"name":"shrink","arguments":{},"_meta":{`+modernMeta+`}}`).is(t, "fresh")
	for len(c.other) == 0 {
		c.other = append(c.other, c.receive())
	}
	same(t, c.other[0], `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"stream"}}}`)
}

func TestInputRequired(t *testing.T) {
	w := newWorld(t, nil, "modern")
	c := w.client()
	got := c.toolParams(`{"name":"ask","arguments":{"x":1},"_meta":{` + modernMeta + `}}`)
	if !strings.Contains(string(got.Result), `"resultType":"input_required"`) || !strings.Contains(string(got.Result), `"requestState":"s1"`) {
		t.Fatal(got.raw)
	}
	got = c.toolParams(`{"name":"ask","arguments":{"x":1},"inputResponses":{"sure":{"action":"accept"}},"requestState":"s1","_meta":{` + modernMeta + `}}`)
	if !strings.Contains(got.text(), "answered s1") {
		t.Fatal(got.raw)
	}
	w.untilNoted("wire", `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`)
}

func TestOperationTool(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	key := c.tool("pay_invoice", `{"invoice_id":"I-1"}`).body.Meta.Verdict.Key
	list := c.tool("toolguard_operation", `{}`)
	if !strings.Contains(string(list.body.StructuredContent), key) || !strings.Contains(list.text(), key) {
		t.Error(list.raw)
	}
	one := c.tool("toolguard_operation", fmt.Sprintf(`{"key":%q}`, key))
	if !strings.Contains(string(one.body.StructuredContent), `"payment_id":"P-1"`) {
		t.Error(one.raw)
	}
	if none := c.tool("toolguard_operation", `{"key":"no"}`); !none.body.IsError {
		t.Error(none.raw)
	}
}

func TestMissingContextBlocks(t *testing.T) {
	sources := mcpguard.Sources{Facts: map[string]mcpguard.FactSource{
		"source_event": mcpguard.From(mcpguard.Source{Meta: "/dev.toolguard~1context/source_event"}),
		"tenant":       mcpguard.From(mcpguard.Source{Value: "acme"}),
	}}
	w := newWorld(t, &mcpguard.GatewayOptions{Sources: sources}, "normal")
	c := w.client()
	c.initialize()
	c.tool("noisy", `{}`).is(t, "blocked/context_required")
	c.toolParams(`{"name":"noisy","arguments":{},"_meta":{"dev.toolguard/context":{"source_event":"e1","tenant":"evil"}}}`).is(t, "blocked/context_conflict")
	c.toolParams(`{"name":"noisy","arguments":{},"_meta":{"dev.toolguard/context":{"source_event":"e1"}}}`).is(t, "fresh")
	if wire := strings.Join(w.noted("wire"), ""); strings.Contains(wire, "dev.toolguard/context") {
		t.Error("the context went upstream")
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	for i := range 64 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"p%d","method":"tools/call","params":{"name":"pay_invoice","arguments":{"invoice_id":"I-1"}}}`, i))
	}
	got := map[string]int{}
	for range 64 {
		a := readAnswer(t, c.receive())
		got[string(a.body.Meta.Verdict.Outcome)]++
	}
	if got["fresh"] != 1 || got["replayed"] != 63 || len(w.noted("effects")) != 1 {
		t.Errorf("%v, effects %q", got, w.noted("effects"))
	}
}

func TestTooManyAtOnce(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	for i := range 1000 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"s%d","method":"tools/call","params":{"name":"get_slow","arguments":{}}}`, i))
	}
	if got := c.call("ping", `{}`); !strings.Contains(got, "busy") {
		t.Error(got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s7"}}`)
	for end := time.Now().Add(patience); strings.Contains(c.call("ping", `{}`), "busy"); {
		if time.Now().After(end) {
			t.Fatal("it stays busy")
		}
	}
	c.tool("get_release", `{}`)
}

func TestAKeyThatWouldNotArrive(t *testing.T) {
	w := newWorld(t, &mcpguard.GatewayOptions{Describe: func(_, tool string, _ json.RawMessage) (registry.Effect, string, registry.Policy, error) {
		p := registry.Policy{}
		if tool == "noisy" {
			p.DownstreamKey = registry.DownstreamKey{Header: "Idempotency-Key", Window: time.Hour}
		}
		if tool == "exotic" {
			p.DownstreamKey = registry.DownstreamKey{Meta: "idempotency", Window: time.Hour}
		}
		return registry.Write, "declared", p, nil
	}}, "normal")
	if p := w.gateway.Problems(); len(p) != 1 || p[0].Tool != "noisy" || !errors.Is(p[0].Err, registry.ErrPolicy) {
		t.Errorf("%+v", p)
	}
	c := w.client()
	c.initialize()
	got := c.toolParams(`{"name":"exotic","arguments":{},"_meta":{"idempotency":"chosen by the model"}}`)
	got.is(t, "fresh")
	w.untilNoted("wire", `"idempotency":"`+got.body.Meta.Verdict.Key+`"`)
}
