package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func environment(name string) (string, bool) {
	value, ok := map[string]string{"SET": "set", "LEDGER": "/var/lib", "BOOKS_TOKEN": "s3cr3t", "GIT_TOKEN": "t", "HOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}[name]
	return value, ok
}

func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, err := Load(file, environment)
			if c != nil {
				t.Error("a configuration with faults was returned")
			}
			faults, ok := errors.AsType[Faults](err)
			if !ok {
				t.Fatalf("no Faults: %v", err)
			}
			got := faults.Error() + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func fit(t *testing.T, name string) *Config {
	t.Helper()
	c, err := Load("testdata/fit/"+name+".yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFull(t *testing.T) {
	c := fit(t, "full")
	if !c.Observe || c.Ledger != "/var/lib/toolguard" || c.Shutdown != 20*time.Second || c.OperationTool || c.Listen != "127.0.0.1:7420" {
		t.Errorf("%+v", c)
	}
	want := []Server{
		{Name: "books", Command: "node", Args: []string{"books.js", "--port", "8080"}, Env: []string{"BOOKS_TOKEN=s3cr3t", "DEBUG=1"}, Dir: "/srv/books", Line: 9},
		{Name: "remote", Disabled: true, Line: 16},
	}
	if !reflect.DeepEqual(c.Servers, want) {
		t.Errorf("servers\n%+v\nwant\n%+v", c.Servers, want)
	}
	facts := map[string]Source{"tenant": {Value: "acme"}, "workflow": {Env: "TOOLGUARD_WORKFLOW"}, "source_event": {Meta: "/dev.toolguard~1context/source_event"},
		"run": {Env: "RUN_ID"}, "step": {Meta: "/step"}, "request": {Header: "Toolguard-Request"}, "session": {Meta: "/session"}, "actor": {Meta: "/actor"},
		"call_id": {Meta: "/id"}, "workflow_version": {Value: "7"}}
	if c.Context.Preset != "codex" || !maps.Equal(c.Context.Facts, facts) || c.Context.HTTP["run"].Header != "Toolguard-Run" {
		t.Errorf("context %+v", c.Context)
	}

	effect, source, p := c.Resolve("books", "pay_invoice", nil)
	if effect != registry.Write || source != "declared" {
		t.Error(effect, source)
	}
	if p.ReadsWhen == nil || p.DownstreamID == nil || len(p.NotApplied) != 2 || len(p.Unknown) != 1 {
		t.Errorf("expressions are missing: %+v", p)
	}
	p.ReadsWhen, p.DownstreamID, p.NotApplied, p.Unknown = nil, nil, nil, nil
	if a := p.Approval; a == nil || a.When.String() != "args.amount > 1000" || a.Expires != 24*time.Hour || !slices.Equal(a.Reviewers, []string{"dana"}) {
		t.Errorf("approval %+v", a)
	}
	if l := p.Lookups; len(l) != 2 || l[0].Tool != "find_payment" || !l[0].Keyed() || l[0].Settle != 30*time.Second || l[1].Keyed() || l[1].Absent != nil {
		t.Errorf("lookups %+v", l)
	}
	arguments, err := p.Lookups[0].Arguments.Expand(registry.Values{Key: "k", Arguments: map[string]any{"amount": json.Number("12.5")}, Facts: keyderive.Facts{Tenant: "acme"}})
	if want := `{"amount":12.5,"deep":[1,true,null,"for acme"],"reference":"k"}`; err != nil || string(arguments) != want {
		t.Errorf("%s, %v, want %s", arguments, err, want)
	}
	p.Approval, p.Lookups = nil, nil
	for tool, always := range map[string]bool{"send_mail": true, "send_draft": false, "other": false} {
		if _, _, p := c.Resolve("books", tool, nil); (p.Approval != nil) != always {
			t.Errorf("%s: approval %+v", tool, p.Approval)
		}
	}
	expected := registry.Policy{OncePer: []string{"source_event", "/invoice_id"}, MayDiffer: []string{"/memo"},
		Normalize:     map[string][]string{"/email": {"trim", "lower"}, "/to/*": {"lower"}, "/to": {"sort", "unique"}},
		DownstreamKey: registry.DownstreamKey{Argument: "/idempotency_key", Window: 24 * time.Hour}, Errors: registry.ErrorWords,
		AnswerWithin: 45 * time.Second, Timeout: 10 * time.Minute, Attempts: 2, Retention: 720 * time.Hour, Owner: "finance-ops"}
	if !reflect.DeepEqual(p, expected) {
		t.Errorf("policy\n%+v\nwant\n%+v", p, expected)
	}
}

// The most exact rule wins, key by key.
func TestResolve(t *testing.T) {
	c := fit(t, "full")
	for _, test := range []struct {
		server, tool, annotations string
		effect                    registry.Effect
		source                    string
		check                     func(registry.Policy) bool
	}{
		{"books", "create_invoice", `{"readOnlyHint":false}`, registry.Write, "annotated", func(p registry.Policy) bool {
			return p.OncePer != nil && len(p.OncePer) == 0 && p.RepeatAfter == 24*time.Hour && p.Receipt && p.DownstreamKey.Meta == "com.example/key" && p.Attempts == 5
		}},
		{"books", "write_file", ``, registry.Idempotent, "declared", func(p registry.Policy) bool {
			return slices.Equal(p.Entity, []string{"/path"}) && p.OncePer != nil
		}},
		{"other", "write_file", ``, registry.Idempotent, "declared", func(p registry.Policy) bool { return p.OncePer == nil && p.Timeout == 5*time.Minute }},
		{"other", "get_file", ``, registry.Read, "presumed", func(p registry.Policy) bool { return p.Entity == nil }},
		{"books", "drop_all", `{"readOnlyHint":true}`, registry.Deny, "declared", func(registry.Policy) bool { return true }},
	} {
		effect, source, p := c.Resolve(test.server, test.tool, json.RawMessage(test.annotations))
		if effect != test.effect || source != test.source || !test.check(p) {
			t.Errorf("%s/%s: %s %s %+v", test.server, test.tool, effect, source, p)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, s string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "a/b", true}, {"a*", "a", true}, {"a*", "ba", false},
		{"*a", "ba", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "axxcyyb", false},
		{"a**c", "abc", true}, {"*b*", "abc", true}, {"a*bc*bcd", "abcd", false},
	} {
		if matches(test.pattern, test.s) != test.want {
			t.Errorf("%q on %q: not %v", test.pattern, test.s, test.want)
		}
	}
}

func TestClients(t *testing.T) {
	c := fit(t, "clients")
	if got := c.Servers[0].Args[2]; got != "/tmp" {
		t.Error("default of an unset variable:", got)
	}
	if got := c.Servers[1]; !slices.Equal(got.Env, []string{"TOKEN=t", "EMPTY="}) || got.EnvFile != ".env" {
		t.Errorf("%+v", got)
	}
	c = fit(t, "anchors")
	if got := c.Servers[1]; got.Command != "books" || !slices.Contains(got.Env, "A=1") || !slices.Contains(got.Env, "B=2") {
		t.Errorf("merged: %+v", got)
	}
	if _, _, p := c.Resolve("more", "pay", nil); !slices.Equal(p.OncePer, []string{"/id"}) {
		t.Errorf("alias: %+v", p)
	}
	c = fit(t, "minimal")
	if c.Shutdown != DefaultShutdown || !c.OperationTool || c.Observe || c.Context.Preset != "auto" || c.Ledger != "" {
		t.Errorf("defaults: %+v", c)
	}
}

func TestReachedByURL(t *testing.T) {
	c := fit(t, "reached")
	s := c.Servers[0]
	if s.URL != "https://set.example.com/mcp?token=t" || s.Header.Get("Authorization") != "Bearer s3cr3t" || s.Header.Get("X-Count") != "7" || s.Command != "" {
		t.Errorf("%+v", s)
	}
	if _, _, p := c.Resolve("shop", "pay", nil); p.DownstreamKey.Header != "Idempotency-Key" {
		t.Errorf("%+v", p)
	}
	for server, want := range map[string]string{
		"shop":  "",
		"books": "testdata/fit/reached.yaml:10: tools.*/give.downstream_key: names the header Idempotency-Key, but books is not reached by url: it gets no headers",
	} {
		got := ""
		if faults := c.Faults(registry.Tool{Server: server, Name: "give", InputSchema: json.RawMessage(`{"type":"object"}`)}, nothing); faults != nil {
			got = faults.Error()
		}
		if got != want {
			t.Errorf("%s: %s", server, got)
		}
	}
}

func nothing(string) (registry.Effect, bool) { return "", false }

// What only the tools' schemas show is placed in the file too, all of it.
func TestPolicyFaults(t *testing.T) {
	text := `version: 1
mcpServers: {books: {command: books}, gone: {command: gone}, off: {command: off, disabled: true}}
tools:
  books/pay:
    once_per: [/invoice_id, /inv]
    may_differ:
      - /memo
      - /note
    normalize: {/mail: [trim]}
    lookup:
      - {tool: find, applied: "true"}
      - {tool: missing, applied: "true"}
      - {tool: books/find, applied: "true"}
      - {tool: send, applied: "true"}
      - tool: find
        arguments: {a: "{{args.memo}}", b: "{{args.nemo}}"}
        applied: "true"
  books/*:
    entity: [/path]
  books/pai: {}
  bo*/creat*: {}
  gone/x: {}
  off/y: {}
`
	c, err := Parse("f.yaml", []byte(text), environment)
	if err != nil {
		t.Fatal(err)
	}
	tool := registry.Tool{Server: "books", Name: "pay", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"invoice_id":{"type":"string"},"memo":{"type":"string"},"path":{"type":"string"}},"additionalProperties":false}`)}
	want := `f.yaml:5: tools.books/pay.once_per[1]: once_per names /inv, which the tool's input schema does not have
f.yaml:8: tools.books/pay.may_differ[1]: may_differ names /note, which the tool's input schema does not have
f.yaml:9: tools.books/pay.normalize./mail: normalize names /mail, which the tool's input schema does not have
f.yaml:12: tools.books/pay.lookup[1].tool: missing is no tool of the server books
f.yaml:13: tools.books/pay.lookup[2].tool: books/find is a name with its server; a lookup asks its own server, so write find
f.yaml:14: tools.books/pay.lookup[3].tool: send is no read but "write"; if it only reads, declare its effect
f.yaml:16: tools.books/pay.lookup[4].arguments: lookup 5 names {{args.nemo}}, which the tool's input schema does not have`
	others := func(tool string) (registry.Effect, bool) {
		effect, ok := map[string]registry.Effect{"find": registry.Read, "send": registry.Write}[tool]
		return effect, ok
	}
	if got := c.Faults(tool, others).Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	unfit := []Unfit{
		{Fault{"f.yaml", 20, "tools.books/pai", "the server books has no tool of this name; did you mean books/pay?"}, true},
		{Fault{"f.yaml", 21, "tools.bo*/creat*", "fits no tool of any server"}, false},
	}
	if got := c.Unused([]string{"books/pay"}, func(s string) bool { return s == "gone" }); !slices.Equal(got, unfit) {
		t.Errorf("got\n%v\nwant\n%v", got, unfit)
	}
}

// A file that nobody writes by hand is refused before it costs time or memory.
func TestLimits(t *testing.T) {
	bomb := "a0: &a0 [x]\n"
	for i := 1; i < 30; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1)
	}
	for name, text := range map[string]string{
		"bomb":     bomb,
		"size":     strings.Repeat("#", maxBytes+1),
		"flow":     strings.Repeat("[", 100_000),
		"maps":     strings.Repeat("{a: ", 100_000),
		"items":    strings.Repeat("- ", 100_000),
		"keys":     strings.Repeat("? ", 100_000),
		"lines":    strings.Repeat("a: b\n", 100_000),
		"anchors":  strings.Repeat("&a ", 10_000),
		"aliases":  "a: &a b\nc: [" + strings.Repeat("*a, ", 10_000) + "]",
		"not text": "version: \xff",
	} {
		start := time.Now()
		c, err := Parse("f.yaml", []byte(text), environment)
		if c != nil || err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		if strings.Count(err.Error(), "\n") > 0 || len(err.Error()) > 300 {
			t.Errorf("%s: %.300s", name, err)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: took %s", name, d)
		}
	}
}

