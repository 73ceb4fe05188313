package main

import (
	"os"
	"path/filepath"
	"testing"

	"toolguard.dev/badgerstore"
	"toolguard.dev/toolguard"
)

// A ledger that was made for nothing is taken back, unless another process has joined it.
func TestMadeLedgerIsTakenBack(t *testing.T) {
	for _, joined := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "ledger")
		p := &program{stderr: t.Output()}
		first, undo, err := p.openLedger(t.Context(), dir)
		if err != nil || undo == nil {
			t.Fatal(undo == nil, err)
		}
		if joined {
			second, more, err := p.openLedger(t.Context(), dir)
			if err != nil || more != nil {
				t.Fatal(more == nil, err)
			}
			defer func() {
				if _, err := second.Operations(t.Context(), toolguard.Query{All: true}); err != nil {
					t.Error(err)
				}
				if err := second.Close(); err != nil {
					t.Error(err)
				}
			}()
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := undo(); err != nil {
			t.Error(err)
		}
		if got := badgerstore.Exists(dir); got != joined {
			t.Errorf("joined %v: there is a ledger: %v", joined, got)
		}
		if _, err := os.Lstat(dir); (err == nil) != joined {
			t.Errorf("joined %v: the folder: %v", joined, err)
		}
	}
}
