package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	legacy = "2025-11-25" // initialize handshake
	modern = "2026-07-28" // stateless, facts in every request's _meta
)

var eras = []string{legacy, modern}

// patience is how long anything is waited for: long, since it is only spent when something is wrong.
const patience = 90 * time.Second

var (
	raceEnabled bool
	unguarded   = os.Getenv("E2E_UNGUARDED") != ""
	buildDir    string
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "tap":
			os.Exit(tapMain(os.Args[2]))
		case "stub":
			os.Exit(stubMain(os.Args[2]))
		case "till":
			os.Exit(tillMain(os.Args[2]))
		case "fixture":
			os.Exit(fixtureMain(os.Args[2]))
		}
	}
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		buildDir = dir
		defer func() {
			for _, end := range slices.Backward(ends) {
				end()
			}
		}()
		return m.Run()
	}())
}

// atEnd has something done when all tests have ended, the last first.
func atEnd(end func()) { ends = append(ends, end) }

var ends []func()

var buildOnce = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("E2E_SERVER"); path != "" {
		return filepath.Abs(path)
	}
	out := filepath.Join(buildDir, "mcp-server")
	args := []string{"build"}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "-o", out, "toolguard.dev/cmd/mcp-server")...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build mcp-server: %v\n%s", err, text)
	}
	return out, nil
})

// product is the path of the built mcp-server.
func product(t testing.TB) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// need skips where something is missing, and fails there in CI.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

