package main

import (
	"strings"
	"testing"
)

// Two tools that would have one name are a fault of the configuration: nothing is served.
func TestServersWhoseToolsClash(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", `version: 1
mcpServers:
  a: {command: "@FAKE@", env: {FAKE_SERVER: '[{"name":"b__c","inputSchema":{"type":"object"}}]'}}
  a__b: {command: "@FAKE@", env: {FAKE_SERVER: '[{"name":"c","inputSchema":{"type":"object"}}]'}}
`)
	out, errs, code := d.run("serve", "--data", "ledger")
	want := "toolguard.yaml:3: mcpServers.a: two tools of one name: a/b__c and a__b/c would be offered as a__b__c"
	if code != 2 || out != "" || !strings.Contains(errs, "\n"+want) {
		t.Errorf("exit %d, want 2 and %q\n%s%s", code, want, out, errs)
	}
}
