package toolguard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// pay and appendTo are the tools of the table of scenarios.
var pay = registry.Tool{Name: "pay", Policy: registry.Policy{
	OncePer: []string{"source_event", "/invoice_id"}, MayDiffer: []string{"/memo"}, Timeout: time.Minute, AnswerWithin: 10 * time.Second,
}}

var appendTo = registry.Tool{Name: "append", Policy: registry.Policy{Timeout: time.Minute, AnswerWithin: 10 * time.Second}}

var create = registry.Tool{Name: "create", Policy: registry.Policy{Timeout: time.Minute, AnswerWithin: 10 * time.Second}}

var set = registry.Tool{Name: "set", Effect: registry.Idempotent, Policy: registry.Policy{
	Entity: []string{"/path"}, Timeout: time.Minute, AnswerWithin: 10 * time.Second,
}}

const invoice = `{"invoice_id":"INV-1","amount":900}`

// The numbers are those of the table of sequences that break a careless guard.
func TestScenario(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(w *world)
	}{
		{"01 a changed parameter after the caller gave up is held", func(w *world) {
			w.next(slow(30 * time.Second))
			w.want(w.giveUp(time.Second, "append", `{"to":"x","n":5000}`), "pending/in_progress/dispatching")
			w.want(w.call("append", `{"to":"x","n":10000}`), "blocked/earlier_unknown")
			w.wait(time.Minute)
			w.had(1)
		}},
		{"02 given up, succeeds, next turn: replayed", func(w *world) {
			w.next(slow(30 * time.Second))
			w.giveUp(time.Second, "append", `{"to":"x"}`)
			w.wait(time.Minute)
			w.want(w.call("append", `{"to":"x"}`, request("turn 2")), "replayed/done/succeeded")
			w.had(1)
			w.wait(2 * time.Second)
			if key := w.send("append", `{"to":"x"}`, request("turn 3")).Verdict; key.Outcome != toolguard.Fresh {
				w.t.Errorf("delivered, then a new turn: %v", key)
			}
		}},
		{"03 append, create, append: a new occurrence", func(w *world) {
			w.want(w.call("append", `{"to":"x"}`), "fresh//succeeded")
			w.want(w.call("create", `{"name":"y"}`), "fresh")
			r := w.call("append", `{"to":"x"}`)
			w.want(r, "fresh")
			if r.Verdict.Occurrence != 2 {
				w.t.Errorf("occurrence %d, want 2", r.Verdict.Occurrence)
			}
			w.had(3)
		}},
		{"04 owed is replayed once, naming the write since, then fresh", func(w *world) {
			w.next(slow(30 * time.Second))
			w.giveUp(time.Second, "append", `{"to":"x"}`)
			w.wait(time.Minute)
			w.call("create", `{"name":"y"}`)
			r := w.call("append", `{"to":"x"}`)
			w.want(r, "replayed/done")
			if !strings.Contains(r.Text, "srv/create") {
				w.t.Errorf("the replay does not name the write since: %s", r.Text)
			}
			w.want(w.call("append", `{"to":"x"}`), "fresh")
			w.had(3)
		}},
		{"05 writing is not delivery", func(w *world) {
			w.want(w.send("append", `{"to":"x"}`), "fresh")
			w.call("create", `{"name":"y"}`)
			w.want(w.call("append", `{"to":"x"}`), "replayed/done")
			w.had(2)
		}},
		{"06 refused after an unresolved attempt is still unknown", func(w *world) {
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "escalated/outcome_unknown/escalated")
			w.wait(2 * time.Minute)
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				w.t.Fatal(err)
			}
			w.next(refused("insufficient funds: not allowed"))
			w.crash()
			w.wait(time.Second)
			w.sent(2)
			if op := w.op(r.Verdict.Key); op.Status != toolguard.StatusEscalated {
				w.t.Errorf("status %s, want escalated", op.Status)
			}
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("evt 1")), "blocked/arguments_changed")
			w.had(1)
		}},
		{"07 refused, then corrected, goes through", func(w *world) {
			w.next(refused("amount is invalid"))
			w.want(w.call("pay", invoice, event("evt 1")), "fresh//failed")
			r := w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("evt 1"))
			w.want(r, "fresh//succeeded")
			if r.Verdict.Attempt != 2 || r.Verdict.Occurrence != 1 {
				w.t.Errorf("attempt %d of occurrence %d, want 2 of 1", r.Verdict.Attempt, r.Verdict.Occurrence)
			}
			w.want(w.call("pay", invoice, event("evt 1")), "blocked/arguments_changed")
			w.had(1)
		}},
		{"08 not_applied before the deadline is refused; forced it orders a repeat", func(w *world) {
			w.next(dropped)
			r := w.call("pay", invoice, event("evt 1"))
			if err := w.resolve(r.Verdict.Key, "not_applied", false); !errors.Is(err, toolguard.ErrTooEarly) {
				w.t.Errorf("error %v, want ErrTooEarly", err)
			}
			if err := w.resolve(r.Verdict.Key, "not_applied", true); err != nil {
				w.t.Fatal(err)
			}
			w.crash()
			w.wait(2 * time.Minute)
			w.sent(2)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done")
			w.had(1)
		}},
		{"09 a late success after not_applied counts", func(w *world) {
			w.next(slow(3 * time.Minute))
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "pending/in_progress")
			w.wait(90 * time.Second) // past the deadline: escalated, the sender still waits
			if err := w.resolve(r.Verdict.Key, "not_applied", false); !errors.Is(err, toolguard.ErrTooEarly) {
				w.t.Errorf("the sender still waits: error %v, want ErrTooEarly", err)
			}
			w.wait(3 * time.Minute)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done/succeeded")
			w.sent(1)
			w.had(1)
		}},
		{"10 the first attempt's late success while the second runs", func(w *world) {
			w.change("pay", func(t *registry.Tool) {
				t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: time.Hour}
			})
			w.next(slow(80*time.Second), slow(40*time.Second))
			r := w.send("pay", invoice, event("evt 1"))
			w.wait(55 * time.Second) // its deadline is over, its sender still waits
			w.want(w.send("pay", invoice, event("evt 1")), "pending/reconciling")
			w.sent(1)
			if err := w.repeat(r.Verdict.Key, true); err != nil {
				w.t.Fatal(err)
			}
			w.want(w.send("pay", invoice, event("evt 1")), "pending/in_progress")
			w.sent(2)
			w.wait(3 * time.Minute)
			op := w.op(r.Verdict.Key)
			if op.Status != toolguard.StatusSucceeded || op.Conflict != "" {
				w.t.Errorf("status %s, conflict %q", op.Status, op.Conflict)
			}
			w.sent(2)
		}},
		{"11 no re-dispatch when its arrival may fall outside the window", func(w *world) {
			w.change("pay", func(t *registry.Tool) {
				t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: 60 * time.Second}
				t.Policy.Timeout = 59 * time.Second
			})
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				<-ctx.Done()
				return registry.Answer{}, ctx.Err()
			})
			w.send("pay", invoice, event("evt 1"))
			w.wait(2 * time.Minute)
			w.want(w.call("pay", invoice, event("evt 1")), "escalated/outcome_unknown")
			w.sent(1)
		}},
		{"12 the window is over on Monday", func(w *world) {
			w.change("pay", func(t *registry.Tool) {
				t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: 24 * time.Hour}
				t.Policy.Attempts = 1
			})
			w.next(lost)
			w.call("pay", invoice, event("evt 1"))
			w.wait(64 * time.Hour)
			w.want(w.call("pay", invoice, event("evt 1")), "escalated/attempts_spent")
			w.sent(1)
		}},
		{"15 the same event redelivered", func(w *world) {
			w.call("pay", invoice, event("evt 1"))
			w.call("create", `{"void":"INV-1"}`, event("evt 1"))
			w.wait(time.Hour)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done")
			w.had(2)
		}},
		{"16 another event for the same invoice is held while the first is unknown", func(w *world) {
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			w.want(w.call("pay", invoice, event("evt 2")), "blocked/earlier_unknown")
			if err := w.resolve(r.Verdict.Key, "applied", false); err != nil {
				w.t.Fatal(err)
			}
			w.want(w.call("pay", invoice, event("evt 2")), "fresh")
		}},
		{"19 abandoned stays blocked until a person allows the next", func(w *world) {
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			if err := w.resolve(r.Verdict.Key, "abandoned", false); err != nil {
				w.t.Fatal(err)
			}
			w.want(w.call("pay", invoice, event("evt 1")), "blocked/abandoned")
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":1}`, event("evt 1")), "blocked/abandoned")
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				w.t.Fatal(err)
			}
			next := w.call("pay", invoice, event("evt 1"))
			w.want(next, "fresh")
			if next.Verdict.Occurrence != 2 {
				w.t.Errorf("occurrence %d, want 2", next.Verdict.Occurrence)
			}
		}},
		{"22 set B waits for set A's deadline", func(w *world) {
			w.next(lost)
			w.want(w.call("set", `{"path":"p","value":"A"}`), "pending/reconciling/unknown")
			w.want(w.call("set", `{"path":"p","value":"B"}`), "pending/reconciling")
			w.want(w.call("set", `{"path":"q","value":"B"}`), "fresh")
			w.wait(time.Minute)
			w.want(w.call("set", `{"path":"p","value":"B"}`), "fresh")
			w.sent(3)
		}},
		{"23 A, B, A", func(w *world) {
			for i, v := range []string{"A", "B", "A"} {
				w.want(w.call("set", `{"path":"p","value":"`+v+`"}`, callID("s", string(rune('a'+i)))), "fresh")
			}
			w.had(3)
		}},
		{"24 the same call id twice", func(w *world) {
			w.want(w.call("set", `{"path":"p","value":"A"}`, callID("s", "1")), "fresh")
			w.want(w.call("set", `{"path":"p","value":"A"}`, callID("s", "1")), "replayed/done")
			w.want(w.call("append", `{"to":"p"}`, callID("s", "1")), "fresh")
			w.call("create", `{"name":"y"}`)
			w.want(w.call("append", `{"to":"p"}`, callID("s", "1")), "replayed/done")
			w.had(3)
		}},
		{"25 call_0 in two turns", func(w *world) {
			w.want(w.call("append", `{"to":"a"}`, callID("s", "call_0")), "fresh")
			w.want(w.call("append", `{"to":"b"}`, callID("s", "call_0")), "fresh")
			w.had(2)
		}},
		{"26 64 at once, the first is refused", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				time.Sleep(time.Second)
				return text("denied", true), nil
			})
			var wg sync.WaitGroup
			results := make([]*toolguard.Result, 64)
			for i := range results {
				wg.Go(func() { results[i] = w.send("pay", invoice, event("evt 1")) })
			}
			wg.Wait()
			fresh := 0
			for _, r := range results {
				switch {
				case r.Verdict.Outcome == toolguard.Fresh:
					fresh++
					w.want(r, "fresh//failed")
				default:
					w.want(r, "blocked/refused/failed")
				}
			}
			if fresh != 1 {
				w.t.Errorf("%d fresh answers, want 1", fresh)
			}
			w.sent(1)
			w.want(w.call("pay", invoice, event("evt 1")), "fresh//succeeded")
		}},
		{"27 a policy with once_per meets what was open without", func(w *world) {
			w.next(lost)
			w.want(w.call("append", `{"to":"x","n":1}`), "escalated")
			w.change("append", func(t *registry.Tool) { t.Policy.OncePer = []string{"/to"} })
			w.want(w.call("append", `{"to":"x","n":1}`), "escalated/outcome_unknown")
			w.want(w.call("append", `{"to":"x","n":2}`), "blocked")
			w.had(1)
		}},
		{"28 a default that the upstream adds changes no key", func(w *world) {
			w.change("append", func(t *registry.Tool) {
				t.InputSchema = []byte(`{"type":"object","properties":{"to":{"type":"string"},"mode":{"type":"string"}}}`)
			})
			first := w.send("append", `{"to":"x","mode":"a"}`)
			w.change("append", func(t *registry.Tool) {
				t.InputSchema = []byte(`{"type":"object","properties":{"to":{"type":"string"},"mode":{"type":"string","default":"a"}}}`)
			})
			again := w.send("append", `{"to":"x","mode":"a"}`)
			w.want(again, "replayed/done")
			if again.Verdict.Key != first.Verdict.Key {
				w.t.Errorf("keys %s and %s", first.Verdict.Key, again.Verdict.Key)
			}
			w.had(1)
		}},
		{"29 an undelivered success refuses once, and shows itself", func(w *world) {
			w.change("pay", func(t *registry.Tool) { t.Policy.OncePer = []string{"run", "/customer"} })
			w.next(done("paid 10 to c1"))
			w.send("pay", `{"customer":"c1","amount":10}`, run("run 1"))
			r := w.call("pay", `{"customer":"c1","amount":20}`, run("run 2"))
			w.want(r, "blocked/earlier_unknown")
			if !strings.Contains(r.Text, "paid 10 to c1") {
				w.t.Errorf("the refusal does not carry the result: %s", r.Text)
			}
			w.want(w.call("pay", `{"customer":"c1","amount":20}`, run("run 2")), "fresh")
			w.had(2)
		}},
		{"30 key used with other parameters, or in progress", func(w *world) {
			w.change("pay", func(t *registry.Tool) {
				t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: time.Hour}
			})
			w.next(refused("Keys for idempotent requests can only be used with the same parameters they were first used with"))
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "pending/reconciling/unknown")
			w.next(refused("a request with this idempotency key is in progress"))
			w.wait(70 * time.Second)
			op := w.op(r.Verdict.Key)
			if op.Status != toolguard.StatusUnknown || op.Generation != 1 || op.Sent != 2 {
				w.t.Errorf("status %s, generation %d, %d attempts", op.Status, op.Generation, op.Sent)
			}
		}},
		{"32 a body too large to store", func(w *world) {
			w.store.Fail = func(wr *toolguard.Write) error {
				if wr.Body != nil && wr.Body.Result != nil {
					return toolguard.ErrTooLarge
				}
				return nil
			}
			w.want(w.send("pay", invoice, event("evt 1")), "fresh//succeeded")
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/body_not_stored/succeeded")
			w.had(1)
		}},
		{"33 the tombstone answers a year later", func(w *world) {
			w.call("pay", invoice, event("evt 1"))
			w.g.Close(context.Background())
			w.wait(365 * 24 * time.Hour)
			w.crash()
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "replayed/body_expired/succeeded")
			if !strings.HasPrefix(r.Text, "ALREADY DONE, not repeated.") {
				w.t.Errorf("text: %s", r.Text)
			}
			w.had(1)
		}},
		{"34 two tenants", func(w *world) {
			a := w.call("pay", invoice, event("evt 1"), tenant("a"))
			b := w.call("pay", invoice, event("evt 1"), tenant("b"))
			w.want(a, "fresh")
			w.want(b, "fresh")
			if a.Verdict.Key == b.Verdict.Key {
				w.t.Error("one key")
			}
			w.had(2)
		}},
		{"36 1 of 3 items failed", func(w *world) {
			w.next(refused("1 of 3 items failed"))
			w.want(w.call("pay", invoice, event("evt 1")), "escalated/outcome_unknown")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				for _, tool := range []registry.Tool{pay, appendTo, create, set} {
					w.tool(tool)
				}
				test.play(w)
			})
		})
	}
}

// 31: the settle cannot be written.
func TestScenarioNotRecorded(t *testing.T) {
	in(t, func(w *world) {
		w.tool(pay)
		w.store.Fail = func(wr *toolguard.Write) error {
			if wr.Body != nil && wr.Body.Result != nil {
				return toolguard.ErrStoreBroken
			}
			return nil
		}
		r := w.call("pay", invoice, event("evt 1"))
		w.want(r, "fresh/not_recorded")
		if r.Answer.Text() != "ok" {
			t.Errorf("the caller did not get the tool's answer: %q", r.Answer.Text())
		}
		synctest.Wait()
		w.crash()
		w.want(w.call("pay", invoice, event("evt 1")), "escalated/outcome_unknown/escalated")
		w.had(1)
	})
}
