package badgerstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolguard.dev/badgerstore"
)

// smallDisk mounts a disk of its own.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// Badger makes a table when it closes, and a full disk kills the process that does.
func TestDiskThatIsFullAtTheEndDoesNotKill(t *testing.T) {
	disk := smallDisk(t, "300m")
	dir := filepath.Join(disk, "ledger")
	c, out, in := childWithInput(t, "close", dir)
	if line, err := out.ReadString('\n'); err != nil || line != "written\n" {
		t.Fatalf("%q, %v", line, err)
	}
	rest, err := os.Create(filepath.Join(disk, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = rest.Write(make([]byte, 64<<10))
	}
	rest.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Fatalf("the end of a ledger on a full disk: %v", err)
	}
	if err := os.Remove(rest.Name()); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, nil)
	if get(t, s, "k") == nil {
		t.Fatal("lost")
	}
	verify(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLedgerThatCannotBeWrittenIsRefusedInOneLine(t *testing.T) {
	disk := smallDisk(t, "300m")
	old := filepath.Join(disk, "ledger")
	open(t, old, nil).Close()
	if err := syscall.Mount("tmpfs", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{old, filepath.Join(disk, "new"), "/proc/ledger"} {
		s, err := badgerstore.Open(dir, nil)
		if err == nil {
			s.Close()
			t.Fatalf("%s was opened", dir)
		}
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), dir) {
			t.Fatalf("got %q", err)
		}
		t.Log(err)
	}
}
