package toolguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Rules of the design that no scenario has by itself.
func TestRule(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(w *world)
	}{
		{"64 identical calls at once: one effect, one fresh, 63 replayed", func(w *world) {
			w.next(slow(time.Second))
			count := w.atOnce(64, "append", func(int) string { return `{"to":"x"}` })
			if count[toolguard.Fresh] != 1 || count[toolguard.Replayed] != 63 {
				w.t.Errorf("%v", count)
			}
			w.had(1)
		}},
		{"200 distinct calls at once: 200 effects", func(w *world) {
			count := w.atOnce(200, "create", func(i int) string { return fmt.Sprintf(`{"name":"n%d"}`, i) })
			if count[toolguard.Fresh] != 200 {
				w.t.Errorf("%v", count)
			}
			w.had(200)
		}},
		{"state-setting calls of one entity go one after the other", func(w *world) {
			for range 3 {
				w.next(slow(time.Second))
			}
			start := time.Now()
			count := w.atOnce(3, "set", func(i int) string { return `{"path":"p","value":` + string(rune('1'+i)) + `}` })
			if took := time.Since(start); count[toolguard.Fresh] != 3 || took != 3*time.Second {
				w.t.Errorf("%v in %s", count, took)
			}
		}},
		{"state-setting calls of two entities go side by side", func(w *world) {
			for range 3 {
				w.next(slow(time.Second))
			}
			start := time.Now()
			w.atOnce(3, "set", func(i int) string { return `{"path":"p` + string(rune('1'+i)) + `"}` })
			if took := time.Since(start); took != time.Second {
				w.t.Errorf("took %s", took)
			}
		}},
		{"a refusal of a downstream that honours keys renews the key, a lost answer does not", func(w *world) {
			w.honour(time.Hour)
			w.next(refused("amount is invalid"), dropped, done("ok"))
			r := w.call("pay", invoice, event("evt 1"))
			w.call("pay", invoice, event("evt 1"))
			w.wait(2 * time.Minute)
			op := w.op(r.Verdict.Key)
			if op.Generation != 2 || op.Attempts[1].SentKey == op.Attempts[0].SentKey || op.Attempts[2].SentKey != op.Attempts[1].SentKey {
				w.t.Errorf("generation %d, %+v", op.Generation, op.Attempts)
			}
		}},
		{"not sent keeps the key and the budget", func(w *world) {
			w.honour(time.Hour)
			w.next(unsent, unsent, unsent, unsent)
			for range 4 {
				w.want(w.call("pay", invoice, event("evt 1")), "blocked/tool_unavailable/failed")
			}
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "fresh//succeeded")
			if op := w.op(r.Verdict.Key); op.Generation != 1 {
				w.t.Errorf("generation %d", op.Generation)
			}
		}},
		{"out of unknown, not sent leaves it unknown and is tried again", func(w *world) {
			w.honour(time.Hour)
			w.next(lost, unsent, unsent)
			r := w.call("pay", invoice, event("evt 1"))
			w.wait(5 * time.Minute)
			w.sent(4)
			if op := w.op(r.Verdict.Key); op.Status != toolguard.StatusSucceeded {
				w.t.Errorf("status %s", op.Status)
			}
		}},
		{"the budget spent, a person decides", func(w *world) {
			w.honour(24 * time.Hour)
			w.next(dropped, dropped, dropped, dropped)
			r := w.call("pay", invoice, event("evt 1"))
			w.wait(time.Hour)
			w.sent(3)
			w.want(w.call("pay", invoice, event("evt 1")), "escalated/attempts_spent")
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				w.t.Fatal(err)
			}
			w.crash()
			w.wait(time.Hour)
			w.sent(5)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done")
		}},
		{"an order is not lost when the tool cannot be reached", func(w *world) {
			w.next(dropped, unsent)
			r := w.call("pay", invoice, event("evt 1"))
			w.wait(2 * time.Minute)
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				w.t.Fatal(err)
			}
			w.crash()
			w.wait(time.Minute)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done")
			w.sent(3)
		}},
		{"a call that came before the refusal was recorded gets the refusal", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				time.Sleep(time.Second)
				return text("denied", true), nil
			})
			first := make(chan *toolguard.Result, 1)
			go func() { first <- w.send("pay", invoice, event("evt 1")) }()
			synctest.Wait()
			reading, read := make(chan struct{}), make(chan struct{})
			var once sync.Once
			w.seam.read = func(q toolguard.Query) {
				once.Do(func() { close(reading); <-read })
			}
			second := make(chan *toolguard.Result, 1)
			go func() { second <- w.send("pay", invoice, event("evt 1")) }()
			<-reading
			w.want(<-first, "fresh//failed")
			close(read)
			w.want(<-second, "blocked/refused")
			w.sent(1)
		}},
		{"a corrected call succeeds, then the first attempt's answer comes", func(w *world) {
			// A person said that nothing had happened, and was wrong.
			w.next(slow(3 * time.Minute))
			r := w.call("pay", invoice, event("evt 1"))
			w.wait(40 * time.Second)
			if err := w.repeat(r.Verdict.Key, true); err == nil {
				w.t.Error("an attempt that is running was ordered again")
			}
			w.wait(20 * time.Second)
			// Its sender still waits, so that the verdict has to be forced on the record.
			op := w.op(r.Verdict.Key)
			op.Attempts[0].Finished = true
			w.force(op)
			if err := w.resolve(r.Verdict.Key, "not_applied", false); err != nil {
				w.t.Fatal(err)
			}
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("evt 1")), "fresh//succeeded")
			w.wait(3 * time.Minute)
			if op = w.op(r.Verdict.Key); op.Conflict == "" || op.Status != toolguard.StatusSucceeded {
				w.t.Errorf("status %s, conflict %q", op.Status, op.Conflict)
			}
			w.had(2)
		}},
		{"the first attempt's success after a refusal of other bytes is for a person", func(w *world) {
			w.next(slow(3*time.Minute), refused("invalid"))
			r := w.call("pay", invoice, event("evt 1"))
			w.wait(time.Minute)
			op := w.op(r.Verdict.Key)
			op.Attempts[0].Finished = true
			w.force(op)
			if err := w.resolve(r.Verdict.Key, "not_applied", false); err != nil {
				w.t.Fatal(err)
			}
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("evt 1")), "fresh//failed")
			w.wait(3 * time.Minute)
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("evt 1")), "escalated/outcome_unknown")
			w.sent(2)
		}},
		{"a late answer after a verdict is a conflict and changes nothing", func(w *world) {
			w.next(slow(3 * time.Minute))
			r := w.call("pay", invoice, event("evt 1"))
			w.wait(time.Minute)
			if err := w.resolve(r.Verdict.Key, "abandoned", false); err != nil {
				w.t.Fatal(err)
			}
			w.wait(3 * time.Minute)
			if op := w.op(r.Verdict.Key); op.Status != toolguard.StatusAbandoned || op.Conflict == "" {
				w.t.Errorf("status %s, conflict %q", op.Status, op.Conflict)
			}
			w.wantEvents("conflict", 1)
		}},
		{"each verdict is given once", func(w *world) {
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			for range 2 {
				if err := w.resolve(r.Verdict.Key, "applied", false); err != nil {
					w.t.Fatal(err)
				}
			}
			w.wantEvents("resolved", 1)
			if err := w.resolve(r.Verdict.Key, "abandoned", false); !errors.Is(err, toolguard.ErrTransition) {
				w.t.Errorf("error %v, want ErrTransition", err)
			}
			w.want(w.call("pay", invoice, event("evt 1")), "replayed")
		}},
		{"without any fact, an identical call a minute after the delivery is a new one", func(w *world) {
			w.want(w.call("append", `{"to":"x"}`), "fresh")
			w.wait(59 * time.Second)
			w.want(w.call("append", `{"to":"x"}`), "replayed")
			w.wait(2 * time.Second)
			w.want(w.call("append", `{"to":"x"}`), "fresh")
		}},
		{"within one request an identical call is replayed as long as nothing else was written", func(w *world) {
			w.want(w.call("append", `{"to":"x"}`, request("r")), "fresh")
			w.wait(time.Hour)
			w.want(w.call("append", `{"to":"x"}`, request("r")), "replayed")
			w.want(w.call("set", `{"path":"p"}`, request("r")), "fresh")
			w.want(w.call("append", `{"to":"x"}`, request("r")), "fresh")
			w.want(w.call("append", `{"to":"x"}`, request("r2")), "fresh")
		}},
		{"within one run everything stays done, but for what was set since", func(w *world) {
			w.change("append", func(t *registry.Tool) { t.Policy.Entity = []string{"/to"} })
			w.want(w.call("append", `{"to":"x","v":1}`, run("r")), "fresh")
			w.want(w.call("create", `{"name":"y"}`, run("r")), "fresh")
			w.want(w.call("append", `{"to":"x","v":1}`, run("r")), "replayed")
			w.want(w.call("append", `{"to":"x","v":2}`, run("r")), "fresh")
			w.want(w.call("append", `{"to":"x","v":1}`, run("r")), "fresh")
			w.want(w.call("append", `{"to":"z","v":1}`, run("r")), "fresh")
		}},
		{"repeat_after counts from the delivery", func(w *world) {
			w.change("pay", func(t *registry.Tool) { t.Policy.RepeatAfter = time.Hour })
			w.send("pay", invoice, event("evt 1"))
			w.wait(2 * time.Hour)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed")
			w.wait(59 * time.Minute)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed")
			w.wait(2 * time.Minute)
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":1}`, event("evt 1")), "fresh")
			w.had(2)
		}},
		{"a new turn meets the open operation of the same target", func(w *world) {
			w.change("pay", func(t *registry.Tool) { t.Policy.OncePer = []string{"run", "/invoice_id"} })
			w.next(slow(20 * time.Second))
			w.giveUp(time.Second, "pay", invoice, run("r1"))
			w.want(w.call("pay", invoice, run("r2")), "pending/in_progress")
			w.wait(time.Minute)
			w.want(w.call("pay", invoice, run("r3")), "replayed")
			w.want(w.call("pay", invoice, run("r4")), "fresh")
			w.had(2)
		}},
		{"a failed operation of another run takes the call", func(w *world) {
			w.change("pay", func(t *registry.Tool) { t.Policy.OncePer = []string{"run", "/invoice_id"} })
			w.next(refused("invalid"))
			first := w.call("pay", invoice, run("r1"))
			second := w.call("pay", `{"invoice_id":"INV-1","amount":1}`, run("r2"))
			w.want(second, "fresh//succeeded")
			if first.Verdict.Key != second.Verdict.Key || second.Verdict.Attempt != 2 {
				w.t.Errorf("%+v", second.Verdict)
			}
		}},
		{"an earlier definition still answers when its facts are equal", func(w *world) {
			w.call("pay", invoice, event("evt 1"))
			w.change("pay", func(t *registry.Tool) { t.Policy.OncePer = []string{"source_event", "/invoice_id", "/amount"} })
			w.want(w.call("pay", invoice, event("evt 1")), "replayed")
			w.change("pay", func(t *registry.Tool) {
				t.Policy.OncePer = []string{"source_event", "/invoice_id"}
				t.Policy.Normalize = map[string][]string{"/invoice_id": {"lower"}}
			})
			w.want(w.call("pay", invoice, event("evt 1")), "replayed")
			w.want(w.call("pay", `{"invoice_id":"inv-1","amount":900}`, event("evt 2")), "fresh")
			w.had(2)
		}},
		{"dry runs only read, and are no operation", func(w *world) {
			x, err := registry.CompileExpression("has(args.dry_run) && args.dry_run", registry.KindArguments)
			if err != nil {
				w.t.Fatal(err)
			}
			w.change("append", func(t *registry.Tool) {
				t.InputSchema = []byte(`{"type":"object","properties":{"to":{"type":"string"},"dry_run":{"type":"boolean"}}}`)
				t.Policy.ReadsWhen = x
			})
			for range 2 {
				r := w.call("append", `{"to":"x","dry_run":true}`)
				if r.Guarded || r.Verdict.Outcome != toolguard.Fresh {
					w.t.Errorf("%+v", r.Verdict)
				}
			}
			w.want(w.call("append", `{"to":"x"}`), "fresh//succeeded")
			w.sent(3)
		}},
		{"a tool that says nothing gets a receipt", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				effect()
				return registry.Answer{Result: json.RawMessage(`{"content":[]}`)}, nil
			})
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "fresh//succeeded")
			if !strings.Contains(r.Text, "receipt") || !strings.Contains(r.Text, r.Verdict.Key) {
				w.t.Errorf("the receipt: %q", r.Text)
			}
		}},
		{"a tool's question settles nothing, and its answer continues the attempt", func(w *world) {
			ask := func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return registry.Answer{Result: json.RawMessage(`{"content":[],"resultType":"input_required","inputRequests":{"a":{}}}`)}, nil
			}
			w.next(ask, func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				if string(d.Input) != `{"a":1}` || d.Attempt != 1 {
					w.t.Errorf("attempt %d got %s", d.Attempt, d.Input)
				}
				effect()
				return text("ok", false), nil
			})
			r := w.send("pay", invoice, event("evt 1"))
			w.want(r, "pending/in_progress/dispatching")
			if !strings.Contains(string(r.Answer.Result), "input_required") {
				w.t.Errorf("the question did not come through: %s", r.Answer.Result)
			}
			again := w.send("pay", invoice, event("evt 1"))
			if !strings.Contains(string(again.Answer.Result), "input_required") {
				w.t.Errorf("asked again: %s", again.Answer.Result)
			}
			w.sent(1)
			r = w.call("pay", invoice, event("evt 1"), func(c *toolguard.Call) { c.Input = json.RawMessage(`{"a":1}`) })
			w.want(r, "fresh//succeeded")
			if r.Answer.Text() != "ok" || r.Text != "" {
				w.t.Errorf("got %+v %s", r.Verdict, r.Text)
			}
			w.sent(2)
			w.had(1)
		}},
		{"a refusal of what the tool had asked for is told in the tool's words", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return registry.Answer{Result: json.RawMessage(`{"content":[],"resultType":"input_required","inputRequests":{"a":{}}}`)}, nil
			}, func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return registry.Answer{Error: &registry.ProtocolError{Code: -32602, Message: "not my state"}}, nil
			})
			w.send("pay", invoice, event("evt 1"))
			r := w.call("pay", invoice, event("evt 1"), func(c *toolguard.Call) { c.Input = json.RawMessage(`{"requestState":"x"}`) })
			w.want(r, "fresh//failed")
			if r.Answer.Error == nil || r.Answer.Error.Message != "not my state" || r.Text != "" {
				w.t.Errorf("got %+v %q", r.Answer, r.Text)
			}
			w.had(0)
		}},
		{"a state-setting tool's question is asked again and answered", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return registry.Answer{Result: json.RawMessage(`{"content":[],"resultType":"input_required","inputRequests":{"a":{}}}`)}, nil
			})
			for range 2 {
				r := w.send("set", `{"path":"p","value":1}`)
				w.want(r, "pending/in_progress/dispatching")
				if !strings.Contains(string(r.Answer.Result), "input_required") {
					w.t.Errorf("the question: %s", r.Answer.Result)
				}
			}
			w.sent(1)
			w.want(w.call("set", `{"path":"p","value":1}`, func(c *toolguard.Call) { c.Input = json.RawMessage(`{"a":1}`) }), "fresh//succeeded")
			w.sent(2)
			w.had(1)
		}},
		{"a question nobody answers becomes unknown at the deadline", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return registry.Answer{Result: json.RawMessage(`{"content":[],"resultType":"input_required"}`)}, nil
			})
			w.send("pay", invoice, event("evt 1"))
			w.wait(2 * time.Minute)
			w.want(w.call("pay", invoice, event("evt 1")), "escalated/outcome_unknown")
		}},
		{"what a handler says of a refusal is told", func(w *world) {
			w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return registry.Answer{}, fmt.Errorf("no such invoice: %w", registry.ErrNotApplied)
			})
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "fresh//failed")
			if !strings.Contains(r.Text, "no such invoice") {
				w.t.Errorf("the text: %q", r.Text)
			}
		}},
		{"a refusal that shows the result counts as its delivery, though nobody proved that it arrived", func(w *world) {
			w.send("append", `{"to":"x","n":1}`)
			w.want(w.send("append", `{"to":"x","n":2}`), "blocked/earlier_unknown")
			w.want(w.send("append", `{"to":"x","n":2}`), "fresh")
		}},
		{"another event's work is not held by a shared value", func(w *world) {
			w.next(lost)
			w.call("append", `{"to":"x","n":1}`, event("evt 1"))
			w.want(w.call("append", `{"to":"x","n":2}`, event("evt 1")), "blocked/earlier_unknown")
			w.want(w.call("append", `{"to":"x","n":2}`, event("evt 2")), "fresh")
		}},
		{"a verdict is not given twice with two results", func(w *world) {
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			give := func(result string) error {
				_, err := toolguard.Resolve(context.Background(), w.store, toolguard.Resolution{Key: r.Verdict.Key, Verdict: "applied", Result: json.RawMessage(result)})
				return err
			}
			if err := errors.Join(give(`{"a":1}`), give(`{"a":1}`)); err != nil {
				w.t.Error(err)
			}
			if err := give(`{"a":2}`); !errors.Is(err, toolguard.ErrTransition) {
				w.t.Errorf("error %v, want ErrTransition", err)
			}
		}},
		{"a verdict given twice at once, in the same words, is given once", func(w *world) {
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			give := func(store toolguard.Store) error {
				_, err := toolguard.Resolve(context.Background(), store, toolguard.Resolution{Key: r.Verdict.Key, Verdict: "applied", Result: json.RawMessage(`{"a":1}`)})
				return err
			}
			var first error
			if err := give(&overtaken{w.store, func() { first = give(w.store) }}); errors.Join(first, err) != nil {
				w.t.Error(first, err)
			}
		}},
		{"the downstream is busy with our very key: not done, not known", func(w *world) {
			for _, says := range []string{"Duplicate request: idempotency key %s is already in progress", "%s was already processed with different parameters"} {
				w.next(func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
					return text(fmt.Sprintf(says, d.Key), true), nil
				})
				r := w.call("pay", invoice, event(says))
				if r.Verdict.Status == toolguard.StatusSucceeded {
					w.t.Errorf("%q got %+v", says, r.Verdict)
				}
				if err := w.resolve(r.Verdict.Key, "applied", false); err != nil {
					w.t.Fatal(err)
				}
			}
		}},
		{"already there under our key, after a lost attempt: that one did it", func(w *world) {
			w.honour(time.Hour)
			w.next(lost, func(w *world, ctx context.Context, d *registry.Dispatch, effect func()) (registry.Answer, error) {
				return text("already exists: "+d.Key, true), nil
			})
			w.call("pay", invoice, event("evt 1"))
			w.wait(2 * time.Minute)
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done/succeeded")
			w.had(1)
		}},
		{"a failed operation of the same event does not open the way past another event's unknown one", func(w *world) {
			w.change("pay", func(t *registry.Tool) { t.Policy.OncePer = []string{"source_event", "run", "/invoice_id"} })
			w.next(refused("invalid"))
			w.want(w.call("pay", invoice, event("b"), run("1")), "fresh//failed")
			w.next(lost)
			w.want(w.call("pay", invoice, event("a"), run("1")), "escalated")
			w.want(w.call("pay", invoice, event("b"), run("2")), "blocked/earlier_unknown")
			w.want(w.call("pay", invoice, event("b"), run("1")), "blocked/earlier_unknown")
			w.had(1)
		}},
		{"a failed operation of another request does not open the way past a held parameter", func(w *world) {
			w.next(refused("invalid"), lost)
			w.want(w.call("append", `{"to":"x","n":1}`, request("r1")), "fresh//failed")
			w.want(w.call("append", `{"to":"x","n":2}`, request("r1")), "escalated")
			w.want(w.call("append", `{"to":"x","n":1}`, request("r2")), "blocked/earlier_unknown")
			w.want(w.call("append", `{"to":"x","n":1}`, request("r1")), "blocked/earlier_unknown")
			w.had(1)
		}},
		{"what was sent while the tool set a state is not sent again after it became a write", func(w *world) {
			w.next(lost)
			w.call("set", `{"path":"p"}`)
			w.wait(5 * time.Minute)
			w.change("set", func(t *registry.Tool) { t.Effect = registry.Write })
			w.want(w.call("set", `{"path":"p"}`), "escalated/outcome_unknown")
			w.sent(1)
		}},
		{"an owed result is told to be from before the calls since", func(w *world) {
			w.send("append", `{"to":"x"}`)
			w.call("create", `{"name":"y"}`)
			r := w.call("append", `{"to":"x"}`)
			w.want(r, "replayed")
			if !strings.Contains(r.Text, "If it is wanted once more") {
				w.t.Errorf("the text: %s", r.Text)
			}
			w.want(w.call("append", `{"to":"x"}`), "fresh")
		}},
		{"whoever waited for an attempt in vain is told when more will be known", func(w *world) {
			w.change("pay", func(t *registry.Tool) {
				t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: 24 * time.Hour}
				t.Policy.Timeout = 10 * time.Minute
			})
			w.next(lost)
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "pending/reconciling")
			if r.Verdict.RetryAfterMS < 1000 || !strings.Contains(r.Text, "More will be known in about 10m") {
				w.t.Errorf("%+v, %s", r.Verdict, r.Text)
			}
		}},
		{"the waiting call uses the time it has for the next attempt", func(w *world) {
			w.change("pay", func(t *registry.Tool) {
				t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: time.Hour}
				t.Policy.Timeout = 3 * time.Second
			})
			w.next(lost, dropped)
			r := w.call("pay", invoice, event("evt 1"))
			w.want(r, "fresh//succeeded")
			if r.Verdict.Attempt != 3 {
				w.t.Errorf("attempt %d", r.Verdict.Attempt)
			}
			w.wantEvents(toolguard.EventCall, 1)
			w.next(lost)
			w.want(w.giveUp(time.Second, "pay", invoice, event("evt 2")), "pending/reconciling")
			w.wantEvents(toolguard.EventCall, 2)
			w.wait(time.Minute)
			w.want(w.call("pay", invoice, event("evt 2")), "replayed/done")
			w.next(lost)
			w.giveUp(time.Second, "pay", invoice, event("evt 3"))
		}},
		{"who would leave while the end is being recorded gets it", func(w *world) {
			w.seam.away = func(wr *toolguard.Write, apply func() error) error {
				if wr.Body != nil && wr.Body.Result != nil {
					<-time.After(2 * time.Second)
				}
				return apply()
			}
			go func() { w.want(w.send("pay", invoice, event("evt 1")), "fresh//succeeded") }()
			synctest.Wait()
			w.want(w.giveUp(time.Second, "pay", invoice, event("evt 1")), "replayed/done/succeeded")
			synctest.Wait()
			w.wantEvents(toolguard.EventCall, 2)
		}},
		{"space comes back: what was known only in memory is recorded", func(w *world) {
			var full atomic.Bool
			full.Store(true)
			w.store.Fail = func(wr *toolguard.Write) error {
				if full.Load() && wr.Body != nil && wr.Body.Result != nil {
					return toolguard.ErrStoreFull
				}
				return nil
			}
			w.want(w.call("pay", invoice, event("evt 1")), "fresh/not_recorded")
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done")
			full.Store(false)
			w.wait(time.Minute)
			w.crash()
			w.want(w.call("pay", invoice, event("evt 1")), "replayed/done/succeeded")
			w.had(1)
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

// atOnce makes n calls side by side and counts what they got.
func (w *world) atOnce(n int, tool string, args func(int) string) map[toolguard.Outcome]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	count := map[toolguard.Outcome]int{}
	for i := range n {
		wg.Go(func() {
			r := w.send(tool, args(i))
			mu.Lock()
			defer mu.Unlock()
			count[r.Verdict.Outcome]++
		})
	}
	wg.Wait()
	return count
}

func (w *world) honour(window time.Duration) {
	w.change("pay", func(t *registry.Tool) {
		t.Policy.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: window}
	})
}

// force stores an operation as a test needs it.
func (w *world) force(op *toolguard.Operation) {
	w.t.Helper()
	err := w.store.Commit(context.Background(), &toolguard.Write{Token: "forced", Operation: op, Open: true, Holding: true, Due: true})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantEvents(typ toolguard.EventType, n int) {
	w.t.Helper()
	got := 0
	for e := range toolguard.Events(context.Background(), w.store) {
		if e.Type == typ {
			got++
		}
	}
	if got != n {
		w.t.Errorf("%d events %s, want %d", got, typ, n)
	}
}

// overtaken is a store to which another writer comes first, once.
type overtaken struct {
	toolguard.Store
	by func()
}

func (o *overtaken) Commit(ctx context.Context, w *toolguard.Write) error {
	if by := o.by; by != nil {
		o.by = nil
		by()
	}
	return o.Store.Commit(ctx, w)
}
