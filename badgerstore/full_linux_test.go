package badgerstore_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A disk that fills up under Badger kills the process by SIGBUS; that this test ends at all is the point of it.
func TestDiskThatFillsUpDoesNotKill(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a gigabyte")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1200m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	// Each round in a process of its own: a ledger that was closed on a full disk stays held until its process ends.
	for round := range 2 {
		out, err := exec.Command(os.Args[0], "fill", filepath.Join(disk, "ledger"), fmt.Sprint(round)).CombinedOutput()
		t.Logf("round %d: %s", round, bytes.TrimSpace(out))
		if err != nil {
			t.Fatal(err)
		}
	}
}
