package toolguard_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

func TestObserve(t *testing.T) {
	in(t, func(w *world) {
		w.g.Close(context.Background())
		w.g, _ = toolguard.Open(context.Background(), w.seam, &toolguard.Options{Observe: true})
		w.tool(pay)
		w.tool(registry.Tool{Name: "no", Effect: registry.Deny})
		for i, args := range []string{invoice, invoice, `{"invoice_id":"INV-1","amount":1}`, `{"amount":1}`} {
			r := w.call("pay", args, event("evt 1"))
			if r.Answer.Text() != "ok" || r.Guarded || r.Text != "" {
				t.Errorf("call %d got %+v", i, r)
			}
		}
		w.call("no", `{}`)
		w.had(5)
		w.wait(2 * time.Second)
		keys := map[string]bool{}
		for _, k := range w.sentKeys {
			if k == "" || keys[k] {
				t.Errorf("the keys sent were %q", w.sentKeys)
			}
			keys[k] = true
		}
		var got []string
		for e := range toolguard.Events(context.Background(), w.store) {
			if e.Type == toolguard.EventCall {
				if e.Detail["observe"] != true {
					t.Errorf("%+v is not marked", e)
				}
				got = append(got, string(e.Outcome)+"/"+string(e.Reason))
			}
		}
		want := []string{"fresh/", "replayed/done", "blocked/arguments_changed", "blocked/context_required", "blocked/denied"}
		if !slices.Equal(got, want) {
			t.Errorf("recorded %v, want %v", got, want)
		}
	})
}

func TestLooserAnnotationIsIgnored(t *testing.T) {
	in(t, func(w *world) {
		compile := func(e registry.Effect) *toolguard.Tool {
			entry, err := registry.Compile(registry.Tool{Server: "s", Name: "x", Effect: e, EffectSource: "annotated"})
			if err != nil {
				t.Fatal(err)
			}
			tool, err := w.g.Register(context.Background(), entry)
			if err != nil {
				t.Fatal(err)
			}
			return tool
		}
		for _, step := range []struct {
			says, is registry.Effect
			notes    int
		}{
			{registry.Idempotent, registry.Idempotent, 0},
			{registry.Read, registry.Idempotent, 1},
			{registry.Write, registry.Write, 0},
			{registry.Idempotent, registry.Write, 1},
		} {
			if tool := compile(step.says); tool.Effective != step.is || len(tool.Notes) != step.notes {
				t.Errorf("it says %s: taken as %s, notes %v", step.says, tool.Effective, tool.Notes)
			}
		}
	})
}

func TestVerifyNamesTheBreak(t *testing.T) {
	in(t, func(w *world) {
		w.tool(pay)
		w.call("pay", invoice, event("evt 1"))
		w.call("pay", invoice, event("evt 1"))
		w.wait(2 * time.Second)
		var events []toolguard.Event
		for e := range toolguard.Events(context.Background(), w.store) {
			events = append(events, e)
		}
		check := func(name string, tamper func([]toolguard.Event) []toolguard.Event, broken bool) {
			t.Helper()
			tampered := tamper(slices.Clone(events))
			v, err := toolguard.Verify(func(yield func(toolguard.Event, error) bool) {
				for _, e := range tampered {
					if !yield(e, nil) {
						return
					}
				}
			})
			if err != nil || (v.Break != "") != broken {
				t.Errorf("%s: %q, %v", name, v.Break, err)
			}
		}
		check("whole", func(e []toolguard.Event) []toolguard.Event { return e }, false)
		for i := range events[:len(events)-1] {
			check("edited", func(e []toolguard.Event) []toolguard.Event { e[i].Key = "x"; return e }, true)
			check("retold", func(e []toolguard.Event) []toolguard.Event { e[i].Outcome = "fresher"; return e }, true)
			check("removed", func(e []toolguard.Event) []toolguard.Event { return slices.Delete(e, i, i+1) }, true)
			check("moved", func(e []toolguard.Event) []toolguard.Event { e[i], e[i+1] = e[i+1], e[i]; return e }, true)
			check("doubled", func(e []toolguard.Event) []toolguard.Event { return slices.Insert(e, i, e[i]) }, true)
		}
	})
}

// Two processes decide about one call at the same moment: whoever writes second decides again.
func TestSecondWriterDecidesAgain(t *testing.T) {
	for _, first := range []string{"not there", "failed"} {
		t.Run(first, func(t *testing.T) {
			in(t, func(w *world) {
				w.tool(pay)
				if first == "failed" {
					w.next(refused("invalid"))
					w.call("pay", invoice, event("evt 1"))
				}
				other := &world{t: t, store: w.store}
				other.open()
				defer other.g.Close(context.Background())
				other.tool(pay)
				var once sync.Once
				w.seam.at = func(after bool) {
					if !after {
						once.Do(func() { other.want(other.call("pay", invoice, event("evt 1")), "fresh//succeeded") })
					}
				}
				w.want(w.call("pay", invoice, event("evt 1")), "replayed/done/succeeded")
				if n := len(w.effects) + len(other.effects); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		})
	}
}

// A new call about the same target under another run is fenced off as well.
func TestSecondWriterOfAnotherRun(t *testing.T) {
	in(t, func(w *world) {
		spec := pay
		spec.Policy.OncePer = []string{"run", "/invoice_id"}
		w.tool(spec)
		other := &world{t: t, store: w.store}
		other.open()
		defer other.g.Close(context.Background())
		other.tool(spec)
		var once sync.Once
		w.seam.at = func(after bool) {
			if !after {
				once.Do(func() { other.want(other.send("pay", invoice, run("r2")), "fresh//succeeded") })
			}
		}
		w.want(w.call("pay", invoice, run("r1")), "replayed/done/succeeded")
	})
}
