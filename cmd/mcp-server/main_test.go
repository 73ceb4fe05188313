package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// binary is the program, built once.
var binary string

func TestMain(m *testing.M) {
	if tools, ok := os.LookupEnv("FAKE_SERVER"); ok { // this test binary, started as an MCP server
		os.Exit(fakeServer(tools))
	}
	if file := os.Getenv("TELLER"); file != "" {
		os.Exit(tellerMain(file, os.Getenv("TELLER_GATE")))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // those that may run at once wait for servers most of the time
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	os.Exit(built(m))
}

func built(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mcp-server-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "mcp-server")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// desk is a working folder, a home and an environment of a test's own.
type desk struct {
	*testing.T
	dir string
	env []string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t, filepath.Join(dir, "work"), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + os.TempDir()}}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

// write writes a file, with @BINARY@, @FAKE@ and @DIR@ replaced.
func (d *desk) write(name, text string) string {
	d.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(d.filled(text)), 0o600); err != nil {
		d.Fatal(err)
	}
	return path
}

func (d *desk) filled(text string) string {
	fake, err := os.Executable()
	if err != nil {
		d.Fatal(err)
	}
	return strings.NewReplacer("@BINARY@", binary, "@FAKE@", fake, "@DIR@", d.dir).Replace(text)
}

// plain is a text with what differs from run to run replaced.
func (d *desk) plain(text string) string {
	fake, _ := os.Executable()
	return strings.NewReplacer(binary, "@BINARY@", fake, "@FAKE@", filepath.Join(filepath.Dir(d.dir), "home"), "@HOME@", d.dir, "@DIR@").Replace(text)
}

func (d *desk) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = d.dir, d.env
	return cmd
}

// run runs the program to its end.
func (d *desk) run(args ...string) (stdout, stderr string, code int) {
	d.Helper()
	return d.runCommand(d.command(args...))
}

func (d *desk) runCommand(cmd *exec.Cmd) (stdout, stderr string, code int) {
	d.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), exit.ExitCode()
	}
	if err != nil {
		d.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

// good runs the program and wants it to succeed.
func (d *desk) good(args ...string) string {
	d.Helper()
	out, errs, code := d.run(args...)
	if code != 0 {
		d.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
	}
	return out
}

// serve starts a server and shakes hands with it.
func (d *desk) serve(args ...string) *client {
	d.Helper()
	return d.serveCommand(d.command(args...))
}

func (d *desk) serveCommand(cmd *exec.Cmd) *client {
	d.Helper()
	words := newTail()
	cmd.Stderr = words
	c, err := startClient(d.soon(), cmd)
	if err != nil {
		d.Fatalf("%v: %v\n%s", cmd.Args, err, words)
	}
	d.Cleanup(func() {
		c.kill()
		if d.Failed() {
			d.Logf("%v:\n%s", cmd.Args[1:], words)
		}
	})
	return c
}

// call calls a tool.
func (d *desk) call(c *client, tool string, args any) answered {
	d.Helper()
	a, err := c.call(d.soon(), tool, args)
	if err != nil {
		d.Fatalf("%s: %v", tool, err)
	}
	return a
}

// soon is a context that ends long after what is waited for must have come.
func (d *desk) soon() context.Context {
	ctx, cancel := context.WithTimeout(d.Context(), 30*time.Second)
	d.Cleanup(cancel)
	return ctx
}

// golden compares a text with a golden file.
func (d *desk) golden(name, got string) {
	d.Helper()
	path := filepath.Join("testdata", name)
	got = d.plain(got)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			d.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			d.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		d.Fatal(err)
	}
	if got != string(want) {
		d.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func lines(s string) []string {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// A reader that has seen enough, such as head(1), is no fault to tell of.
func TestOutputCutOff(t *testing.T) {
	d := newDesk(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := d.command("version")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &errs
	if err := cmd.Run(); err == nil || errs.Len() > 0 {
		t.Errorf("%v, %q", err, errs.String())
	}
}

func TestIsTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, stream := range []any{r, null, strings.NewReader("")} {
		if isTerminal(stream) {
			t.Errorf("%T is taken for a terminal", stream)
		}
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no terminals here:", err)
	}
	defer terminal.Close()
	if !isTerminal(terminal) {
		t.Error("a terminal is not known for one")
	}
}
