package toolguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// register is what a lookup sees: how many payments, or an error.
type register struct {
	mu    sync.Mutex
	found []any // an int, an error, or a func() any; the last one stays
	asked []string
}

// finds says what the coming lookups see.
func (r *register) finds(found ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = found
}

// times is how often it was asked.
func (r *register) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

func (r *register) handler(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
	r.mu.Lock()
	r.asked = append(r.asked, string(d.Arguments))
	now := r.found[0]
	if len(r.found) > 1 {
		r.found = r.found[1:]
	}
	r.mu.Unlock()
	if f, ok := now.(func() any); ok {
		now = f()
	}
	if err, ok := now.(error); ok {
		return registry.Answer{}, err
	}
	n := now.(int)
	raw, _ := json.Marshal(map[string]any{"structuredContent": map[string]any{"payments": make([]int, n), "payment_id": fmt.Sprint("pay_", n)}, "content": []any{}})
	return registry.Answer{Result: raw}, nil
}

// looked is pay with a lookup by key, or by invoice.
func looked(t *testing.T, r *register, arguments string) registry.Tool {
	spec := pay
	template, err := registry.ParseTemplate(json.RawMessage(arguments))
	if err != nil {
		t.Fatal(err)
	}
	spec.Policy.DownstreamID = condition(t, "result.json.payment_id", registry.KindAnswer)
	spec.Policy.Lookups = []registry.Lookup{{
		Tool: "find_payment", Arguments: template, Settle: 30 * time.Second, Handler: r.handler,
		Applied: condition(t, "size(result.json.payments) == 1", registry.KindAnswer),
		Absent:  condition(t, "size(result.json.payments) == 0", registry.KindAnswer),
	}}
	return spec
}

const byKey, byInvoice = `{"reference":"{{key}}"}`, `{"invoice":"{{args.invoice_id}}"}`