var nodeOnce = sync.OnceValues(func() (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node is not installed")
	}
	dir, err := filepath.Abs("node")
	if err != nil {
		return "", err
	}
	var lock struct {
		Packages map[string]struct {
			Version string `json:"version"`
		} `json:"packages"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return "", err
	}
	for _, name := range []string{
		"@cyanheads/git-mcp-server", "@modelcontextprotocol/client", "@modelcontextprotocol/conformance",
		"@modelcontextprotocol/inspector", "@modelcontextprotocol/sdk", "@modelcontextprotocol/server-everything",
		"@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-memory",
		"@notionhq/notion-mcp-server", "@zereight/mcp-gitlab", "enhanced-postgres-mcp-server",
	} {
		var have struct {
			Version string `json:"version"`
		}
		text, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "package.json"))
		if err == nil {
			err = json.Unmarshal(text, &have)
		}
		if want := lock.Packages["node_modules/"+name].Version; err != nil || have.Version != want {
			return "", fmt.Errorf("%s %s is not installed: run npm ci in e2e/node", name, want)
		}
	}
	return node, nil
})

// needNode returns the path of node, and skips (in CI: fails) without it or the pinned packages.
func needNode(t testing.TB) string {
	t.Helper()
	node, err := nodeOnce()
	need(t, err)
	return node
}

func nodePath(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := filepath.Abs("node")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{dir}, elem...)...)
}

// upstream is a stdio MCP server: how it is called in policies and how it is started.
type upstream struct {
	name string
	argv []string
	env  map[string]string
}

func filesystem(t testing.TB, dir string) upstream {
	return upstream{name: "fs", argv: []string{needNode(t),
		nodePath(t, "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"), dir}}
}

func memory(t testing.TB, file string) upstream {
	return upstream{name: "memory", argv: []string{needNode(t),
		nodePath(t, "node_modules/@modelcontextprotocol/server-memory/dist/index.js")},
		env: map[string]string{"MEMORY_FILE_PATH": file}}
}

func everything(t testing.TB) upstream {
	return upstream{name: "everything", argv: []string{needNode(t),
		nodePath(t, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")}}
}

func gitServer(t testing.TB, base string) upstream {
	return upstream{name: "git", argv: []string{needNode(t),
		nodePath(t, "node_modules/@cyanheads/git-mcp-server/dist/index.js")},
		env: gitEnv(map[string]string{
			"MCP_TRANSPORT_TYPE": "stdio",
			"MCP_LOG_LEVEL":      "error",
			"LOGS_DIR":           filepath.Join(base, "logs"),
			"GIT_SIGN_COMMITS":   "false",
		})}
}

// gitEnv adds what keeps git away from the machine's own configuration.
func gitEnv(env map[string]string) map[string]string {
	env["GIT_CONFIG_GLOBAL"] = os.DevNull
	env["GIT_CONFIG_NOSYSTEM"] = "1"
	env["GIT_TERMINAL_PROMPT"] = "0"
	return env
}

func environ(extra map[string]string) []string {
	env := os.Environ()
	for k, v := range extra {
		env = append(env, k+"="+v)
	}
	return env
}

// guard is mcp-server in front of one upstream, with a data folder that outlives its processes.
type guard struct {
	up     upstream
	data   string
	config string // path of toolguard.yaml; "": wrap
}

func wrap(t testing.TB, up upstream) *guard {
	return &guard{up: up, data: t.TempDir()}
}

// serve makes a configuration of the upstream and the given YAML (settings and tools, top level).
func serve(t testing.TB, up upstream, settings string) *guard {
	t.Helper()
	entry, err := json.Marshal(map[string]any{"command": up.argv[0], "args": up.argv[1:], "env": up.env})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "toolguard.yaml")
	text := fmt.Sprintf("version: 1\nmcpServers:\n  %s: %s\n%s\n", up.name, entry, settings)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &guard{up: up, data: t.TempDir(), config: config}
}

// command is what a client would start.
func (g *guard) command(t testing.TB) []string {
	t.Helper()
	switch {
	case unguarded:
		return g.up.argv
	case g.config != "":
		return []string{product(t), "serve", "--config", g.config, "--data", g.data}
	default:
		return append([]string{product(t), "wrap", "--name", g.up.name, "--data", g.data, "--"}, g.up.argv...)
	}
}

// start runs the guard with a raw client on its pipes.
func (g *guard) start(t testing.TB, era string) *client {
	t.Helper()
	return startClient(t, era, g.command(t), g.up.env)
}

// direct runs the upstream itself with a raw client on its pipes.
func direct(t testing.TB, up upstream) *client {
	t.Helper()
	return startClient(t, legacy, up.argv, up.env)
}

// cli runs one of mcp-server's other commands on the guard's ledger, which no process may hold.
func (g *guard) cli(t testing.TB, args ...string) string {
	t.Helper()
	if unguarded {
		t.Fatal("without the guard there is no ledger")
	}
	args = append(args, "--data", g.data)
	if g.config != "" {
		args = append(args, "--config", g.config)
	}
	cmd := exec.Command(product(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("mcp-server %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// recv receives from ch, and fails the test if nothing comes.
func recv[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("waited %s in vain for %s", patience, what)
		panic("unreachable")
	}
}

// poll asks until the answer is yes, where nothing tells when to ask.
func poll(t testing.TB, what string, yes func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !yes(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
	}
}

// watch is a state that can be waited for.
type watch struct {
	mu      sync.Mutex
	changed chan struct{}
}

// update changes the state under its lock and wakes all who wait.
func (w *watch) update(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	if w.changed != nil {
		close(w.changed)
	}
	w.changed = make(chan struct{})
}

// until waits until the condition, evaluated under the lock, holds.
func (w *watch) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		w.mu.Lock()
		ok := holds()
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
	}
}

// decode reads JSON with exact numbers.
func decode(t testing.TB, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("not JSON: %v: %.200s", err, raw)
	}
	return v
}

// plain makes v what decode would give.
func plain(t testing.TB, v any) any {
	t.Helper()
	return decode(t, encode(t, v))
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// sameJSON fails the test unless the two are one JSON value, and shows the first places where they are not.
func sameJSON(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := differences(t, plain(t, got), plain(t, want), ""); len(diff) > 0 {
		t.Errorf("%s differ:\n  %s", what, strings.Join(diff[:min(len(diff), 10)], "\n  "))
	}
}

// differences lists where a differs from b, by JSON Pointer.
func differences(t testing.TB, a, b any, at string) []string {
	var all []string
	am, aIsObject := a.(map[string]any)
	bm, bIsObject := b.(map[string]any)
	as, aIsList := a.([]any)
	bs, bIsList := b.([]any)
	switch {
	case reflect.DeepEqual(a, b):
	case aIsObject && bIsObject:
		for k, v := range am {
			if w, ok := bm[k]; ok {
				all = append(all, differences(t, v, w, at+"/"+k)...)
			} else {
				all = append(all, fmt.Sprintf("%s/%s: not wanted: %.300s", at, k, encode(t, v)))
			}
		}
		for k, w := range bm {
			if _, ok := am[k]; !ok {
				all = append(all, fmt.Sprintf("%s/%s: missing: %.300s", at, k, encode(t, w)))
			}
		}
	case aIsList && bIsList && len(as) == len(bs):
		for i := range as {
			all = append(all, differences(t, as[i], bs[i], fmt.Sprintf("%s/%d", at, i))...)
		}
	default:
		all = append(all, fmt.Sprintf("%s: %.300s, want %.300s", at, encode(t, a), encode(t, b)))
	}
	return all
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
