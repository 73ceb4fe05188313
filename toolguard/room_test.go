package toolguard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/registry"
)

// TestBusyRoom: calls about one thing that never all leave do not keep each other's answers for ever.
func TestBusyRoom(t *testing.T) {
	in(t, func(w *world) {
		var dropped atomic.Int64
		w.tool(set)
		answer := func(_ *world, _ context.Context, _ *registry.Dispatch, effect func()) (registry.Answer, error) {
			<-time.After(time.Second)
			effect()
			result := []byte(`{"content":[{"type":"text","text":"set"}]}`)
			runtime.AddCleanup(&result[0], func(int) { dropped.Add(1) }, 0)
			return registry.Answer{Result: result}, nil
		}
		const calls = 50
		for n := range calls {
			w.next(answer)
			go w.send("set", fmt.Sprintf(`{"path":"a","value":%d}`, n))
			<-time.After(900 * time.Millisecond)
			synctest.Wait()
		}
		for range 1000 {
			if runtime.GC(); dropped.Load() > calls/4 {
				return
			}
		}
		t.Errorf("%d of %d answers are dropped", dropped.Load(), calls)
	})
}