func TestLookup(t *testing.T) {
	for _, test := range []struct {
		name  string
		by    string
		found []any
		play  func(w *world, r *register)
	}{
		{"found: done, in the call, with the downstream's id", byKey, []any{1}, func(w *world, r *register) {
			w.next(lost)
			got := w.call("pay", invoice, event("e"))
			w.want(got, "replayed/done/succeeded")
			if !strings.Contains(got.Text, "pay_1") || !strings.Contains(r.asked[0], got.Verdict.Key) {
				w.t.Errorf("asked %s, told %s", r.asked[0], got.Text)
			}
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.had(1)
			w.wantEvents(toolguard.EventReconciled, 1)
		}},
		{"absent: sent again only after deadline and settle, under the same key", byKey, []any{0}, func(w *world, r *register) {
			w.next(dropped)
			w.want(w.call("pay", invoice, event("e")), "pending/reconciling/unknown")
			w.wait(80 * time.Second)
			w.sent(1)
			w.wait(15 * time.Second)
			w.sent(2)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.had(1)
			if w.sentKeys[0] != w.sentKeys[1] {
				w.t.Errorf("keys %v", w.sentKeys)
			}
		}},
		{"a call waits for settle where it has the time", byKey, []any{0}, func(w *world, r *register) {
			w.change("pay", func(s *registry.Tool) { s.Policy.AnswerWithin = 5 * time.Minute })
			w.next(dropped)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.sent(2)
			w.had(1)
		}},
		{"lags: absent, later found", byKey, []any{0, 0, 1}, func(w *world, r *register) {
			w.next(lost)
			w.call("pay", invoice, event("e"))
			w.wait(5 * time.Minute)
			w.sent(1)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.had(1)
		}},
		{"two payments: nobody can tell, a person decides", byKey, []any{2}, func(w *world, r *register) {
			w.next(lost)
			w.call("pay", invoice, event("e"))
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown/escalated")
			w.sent(1)
			w.wantEvents(toolguard.EventEscalated, 1)
		}},
		{"fails: a person decides, and a later round still settles it", byKey, []any{fmt.Errorf("down")}, func(w *world, r *register) {
			w.next(lost)
			w.call("pay", invoice, event("e"))
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown/escalated")
			r.finds(1)
			w.wait(2 * time.Minute)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.sent(1)
		}},
		{"out of budget", byKey, []any{0}, func(w *world, r *register) {
			w.next(dropped, dropped, dropped, dropped, dropped)
			w.call("pay", invoice, event("e"))
			w.wait(3 * time.Hour)
			w.sent(3)
			w.want(w.call("pay", invoice, event("e")), "escalated/attempts_spent/escalated")
			w.had(0)
		}},
		{"after a crash, at start", byKey, []any{1}, func(w *world, r *register) {
			w.next(slow(time.Hour))
			w.giveUp(time.Second, "pay", invoice, event("e"))
			w.crash()
			w.wait(2 * time.Second)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.sent(1)
			w.wait(time.Hour) // for the dead process's sleeper
		}},
		{"13 the sender may still send: absence proves nothing", byKey, []any{0}, func(w *world, r *register) {
			w.next(slow(10 * time.Minute))
			w.call("pay", invoice, event("e"))
			w.wait(8 * time.Minute)
			w.sent(1)
			w.want(w.call("pay", invoice, event("e")), "pending/reconciling")
			w.wait(10 * time.Minute)
			w.sent(1)
			w.want(w.call("pay", invoice, event("e")), "replayed/done")
			w.had(1)
		}},
		{"13 settle counts from the end of a sender that outlived its deadline", byKey, []any{0}, func(w *world, r *register) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				time.Sleep(3 * time.Minute)
				return registry.Answer{}, fmt.Errorf("gave up")
			})
			w.call("pay", invoice, event("e"))
			w.wait(3*time.Minute + 10*time.Second)
			w.sent(1)
			w.wait(20 * time.Second)
			w.sent(2)
			w.had(1)
		}},
		{"everything was sent: the sender is done, though no answer comes", byKey, []any{0}, func(w *world, r *register) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				d.Sent()
				time.Sleep(20 * time.Minute)
				return registry.Answer{}, fmt.Errorf("gave up")
			})
			w.call("pay", invoice, event("e"))
			w.wait(75 * time.Second)
			w.sent(1)
			w.wait(20 * time.Second)
			w.sent(2)
			w.wait(time.Hour)
			w.had(1)
		}},
		{"by invoice: it was absent before, so it is ours", byInvoice, []any{0, 1}, func(w *world, r *register) {
			w.next(lost)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.sent(1)
		}},
		{"by invoice: absent before and after, sent again", byInvoice, []any{0}, func(w *world, r *register) {
			w.next(dropped)
			w.call("pay", invoice, event("e"))
			w.wait(2 * time.Minute)
			w.sent(2)
			w.had(1)
		}},
		{"17 by invoice: one was there before", byInvoice, []any{0, 1}, func(w *world, r *register) {
			w.want(w.call("pay", invoice, event("e")), "fresh")
			key := w.call("pay", invoice, event("e")).Verdict.Key
			if err := w.repeat(key, false); err != nil {
				w.t.Error(err)
			}
			w.wait(time.Minute)
			w.next(lost)
			w.call("pay", invoice, event("e"))
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown")
			w.sent(2)
		}},
		{"14 by invoice: another operation on it was open", byInvoice, []any{0}, func(w *world, r *register) {
			w.next(slow(5*time.Minute), dropped)
			w.giveUp(time.Second, "pay", invoice, event("e1"))
			w.call("pay", invoice, event("e2"))
			w.wait(30 * time.Minute)
			w.sent(2)
			w.had(1)
			w.want(w.call("pay", invoice, event("e2")), "escalated/outcome_unknown")
		}},
		{"by invoice: another one was done since", byInvoice, []any{0, 0, 1}, func(w *world, r *register) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				time.Sleep(20 * time.Second)
				return registry.Answer{}, fmt.Errorf("connection reset")
			})
			w.giveUp(time.Second, "pay", invoice, event("e1"))
			w.call("pay", invoice, event("e2"))
			w.wait(time.Hour)
			w.had(1) // that of e2
			w.want(w.call("pay", invoice, event("e1")), "escalated/outcome_unknown")
		}},
		{"an idempotent tool waits for settle, too", byKey, []any{0}, func(w *world, r *register) {
			spec := set
			spec.Policy.Lookups = w.specs[0].Policy.Lookups
			w.tool(spec)
			w.next(dropped)
			w.want(w.call("set", `{"path":"/a","v":1}`), "pending/reconciling")
			w.want(w.call("set", `{"path":"/a","v":2}`), "pending/reconciling")
			w.wait(75 * time.Second)
			w.want(w.call("set", `{"path":"/a","v":2}`), "pending/reconciling")
			w.wait(15 * time.Second)
			w.want(w.call("set", `{"path":"/a","v":2}`), "fresh")
			w.had(1)
		}},
		{"08 not_applied before deadline and settle is refused", byKey, []any{fmt.Errorf("down")}, func(w *world, r *register) {
			w.next(lost)
			key := w.call("pay", invoice, event("e")).Verdict.Key
			w.wait(70 * time.Second)
			if err := w.resolve(key, "not_applied", false); err == nil {
				w.t.Error("taken before settle")
			}
			w.wait(30 * time.Second)
			if err := w.resolve(key, "not_applied", false); err != nil {
				w.t.Error(err)
			}
		}},
		{"a downstream that honours keys for a minute, after two", byKey, []any{fmt.Errorf("down")}, func(w *world, r *register) {
			w.change("pay", func(s *registry.Tool) {
				s.Policy.DownstreamKey, s.Policy.Lookups = registry.DownstreamKey{Meta: "k", Window: time.Minute}, nil
			})
			w.next(lost)
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown")
			w.wait(2 * time.Minute)
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown")
			w.sent(1)
		}},
		{"a late answer after a person's verdict", byKey, []any{fmt.Errorf("down")}, func(w *world, r *register) {
			w.next(slow(20 * time.Minute))
			key := w.call("pay", invoice, event("e")).Verdict.Key
			w.wait(15 * time.Minute)
			if err := w.resolve(key, "abandoned", false); err != nil {
				w.t.Error(err)
			}
			w.wait(10 * time.Minute)
			if op := w.op(key); op.Conflict == "" || op.Status != toolguard.StatusAbandoned {
				w.t.Errorf("status %s, conflict %q", op.Status, op.Conflict)
			}
			w.sent(1)
			// A person looks at it once; it stays as it was decided, and does not wait any more.
			for range 2 {
				if err := w.resolve(key, "applied", false); err != nil {
					w.t.Error(err)
				}
			}
			if op := w.op(key); op.Contradicted() || op.Status != toolguard.StatusAbandoned || op.Seen.Verdict != "applied" || op.Resolved.Verdict != "abandoned" {
				w.t.Errorf("seen %+v, status %s", op.Seen, op.Status)
			}
			if err := w.resolve(key, "not_applied", false); !errors.Is(err, toolguard.ErrTransition) {
				w.t.Errorf("another word about it: %v", err)
			}
			w.wantEvents(toolguard.EventResolved, 2)
			page, err := w.store.Operations(context.Background(), toolguard.Query{Queue: toolguard.QueueOutcome})
			if err != nil || len(page.Operations) > 0 {
				w.t.Errorf("%d wait for a person, %v", len(page.Operations), err)
			}
			w.sent(1)
		}},
		{"two lookups: the second tells where the first cannot", byKey, []any{fmt.Errorf("down")}, func(w *world, r *register) {
			other := &register{found: []any{1}}
			w.change("pay", func(s *registry.Tool) {
				l := s.Policy.Lookups[0]
				l.Handler = other.handler
				s.Policy.Lookups = append(s.Policy.Lookups[:1:1], l)
			})
			w.next(lost)
			w.want(w.call("pay", invoice, event("e")), "replayed/done")
		}},
		{"two lookups that contradict each other prove nothing", byKey, []any{0}, func(w *world, r *register) {
			other := &register{found: []any{1}}
			w.change("pay", func(s *registry.Tool) {
				l := s.Policy.Lookups[0]
				l.Handler = other.handler
				s.Policy.Lookups = append(s.Policy.Lookups[:1:1], l)
			})
			w.next(lost)
			w.call("pay", invoice, event("e"))
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown")
			w.sent(1)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				r := &register{found: test.found}
				w.tool(looked(t, r, test.by))
				test.play(w, r)
				if _, err := toolguard.Verify(toolguard.Events(context.Background(), w.store)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
