package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Laws holds a guard on a store to the laws of the design, each by the test of its name. It runs in real time, against
// real places, and takes a few seconds.
func Laws(t *testing.T, place func(t *testing.T) Opener) {
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			t.Parallel()
			c := &court{T: t, opener: place(t)}
			c.open()
			t.Cleanup(func() { c.close() })
			law.test(c)
		})
	}
}

var laws = []struct {
	name string
	test func(*court)
}{
	{"Law01RecordBeforeEffect", law01},
	{"Law01DeadlineBeforeTheFirstByte", law01Deadline},
	{"Law02OneDispatchAtATime", law02},
	{"Law03DoneStaysDone", law03},
	{"Law04UnknownIsNotFailed", law04},
	{"Law05TheModelHasNoSayInIdentity", law05},
	{"Law06OnePayloadPerKey", law06},
	{"Law07AnApprovalIsForOneThing", law07},
	{"Law08NothingIsSilent", law08},
	{"Law09NoTenantSeesAnothers", law09},
	{"Law10AcknowledgedMeansDurable", law10},
	{"Law11FailClosedForWrites", law11},
	{"Law12FrozenBytes", law12},
}

func law01(c *court) {
	c.tool("pay", oncePerInvoice)
	c.handle = func(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
		op := c.operation(d.Operation)
		if op.Status != toolguard.StatusDispatching || op.Sent != d.Attempt {
			c.Errorf("at the first byte the record says %s, attempt %d", op.Status, op.Sent)
		}
		body, err := c.under.Body(context.Background(), d.Operation)
		if err != nil || string(body.Arguments) != payment {
			c.Errorf("at the first byte the recorded arguments are %s, %v", body.Arguments, err)
		}
		c.effect()
		return says("ok", false), nil
	}
	c.want(c.call("pay", payment, facts("evt 1")), toolguard.Fresh, "")
	c.had(1)
	c.store.before = func(w *toolguard.Write) error {
		if w.Dispatch {
			return fmt.Errorf("no space: %w", toolguard.ErrStoreFull)
		}
		return nil
	}
	c.want(c.call("pay", payment, facts("evt 2")), toolguard.Blocked, toolguard.ReasonStoreUnavailable)
	c.had(1)
}

func law01Deadline(c *court) {
	p := oncePerInvoice
	p.Timeout = 50 * time.Millisecond
	c.tool("pay", p)
	c.store.before = func(w *toolguard.Write) error {
		if w.Dispatch { // the record takes longer than the attempt has
			deadline := w.Operation.Attempts[0].Deadline
			<-time.After(time.Until(deadline))
		}
		return nil
	}
	r := c.call("pay", payment, facts("evt 1"))
	if r.Verdict.Outcome == toolguard.Fresh || c.dispatched() != 0 {
		c.Errorf("after its deadline the attempt was sent all the same: %s", r.Verdict.Outcome)
	}
	c.had(0)
}

func law02(c *court) {
	c.tool("pay", oncePerInvoice)
	other := c.newGuard() // another process on the same ledger, but for its liveness
	otherTool := c.register(other, c.policies["pay"])
	var now, most atomic.Int32
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		most.Store(max(most.Load(), now.Add(1)))
		<-time.After(50 * time.Millisecond)
		c.effect()
		now.Add(-1)
		return says("ok", false), nil
	}
	var wg sync.WaitGroup
	var fresh, replayed atomic.Int32
	for i := range 64 {
		wg.Go(func() {
			call := toolguard.Call{Tool: c.tools["pay"], Arguments: json.RawMessage(payment), Facts: facts("evt 1")}
			g := c.guard
			if i%2 == 1 {
				g, call.Tool = other, otherTool
			}
			switch r := g.Do(context.Background(), call); r.Verdict.Outcome {
			case toolguard.Fresh:
				fresh.Add(1)
			case toolguard.Replayed:
				replayed.Add(1)
			default:
				c.Errorf("a call got %s/%s", r.Verdict.Outcome, r.Verdict.Reason)
			}
		})
	}
	wg.Wait()
	c.had(1)
	if most.Load() != 1 || fresh.Load() != 1 || replayed.Load() != 63 {
		c.Errorf("%d at once, %d fresh, %d replayed", most.Load(), fresh.Load(), replayed.Load())
	}
}

