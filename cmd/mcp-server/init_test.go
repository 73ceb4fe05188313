package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/cmd/mcp-server/config"
)

// From the files of real clients come drafts that check takes.
func TestInit(t *testing.T) {
	for _, test := range []struct {
		file  string
		check int // exit code of check on the draft
	}{
		{"claude_desktop_config.json", 0},
		{"cursor.json", 0},
		{"mcp.json", 1},    // one of the servers does not start
		{"vscode.json", 2}, // ${input:…} is known to VS Code alone
	} {
		t.Run(test.file, func(t *testing.T) {
			d := newDesk(t)
			text, err := os.ReadFile(filepath.Join("testdata", "clients", test.file))
			if err != nil {
				t.Fatal(err)
			}
			d.write(test.file, string(text))
			out, errs, code := d.run("init", "--from", test.file)
			if code != 0 {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			draft, err := os.ReadFile(filepath.Join(d.dir, "toolguard.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			d.golden("drafts/"+strings.TrimSuffix(test.file, ".json")+".txt", fmt.Sprintf("%s\n--- said\n%s\n--- printed\n%s", draft, errs, out))
			if out, errs, code := d.run("check"); code != test.check {
				t.Errorf("check: exit %d\n%s%s", code, out, errs)
			}
			if shipped, err := os.ReadFile(filepath.Join(d.dir, config.SchemaFile)); err != nil || string(shipped) != string(config.Schema) {
				t.Errorf("the schema beside it: %v", err)
			}
			_, errs, code = d.run("init", "--from", test.file)
			if want := "mcp-server: toolguard.yaml exists already, and is left as it is; name another file with --out\n"; code != 1 || errs != want {
				t.Errorf("a second time: exit %d, %s", code, errs)
			}
		})
	}
}

// What the editor puts in by itself is put in.
func TestInitVariables(t *testing.T) {
	d := newDesk(t)
	d.write("a \"b\"/.vscode/mcp.json", `{"servers": {"office": {"type": "stdio", "command": "@BINARY@", "args": ["sample-office", "--file", "${workspaceFolder}${/}o.json"], "cwd": "${workspaceFolder}", "env": {"H": "${userHome}"}}}}`)
	d.good("init", "--from", "a \"b\"/.vscode/mcp.json")
	c, err := config.Load(filepath.Join(d.dir, "toolguard.yaml"), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(d.dir, `a "b"`)
	if s := c.Servers[0]; s.Dir != folder || s.Args[2] != filepath.Join(folder, "o.json") || s.Env[0] != "H="+filepath.Join(filepath.Dir(d.dir), "home") {
		t.Errorf("%+v", s)
	}
	d.good("check")
	d.write("mcp.json", `{"mcpServers": {"office": {"command": "@BINARY@", "args": ["sample-office"], "cwd": "${workspaceFolder}"}}}`)
	d.good("init", "--from", "mcp.json", "--out", "other.yaml")
	if c, err := config.Load(filepath.Join(d.dir, "other.yaml"), os.LookupEnv); err != nil || c.Servers[0].Dir != d.dir {
		t.Errorf("%+v, %v", c, err)
	}
}

// Without one server that names its tools there is nothing to write.
func TestInitOfNothing(t *testing.T) {
	d := newDesk(t)
	d.write("mcp.json", `{"mcpServers": {"gone": {"command": "@DIR@/gone"}, "asks": {"command": "x", "env": {"T": "${input:my-token}"}},
		"broken": {"command": "@FAKE@", "env": {"FAKE_SERVER": "!loading\nTypeError: no licence\n  at a\n  at b\n  at c"}}}}`)
	out, errs, code := d.run("init", "--from", "mcp.json")
	got := lines(errs)
	if code != 1 || out != "" || len(got) != 4 || got[3] != "mcp-server: mcp.json: nothing was written, because not one server could be asked for its tools (the lines above say why)" {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{
		"asks: could not be asked for its tools: mcpServers.asks.env.T: ${input:my-token} is asked for by the editor alone; write ${my_token} and set my_token in the environment\n",
		"broken: could not be asked for its tools: cannot be started: before the handshake, it ended: exit status 3 (it wrote: TypeError: no licence)\n",
		"gone: could not be asked for its tools: cannot be started: "} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	d.absent("toolguard.yaml")
	d.absent(config.SchemaFile)
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	fake, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := &offer{server: "fake"}
	err = o.ask(t.Context(), mcpguard.Server{Name: "fake", Command: fake, Env: []string{"FAKE_SERVER=-"}}, 300*time.Millisecond)
	if err == nil || err.Error() != "cannot be started: it did not answer the handshake within 0.3 s" {
		t.Error(err)
	}
	for d, want := range map[time.Duration]string{time.Minute + 3*time.Millisecond: "60 s", 1540 * time.Millisecond: "1.5 s"} {
		if got := seconds(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestTelling(t *testing.T) {
	for in, want := range map[string]string{"": "", "a\nb\nc\nd\n": "b | c | d", "x\n  some ERROR: y\nerror z\n": "some ERROR: y"} {
		if got := telling(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// A draft never suggests that a tool which changes a thing again and again does so once per thing.
func TestNoNarrowSuggestion(t *testing.T) {
	schema := json.RawMessage(`{"properties":{"invoice_id":{},"path":{},"memo":{},"comment":{}},"required":["invoice_id","path"]}`)
	for _, name := range []string{"update_invoice", "edit_invoice", "comment_invoice", "add_comment", "updateInvoice", "set-invoice", "append_file",
		"pay_invoice_note", "edit_payment", "cancel_and_replace", "create_invoice", "send_invoice"} {
		f := found{}
		f.Name, f.InputSchema = name, schema
		if s := suggest(f); s.target != "" {
			t.Errorf("%s: once_per %v", name, s.target)
		}
	}
	f := found{}
	f.Name, f.InputSchema = "payInvoice", schema
	if s := suggest(f); s.target != "/invoice_id" {
		t.Errorf("%+v", s)
	}
}

func TestFindClientFile(t *testing.T) {
	d := newDesk(t)
	d.write(".mcp.json", `{"mcpServers": {"office": {"command": "@BINARY@", "args": ["sample-office", "--file", "@DIR@/office.json"]}}}`)
	if out := d.good("init", "--json"); !strings.Contains(out, `"serve"`) || !json.Valid([]byte(out)) {
		t.Error(out)
	}
	d.write(".cursor/mcp.json", `{"mcpServers": {"a": {"command": "x"}}}`)
	_, errs, code := d.run("init", "--out", "other.yaml")
	if want := "mcp-server: several clients have MCP servers: .mcp.json, .cursor/mcp.json; choose one with --from\n"; code != 2 || errs != want {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestClientFileFaults(t *testing.T) {
	d := newDesk(t)
	for name, test := range map[string][2]string{
		"no.json":       {"{\n\"a\": }", "no.json: is no JSON object: line 2: invalid character '}' looking for beginning of value"},
		"list.json":     {"[]", "list.json: is no JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"},
		"other.json":    {"{}", "other.json: has no mcpServers (and no servers)"},
		"empty.json":    {`{"mcpServers": {}}`, "empty.json: mcpServers is empty"},
		"entry.json":    {`{"mcpServers": {"a": 1}}`, "entry.json: mcpServers.a is no object"},
		"config.toml":   {"[mcp_servers.a]", "config.toml: is TOML, which is not read; "},
		"only-sse.json": {`{"mcpServers": {"a": {"type": "sse", "url": "https://example.com"}}}`, ""},
	} {
		d.write(name, test[0])
		_, errs, code := d.run("init", "--from", name)
		want, exit := "mcp-server: "+test[1], 2
		if test[1] == "" {
			want, exit = "a: is reached over HTTP+SSE, the older transport, which is not guarded; it stays in the client, unguarded\nmcp-server: only-sse.json: no server that can be guarded", 1
		}
		if code != exit || !strings.HasPrefix(errs, want) {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
	}
}

func TestPlainJSON(t *testing.T) {
	for in, want := range map[string]string{
		"\xef\xbb\xbf{}":                    "{}",
		"{\"a\": 1, // x\n}":                "{\"a\": 1  \n}",
		`{"a": "// no", "b": "/* no */,]"}`: `{"a": "// no", "b": "/* no */,]"}`,
		"[1, /* a\nb */ 2,]":                "[1, \n 2 ]",
		`["\\", "\"//",]`:                   `["\\", "\"//" ]`,
		`["open`:                            `["open`,
		"/* open":                           "",
	} {
		if got := string(plainJSON([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// What is written for YAML is what the client's JSON said.
func TestServersText(t *testing.T) {
	entry := clientEntry{"a b: c", map[string]json.RawMessage{"command": json.RawMessage(`"x"`),
		"args": json.RawMessage(`["<&>", "a\u2028b", "\"q\" \\ \n\t\u0007 \/ é 😀", "# no", "yes", "1e3", "{a: b}", "&x", "*y", ""]`),
		"env":  json.RawMessage(`{"A": "1", "yes": "no", "x:y": " z "}`), "odd key": json.RawMessage(`[{"b": null, "a": 1.50}]`)}}
	c, err := config.Parse("f", []byte(serversText([]clientEntry{entry})), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v in\n%s", err, serversText([]clientEntry{entry}))
	}
	var want []string
	if err := json.Unmarshal(entry.members["args"], &want); err != nil {
		t.Fatal(err)
	}
	s := c.Servers[0]
	if fmt.Sprintf("%q", s.Args) != fmt.Sprintf("%q", want) || s.Name != entry.name || fmt.Sprintf("%q", s.Env) != `["A=1" "x:y= z " "yes=no"]` {
		t.Errorf("%q\n%q\n%q", s.Args, want, s.Env)
	}
}
