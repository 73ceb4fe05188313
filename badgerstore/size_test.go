package badgerstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolguard.dev/toolguard"
)

// A group is as large as what it writes at least, however long the names are: Badger takes no larger one, and refusing it
// would break the store.
func TestSizeCoversWhatIsWritten(t *testing.T) {
	const long, short, writers = maxName, 12, 200
	name := func(n int, what ...any) string {
		s := fmt.Sprint(what...)
		return s + strings.Repeat("x", max(0, n-len(s)))
	}
	for _, c := range []struct {
		what                                        string
		first, next, intent, tenant, queue, lane, n int
	}{
		{"usual", 36, 36, 36, 10, 8, 20, 3},
		{"intent", short, short, long, short, short, 0, 2},
		{"the first one's key", long, short, 0, short, short, 0, 3},
		{"tenant", short, short, short, long, short, short, 3},
		{"queue", short, short, short, short, long, short, 3},
		{"lane", short, short, short, short, short, long, 1},
		{"all", long, long, long, long, long, long, 3},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, err := Open(t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.fail = func(at Stage) error {
				if at != BeforeCommit {
					return nil
				}
				s.committer.mu.Lock()
				defer s.committer.mu.Unlock()
				g, n := s.committer.ahead, 0
				for i := range g.entries {
					n += len(g.entries[i].key) + len(g.entries[i].value) + 12 // what Badger counts of its own
				}
				if n > g.size {
					t.Errorf("%d writes take %d bytes, and are counted as %d", len(g.changes), n, g.size)
				}
				return nil
			}
			var all sync.WaitGroup
			for i := range writers {
				all.Go(func() {
					first := name(c.first, "key ", i)
					for j := range c.n {
						op := &toolguard.Operation{Key: first, Intent: name(c.intent, "intent ", i), Occurrence: j + 1}
						if c.intent == 0 {
							op.Intent = first
						}
						if j > 0 {
							op.Key = name(c.next, "key ", i, j)
						}
						op.Facts.Tenant = name(c.tenant, "tenant ", i)
						w := &toolguard.Write{Operation: op, Open: true, Queue: name(c.queue, "queue ", i), Call: fmt.Sprint("call ", i, j)}
						if c.lane > 0 {
							w.Lanes = []string{name(c.lane, "lane ", i)}
						}
						for _, w.Dispatch = range []bool{c.lane > 0, false} {
							w.Token = fmt.Sprint(i, " ", op.Rev)
							if err := s.Commit(context.Background(), w); err != nil {
								t.Error(err)
								return
							}
							if w.Queue = ""; j < c.n-1 {
								break
							}
						}
					}
				})
			}
			all.Wait()
		})
	}
}