func law03(c *court) {
	p := oncePerInvoice
	p.Retention = 2 * time.Second
	c.tool("pay", p)
	r := c.call("pay", payment, facts("evt 1"))
	r.Delivered()
	again := c.call("pay", payment, facts("evt 1"))
	c.want(again, toolguard.Replayed, toolguard.ReasonDone)
	if again.Answer.Text() != "ok" {
		c.Errorf("the replay says %q", again.Answer.Text())
	}
	c.reopen()
	deadline := time.Now().Add(20 * time.Second)
	for {
		r := c.call("pay", payment, facts("evt 1"))
		if r.Verdict.Reason == toolguard.ReasonBodyExpired {
			break
		}
		c.want(r, toolguard.Replayed, toolguard.ReasonDone)
		if time.Now().After(deadline) || c.Failed() {
			c.Fatal("the body does not expire")
		}
		<-time.After(100 * time.Millisecond)
	}
	c.reopen()
	c.want(c.call("pay", payment, facts("evt 1")), toolguard.Replayed, toolguard.ReasonBodyExpired)
	c.want(c.call("pay", `{"invoice_id":"INV-1","amount":1,"memo":"a"}`, facts("evt 1")), toolguard.Blocked, toolguard.ReasonArgumentsChanged)
	c.had(1)
}

func law04(c *court) {
	p := oncePerInvoice
	p.Timeout = 100 * time.Millisecond
	c.tool("pay", p)
	for name, handle := range map[string]func(context.Context) (registry.Answer, error){
		"error":   func(context.Context) (registry.Answer, error) { return registry.Answer{}, errors.New("reset") },
		"panic":   func(context.Context) (registry.Answer, error) { panic("broken") },
		"timeout": func(ctx context.Context) (registry.Answer, error) { <-ctx.Done(); return registry.Answer{}, ctx.Err() },
		"5xx": func(context.Context) (registry.Answer, error) {
			return says("invalid: HTTP 502 from upstream", true), nil
		},
		"unclear": func(context.Context) (registry.Answer, error) { return says("it did not work out", true), nil },
		"garbage": func(context.Context) (registry.Answer, error) {
			return registry.Answer{Result: json.RawMessage(`[1]`)}, nil
		},
		"internal": func(context.Context) (registry.Answer, error) {
			return registry.Answer{Error: &registry.ProtocolError{Code: -32603}}, nil
		},
		"unmarked":    func(context.Context) (registry.Answer, error) { return says("Error: it broke", false), nil },
		"partly done": func(context.Context) (registry.Answer, error) { return says("1 of 3 items failed: invalid", true), nil },
	} {
		c.handle = func(ctx context.Context, _ *registry.Dispatch) (registry.Answer, error) {
			c.effect()
			return handle(ctx)
		}
		before := c.dispatched()
		r := c.call("pay", payment, facts(name))
		c.want(r, toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
		c.want(c.call("pay", payment, facts(name)), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
		if n := c.dispatched() - before; n != 1 {
			c.Errorf("%s: dispatched %d times", name, n)
		}
		if r := c.call("pay", payment, facts(name+" for another")); r.Verdict.Reason != toolguard.ReasonEarlierUnknown {
			c.Errorf("%s: another event's payment of the same invoice got %s/%s", name, r.Verdict.Outcome, r.Verdict.Reason)
		}
		if _, err := toolguard.Resolve(context.Background(), c.store, toolguard.Resolution{Key: r.Verdict.Key, Verdict: toolguard.VerdictApplied}); err != nil {
			c.Fatal(err)
		}
	}
	c.reopen()
	for _, op := range c.all() {
		if op.Status == toolguard.StatusFailed {
			c.Errorf("%s became failed", op.Facts.SourceEvent)
		}
	}
}

func (c *court) all() []*toolguard.Operation {
	c.Helper()
	page, err := c.under.Operations(context.Background(), toolguard.Query{All: true, Limit: 1000})
	if err != nil {
		c.Fatal(err)
	}
	return page.Operations
}

func law05(c *court) {
	p := oncePerInvoice
	p.DownstreamKey = registry.DownstreamKey{Argument: "/key", Window: time.Hour}
	c.tool("pay", p)
	first := c.call("pay", `{"invoice_id":"INV-1","amount":900,"key":"the model's own 1"}`, keyderive.Facts{SourceEvent: "evt 1", Session: "s1", CallID: "c1", Actor: "a1"})
	c.want(first, toolguard.Fresh, "")
	again := c.call("pay", `{"invoice_id":"INV-1","amount":900,"key":"the model's own 2"}`, keyderive.Facts{SourceEvent: "evt 1", Session: "s2", CallID: "c2", Actor: "a2"})
	c.want(again, toolguard.Replayed, toolguard.ReasonDone)
	if first.Verdict.Key != again.Verdict.Key {
		c.Error("what the model wrote changed the key")
	}
	var sent struct{ Key string }
	if err := json.Unmarshal(c.handled[0].Arguments, &sent); err != nil || sent.Key != first.Verdict.Key {
		c.Errorf("the tool got the key %q, want %s", sent.Key, first.Verdict.Key)
	}
	if listed := string(c.tools["pay"].ListedInput()); strings.Contains(listed, `"key"`) {
		c.Errorf("the key argument is shown to the model: %s", listed)
	}
	c.want(c.call("pay", `{"invoice_id":"INV-2","amount":900,"source_event":"evt 9"}`, keyderive.Facts{}), toolguard.Blocked, toolguard.ReasonContextRequired)
	r := c.guard.Do(context.Background(), toolguard.Call{Tool: c.tools["pay"], Arguments: json.RawMessage(payment), Facts: facts("evt 3"), Conflict: []string{"run"}})
	c.want(r, toolguard.Blocked, toolguard.ReasonContextConflict)
	r = c.guard.Do(context.Background(), toolguard.Call{Tool: c.tools["pay"], Arguments: json.RawMessage(payment), Facts: facts("evt 3"), Missing: []string{"run"}})
	c.want(r, toolguard.Blocked, toolguard.ReasonContextRequired)
	c.had(1)
}

func law06(c *court) {
	c.tool("pay", oncePerInvoice)
	const changed = `{"invoice_id":"INV-1","amount":800,"memo":"a"}`
	blocked := func(event string) {
		c.Helper()
		r := c.call("pay", changed, facts(event))
		c.want(r, toolguard.Blocked, toolguard.ReasonArgumentsChanged)
		if !slices.Equal(r.Verdict.Differs, []string{"/amount"}) || !strings.Contains(r.Text, "amount") {
			c.Errorf("the fields that differ are given as %v in %q", r.Verdict.Differs, r.Text)
		}
	}
	// dispatching
	running, release := make(chan struct{}), make(chan struct{})
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		close(running)
		<-release
		c.effect()
		return says("ok", false), nil
	}
	done := make(chan struct{})
	go func() { c.call("pay", payment, facts("evt 1")); close(done) }()
	<-running
	blocked("evt 1")
	close(release)
	<-done
	blocked("evt 1") // succeeded, owed
	c.handle = nil
	c.call("pay", payment, facts("evt 1")).Delivered()
	blocked("evt 1") // succeeded, delivered
	c.had(1)
	// a reworded note is no change
	r := c.call("pay", `{"invoice_id":"INV-1","amount":900,"memo":"b"}`, facts("evt 1"))
	c.want(r, toolguard.Replayed, toolguard.ReasonDone)
	if !slices.Equal(r.Verdict.Differs, []string{"/memo"}) {
		c.Errorf("the replay differs in %v, want /memo", r.Verdict.Differs)
	}
	// escalated
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		return registry.Answer{}, errors.New("reset")
	}
	r = c.call("pay", payment, facts("evt 2"))
	blocked("evt 2")
	if _, err := toolguard.Resolve(context.Background(), c.store, toolguard.Resolution{Key: r.Verdict.Key, Verdict: toolguard.VerdictApplied}); err != nil {
		c.Fatal(err)
	}
	// failed: the one status in which it may
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		return says("invalid amount", true), nil
	}
	c.call("pay", payment, facts("evt 3"))
	c.handle = nil
	c.want(c.call("pay", changed, facts("evt 3")), toolguard.Fresh, "")
}

