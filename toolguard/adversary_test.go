package toolguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// begun is an attempt whose last byte has left, and that has its effect after a time.
func begun(wait time.Duration) behaviour {
	return func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
		d.Sent()
		time.Sleep(wait)
		effect()
		return text("ok", false), nil
	}
}

// later is a behaviour that takes its time.
func later(wait time.Duration, b behaviour) behaviour {
	return func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
		time.Sleep(wait)
		return b(w, ctx, d, effect)
	}
}

func workflow(n string) option { return func(c *toolguard.Call) { c.Facts.Workflow = n } }

const corrected = `{"invoice_id":"INV-1","amount":901}`

// What came late, changed in between, or came from somewhere else, and once led to a second effect, to a false "done", to
// an approval used for something else, or to a crash.
func TestAdversary(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(w *world)
	}{
		{"done late with other bytes, while corrected ones are refused: nothing is sent after it", func(w *world) {
			w.next(begun(5*time.Minute), later(20*time.Second, refused("invalid amount")))
			key := w.call("pay", invoice, event("e")).Verdict.Key
			w.wait(4*time.Minute + 45*time.Second)
			if err := w.resolve(key, "not_applied", false); err != nil {
				w.t.Error(err)
			}
			w.want(w.call("pay", corrected, event("e")), "pending/in_progress")
			w.wait(time.Minute)
			w.want(w.call("pay", corrected, event("e")), "escalated/outcome_unknown")
			w.sent(2)
			w.had(1)
		}},
		{"done late with other bytes, while corrected ones are lost: no warrant is left", func(w *world) {
			w.honour(time.Hour)
			w.next(begun(20*time.Minute), dropped, dropped, later(30*time.Second, dropped))
			key := w.call("pay", invoice, event("e")).Verdict.Key
			w.wait(19 * time.Minute)
			if err := w.resolve(key, "not_applied", false); err != nil {
				w.t.Error(err)
			}
			w.wait(25 * time.Second)
			w.call("pay", corrected, event("e"))
			w.wait(2 * time.Hour)
			w.want(w.call("pay", corrected, event("e")), "escalated")
			w.sent(4)
			w.had(1)
		}},
		{"denied meanwhile: no warrant sends it", func(w *world) {
			w.honour(time.Hour)
			w.next(dropped)
			w.giveUp(time.Second, "pay", invoice, event("e"))
			w.change("pay", func(s *registry.Tool) { s.Effect = registry.Deny })
			w.wait(30 * time.Minute)
			w.sent(1)
		}},
		{"denied meanwhile: no person's order and no approval sends it", func(w *world) {
			w.next(dropped)
			key := w.call("pay", invoice, event("e")).Verdict.Key
			w.change("pay", func(s *registry.Tool) { s.Policy.Approval = &registry.Approval{} })
			yes := w.call("pay", invoice, event("e2"), workflow("other"))
			w.want(yes, "pending/approval_required")
			w.change("pay", func(s *registry.Tool) { s.Effect = registry.Deny })
			w.wait(10 * time.Minute)
			w.approve(yes.Verdict.Approval)
			if err := w.repeat(key, false); err != nil {
				w.t.Error(err)
			}
			w.wait(time.Minute)
			if op := w.op(yes.Verdict.Key); op.Approval.ID != yes.Verdict.Approval {
				w.t.Errorf("asked for another approval, %s", op.Approval.ID)
			}
			w.wait(time.Minute)
			w.sent(1)
		}},
		{"an order to repeat what was followed by another occurrence says so", func(w *world) {
			first := w.call("set", `{"path":"/a","v":1}`).Verdict.Key
			second := w.call("set", `{"path":"/a","v":1}`).Verdict.Key
			if err := w.repeat(first, false); !errors.Is(err, toolguard.ErrTransition) || !strings.Contains(err.Error(), second) {
				w.t.Errorf("error %v, want one that names %s", err, second)
			}
			if err := w.repeat(second, false); err != nil {
				w.t.Error(err)
			}
		}},
		{"a longer timeout does not fit into the window any more", func(w *world) {
			w.honour(20 * time.Minute)
			w.next(dropped)
			w.giveUp(time.Second, "pay", invoice, event("e"))
			w.change("pay", func(s *registry.Tool) { s.Policy.Timeout = 30 * time.Minute })
			w.wait(time.Hour)
			w.sent(1)
		}},
		{"the entity is declared otherwise, while another process has the call on its way", func(w *world) {
			w.next(slow(30 * time.Second))
			w.giveUp(time.Second, "set", `{"path":"/a","v":1}`)
			w.alive = func(string) bool { return true }
			w.open()
			w.change("set", func(s *registry.Tool) { s.Policy.Entity = nil })
			w.want(w.call("set", `{"path":"/a","v":1}`), "pending/in_progress")
			w.wait(time.Minute)
			w.had(1)
		}},
		{"the entity is declared otherwise, and an earlier attempt may still arrive", func(w *world) {
			w.next(dropped)
			w.call("set", `{"path":"/a","v":1}`)
			w.change("set", func(s *registry.Tool) { s.Policy.Entity = nil })
			w.want(w.call("set", `{"path":"/a","v":1}`), "pending/reconciling")
			w.sent(1)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				w.tool(pay)
				w.tool(set)
				test.play(w)
			})
		})
	}
}

