package main

import (
	"slices"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	d := newDesk(t)
	d.write("faulty.yaml", "version: 1\nmod: x\nmcpServers: {a: {command: a}, b: {url: x}}\ntools: {a/x: {once_per: [y]}}\n")
	d.write("good.yaml", "version: 1\nmcpServers: {a: {command: a}}\n")
	for _, test := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"", 2, "mcp-server: which command? mcp-server --help shows them"},
		{"serv", 2, `mcp-server: unknown command "serv" for "mcp-server" (mcp-server --help shows what there is)`},
		{"serve --port 1", 2, "mcp-server: unknown flag: --port (mcp-server serve --help shows what there is)"},
		{"serve x", 2, "mcp-server: serve takes no arguments, but was given x (mcp-server serve --help shows what there is)\n"},
		{"check toolguard.yaml", 2, "mcp-server: check takes no arguments, but was given toolguard.yaml (mcp-server check --help shows what there is)\n"},
		{"serve --sample --config good.yaml", 2, "mcp-server: --config has no use with serve --sample, which guards the built-in office\n"},
		{"wrap --config good.yaml -- a", 2, "mcp-server: --config has no use with wrap, which guards one server as it is; serve takes a configuration\n"},
		{"demo --data d", 2, "mcp-server: --data has no use with demo, which has an office and a ledger of its own\n"},
		{"init --config new.yaml", 2, "mcp-server: --config has no use with init; --out names the file to write, --from the client's\n"},
		{"serve --http 0.0.0.0:7420", 2, "mcp-server: --http: \"0.0.0.0:7420\" is not a loopback address; only 127.0.0.0/8, [::1] and localhost are served as yet"},
		{"serve --http :7420 --sample", 2, "mcp-server: --http: \":7420\" is not a loopback address; "},
		{"serve --http 7420", 2, "mcp-server: --http: \"7420\" is no address; write one such as 127.0.0.1:7420"},
		{"serve --no-stdio --config good.yaml", 2, "mcp-server: --no-stdio leaves nothing to serve: give --http ADDR, or http: {listen: ADDR} in the configuration"},
		{"serve", 2, "mcp-server: no configuration: --config is not given, $TOOLGUARD_CONFIG is not set, there is no @DIR@/toolguard.yaml, and no @HOME@/.config/toolguard/toolguard.yaml; mcp-server init writes one\n"},
		{"verify", 2, "mcp-server: no configuration: --config is not given, $TOOLGUARD_CONFIG is not set, there is no @DIR@/toolguard.yaml, and no @HOME@/.config/toolguard/toolguard.yaml; and there is no ledger in @HOME@/.local/state/toolguard; name one with --data DIR\n"},
		{"serve --config nowhere.yaml", 2, "mcp-server: configuration nowhere.yaml: no such file or directory"},
		{"serve --config faulty.yaml", 2, `faulty.yaml:2: mod: unknown key; did you mean mode?
faulty.yaml:3: mcpServers.b.url: must begin with http:// or https://
faulty.yaml:4: tools.a/x.once_per[0]: unknown fact "y"; known: tenant, workflow, source_event, request, run, step (an argument is written /y)`},
		{"check --config faulty.yaml --json", 2, "faulty.yaml:2: mod: unknown key; did you mean mode?"},
		{"wrap", 2, "mcp-server: which server? write: mcp-server wrap -- CMD ARGS… (mcp-server wrap --help shows what there is)"},
		{"ops", 2, "mcp-server: which one? mcp-server ops --help shows list, show, resolve and repeat"},
		{"ops lst", 2, `mcp-server: unknown command "lst" for mcp-server ops (mcp-server ops --help shows what there is)`},
		{"ops list --config good.yaml", 1, "mcp-server: there is no ledger in @HOME@/.local/state/toolguard/work-"},
		{"ops list --config faulty.yaml", 1, "mcp-server: there is no ledger in @HOME@/.local/state/toolguard/work-"},
		{"ops list --status odd", 2, "mcp-server: --status odd: there is awaiting_approval, approved, rejected, dispatching, succeeded, failed, unknown, escalated and abandoned"},
		{"ops list x", 2, "mcp-server: list takes no arguments, but was given x (mcp-server ops list --help shows what there is)\n"},
		{"ops list --limit many", 2, "mcp-server: invalid argument \"many\" for \"--limit\" flag: it must be a whole number (mcp-server ops list --help shows what there is)\n"},
		{"ops list --limit 99999999999999999999", 2, "mcp-server: invalid argument \"99999999999999999999\" for \"--limit\" flag: the number is too large (mcp-server ops list --help shows what there is)\n"},
		{"ops list --queue=often", 2, "mcp-server: invalid argument \"often\" for \"--queue\" flag: it must be true or false (mcp-server ops list --help shows what there is)\n"},
		{"ops show", 2, "mcp-server: KEY is missing: ops list shows the keys (mcp-server ops show --help shows what there is)\n"},
		{"ops repeat", 2, "mcp-server: KEY is missing: ops list shows the keys (mcp-server ops repeat --help shows what there is)\n"},
		{"ops show a b", 2, "mcp-server: show takes one KEY, but was given a b (mcp-server ops show --help shows what there is)\n"},
		{"ops resolve x", 2, "mcp-server: --verdict is missing: applied, not_applied or abandoned"},
		{"ops resolve x --verdict done", 2, "mcp-server: --verdict done: it is applied, not_applied or abandoned"},
		{"ops resolve x --verdict applied --result {", 2, "mcp-server: --result is no JSON: {\n"},
		{"verify --data nowhere", 1, "mcp-server: there is no ledger in @DIR@/nowhere\n"},
		{"verify --against abc --data nowhere", 2, "mcp-server: --against abc: it is the hash of an exported event, 64 digits from 0-9 and a-f\n"},
		{"export --format xml --data nowhere", 2, "mcp-server: --format xml: it is jsonl or csv"},
		{"report --since yesterday --data nowhere", 2, "mcp-server: --since yesterday: write a time such as 2026-08-31 or 2026-08-31T12:00:00Z, or a duration such as 24h"},
		{"init", 2, "mcp-server: no client's file with MCP servers was found; tried .mcp.json, .cursor/mcp.json, .vscode/mcp.json, "},
		{"version", 0, ""},
		{"--version", 0, ""},
		{"help ops list", 0, ""},
		{"help foo", 2, "mcp-server: there is no command \"foo\"; mcp-server --help shows what there is\n"},
		{"help ops foo", 2, "mcp-server: there is no command \"ops foo\"; mcp-server --help shows what there is\n"},
		{"--help", 0, ""},
	} {
		out, errs, code := d.run(strings.Fields(test.args)...)
		if got := d.plain(errs); code != test.code || !strings.HasPrefix(got, test.stderr) || test.stderr == "" && got != "" {
			t.Errorf("%s: exit %d, stderr\n%s\nwant exit %d,\n%s", test.args, code, got, test.code, test.stderr)
		}
		if code != 0 && out != "" {
			t.Errorf("%s: stdout has\n%s", test.args, out)
		}
	}
}