func law08(c *court) {
	c.tool("pay", oncePerInvoice)
	c.policies["read"] = registry.Tool{Server: "srv", Name: "read", Effect: registry.Read, EffectSource: "declared"}
	c.policies["no"] = registry.Tool{Server: "srv", Name: "no", Effect: registry.Deny, EffectSource: "declared"}
	c.tools["read"], c.tools["no"] = c.register(c.guard, c.policies["read"]), c.register(c.guard, c.policies["no"])
	c.call("pay", payment, facts("evt 1"))
	c.call("pay", payment, facts("evt 1")).Delivered()
	c.call("pay", `{"invoice_id":"INV-1","amount":1}`, facts("evt 1"))
	c.call("pay", `{"amount":1}`, facts("evt 1"))
	c.call("read", `{}`, facts("evt 1"))
	c.call("no", `{}`, facts("evt 1"))
	c.call("pay", `[`, facts("evt 1"))
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) { return says("invalid", true), nil }
	c.call("pay", payment, facts("evt 2"))
	want := []string{
		"fresh//succeeded", "replayed/done/succeeded", "blocked/arguments_changed/succeeded", "blocked/context_required/", "fresh//", "blocked/denied/",
		"blocked/invalid_arguments/", "fresh//failed",
	}
	c.reopen()
	var got []string
	seen := map[string]bool{}
	for e, err := range toolguard.Events(context.Background(), c.under) {
		if err != nil {
			c.Fatal(err)
		}
		seen[string(e.Type)] = true
		if e.Type == toolguard.EventCall {
			got = append(got, strings.Join([]string{string(e.Outcome), string(e.Reason), string(e.Status)}, "/"))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.Errorf("the audit's calls are %v, want %v", got, want)
	}
	for _, typ := range []string{"dispatched", "settled", "delivered"} {
		if !seen[typ] {
			c.Errorf("no %s event", typ)
		}
	}
	v, err := toolguard.Verify(toolguard.Events(context.Background(), c.under))
	if err != nil || v.Break != "" {
		c.Errorf("the audit is not whole: %v %s", err, v.Break)
	}
}