func TestAdversaryOfApprovals(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(w *world)
	}{
		{"who asked before the request expired is a requester still", func(w *world) {
			w.call("pay", invoice, event("e"), actor("agent"))
			w.call("pay", invoice, event("e"), actor("dana"))
			w.wait(2 * time.Hour)
			r := w.call("pay", invoice, event("e"), actor("agent"))
			w.want(r, "pending/approval_required")
			w.refuses(toolguard.ErrForbidden, r.Verdict.Approval, true, dana)
			if err := w.decide(r.Verdict.Approval, true, erin); err != nil {
				w.t.Error(err)
			}
		}},
		{"given back for some bytes, it is not consumed by others that need none", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(unsent)
			w.call("pay", invoice, event("e"))
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":100}`, event("e")), "fresh")
			if a := w.op(r.Verdict.Key).Attempts[1]; a.Approval != "" {
				w.t.Errorf("attempt 2 consumed %s", a.Approval)
			}
		}},
		{"nothing had left when the deadline passed: given back, too", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(later(2*time.Minute, unsent))
			w.want(w.call("pay", invoice, event("e")), "pending/in_progress")
			w.wait(3 * time.Minute)
			w.want(w.call("pay", invoice, event("e")), "fresh//succeeded")
			w.had(1)
		}},
		{"not given back for an attempt that was not the last", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(later(10*time.Minute, unsent), later(20*time.Minute, refused("invalid amount")))
			w.call("pay", invoice, event("e"))
			w.wait(2 * time.Minute)
			if err := w.repeat(r.Verdict.Key, true); err != nil {
				w.t.Error(err)
			}
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e")), "pending/approval_required")
			w.had(0)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				w.tool(approved(t))
				test.play(w)
			})
		})
	}
}

