package badgerstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"toolguard.dev/badgerstore"
	"toolguard.dev/toolguard"
)

// A disk that fills up under Badger kills the process by SIGBUS; that this test ends at all is the point of it.
func TestDiskThatFillsUpDoesNotKill(t *testing.T) {
	if testing.Short() {
		t.Skip("writes some hundred megabytes")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=420m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	random := rand.NewChaCha8([32]byte{1})
	o := &badgerstore.Options{MinFree: 8 << 20}
	for round := range 2 {
		s, err := badgerstore.Open(filepath.Join(disk, "ledger"), o)
		if err != nil {
			t.Fatal(err)
		}
		stored := []string{}
		for i := 0; ; i++ {
			result := make([]byte, 300<<10)
			random.Read(result)
			w := write(fmt.Sprint(round, " ", i))
			w.Body = &toolguard.Body{Result: result}
			err := s.Commit(context.Background(), w)
			if errors.Is(err, toolguard.ErrStoreFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, w.Operation.Key)
		}
		t.Logf("%d stored", len(stored))
		for _, key := range stored {
			if _, err := s.Body(context.Background(), key); err != nil {
				t.Fatal(err)
			}
		}
		verify(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
