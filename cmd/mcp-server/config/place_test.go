package config

import (
	"fmt"
	"testing"
)

// The name of a member of _meta may hold a slash.
func TestMetaPointers(t *testing.T) {
	for in, want := range map[string]string{
		"dev.toolguard/context/source_event":  `bad JSON Pointer: "dev.toolguard/context/source_event" does not begin with /; write /dev.toolguard~1context/source_event`,
		"dev.toolguard~1context/source_event": `bad JSON Pointer: "dev.toolguard~1context/source_event" does not begin with /; write /dev.toolguard~1context/source_event`,
		"com.example/id":                      `bad JSON Pointer: "com.example/id" does not begin with /; write /com.example~1id`,
		"claudecode/toolUseId":                `bad JSON Pointer: "claudecode/toolUseId" does not begin with /; write /claudecode~1toolUseId if claudecode/toolUseId is one name, else /claudecode/toolUseId`,
		"vscode.requestId":                    `bad JSON Pointer: "vscode.requestId" does not begin with /; write /vscode.requestId`,
		"/dev.toolguard~1context/run":         "",
	} {
		if got := badMetaPointer(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	c, err := Parse("f.yaml", []byte(`mcpServers: {a: {command: a}}
context:
  run: {meta: /com.example/run}
  step: {meta: /vscode.requestId}
  request: {meta: /a/b.c/d}
  actor: {stdio: {env: ACTOR}, http: {meta: /x.y/z/a}}
  source_event: {meta: /dev.toolguard~1context/source_event}
`), environment)
	if err != nil {
		t.Fatal(err)
	}
	want := `f.yaml:3: context.run: looks in the member com.example of _meta; if the member's name holds the slash, it is written ~1: /com.example~1run
f.yaml:6: context.actor: looks in the member x.y of _meta; if the member's name holds the slash, it is written ~1: /x.y~1z/a`
	if got := c.Doubts().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Whatever a tab indents, it is called a tab.
func TestTabs(t *testing.T) {
	for text, line := range map[string]int{
		"version: 1\nmcpServers:\n\ta: {}\n":                                3,
		"version: 1\nmcpServers:\n  a:\n\tcommand: x\n":                     4,
		"version: 1\nmcpServers:\n  a:\n  \tcommand: x\n":                   4,
		"version: 1\nmcpServers:\n  a:\n    command: x\n    args:\n\t- y\n": 6,
		"version: 1\nmcpServers:\n  a:\n    command: x\n\targs: [y]\n":      5,
		"\tversion: 1\n": 1,
	} {
		if _, err := Parse("f.yaml", []byte(text), environment); err == nil || err.Error() != fmt.Sprintf("f.yaml:%d: no YAML: a tab: indent with spaces", line) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Parse("f.yaml", []byte("mcpServers: {\n\ta: {command: x}}\n"), environment); err != nil {
		t.Error(err)
	}
}
