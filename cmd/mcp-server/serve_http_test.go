package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"toolguard.dev/toolguard"
)

// serveHTTP starts a server without stdio and returns where it serves.
func (d *desk) serveHTTP(args ...string) (cmd *exec.Cmd, url string) {
	d.Helper()
	cmd = d.command(append([]string{"serve", "--no-stdio"}, args...)...)
	return cmd, d.announce(cmd)
}

// announce starts a server and returns where it serves.
func (d *desk) announce(cmd *exec.Cmd) (url string) {
	d.Helper()
	words := &announced{url: make(chan string, 1)}
	cmd.Stderr = words
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		_ = cmd.Process.Kill()
		if d.Failed() {
			d.Logf("%v:\n%s", cmd.Args[1:], words)
		}
	})
	select {
	case url = <-words.url:
	case <-d.soon().Done():
		d.Fatalf("it does not say where it serves:\n%s", words)
	}
	return url
}

// announced waits for the line that says where HTTP is served.
type announced struct {
	tail
	url chan string
}

var served = regexp.MustCompile(`msg="serving HTTP" url=(\S+)`)

func (a *announced) Write(b []byte) (int, error) {
	if m := served.FindSubmatch(b); m != nil {
		a.url <- string(m[1])
	}
	return a.tail.Write(b)
}

// post sends one message of the stateless protocol.
func (d *desk) post(url, method, name, params string) string {
	d.Helper()
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, method, params)
	r, err := http.NewRequestWithContext(d.soon(), http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		d.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {name}}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		d.Fatal(err)
	}
	return string(text)
}

// Without stdio the end of stdin means nothing; a signal ends the server well, with what is in flight on record.
func TestServeHTTP(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice+"http: {listen: \"127.0.0.1:0\"}\n")
	cmd, url := d.serveHTTP("--data", "ledger")
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		r, err := http.Get(strings.TrimSuffix(url, "/mcp") + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(text) != want {
			t.Errorf("%s: %s, %v", path, text, err)
		}
	}
	if list := d.post(url, "tools/list", "", ""); !strings.Contains(list, `"create_ticket"`) {
		t.Error(list)
	}
	for _, want := range []string{`"outcome":"fresh"`, `"outcome":"replayed"`} {
		if text := d.post(url, "tools/call", "create_ticket", `"name":"create_ticket","arguments":{"title":"x"},`); !strings.Contains(text, want) {
			t.Errorf("not %s: %s", want, text)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("did not end well: %v", err)
	}
	if list := d.operations(); len(list) != 1 || list[0].Status != toolguard.StatusSucceeded {
		t.Errorf("%+v", list)
	}
}

// One ledger behind both; the end of stdin is the end of both.
func TestServeStdioAndHTTP(t *testing.T) {
	d := newDesk(t)
	d.write("toolguard.yaml", plainOffice)
	cmd := d.command("serve", "--http", "localhost:0", "--data", "ledger")
	words := &announced{url: make(chan string, 1)}
	cmd.Stderr = words
	c, err := startClient(d.soon(), cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, words)
	}
	url := <-words.url
	if a := d.call(c, "create_ticket", map[string]any{"title": "x"}); a.Meta.Verdict.Outcome != toolguard.Fresh {
		t.Errorf("%+v", a)
	}
	if text := d.post(url, "tools/call", "create_ticket", `"name":"create_ticket","arguments":{"title":"x"},`); !strings.Contains(text, `"outcome":"replayed"`) {
		t.Error(text)
	}
	if err := c.end(); err != nil {
		t.Errorf("did not end well: %v\n%s", err, words)
	}
}

// An address that is taken is an error where it was asked for, and a warning where every window has it configured.
func TestServeHTTPAddressTaken(t *testing.T) {
	d := newDesk(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d.write("toolguard.yaml", plainOffice+"http: {listen: \""+l.Addr().String()+"\"}\n")
	for _, args := range [][]string{{"--no-stdio"}, {"--http", l.Addr().String()}} {
		_, errs, code := d.run(append([]string{"serve"}, args...)...)
		if want := "mcp-server: HTTP: listen tcp " + l.Addr().String() + ": bind: address already in use; another mcp-server may serve there already, else give another port with --http\n"; code != 1 || errs != want {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	cmd := d.command("serve")
	cmd.Stdin = &bytes.Buffer{}
	if _, errs, code := d.runCommand(cmd); code != 0 || !strings.Contains(errs, "serving stdio only") {
		t.Errorf("exit %d, %s", code, errs)
	}
	d.write("toolguard.yaml", plainOffice+"http: {listen: \"0.0.0.0:1\"}\n")
	_, errs, code := d.run("serve")
	if want := `toolguard.yaml:4: http.listen: "0.0.0.0:1" is not a loopback address; only 127.0.0.0/8, [::1] and localhost are served as yet` + "\n"; code != 2 || !strings.HasSuffix(errs, want) {
		t.Errorf("exit %d, %s", code, errs)
	}
}
