package badgerstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/badgerstore"
	"toolguard.dev/toolguard"
)

// TestMain makes the test binary its own child: "hold DIR" opens a ledger and waits, "close DIR" writes to one and
// closes it, "write DIR ROUND STAGE N" writes to it until it is killed, and kills itself when a stage is reached for
// the Nth time.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "hold":
		err = hold(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "close":
		err = closeOn(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "fill":
		if err = fill(os.Args[2], os.Args[3]); err == nil {
			os.Exit(0)
		}
	case len(os.Args) == 6 && os.Args[1] == "write":
		err = writeOn(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func hold(dir string) error {
	if _, err := badgerstore.Open(dir, nil); err != nil {
		return err
	}
	fmt.Println("held")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// closeOn writes to a ledger and closes it when stdin ends.
func closeOn(dir string) error {
	s, err := badgerstore.Open(dir, nil)
	if err != nil {
		return err
	}
	if err := s.Commit(context.Background(), write("k")); err != nil {
		return err
	}
	os.Stdout.WriteString("written\n")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// writeOn has eight goroutines create operations and settle every second one. It prints the key and revision of
// every acknowledged write.
func writeOn(dir, round, stage, nth string) error {
	n, err := strconv.ParseInt(nth, 10, 64)
	if err != nil {
		return err
	}
	var reached atomic.Int64
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	s, err := badgerstore.Open(dir, &badgerstore.Options{Fail: func(at badgerstore.Stage) error {
		if string(at) == stage && reached.Add(1) == n {
			self.Kill()
			select {}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	errs := make(chan error)
	for g := range 8 {
		go func() {
			for i := 0; ; i++ {
				w := write(fmt.Sprintf("%s-%d-%d", round, g, i))
				w.Events[0].Tenant = fmt.Sprint("tenant ", g%2)
				if err := s.Commit(context.Background(), w); err != nil {
					errs <- err
				}
				os.Stdout.WriteString(fmt.Sprintf("%s %d\n", w.Operation.Key, w.Operation.Rev))
				if i%2 == 0 {
					continue
				}
				w.Token, w.Open, w.Operation.Status = w.Token+" 2", false, toolguard.StatusSucceeded
				w.Body = &toolguard.Body{Result: []byte(`"` + strings.Repeat(w.Operation.Key, 50) + `"`)}
				if err := s.Commit(context.Background(), w); err != nil {
					errs <- err
				}
				os.Stdout.WriteString(fmt.Sprintf("%s %d\n", w.Operation.Key, w.Operation.Rev))
			}
		}()
	}
	return <-errs
}

func child(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	c, out, _ := childWithInput(t, args...)
	return c, out
}

func childWithInput(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader, io.Closer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, args...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	return c, bufio.NewReader(out), in
}

func TestLedgerIsHeldByOneProcessAndFreedByItsDeath(t *testing.T) {
	dir := t.TempDir()
	c, out := child(t, "hold", dir)
	if line, err := out.ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, err := badgerstore.Open(dir, nil)
	if !errors.Is(err, badgerstore.ErrLocked) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{dir, fmt.Sprintf("held by process %d", c.Process.Pid), " hold)", "since 20"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	c.Process.Kill()
	c.Wait()
	s := open(t, dir, nil)
	if _, err := badgerstore.Open(dir, nil); !errors.Is(err, badgerstore.ErrLocked) {
		t.Fatalf("a second store of one process: %v", err)
	}
	s.Close()
	open(t, dir, nil)
}

func TestAcknowledgedIsDurable(t *testing.T) {
	rounds := 24
	if testing.Short() {
		rounds = 6
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[string]uint64{}
	for round := range rounds {
		stage, nth := "never", int64(1)
		switch round % 4 {
		case 1:
			stage, nth = string(badgerstore.BeforeCommit), 1+random.Int64N(100)
		case 2:
			stage, nth = string(badgerstore.AfterCommit), 1+random.Int64N(100)
		}
		c, out := child(t, "write", dir, fmt.Sprint("r", round), stage, fmt.Sprint(nth))
		kill := sync.OnceFunc(func() {
			time.AfterFunc(time.Duration(random.Int64N(150_000_000)), func() { c.Process.Kill() })
		})
		before := len(acked)
		for {
			line, err := out.ReadString('\n')
			if err != nil { // what the dying process did not print whole does not count
				break
			}
			key, rev, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.ParseUint(rev, 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			acked[key] = max(acked[key], n)
			if stage == "never" {
				kill()
			}
		}
		c.Wait()
		if stage == "never" && len(acked) == before {
			t.Fatalf("round %d wrote nothing", round)
		}
		check(t, dir, acked)
	}
	t.Logf("%d operations acknowledged", len(acked))
}

// check opens the ledger that a killed process left.
func check(t *testing.T, dir string, acked map[string]uint64) {
	t.Helper()
	s, err := badgerstore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for key, rev := range acked {
		op := get(t, s, key)
		if op == nil || op.Rev < rev {
			t.Fatalf("%s was acknowledged at %d and is lost: %+v", key, rev, op)
		}
		if op.Status != toolguard.StatusSucceeded {
			continue
		}
		want := `"` + strings.Repeat(key, 50) + `"`
		if body, err := s.Body(context.Background(), key); err != nil || string(body.Result) != want {
			t.Fatalf("%s: body %s, %v", key, body.Result, err)
		}
	}
	verify(t, s)
}
