package toolguard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// TestKilledAtEveryStoreCall kills the process right before and right after every write that a call makes, and then
// makes the same call again, twice: never two effects, never a silent loss, and unknown stays unknown.
func TestKilledAtEveryStoreCall(t *testing.T) {
	for _, tool := range []registry.Tool{pay, appendTo} {
		points := 0
		in(t, func(w *world) { // count the writes of an undisturbed call
			w.tool(tool)
			w.seam.at = func(after bool) {
				if !after {
					points++
				}
			}
			w.call(tool.Name, invoice, event("evt 1"))
			w.wait(2 * time.Second)
		})
		if points < 3 {
			t.Fatalf("a call of %s makes %d writes", tool.Name, points)
		}
		for point := range points {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s write %d applied %v", tool.Name, point, after), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { killedAt(t, tool, point, after) })
				})
			}
		}
	}
}

func killedAt(t *testing.T, tool registry.Tool, point int, after bool) {
	w := newWorld(t)
	w.tool(tool)
	killed, buried := make(chan struct{}), make(chan struct{})
	n := 0
	w.seam.at = func(isAfter bool) {
		if isAfter != after {
			return
		}
		if n++; n-1 == point {
			close(killed)
			<-buried
		}
	}
	answered := make(chan *toolguard.Result, 1)
	go func() {
		r := w.send(tool.Name, invoice, event("evt 1"))
		answered <- r
		r.Delivered()
	}()
	first := (*toolguard.Result)(nil)
	select {
	case <-killed:
	case first = <-answered:
		<-killed // the delivery is written later
	}
	old := w.g
	w.seam.at = nil
	w.store = w.store.Reopen()
	w.open()

	effects := len(w.effects)
	second := w.call(tool.Name, invoice, event("evt 1"))
	third := w.call(tool.Name, invoice, event("evt 1"))
	switch {
	case effects == 0 && first == nil && second.Verdict.Outcome == toolguard.Fresh:
		w.had(1) // nothing had been recorded: this is the first
	case second.Verdict.Outcome == toolguard.Replayed:
		w.had(1)
	case second.Verdict.Outcome == toolguard.Escalated:
		w.want(third, "escalated/outcome_unknown")
		w.had(effects)
	default:
		t.Errorf("after %d effects the second call got %+v", effects, second.Verdict)
	}
	if len(w.effects) > 1 {
		t.Errorf("%d effects: %v", len(w.effects), w.effects)
	}
	want := 3 // every call that left a trace has its audit event, the one that was never answered too
	if point == 0 && !after {
		want = 2
	}
	w.wantEvents(toolguard.EventCall, want)
	close(buried)
	old.Close(context.Background())
	w.close()
}