func TestConfigurationIsFound(t *testing.T) {
	d := newDesk(t)
	fault := func(name string) string { return "version: 1\nmcpServers: {" + name + ": {}}\n" }
	check := func(want string, args ...string) {
		t.Helper()
		_, errs, code := d.run(append([]string{"check"}, args...)...)
		if code != 2 || !strings.Contains(errs, "mcpServers."+want+": has no command") {
			t.Errorf("want the file of %s; got exit %d, %s", want, code, errs)
		}
	}
	d.write("../home/.config/toolguard/toolguard.yaml", fault("user"))
	check("user")
	d.write("toolguard.yaml", fault("folder"))
	check("folder")
	d.env = append(d.env, "TOOLGUARD_CONFIG="+d.write("env.yaml", fault("environment")))
	check("environment")
	d.write("flag.yaml", fault("flag"))
	check("flag", "--config", "flag.yaml")
}

// A variable that the configuration needs may be missing where an operator looks at the ledger.
func TestLedgerWithoutEnvironment(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", "version: 1\nstore: badger:books\nmcpServers: {a: {command: a, env: {T: \"${TOKEN}\"}}}\n")
	_, errs, code := d.run("ops", "list")
	if want := "mcp-server: there is no ledger in @DIR@/books\n"; code != 1 || d.plain(errs) != want {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestEnvironmentOfChildren(t *testing.T) {
	ours := []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "XDG_STATE_HOME=/s", "GITHUB_TOKEN=t", "ANTHROPIC_API_KEY=k", "TOOLGUARD_CONFIG=c", "LCX=1", "A=1"}
	if got, want := entryEnvironment(ours, []string{"A=2", "PATH=/usr/bin"}), []string{"HOME=/h", "LC_ALL=C", "XDG_STATE_HOME=/s", "A=2", "PATH=/usr/bin"}; !slices.Equal(got, want) {
		t.Errorf("mcpServers: %v, want %v", got, want)
	}
	if got, want := wrappedEnvironment(ours, nil), []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "XDG_STATE_HOME=/s", "GITHUB_TOKEN=t", "LCX=1", "A=1"}; !slices.Equal(got, want) {
		t.Errorf("wrap: %v, want %v", got, want)
	}
	if got := wrappedEnvironment(ours, []string{"ANTHROPIC_API_KEY"}); !slices.Contains(got, "ANTHROPIC_API_KEY=k") {
		t.Errorf("wrap --pass: %v", got)
	}
}
