package toolguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// approved is pay with a person's word from 500 on.
func approved(t *testing.T) registry.Tool {
	spec := pay
	spec.Policy.Approval = &registry.Approval{When: condition(t, "args.amount > 500", registry.KindArguments), Expires: time.Hour}
	spec.Policy.Errors = registry.ErrorWords
	return spec
}

func condition(t testing.TB, source string, kind registry.Kind) *registry.Expression {
	t.Helper()
	x, err := registry.CompileExpression(source, kind)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func actor(a string) option   { return func(c *toolguard.Call) { c.Facts.Actor = a } }
func version(v string) option { return func(c *toolguard.Call) { c.Facts.WorkflowVersion = v } }

var dana, erin = toolguard.Person{Name: "dana", Proven: true}, toolguard.Person{Name: "erin", Proven: true}

func (w *world) decide(id string, approve bool, by toolguard.Person) error {
	_, err := toolguard.DecideApproval(context.Background(), w.store, toolguard.ApprovalVerdict{ID: id, Approve: approve, By: by, Note: "looked at it"})
	return err
}

func (w *world) approve(id string) {
	w.t.Helper()
	if err := w.decide(id, true, dana); err != nil {
		w.t.Errorf("approve: %v", err)
	}
}

// refused checks that a decision is refused.
func (w *world) refuses(want error, id string, approve bool, by toolguard.Person) {
	w.t.Helper()
	if err := w.decide(id, approve, by); !errors.Is(err, want) {
		w.t.Errorf("deciding %s by %s: %v, want %v", id, by.Name, err, want)
	}
}

func TestApproval(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(w *world)
	}{
		{"below the condition none is needed", func(w *world) {
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":100}`, event("e")), "fresh//succeeded")
			w.had(1)
		}},
		{"approved: sent without a call, the next identical call gets the result", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.want(r, "pending/approval_required/awaiting_approval")
			if !strings.HasPrefix(r.Text, "NOT DONE YET.") || r.Verdict.Approval == "" {
				w.t.Errorf("%q, approval %q", r.Text, r.Verdict.Approval)
			}
			w.had(0)
			w.approve(r.Verdict.Approval)
			w.wait(3 * time.Second)
			w.had(1)
			w.want(w.call("pay", invoice, event("e")), "replayed/done/succeeded")
			w.had(1)
		}},
		{"approved: a call that comes first sends it, once", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.want(w.call("pay", invoice, event("e")), "fresh//succeeded")
			w.wait(5 * time.Second)
			w.had(1)
			if op := w.op(r.Verdict.Key); op.Approval.State != toolguard.ApprovalSpent || op.Attempts[0].Approval != r.Verdict.Approval {
				w.t.Errorf("the approval is %s, the attempt has %q", op.Approval.State, op.Attempts[0].Approval)
			}
			w.refuses(toolguard.ErrTransition, r.Verdict.Approval, true, dana)
		}},
		{"a re-plan with another memo joins the request; what was approved is sent", func(w *world) {
			r := w.call("pay", `{"invoice_id":"INV-1","amount":900,"memo":"a"}`, event("e"))
			again := w.call("pay", `{"invoice_id":"INV-1","amount":900,"memo":"b"}`, event("e"))
			w.want(again, "pending/approval_required")
			if again.Verdict.Approval != r.Verdict.Approval {
				w.t.Errorf("approval %s became %s", r.Verdict.Approval, again.Verdict.Approval)
			}
			w.approve(r.Verdict.Approval)
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":900,"memo":"c"}`, event("e")), "fresh")
			if got := w.effects[0]; !strings.Contains(got, `"memo":"a"`) {
				w.t.Errorf("sent %s", got)
			}
		}},
		{"18 rejected: the same stays blocked, another amount asks anew", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			if err := w.decide(r.Verdict.Approval, false, dana); err != nil {
				w.t.Error(err)
			}
			blocked := w.call("pay", invoice, event("e"))
			w.want(blocked, "blocked/approval_rejected/rejected")
			if !strings.Contains(blocked.Text, "looked at it") {
				w.t.Errorf("the note is not told: %s", blocked.Text)
			}
			// Below the condition, and all the same: after a rejection always with an approval.
			other := w.call("pay", `{"invoice_id":"INV-1","amount":100}`, event("e"))
			w.want(other, "pending/approval_required/awaiting_approval")
			if other.Verdict.Occurrence != 2 {
				w.t.Errorf("occurrence %d", other.Verdict.Occurrence)
			}
			w.want(w.call("pay", invoice, event("e")), "blocked/approval_rejected")
			w.approve(other.Verdict.Approval)
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":100}`, event("e")), "fresh")
			w.had(1)
		}},
		{"ops repeat opens a rejected one, with an approval", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.decide(r.Verdict.Approval, false, dana)
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				w.t.Error(err)
			}
			w.want(w.call("pay", invoice, event("e")), "pending/approval_required")
		}},
		{"20 nothing left: the approval is given back", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(unsent)
			w.want(w.call("pay", invoice, event("e")), "blocked/tool_unavailable/failed")
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":900,"memo":"x"}`, event("e")), "fresh//succeeded")
			if strings.Contains(w.effects[0], "memo") {
				w.t.Errorf("not the approved bytes: %s", w.effects[0])
			}
			w.had(1)
		}},
		{"given back is for the same thing only", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(unsent)
			w.call("pay", invoice, event("e"))
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":901}`, event("e")), "pending/approval_required")
			w.had(0)
		}},
		{"refused by the tool: corrected, it needs its own approval", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(refused("amount is invalid"))
			w.want(w.call("pay", invoice, event("e")), "fresh//failed")
			r2 := w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("e"))
			w.want(r2, "pending/approval_required/awaiting_approval")
			w.approve(r2.Verdict.Approval)
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":800}`, event("e")), "fresh//succeeded")
			w.had(1)
		}},
		{"21 changed while waiting: the old request is withdrawn", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			r2 := w.call("pay", `{"invoice_id":"INV-1","amount":901}`, event("e"))
			w.want(r2, "pending/approval_required")
			w.refuses(toolguard.ErrTransition, r.Verdict.Approval, true, dana)
			w.approve(r2.Verdict.Approval)
			w.wait(3 * time.Second)
			w.had(1)
			if !strings.Contains(w.effects[0], "901") {
				w.t.Errorf("sent %s", w.effects[0])
			}
		}},
		{"21 approved for 900, called with 901", func(w *world) {
			w.g.Close(context.Background()) // nobody sends it by itself
			w.crash()
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.want(w.call("pay", `{"invoice_id":"INV-1","amount":901}`, event("e")), "pending/approval_required/awaiting_approval")
			w.wait(5 * time.Second)
			w.had(0)
		}},
		{"21 approved, then the policy changed", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.change("pay", func(s *registry.Tool) { s.Version = "2" })
			w.approve(r.Verdict.Approval)
			w.wait(5 * time.Second)
			w.had(0)
			op := w.op(r.Verdict.Key)
			if op.Status != toolguard.StatusAwaitingApproval || op.Approval.ID == r.Verdict.Approval {
				w.t.Errorf("status %s, approval %s", op.Status, op.Approval.ID)
			}
			w.approve(op.Approval.ID)
			w.wait(5 * time.Second)
			w.had(1)
		}},
		{"21 another workflow version", func(w *world) {
			r := w.call("pay", invoice, event("e"), version("v1"))
			r2 := w.call("pay", invoice, event("e"), version("v2"))
			w.want(r2, "pending/approval_required")
			if r2.Verdict.Approval == r.Verdict.Approval {
				w.t.Error("the request outlived the workflow version")
			}
			w.refuses(toolguard.ErrTransition, r.Verdict.Approval, true, dana)
		}},
		{"21 expired before the word, and after it", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.wait(2 * time.Hour)
			w.refuses(toolguard.ErrTransition, r.Verdict.Approval, true, dana)
			r2 := w.call("pay", invoice, event("e"))
			w.want(r2, "pending/approval_required")
			w.g.Close(context.Background())
			w.approve(r2.Verdict.Approval)
			w.wait(2 * time.Hour)
			w.crash() // and nobody was there to send it
			w.wait(5 * time.Second)
			w.had(0)
			if op := w.op(r.Verdict.Key); op.Status != toolguard.StatusAwaitingApproval {
				w.t.Errorf("status %s", op.Status)
			}
		}},
		{"forged, foreign and spent ids", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			for _, id := range []string{"", "x", r.Verdict.Key, r.Verdict.Key + ".", r.Verdict.Key + ".2", r.Verdict.Key + ".0", r.Verdict.Key + ".+1", r.Verdict.Key + ".01", "00000000-0000-8000-8000-000000000000.1"} {
				w.refuses(toolguard.ErrNotFound, id, true, dana)
			}
			w.refuses(toolguard.ErrNotFound, r.Verdict.Approval, true, toolguard.Person{Name: "mallory", Tenants: []string{"other"}})
			if _, err := toolguard.DecideApproval(context.Background(), w.store, toolguard.ApprovalVerdict{ID: r.Verdict.Approval, Approve: true, Digest: "sha256:00", By: dana}); !errors.Is(err, toolguard.ErrTransition) {
				w.t.Errorf("another digest: %v", err)
			}
			w.had(0)
		}},
		{"a note is no book", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			long := strings.Repeat("n", 4097)
			_, decided := toolguard.DecideApproval(context.Background(), w.store, toolguard.ApprovalVerdict{ID: r.Verdict.Approval, Note: long, By: dana})
			_, resolved := toolguard.Resolve(context.Background(), w.store, toolguard.Resolution{Key: r.Verdict.Key, Verdict: toolguard.VerdictApplied, Note: long, By: dana})
			_, repeated := toolguard.Repeat(context.Background(), w.store, toolguard.RepeatOrder{Key: r.Verdict.Key, Note: long, By: dana})
			for _, err := range []error{decided, resolved, repeated} {
				if !errors.Is(err, toolguard.ErrTooLarge) {
					w.t.Errorf("error %v, want ErrTooLarge", err)
				}
			}
		}},
		{"a requester may reject, never approve", func(w *world) {
			r := w.call("pay", invoice, event("e"), actor("dana"))
			w.call("pay", invoice, event("e"), actor("erin"))
			w.refuses(toolguard.ErrForbidden, r.Verdict.Approval, true, dana)
			w.refuses(toolguard.ErrForbidden, r.Verdict.Approval, true, erin)
			for _, spelt := range []string{"Erin", "ERIN", " erin"} {
				w.refuses(toolguard.ErrForbidden, r.Verdict.Approval, true, toolguard.Person{Name: spelt, Proven: true})
			}
			if err := w.decide(r.Verdict.Approval, false, erin); err != nil {
				w.t.Error(err)
			}
		}},
		{"a declared actor that does not come: not sent where a person must approve, for nobody could tell who asked", func(w *world) {
			nobody := func(c *toolguard.Call) { c.Missing = []string{"actor"} }
			w.want(w.call("pay", invoice, event("e"), nobody), "blocked/context_required")
			w.want(w.call("pay", `{"invoice_id":"INV-2","amount":100}`, event("e"), nobody), "fresh")
		}},
		{"named reviewers only", func(w *world) {
			w.change("pay", func(s *registry.Tool) {
				a := *s.Policy.Approval
				a.Reviewers = []string{"erin"}
				s.Policy.Approval = &a
			})
			r := w.call("pay", invoice, event("e"))
			w.refuses(toolguard.ErrForbidden, r.Verdict.Approval, true, dana)
			w.refuses(toolguard.ErrForbidden, r.Verdict.Approval, false, dana)
			if err := w.decide(r.Verdict.Approval, true, erin); err != nil {
				w.t.Error(err)
			}
		}},
		{"a condition that cannot be evaluated asks", func(w *world) {
			w.want(w.call("pay", `{"invoice_id":"INV-1"}`, event("e")), "pending/approval_required")
		}},
		{"held when its turn comes: another event's payment is unknown", func(w *world) {
			r := w.call("pay", invoice, event("e1"))
			w.next(lost)
			w.call("pay", `{"invoice_id":"INV-1","amount":100}`, event("e2"))
			w.approve(r.Verdict.Approval)
			w.wait(10 * time.Second)
			w.had(1) // that of e2
			w.want(w.call("pay", invoice, event("e1")), "blocked/earlier_unknown")
		}},
		{"another run's call on the same target takes the request over", func(w *world) {
			w.change("pay", func(s *registry.Tool) { s.Policy.OncePer = []string{"run", "/invoice_id"} })
			r := w.call("pay", invoice, run("r1"))
			r2 := w.call("pay", `{"invoice_id":"INV-1","amount":700}`, run("r2"))
			w.want(r2, "pending/approval_required")
			if r2.Verdict.Key != r.Verdict.Key || r2.Verdict.Approval == r.Verdict.Approval {
				w.t.Errorf("key %s and %s, approval %s and %s", r.Verdict.Key, r2.Verdict.Key, r.Verdict.Approval, r2.Verdict.Approval)
			}
		}},
		{"killed between approval and dispatch, and between dispatch and answer", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(slow(30 * time.Second))
			w.crash()
			w.wait(2 * time.Second)
			w.sent(1)
			w.crash()
			w.want(w.call("pay", invoice, event("e")), "escalated/outcome_unknown")
			w.wait(time.Minute)
			w.sent(1)
		}},
		{"no new approval out of unknown", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.approve(r.Verdict.Approval)
			w.next(dropped)
			w.want(w.call("pay", invoice, event("e")), "escalated")
			w.wait(2 * time.Minute)
			if err := w.repeat(r.Verdict.Key, false); err != nil {
				w.t.Error(err)
			}
			w.wait(3 * time.Second)
			w.want(w.call("pay", invoice, event("e")), "replayed/done")
			w.had(1)
		}},
		{"a late success of an attempt before the request settles it", func(w *world) {
			w.next(slow(3 * time.Minute))
			r := w.call("pay", `{"invoice_id":"INV-1","amount":100}`, event("e"))
			w.wait(2 * time.Minute)
			op := w.op(r.Verdict.Key)
			op.Status, op.Attempts[0].State = toolguard.StatusFailed, toolguard.AttemptRefused // as a person's word would
			w.force(op)
			w.want(w.call("pay", invoice, event("e")), "pending/approval_required")
			w.wait(5 * time.Minute)
			if op := w.op(r.Verdict.Key); op.Status != toolguard.StatusEscalated {
				w.t.Errorf("other bytes were done, and the status is %s", op.Status)
			}
		}},
		{"observe: sent at once, and what would have been is recorded", func(w *world) {
			w.g.Close(context.Background())
			w.g, _ = toolguard.Open(context.Background(), w.seam, &toolguard.Options{Observe: true})
			w.register(w.specs[0])
			w.call("pay", invoice, event("e"))
			w.had(1)
			w.wait(2 * time.Second)
			for e := range toolguard.Events(context.Background(), w.store) {
				if e.Type == toolguard.EventCall && e.Reason != toolguard.ReasonApprovalRequired {
					w.t.Errorf("recorded %s/%s", e.Outcome, e.Reason)
				}
			}
			w.g.Close(context.Background())
		}},
		{"one word: two reviewers at once", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			results := make(chan error, 8)
			for range 8 {
				go func() { results <- w.decide(r.Verdict.Approval, true, dana) }()
			}
			ok := 0
			for range 8 {
				if err := <-results; err == nil {
					ok++
				} else if !errors.Is(err, toolguard.ErrTransition) {
					w.t.Error(err)
				}
			}
			if ok != 1 {
				w.t.Errorf("%d decisions", ok)
			}
			w.wait(5 * time.Second)
			w.had(1)
			w.wantEvents(toolguard.EventApprovalDecided, 1)
			w.wantEvents(toolguard.EventDispatched, 1)
		}},
		{"weak is said", func(w *world) {
			r := w.call("pay", invoice, event("e"))
			w.decide(r.Verdict.Approval, true, toolguard.Person{Name: "local:me"})
			if d := w.op(r.Verdict.Key).Approval.Decision; !d.Weak || d.By != "local:me" {
				w.t.Errorf("decision %+v", d)
			}
			for e := range toolguard.Events(context.Background(), w.store) {
				if e.Type == toolguard.EventApprovalDecided && (e.Detail["weak"] != true || e.Reviewer != "local:me" || e.Approval == "") {
					w.t.Errorf("event %+v", e)
				}
			}
		}},
		{"every request and call has its event", func(w *world) {
			for range 3 {
				w.call("pay", invoice, event("e"))
			}
			w.call("pay", `{"invoice_id":"INV-1","amount":901}`, event("e"))
			w.wantEvents(toolguard.EventApprovalRequested, 2)
			w.wantEvents(toolguard.EventApprovalDecided, 1) // withdrawn
			w.wantEvents(toolguard.EventCall, 4)
		}},
		{"state-setting tools wait for their word as well", func(w *world) {
			spec := set
			spec.Policy.Approval = &registry.Approval{}
			w.tool(spec)
			r := w.call("set", `{"path":"/a","v":1}`)
			w.want(r, "pending/approval_required")
			w.want(w.call("set", `{"path":"/a","v":1}`), "pending/approval_required")
			w.had(0)
			w.approve(r.Verdict.Approval)
			w.wait(3 * time.Second)
			w.had(1)
			r2 := w.call("set", `{"path":"/a","v":1}`)
			w.want(r2, "pending/approval_required")
			if r2.Verdict.Occurrence != 2 {
				w.t.Errorf("occurrence %d", r2.Verdict.Occurrence)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(w *world) {
				w.tool(approved(t))
				test.play(w)
				if _, err := toolguard.Verify(toolguard.Events(context.Background(), w.store)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What was approved is what is sent: a body that is not the approved one is not.
func TestApprovedBytesAreSent(t *testing.T) {
	in(t, func(w *world) {
		w.tool(approved(t))
		r := w.call("pay", invoice, event("e"))
		op := w.op(r.Verdict.Key)
		err := w.store.Commit(context.Background(), &toolguard.Write{Token: "x", Operation: op, Open: true, Body: &toolguard.Body{Arguments: json.RawMessage(`{"invoice_id":"INV-1","amount":9000}`)}})
		if err != nil {
			t.Fatal(err)
		}
		w.approve(r.Verdict.Approval)
		w.wait(5 * time.Second)
		w.want(w.call("pay", invoice, event("e")), "blocked/store_unavailable")
		w.had(0)
	})
}
