package sharedstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"toolguard.dev/badgerstore"
	"toolguard.dev/sharedstore"
	"toolguard.dev/toolguard"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// options open a ledger on Badger.
func options(dir string) *sharedstore.Options {
	return &sharedstore.Options{
		OpenOwner: func() (toolguard.Store, error) {
			s, err := badgerstore.Open(dir, &badgerstore.Options{Log: quiet})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Held: badgerstore.ErrLocked,
		Log:  quiet,
	}
}

// recovering are options for an owner that settles what the dead leave.
func recovering(dir string) *sharedstore.Options {
	o := options(dir)
	o.Died = func(ctx context.Context, s *sharedstore.Store) error { return toolguard.Recover(ctx, s, s.Alive) }
	return o
}

// TestMain makes the test binary its own child: "hold DIR" opens a ledger and keeps it until its stdin ends, "work DIR
// EFFECTS NAME" calls a guarded tool until it is killed, "nobody DIR" tries to open one as another user.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "hold":
		err = hold(os.Args[2])
	case len(os.Args) == 5 && os.Args[1] == "work":
		err = work(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 3 && os.Args[1] == "nobody":
		err = nobody(os.Args[2])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// hold prints "open" and the process's name.
func hold(dir string) error {
	s, err := sharedstore.Open(context.Background(), dir, options(dir))
	if err != nil {
		return err
	}
	fmt.Println("open", s.Process())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Close()
}

// child is this test binary in another process.
type child struct {
	testing.TB
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func start(t testing.TB, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{TB: t, cmd: exec.Command(exe, args...)}
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	t.Cleanup(func() { c.kill() })
	return c
}

// holder is a child that has the ledger open, and its name.
func holder(t testing.TB, dir string) (c *child, name string) {
	t.Helper()
	c = start(t, "hold", dir)
	line, err := c.out.ReadString('\n')
	if _, e := fmt.Sscanf(line, "open %s\n", &name); e != nil {
		t.Fatalf("a child said %q, %v", line, err)
	}
	return c, name
}

// kill may come twice.
func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func open(t testing.TB, dir string) *sharedstore.Store {
	t.Helper()
	return openWith(t, dir, options(dir))
}

func openWith(t testing.TB, dir string, o *sharedstore.Options) *sharedstore.Store {
	t.Helper()
	s, err := sharedstore.Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// eventually waits for what must come within a time.
func eventually(t *testing.T, within time.Duration, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
