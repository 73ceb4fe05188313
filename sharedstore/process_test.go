package sharedstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/badgerstore"
	"toolguard.dev/registry"
	"toolguard.dev/sharedstore"
	"toolguard.dev/toolguard"
)

// write is a write of a new operation.
func write(key string) *toolguard.Write {
	return &toolguard.Write{Token: "token of " + key, Operation: &toolguard.Operation{Key: key, Intent: key, Occurrence: 1}}
}

func has(t *testing.T, s toolguard.Store, key string) bool {
	t.Helper()
	page, err := s.Operations(context.Background(), toolguard.Query{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Operations) == 1
}

func TestOwnerKilledUnderLoad(t *testing.T) {
	c := newCrew(t)
	first := c.hire()
	c.working(50, 20*time.Second)
	for range 3 {
		c.hire()
	}
	c.working(500, 20*time.Second)
	first.kill()
	c.working(1, 5*time.Second)
	c.working(500, 20*time.Second)
	c.audit()
}

func TestTenProcessesOneKilledEverySecond(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	c := newCrew(t)
	for range 10 {
		c.hire()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	owners := 0
	for i := range 7 {
		<-tick.C
		victim := c.workers[i]
		if o := c.owner(); o != nil && i%2 == 0 {
			victim = o
			owners++
		}
		victim.kill()
		c.hire()
	}
	if owners < 2 {
		t.Errorf("only %d owners were killed", owners)
	}
	c.working(500, 20*time.Second)
	c.audit()
}

// Whoever waits when the owner dies waits no longer than it takes another process to open the store.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	c, name := holder(t, dir)
	s := openWith(t, dir, recovering(dir))
	other := open(t, dir)
	if !s.Alive(name) || !s.Alive(s.Process()) || !s.Alive(other.Process()) || s.Alive("nobody") || s.Alive("../LEDGER") || s.Alive("") {
		t.Error("the living are not told from the dead")
	}
	op := write("k")
	if err := s.Commit(context.Background(), op); err != nil {
		t.Fatal(err)
	}
	c.kill()
	began := time.Now()
	for i, s := range []*sharedstore.Store{s, other} {
		if !has(t, s, "k") {
			t.Error("what was acknowledged is lost")
		}
		if err := s.Commit(context.Background(), write(fmt.Sprint("after ", i))); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the pause took %s", took)
	}
	if s.Alive(name) {
		t.Error("the dead owner lives")
	}
	eventually(t, 10*time.Second, "the dead owner's file is removed", func() bool {
		_, err := os.Stat(filepath.Join(dir, "processes", name))
		return errors.Is(err, os.ErrNotExist)
	})
}

// What a process had on its way becomes unknown soon after its death, and not before.
func TestDeadProcessIsSettled(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, dir, recovering(dir))
	c, name := holder(t, dir)
	w := write("k")
	w.Open, w.Due = true, true
	w.Operation.Status, w.Operation.Sent = toolguard.StatusDispatching, 1
	w.Operation.Attempts = []toolguard.Attempt{{N: 1, Owner: name, State: toolguard.AttemptOpen}}
	if err := s.Commit(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	status := func() toolguard.Status {
		page, err := s.Operations(context.Background(), toolguard.Query{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		return page.Operations[0].Status
	}
	other, _ := holder(t, dir)
	other.kill() // another one's death settles nothing
	if err := toolguard.Recover(context.Background(), s, s.Alive); err != nil || status() != toolguard.StatusDispatching {
		t.Fatalf("the living process's operation is %s, %v", status(), err)
	}
	c.kill()
	eventually(t, 3*time.Second, "the operation is not on its way any more", func() bool { return status() == toolguard.StatusEscalated })
}

func TestOpenedInTheSameMoment(t *testing.T) {
	for range 5 {
		dir := t.TempDir()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				s, err := sharedstore.Open(context.Background(), dir, options(dir))
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if err := s.Commit(context.Background(), write(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	dir := t.TempDir()
	var children []*child
	for range 4 {
		children = append(children, start(t, "hold", dir))
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); !strings.HasPrefix(line, "open ") {
			t.Errorf("a child said %q, %v", line, err)
		}
	}
}

func TestSocketDeleted(t *testing.T) {
	dir := t.TempDir()
	holder(t, dir)
	s := open(t, dir)
	socket := socketOf(t, dir)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(context.Background(), write("k")); err != nil {
		t.Error(err)
	}
	if !has(t, open(t, dir), "k") {
		t.Error("another process sees another ledger")
	}
}

func socketOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "SOCKET"))
	if errors.Is(err, os.ErrNotExist) {
		return filepath.Join(dir, "toolguard.sock")
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Nobody can take over from a frozen owner: calls end after their limit, and go on when it wakes.
func TestFrozenOwner(t *testing.T) {
	dir := t.TempDir()
	c, _ := holder(t, dir)
	o := options(dir)
	o.Limit = 300 * time.Millisecond
	s := openWith(t, dir, o)
	if err := s.Commit(context.Background(), write("before")); err != nil {
		t.Fatal(err)
	}
	c.cmd.Process.Signal(syscall.SIGSTOP)
	began := time.Now()
	if err := s.Commit(context.Background(), write("k")); !errors.Is(err, toolguard.ErrStoreAway) {
		t.Errorf("a write got %v", err)
	}
	if _, err := s.Operations(context.Background(), toolguard.Query{Key: "before"}); !errors.Is(err, toolguard.ErrStoreAway) {
		t.Errorf("a read got %v", err)
	}
	if _, err := sharedstore.Open(context.Background(), dir, o); !errors.Is(err, toolguard.ErrStoreAway) || !errors.Is(err, badgerstore.ErrLocked) {
		t.Errorf("another process got %v", err)
	} else {
		t.Log(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	c.cmd.Process.Signal(syscall.SIGCONT)
	stale := write("k")
	stale.Token = "another"
	eventually(t, 5*time.Second, "the frozen write is made", func() bool { return has(t, s, "k") })
	if err := s.Commit(context.Background(), stale); !errors.Is(err, toolguard.ErrConflict) {
		t.Errorf("a stale write got %v", err)
	}
	if err := s.Commit(context.Background(), write("k")); err != nil {
		t.Errorf("the same write, come again, got %v", err)
	}
}

// While the owner is frozen no tool is called; when it wakes, the same call goes through, with one effect.
func TestGuardWhileTheOwnerIsFrozen(t *testing.T) {
	dir := t.TempDir()
	c, _ := holder(t, dir)
	o := options(dir)
	o.Limit = 300 * time.Millisecond
	var effects atomic.Int32
	g, tool, err := guarded(openWith(t, dir, o), func(*registry.Dispatch) error { effects.Add(1); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(context.Background())
	call := func(event string) toolguard.Verdict {
		return g.Do(context.Background(), payment(tool, 1, event)).Verdict
	}
	if v := call("first"); v.Outcome != toolguard.Fresh {
		t.Fatalf("%+v", v)
	}
	c.cmd.Process.Signal(syscall.SIGSTOP)
	began := time.Now()
	if v := call("second"); v.Reason != toolguard.ReasonStoreUnavailable {
		t.Errorf("%+v", v)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the answer took %s", took)
	}
	if n := effects.Load(); n != 1 {
		t.Errorf("%d effects", n)
	}
	c.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, 10*time.Second, "the call goes through", func() bool { return call("second").Status == toolguard.StatusSucceeded })
	if n := effects.Load(); n != 2 {
		t.Errorf("%d effects", n)
	}
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 50))
	holder(t, dir)
	s := open(t, dir)
	if err := s.Commit(context.Background(), write("k")); err != nil {
		t.Fatal(err)
	}
	socket := socketOf(t, dir)
	info, err := os.Stat(filepath.Dir(socket))
	if err != nil || info.Mode().Perm() != 0o700 || len(socket) > 100 {
		t.Errorf("%s in %v, %v", socket, info, err)
	}
}

// nobody opens a ledger as a user who may not write there.
func nobody(dir string) error {
	if err := syscall.Setuid(65534); err != nil {
		return err
	}
	_, err := sharedstore.Open(context.Background(), dir, options(dir))
	if err == nil {
		return errors.New("it opened")
	}
	return err
}

func TestReadOnlyFolder(t *testing.T) {
	dir, err := os.MkdirTemp("", "sharedstore-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700); os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	said := ""
	if os.Geteuid() == 0 { // root may write everywhere
		said, _ = start(t, "nobody", dir).out.ReadString('\n')
	} else if s, err := sharedstore.Open(context.Background(), dir, options(dir)); err != nil {
		said = err.Error()
	} else {
		s.Close()
	}
	if !strings.Contains(said, dir) || !strings.Contains(said, "permission denied") {
		t.Errorf("it said %q", said)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}
