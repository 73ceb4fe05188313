package mcpguard_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"toolguard.dev/adapters/mcpguard"
)

func TestFacts(t *testing.T) {
	type source = mcpguard.Source
	env := map[string]string{"WF": "billing", "CLAUDE_CODE_SESSION_ID": "s-1", "BAD": "a\nb", "LONG": strings.Repeat("x", 1025)}
	one := func(name string, s source) map[string]mcpguard.FactSource {
		return map[string]mcpguard.FactSource{name: mcpguard.From(s)}
	}
	event := one("source_event", source{Meta: "/dev.toolguard~1context/source_event"})
	for _, test := range []struct {
		name, preset, transport, meta, client string
		facts                                 map[string]mcpguard.FactSource
		headers                               http.Header
		want                                  string // tenant workflow event request run step session call | missing | conflict
	}{
		{name: "nothing declared", want: "default default - - - - - - | [] | []"},
		{name: "not named does not count", meta: `{"dev.toolguard/context":{"run":"r","tenant":"evil"}}`, headers: http.Header{"Toolguard-Run": {"r"}}, want: "default default - - - - - - | [] | []"},
		{name: "value", facts: one("tenant", source{Value: "acme"}), want: "acme default - - - - - - | [] | []"},
		{name: "env", facts: one("workflow", source{Env: "WF"}), want: "default billing - - - - - - | [] | []"},
		{name: "env missing", facts: one("workflow", source{Env: "NO"}), want: "default - - - - - - - | [workflow] | []"},
		{name: "control character", facts: one("run", source{Env: "BAD"}), want: "default default - - - - - - | [run] | []"},
		{name: "too long", facts: one("run", source{Env: "LONG"}), want: "default default - - - - - - | [run] | []"},
		{name: "recorded only", facts: one("session", source{Env: "NO"}), want: "default default - - - - - - | [] | []"},
		{name: "meta", facts: event, meta: `{"dev.toolguard/context":{"source_event":"e"}}`, want: "default default e - - - - - | [] | []"},
		{name: "meta number", facts: event, meta: `{"dev.toolguard/context":{"source_event":1.0e2}}`, want: "default default 100 - - - - - | [] | []"},
		{name: "meta big number", facts: event, meta: `{"dev.toolguard/context":{"source_event":9007199254740993}}`, want: "default default 9007199254740993 - - - - - | [] | []"},
		{name: "meta no scalar", facts: event, meta: `{"dev.toolguard/context":{"source_event":true}}`, want: "default default - - - - - - | [source_event] | []"},
		{name: "meta twice", facts: event, meta: `{"dev.toolguard/context":{"source_event":"a","source_event":"b"}}`, want: "default default - - - - - - | [source_event] | [source_event]"},
		{name: "meta that hides", facts: one("tenant", source{Value: "acme"}), meta: `{"dev.toolguard/context":{"tenant":"evil"},"z":"\ud800"}`, want: "acme default - - - - - - | [] | [tenant]"},
		{name: "header", transport: "http", facts: one("run", source{Header: "X-Run"}), headers: http.Header{"X-Run": {"r"}}, want: "default default - - r - - - | [] | []"},
		{name: "header twice", transport: "http", facts: one("run", source{Header: "X-Run"}), headers: http.Header{"X-Run": {"r", "q"}}, want: "default default - - - - - - | [run] | [run]"},
		{name: "header on stdio", facts: one("run", source{Header: "X-Run"}), want: "default default - - - - - - | [run] | []"},
		{name: "another carrier disagrees", facts: one("tenant", source{Value: "acme"}), meta: `{"dev.toolguard/context":{"tenant":"evil"}}`, want: "acme default - - - - - - | [] | [tenant]"},
		{name: "another carrier agrees", facts: one("tenant", source{Value: "7"}), meta: `{"dev.toolguard/context":{"tenant":7}}`, want: "7 default - - - - - - | [] | []"},
		{name: "a header disagrees", transport: "http", facts: one("source_event", source{Meta: "/e"}), meta: `{"e":"1"}`, headers: http.Header{"Toolguard-Source-Event": {"2"}}, want: "default default 1 - - - - - | [] | [source_event]"},
		{name: "a carrier that is no text", facts: one("run", source{Value: "r"}), meta: `{"dev.toolguard/context":{"run":{}}}`, want: "default default - - r - - - | [] | [run]"},
		{name: "only on the other transport", facts: map[string]mcpguard.FactSource{"run": {HTTP: source{Header: "X-Run"}}}, want: "default default - - - - - - | [] | []"},
		{name: "claude", preset: "auto", client: "claude-code", meta: `{"claudecode/toolUseId":"tu"}`, want: "default default - - - - s-1 tu | [] | []"},
		{name: "claude by environment", preset: "auto", client: "", want: "default default - - - - s-1 - | [] | []"},
		{name: "claude over http", preset: "claude-code", transport: "http", meta: `{"claudecode/toolUseId":"tu"}`, want: "default default - - - - - tu | [] | []"},
		{name: "codex", preset: "auto", client: "codex-mcp-client", meta: `{"x-codex-turn-metadata":{"turn_id":"t"},"sessionId":"s","callId":"c"}`, want: "default default - t - - s c | [] | []"},
		{name: "codex in a string", preset: "codex", meta: `{"x-codex-turn-metadata":"{\"turn_id\":\"t\"}"}`, want: "default default - t - - - - | [] | []"},
		{name: "vscode", preset: "auto", client: "Visual Studio Code", meta: `{"vscode.requestId":"q","vscode.conversationId":"v"}`, want: "default default - q - - v - | [] | []"},
		{name: "declared wins over preset", preset: "vscode", facts: one("request", source{Meta: "/own"}), meta: `{"vscode.requestId":"q"}`, want: "default default - - - - - - | [request] | []"},
		{name: "none", preset: "none", client: "claude-code", want: "default default - - - - - - | [] | []"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mcpguard.Sources{Preset: test.preset, Facts: test.facts}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			transport := test.transport
			if transport == "" {
				transport = "stdio"
			}
			f, missing, conflict := s.Gather(transport, []byte(test.meta), test.headers, func(name string) string { return env[name] }, test.client)
			var parts []string
			for _, v := range []string{f.Tenant, f.Workflow, f.SourceEvent, f.Request, f.Run, f.Step, f.Session, f.CallID} {
				if v == "" {
					v = "-"
				}
				parts = append(parts, v)
			}
			if got := fmt.Sprintf("%s | %v | %v", strings.Join(parts, " "), missing, conflict); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
