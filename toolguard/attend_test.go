package toolguard_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// inShared runs a test on a ledger that other processes write to.
func inShared(t *testing.T, test func(w *world)) {
	t.Helper()
	in(t, func(w *world) {
		w.g.Close(context.Background())
		w.alive = func(string) bool { return false }
		w.open()
		test(w)
	})
}

// An order that another process wrote is carried out by the process that serves the tool, soon and once.
func TestOrderOfAnotherProcess(t *testing.T) {
	inShared(t, func(w *world) {
		w.tool(pay)
		w.next(lost)
		key := w.call("pay", invoice, event("evt 1")).Verdict.Key
		w.wait(time.Hour)
		w.sent(1)
		if err := w.repeat(key, false); err != nil {
			t.Fatal(err)
		}
		w.wait(3 * time.Second)
		w.sent(2)
		if op := w.op(key); op.Status != toolguard.StatusSucceeded || op.Ordered != nil || op.Attempts[1].Order == nil {
			t.Errorf("the ordered attempt is on record as %+v", op)
		}
		w.wait(time.Hour)
		w.sent(2)
	})
}

// An attempt whose record was made after its sender had given up was never sent, and does not stay on its way for ever.
func TestRecordedTooLateToBeSent(t *testing.T) {
	inShared(t, func(w *world) {
		w.tool(pay)
		var late func() error
		var back atomic.Bool
		w.seam.away = func(wr *toolguard.Write, apply func() error) error {
			if !wr.Dispatch || back.Load() {
				return apply()
			}
			late = apply
			return fmt.Errorf("frozen: %w", toolguard.ErrStoreAway)
		}
		w.want(w.call("pay", invoice, event("evt 1")), "blocked/store_unavailable")
		w.wait(time.Minute)
		if err := late(); err != nil {
			t.Fatal(err)
		}
		back.Store(true)
		w.wait(3 * time.Second)
		w.sent(0)
		w.want(w.call("pay", invoice, event("evt 1")), "fresh//succeeded")
		w.sent(1)
	})
}

// An answer whose record was not acknowledged is recorded as soon as the ledger answers again: once.
func TestAnswerWhileTheLedgerIsAway(t *testing.T) {
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprint("made: ", made), func(t *testing.T) {
			inShared(t, func(w *world) {
				w.tool(pay)
				var back atomic.Bool
				w.seam.away = func(wr *toolguard.Write, apply func() error) error {
					if wr.Dispatch || back.Load() {
						return apply()
					}
					if made {
						if err := apply(); err != nil {
							return err
						}
					}
					return fmt.Errorf("frozen: %w", toolguard.ErrStoreAway)
				}
				r := w.send("pay", invoice, event("evt 1"))
				w.want(r, "fresh/not_recorded")
				back.Store(true)
				w.wait(time.Minute)
				if op := w.op(r.Verdict.Key); op.Status != toolguard.StatusSucceeded {
					t.Errorf("the record says %s", op.Status)
				}
				w.want(w.call("pay", invoice, event("evt 1")), "replayed/done/succeeded")
				w.sent(1)
				calls := 0
				for e, err := range toolguard.Events(context.Background(), w.store) {
					if err != nil {
						t.Fatal(err)
					}
					if e.Type == toolguard.EventCall {
						calls++
					}
				}
				if calls != 2 {
					t.Errorf("two calls have %d events", calls)
				}
			})
		})
	}
}
