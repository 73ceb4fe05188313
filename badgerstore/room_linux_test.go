package badgerstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// However fast level 0 grows, the store knows what its merge needs: as it is, with tables that are in memory still.
func TestRoomKeepsUp(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=700m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil { // a failed test may leave the ledger open
			t.Error(err)
		}
	}()
	s, err := open(filepath.Join(disk, "ledger"), nil, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data, random := make([]byte, 300<<10), rand.NewChaCha8([32]byte{1})
	random.Read(data)
	for n := range 400 {
		if err := s.Commit(context.Background(), &toolguard.Write{Token: fmt.Sprint(n), Document: fmt.Sprint(n), Data: data}); err != nil {
			t.Fatal(err)
		}
		s.room.checked = time.Now().Add(time.Hour) // so that only what is free makes the store look again
		const index = 1 << 20                      // what tables have beside what was in memory
		if level0 := uint64(s.db.Levels()[0].Size); s.room.moving+index < level0 {
			t.Fatalf("after write %d, level 0 has %d bytes, and its merge is said to need %d", n, level0, s.room.moving)
		}
	}
}
