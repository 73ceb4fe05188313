package toolguard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Who waits for an attempt of another process gets that attempt's answer, whatever it is.
func TestWaitingForAnotherProcess(t *testing.T) {
	for _, test := range []struct {
		name string
		does behaviour
		want string
	}{
		{"done", slow(time.Second), "replayed/done/succeeded"},
		{"refused", func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
			time.Sleep(time.Second)
			return text("denied", true), nil
		}, "blocked/refused/failed"},
		{"lost", func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
			time.Sleep(time.Second)
			return lost(w, ctx, d, effect)
		}, "escalated/outcome_unknown/escalated"},
		{"slower than the caller", slow(time.Minute), "pending/in_progress/dispatching"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				w.tool(pay)
				other := &world{t: t, store: w.store}
				other.open()
				defer other.g.Close(context.Background())
				other.tool(pay)
				w.next(test.does)
				go w.send("pay", invoice, event("evt 1"))
				synctest.Wait()
				r := other.call("pay", invoice, event("evt 1"))
				other.want(r, test.want)
				if test.name == "done" && r.Answer.Text() != "ok" {
					t.Errorf("the replay says %q", r.Answer.Text())
				}
				w.wait(2 * time.Minute)
				if n := w.calls + other.calls; n != 1 {
					t.Errorf("%d attempts", n)
				}
				other.g.Close(context.Background())
			})
		})
	}
}

// The attempts of a process that lives are its own; those of a dead one become unknown.
func TestRecoverLeavesTheLiving(t *testing.T) {
	in(t, func(w *world) {
		w.tool(pay)
		w.next(slow(30 * time.Second))
		r := w.giveUp(time.Second, "pay", invoice, event("evt 1"))
		owner := w.op(r.Verdict.Key).Attempts[0].Owner
		for _, alive := range []bool{true, false} {
			err := toolguard.Recover(context.Background(), w.store, func(process string) bool { return alive && process == owner })
			if err != nil {
				t.Fatal(err)
			}
			want := toolguard.StatusDispatching
			if !alive {
				want = toolguard.StatusEscalated
			}
			if op := w.op(r.Verdict.Key); op.Status != want {
				t.Errorf("alive %v: status %s, want %s", alive, op.Status, want)
			}
		}
	})
}