func law09(c *court) {
	c.tool("pay", oncePerInvoice)
	c.tool("append", registry.Policy{})
	a, b := facts("evt 1"), facts("evt 1")
	a.Tenant, b.Tenant = "a", "b"
	a.Session, b.Session, a.CallID, b.CallID = "s", "s", "1", "1"
	for _, tool := range []string{"pay", "append"} {
		ra, rb := c.call(tool, payment, a), c.call(tool, payment, b)
		c.want(ra, toolguard.Fresh, "")
		c.want(rb, toolguard.Fresh, "")
		if ra.Verdict.Key == rb.Verdict.Key {
			c.Error("two tenants share a key")
		}
		if _, err := c.guard.Lookup(context.Background(), b, ra.Verdict.Key); !errors.Is(err, toolguard.ErrNotFound) {
			c.Errorf("tenant b looks tenant a's operation up: %v", err)
		}
	}
	recent, err := c.guard.Recent(context.Background(), b, 20)
	if err != nil || len(recent) != 2 {
		c.Errorf("tenant b sees %d operations, %v", len(recent), err)
	}
	// one tenant's unknown holds nobody else's call back
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		return registry.Answer{}, errors.New("reset")
	}
	c.call("append", `{"to":"x","n":1}`, a)
	c.handle = nil
	c.want(c.call("append", `{"to":"x","n":2}`, b), toolguard.Fresh, "")
	c.want(c.call("append", `{"to":"x","n":2}`, a), toolguard.Blocked, toolguard.ReasonEarlierUnknown)
}

func law10(c *court) {
	c.tool("pay", oncePerInvoice)
	var mu sync.Mutex
	keys := map[string]string{}
	durable := map[string]bool{} // whose success was given to the store as a write that is durable when it returns
	c.store.before = func(w *toolguard.Write) error {
		if op := w.Operation; op != nil && !w.Lazy && op.Status == toolguard.StatusSucceeded {
			mu.Lock()
			defer mu.Unlock()
			durable[op.Key] = true
		}
		return nil
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			event := fmt.Sprint("evt ", i)
			r := c.call("pay", fmt.Sprintf(`{"invoice_id":"INV-%d","amount":900}`, i), facts(event))
			mu.Lock()
			defer mu.Unlock()
			keys[event] = r.Verdict.Key
			if !durable[r.Verdict.Key] {
				c.Errorf("%s was acknowledged before it was durable", event)
			}
		})
	}
	wg.Wait()
	c.reopen()
	for event, key := range keys {
		op := c.operation(key)
		if op.Status != toolguard.StatusSucceeded || op.Facts.SourceEvent != event {
			c.Errorf("%s is %s after it was acknowledged", event, op.Status)
		}
	}
}

func law11(c *court) {
	c.tool("pay", oncePerInvoice)
	c.policies["read"] = registry.Tool{Server: "srv", Name: "read", Effect: registry.Read, EffectSource: "declared"}
	c.tools["read"] = c.register(c.guard, c.policies["read"])
	down := errors.New("the disk is gone")
	for name, breaks := range map[string]func(){
		"writes fail": func() {
			c.store.before = func(*toolguard.Write) error { return fmt.Errorf("%w: %w", toolguard.ErrStoreBroken, down) }
		},
		"reads fail": func() { c.store.query = func(toolguard.Query) error { return down } },
		"full":       func() { c.store.before = func(*toolguard.Write) error { return toolguard.ErrStoreFull } },
	} {
		breaks()
		before := c.dispatched()
		c.want(c.call("pay", payment, facts(name)), toolguard.Blocked, toolguard.ReasonStoreUnavailable)
		if c.dispatched() != before {
			c.Errorf("%s: the tool was called", name)
		}
		if r := c.call("read", `{}`, keyderive.Facts{}); r.Answer.Text() != "ok" {
			c.Errorf("%s: a read got %q", name, r.Answer.Text())
		}
		c.store.before, c.store.query = nil, nil
	}
	c.want(c.call("pay", payment, facts("evt 1")), toolguard.Fresh, "")
}

