package sharedstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/sharedstore"
	"toolguard.dev/toolguard"
)

// The owner's disk is full: the others are told so as the owner is, nobody dies, reads go on, nothing that was
// acknowledged is lost, and when there is room again writes go through.
func TestOwnersDiskIsFull(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=420m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(disk, "ledger")
	owner, name := holder(t, dir)
	s := open(t, dir)
	random := rand.NewChaCha8([32]byte{1})
	commit := func(s *sharedstore.Store, key string) error {
		w := write(key)
		result := make([]byte, 300<<10)
		_, _ = random.Read(result)
		w.Body = &toolguard.Body{Result: result}
		return s.Commit(context.Background(), w)
	}
	if err := commit(s, "first"); err != nil {
		t.Fatal(err)
	}
	rest, err := os.Create(filepath.Join(disk, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	for err == nil { // somebody else fills it
		_, err = rest.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := commit(s, fmt.Sprint("none ", i)); !errors.Is(err, toolguard.ErrStoreFull) {
			t.Fatalf("a write got %v", err)
		}
	}
	other := open(t, dir)
	for _, s := range []*sharedstore.Store{s, other} {
		if !has(t, s, "first") || has(t, s, "none 0") {
			t.Error("not what was acknowledged")
		}
		if !s.Alive(name) {
			t.Error("the owner died of it")
		}
	}
	if err := rest.Truncate(0); err != nil {
		t.Fatal(err)
	}
	for i, s := range []*sharedstore.Store{s, other} {
		eventually(t, 20*time.Second, "writes go through again", func() bool { return commit(s, fmt.Sprint("again ", i)) == nil })
	}
	if err := owner.in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, owner.out); err != nil {
		t.Fatal(err)
	}
	if err := owner.cmd.Wait(); err != nil {
		t.Errorf("the owner ended with %v", err)
	}
	for _, key := range []string{"first", "again 0", "again 1"} {
		if !has(t, s, key) {
			t.Errorf("%q is lost", key)
		}
	}
}
