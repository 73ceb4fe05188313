package mcpguard_test

import (
	"strings"
	"testing"

	"toolguard.dev/adapters/mcpguard"
)

// A _meta that cannot be read beyond doubt may hide a fact: no tool is called then.
func TestUnreadableMeta(t *testing.T) {
	w := newWorld(t, &mcpguard.GatewayOptions{Sources: mcpguard.Sources{Facts: map[string]mcpguard.FactSource{
		"tenant": mcpguard.From(mcpguard.Source{Value: "acme"}),
	}}}, "normal")
	c := w.client()
	c.initialize()
	for _, meta := range []string{
		`{"dev.toolguard/context":{"tenant":"evil","z":"\ud800"}}`, `{"dev.toolguard/context":{"tenant":"evil"},"a":{"b":1,"b":2}}`,
		`{"a":1,"a":2}`, `"text"`, `[]`, "{\"a\":\"\xff\"}",
	} {
		for _, tool := range []string{"noisy", "get_balance", "toolguard_operation"} {
			got := c.toolParams(`{"name":"` + tool + `","arguments":{},"_meta":` + meta + `}`)
			if got.Error == nil || got.Error.Code != -32602 || !strings.Contains(got.Error.Message, "_meta cannot be read") {
				t.Errorf("%s, %s: %s", tool, meta, got.raw)
			}
		}
	}
	if wire := strings.Join(w.noted("wire"), ""); strings.Contains(wire, "tools/call") {
		t.Error("a call went out")
	}
	c.toolParams(`{"name":"noisy","arguments":{},"_meta":null}`).is(t, "fresh")
}

// A task handle settles nothing and is shown as it came.
func TestTaskHandle(t *testing.T) {
	w := newWorld(t, nil, "normal")
	c := w.client()
	c.initialize()
	got := c.tool("task", `{}`)
	got.is(t, "pending/in_progress")
	same(t, without(t, string(got.Result), "_meta"), `{"task":{"taskId":"t1","status":"working"}}`)
	modern := w.client().toolParams(`{"name":"task","arguments":{},"_meta":{` + modernMeta + `}}`)
	if !strings.Contains(modern.raw, `"resultType":"task"`) {
		t.Error(modern.raw)
	}
	if got := w.noted("effects"); len(got) != 1 {
		t.Errorf("effects: %q", got)
	}
}