func TestAdversaryOfLookups(t *testing.T) {
	for _, test := range []struct {
		name string
		by   string
		play func(w *world, r *register)
	}{
		{"by invoice: another workflow paid it", byInvoice, func(w *world, r *register) {
			r.finds(func() any { return w.count() })
			w.next(later(20*time.Second, dropped))
			w.giveUp(time.Second, "pay", invoice, event("e1"))
			w.want(w.call("pay", invoice, event("e2"), workflow("other")), "fresh")
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e1")), "escalated/outcome_unknown")
			w.had(1)
		}},
		{"by invoice: another workflow paid it while the lookup was asked", byInvoice, func(w *world, r *register) {
			w.next(dropped)
			r.finds(0, func() any {
				r.finds(1)
				w.want(w.call("pay", invoice, event("e2"), workflow("other")), "fresh")
				return 1
			})
			w.want(w.call("pay", invoice, event("e1")), "pending/reconciling")
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e1")), "escalated/outcome_unknown")
			w.had(1)
		}},
		{"by invoice: an abandoned one arrived after all", byInvoice, func(w *world, r *register) {
			r.finds(func() any { return w.count() })
			w.next(slow(10*time.Minute), later(9*time.Minute, dropped))
			key := w.call("pay", invoice, event("e1")).Verdict.Key
			w.wait(3 * time.Minute)
			if err := w.resolve(key, "abandoned", false); err != nil {
				w.t.Error(err)
			}
			w.call("pay", invoice, event("e2"))
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e2")), "escalated/outcome_unknown")
			w.had(1)
		}},
		{"the answer to a tool's question is on its way when the deadline passes: its sender may still send", byKey, func(w *world, r *register) {
			r.finds(func() any { return w.count() })
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				d.Sent()
				return registry.Answer{Result: json.RawMessage(`{"content":[],"resultType":"input_required","inputRequests":{"a":{}}}`)}, nil
			}, slow(3*time.Minute))
			w.call("pay", invoice, event("e"))
			w.call("pay", invoice, event("e"), func(c *toolguard.Call) { c.Input = json.RawMessage(`{"a":1}`) })
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e")), "replayed/done")
			w.sent(2)
			w.had(1)
		}},
		{"by invoice: a lookup that hangs before the call does not keep it from being sent", byInvoice, func(w *world, r *register) {
			w.change("pay", func(s *registry.Tool) {
				s.Policy.Timeout, s.Policy.AnswerWithin = 20*time.Second, 15*time.Second
				s.Policy.Lookups = slices.Clone(s.Policy.Lookups)
				s.Policy.Lookups[0].Handler = func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
					<-ctx.Done()
					return registry.Answer{}, ctx.Err()
				}
			})
			w.want(w.call("pay", invoice, event("e")), "fresh//succeeded")
		}},
		{"no space to record what they found: the downstream is not asked over and over", byKey, func(w *world, r *register) {
			r.finds(fmt.Errorf("down"))
			var full atomic.Bool
			w.store.Fail = func(wr *toolguard.Write) error {
				if wr.Operation != nil && full.Load() {
					return toolguard.ErrStoreFull
				}
				return nil
			}
			w.next(lost)
			w.giveUp(time.Second, "pay", invoice, event("e"))
			full.Store(true)
			w.wait(5 * time.Minute)
			n := r.times()
			r.finds(func() any {
				if r.times()-n > 100 {
					full.Store(false) // or the test would not end
				}
				return fmt.Errorf("down")
			})
			w.want(w.call("pay", invoice, event("e")), "pending/reconciling")
			if asked := r.times() - n; asked > 2 {
				w.t.Errorf("asked %d times", asked)
			}
			full.Store(false)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				r := &register{}
				w.tool(looked(t, r, test.by))
				test.play(w, r)
			})
		})
	}
}

// What an operation of another step came to for a call is what it came to for every repetition of that call.
func TestTakenCallStaysTaken(t *testing.T) {
	step := func(n string) option { return func(c *toolguard.Call) { c.Facts.Step = n } }
	spec := pay
	spec.Policy.OncePer = []string{"source_event", "step", "/invoice_id"}
	in(t, func(w *world) { // refused, and sent again by another step's call
		w.tool(spec)
		w.next(refused("invalid amount"))
		w.want(w.call("pay", invoice, event("e"), step("6")), "fresh//failed")
		w.want(w.call("pay", invoice, event("e"), step("8")), "fresh//succeeded")
		w.wait(time.Minute)
		w.crash()
		w.want(w.call("pay", invoice, event("e"), step("8")), "replayed/done")
		w.want(w.call("pay", invoice, event("e"), step("6")), "replayed/done")
		w.want(w.call("pay", `{"invoice_id":"INV-1","amount":1}`, event("e"), step("8")), "blocked/arguments_changed")
		w.had(1)
		w.want(w.call("pay", invoice, event("e"), step("9")), "fresh") // its own
		w.had(2)
	})
	in(t, func(w *world) { // owed, and given to another step's call
		w.tool(spec)
		w.next(slow(30 * time.Second))
		w.giveUp(time.Second, "pay", invoice, event("e"), step("6"))
		w.want(w.call("pay", invoice, event("e"), step("7")), "pending/in_progress") // joins, and leaves
		w.wait(time.Minute)
		w.want(w.call("pay", invoice, event("e"), step("8")), "replayed/done")
		w.wait(time.Minute)
		for _, n := range []string{"7", "8", "6"} {
			w.want(w.call("pay", invoice, event("e"), step(n)), "replayed/done")
		}
		w.had(1)
	})
}