func TestFiles(t *testing.T) {
	if _, err := Load("testdata/nowhere.yaml", environment); err == nil || err.Error() != "configuration testdata/nowhere.yaml: no such file or directory" {
		t.Error(err)
	}
	if _, err := Load("testdata", environment); err == nil || err.Error() != "configuration testdata: is a folder" {
		t.Error(err)
	}
	none := func(string) (string, bool) { return "", false }
	c, err := Parse("/etc/x/f.yaml", []byte("store: badger:ledger\nmcpServers: {a: {command: b}}"), none)
	if err != nil || c.Ledger != "/etc/x/ledger" {
		t.Error(c, err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "toolguard.yaml")
	if err := os.WriteFile(file, []byte("store: badger:x\nmcpServers: {a: {command: \"${UNSET}\"}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ledger, err := LedgerOf(file, none); err != nil || ledger != filepath.Join(dir, "x") {
		t.Error("the ledger is known though the rest is not:", ledger, err)
	}
}

// The JSON Schema and the parser know the same keys, and both take the good files.
func TestSchemaAgrees(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	at := func(path ...string) any {
		var v any = schema
		for _, p := range path {
			v = v.(map[string]any)[p]
		}
		return v
	}
	data, err := os.ReadFile("testdata/fit/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, r := parseWithKeys(data)
	for path, where := range map[string][]string{
		"":                                     {"properties"},
		"http":                                 {"properties", "http", "properties"},
		"context":                              {"properties", "context", "properties"},
		"context.tenant":                       {"definitions", "source", "properties"},
		"context.run":                          {"properties", "context", "properties", "run", "then", "properties"},
		"defaults":                             {"properties", "defaults", "properties"},
		"mcpServers.*":                         {"definitions", "server", "properties"},
		"tools.books/pay_invoice":              {"definitions", "policy", "properties"},
		"httpTools.stripe/create_refund":       {"definitions", "httpTool", "properties"},
		"tools.stripe/create_refund.lookup[0]": {"definitions", "policy", "properties", "lookup", "items", "properties"},
		"tools.stripe/create_refund.lookup[0].request": {"definitions", "policy", "properties", "lookup", "items", "properties", "request", "properties"},
		"tools.books/pay_invoice.classify":             {"definitions", "policy", "properties", "classify", "properties"},
		"tools.books/pay_invoice.downstream_key":       {"definitions", "policy", "properties", "downstream_key", "properties"},
		"notify[0]":                                    {"properties", "notify", "items", "properties"},
		"reviewers.dana":                               {"properties", "reviewers", "additionalProperties", "properties"},
	} {
		known := r.keys[path]
		shown := slices.Sorted(maps.Keys(at(where...).(map[string]any)))
		if len(known) == 0 || !slices.Equal(known, shown) {
			t.Errorf("%s: the parser knows %v, the schema %v", path, known, shown)
		}
	}
	documented := strings.Fields(`version mode store http listen shutdown operation_tool mcpServers context defaults tools reviewers notify
		preset tenant workflow source_event request run step session actor call_id workflow_version value env meta header stdio
		answer_within timeout attempts retention effect reads_when once_per may_differ normalize entity repeat_after approval
		downstream_key argument window downstream_id lookup token_sha256 roles tenants classify not_applied unknown errors secret result owner url secret on
		command args cwd url headers disabled
		httpTools description input method query json form text request tool arguments applied absent settle`)
	all := slices.Concat(slices.Collect(maps.Values(r.keys))...)
	for _, key := range documented {
		if !slices.Contains(all, key) {
			t.Errorf("the parser does not know %s", key)
		}
	}

	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("toolguard.schema.json", bytes.NewReader(Schema)); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("toolguard.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(file string) error {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.YAMLToJSON(data)
		if err != nil {
			return err
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return compiled.Validate(v)
	}
	good, _ := filepath.Glob("testdata/fit/*.yaml")
	for _, file := range good {
		if err := valid(file); err != nil && !strings.Contains(file, "anchors") {
			t.Errorf("%s: %#v", file, err)
		}
	}
	for _, name := range []string{"requests", "unknown", "types", "policies", "notify", "reviewers", "http", "listen", "none", "reached"} {
		if valid("testdata/faults/"+name+".yaml") == nil {
			t.Errorf("the schema takes faults/%s.yaml", name)
		}
	}
}

func parseWithKeys(data []byte) (*Config, *reader) {
	r := &reader{file: "f.yaml", env: environment, keys: map[string][]string{}}
	c := &Config{}
	r.config(value{parseTree(data, func(int, string, string) {}), ""}, c)
	return c, r
}

// Whatever the file holds, it is a configuration or a list of one-line faults, never a crash.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/fit/*.yaml", "testdata/faults/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		c, err := Parse("f.yaml", data, environment)
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("took %s", d)
		}
		if (c == nil) == (err == nil) {
			t.Fatalf("%v and %v", c, err)
		}
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f.yaml:") {
					t.Fatalf("not one line per fault: %q", line)
				}
			}
			return
		}
		for _, s := range c.Servers {
			c.Resolve(s.Name, "get_x", nil)
		}
	})
}