func law12(c *court) {
	p := oncePerInvoice
	p.DownstreamKey = registry.DownstreamKey{Meta: "key", Window: time.Hour}
	p.Timeout, p.AnswerWithin = 2*time.Second, 100*time.Millisecond
	c.tool("pay", p)
	const spelled = " {\"amount\" : 9.00e2,\n \"invoice_id\":\"INV\\u002d1\", \"memo\":\"a\"} "
	c.handle = func(context.Context, *registry.Dispatch) (registry.Answer, error) {
		return registry.Answer{}, errors.New("reset")
	}
	r := c.call("pay", spelled, facts("evt 1"))
	c.want(r, toolguard.Pending, toolguard.ReasonReconciling)
	if op := c.operation(r.Verdict.Key); op.Status != toolguard.StatusUnknown {
		c.Fatalf("status %s", op.Status)
	}
	c.mu.Lock()
	c.handle = nil
	c.mu.Unlock()
	for deadline := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		again := c.call("pay", payment, facts("evt 1")) // the same, spelled otherwise: the frozen bytes are what goes out
		if o := again.Verdict.Outcome; o == toolguard.Fresh || o == toolguard.Replayed {
			break
		}
		if again.Verdict.Outcome != toolguard.Pending || time.Now().After(deadline) {
			c.Fatalf("the same call got %s/%s", again.Verdict.Outcome, again.Verdict.Reason)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range c.handled {
		if string(d.Arguments) != spelled || d.Key != c.handled[0].Key {
			c.Errorf("attempt %d carried %q under %s", i+1, d.Arguments, d.Key)
		}
	}
	if len(c.handled) < 2 {
		c.Error("nothing was sent again")
	}
}

func law07(c *court) {
	p := oncePerInvoice
	p.Approval = &registry.Approval{Reviewers: []string{"dana"}}
	c.tool("pay", p)
	says := func(id, who string) error {
		_, err := toolguard.DecideApproval(context.Background(), c.under, toolguard.ApprovalVerdict{ID: id, Approve: true, By: toolguard.Person{Name: who, Proven: true}})
		return err
	}
	f := facts("evt 1")
	f.Actor = "agent"
	r := c.call("pay", payment, f)
	c.want(r, toolguard.Pending, toolguard.ReasonApprovalRequired)
	if err := says(r.Verdict.Approval, "mallory"); !errors.Is(err, toolguard.ErrForbidden) {
		c.Errorf("a stranger approves: %v", err)
	}
	f.Actor = "dana" // joins the requesters
	c.want(c.call("pay", payment, f), toolguard.Pending, toolguard.ReasonApprovalRequired)
	if err := says(r.Verdict.Approval, "dana"); !errors.Is(err, toolguard.ErrForbidden) {
		c.Errorf("a requester approves: %v", err)
	}
	c.had(0)

	r = c.call("pay", payment, facts("evt 2"))
	var words sync.WaitGroup
	var taken atomic.Int32
	for range 8 {
		words.Go(func() {
			if err := says(r.Verdict.Approval, "dana"); err == nil {
				taken.Add(1)
			} else if !errors.Is(err, toolguard.ErrTransition) {
				c.Errorf("a second word: %v", err)
			}
		})
	}
	words.Wait()
	// Many calls and the guard itself find it approved at once: one dispatch consumes it.
	for range 8 {
		words.Go(func() { c.call("pay", payment, facts("evt 2")).Delivered() })
	}
	words.Wait()
	if taken.Load() != 1 {
		c.Errorf("%d words were taken for one request", taken.Load())
	}
	c.had(1)
	if op := c.operation(r.Verdict.Key); op.Approval.State != toolguard.ApprovalSpent || op.Approval.Decision.By != "dana" || op.Approval.Decision.Weak {
		c.Errorf("the approval is %+v", op.Approval)
	}

	// The word was for what it was then.
	r = c.call("pay", payment, facts("evt 3"))
	p.Owner = "somebody else" // another policy
	c.tool("pay", p)
	if err := says(r.Verdict.Approval, "dana"); err != nil {
		c.Error(err)
	}
	c.want(c.call("pay", payment, facts("evt 3")), toolguard.Pending, toolguard.ReasonApprovalRequired)
	c.had(1)
}
