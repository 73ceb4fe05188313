package badgerstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"toolguard.dev/badgerstore"
	"toolguard.dev/toolguard"
)

// Whoever looks for an operation in vain while it is being written neither hides it from later reads nor lets it be
// written a second time.
func TestLookedForWhileWritten(t *testing.T) {
	s, err := badgerstore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	const writers, each = 16, 30
	var next [writers]atomic.Int64
	key := func(writer int, n int64) string { return fmt.Sprint("key ", writer, " ", n) }
	ended := make(chan struct{})
	var readers, all sync.WaitGroup
	for i := range 16 {
		readers.Go(func() {
			for j := i; ; j++ {
				select {
				case <-ended:
					return
				default:
				}
				writer := j % writers
				if _, err := s.Operations(ctx, toolguard.Query{Tenant: "acme", Intent: key(writer, next[writer].Load())}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range writers {
		all.Go(func() {
			for n := range int64(each) {
				next[i].Store(n)
				k := key(i, n)
				create := func() error {
					op := &toolguard.Operation{Key: k, Intent: k, Occurrence: 1}
					op.Facts.Tenant = "acme"
					return s.Commit(ctx, &toolguard.Write{Token: fmt.Sprint(k, " ", &op), Operation: op})
				}
				if err := create(); err != nil {
					t.Error(err)
					return
				}
				page, err := s.Operations(ctx, toolguard.Query{Tenant: "acme", Intent: k})
				if err != nil || len(page.Operations) != 1 {
					t.Errorf("%s: found %d (%v)", k, len(page.Operations), err)
				}
				if err := create(); !errors.Is(err, toolguard.ErrConflict) {
					t.Errorf("%s was written twice: %v", k, err)
				}
			}
		})
	}
	all.Wait()
	close(ended)
	readers.Wait()
}
