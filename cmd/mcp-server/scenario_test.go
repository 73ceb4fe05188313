package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// of calls pay with a header that tells a fact.
func (c *branch) of(header, value, event, invoice string, amount int) answered {
	c.Helper()
	r := c.calling(c.at, event, "pay", order(invoice, amount))
	r.Header.Set(header, value)
	return c.result(r)
}

// again orders an operation to be sent again, although it may be too early.
func (c *branch) again(key string) {
	c.Helper()
	c.must("olga", "operations/"+key+"/repeat", `{"occurrence":1,"force":true}`)
}

// Parts of the configuration that rows replace.
const (
	identity = "effect: write, once_per: [source_event, /invoice_id]"
	settable = "effect: idempotent, entity: [/invoice_id]"
	fixed    = "tenant: {value: acme}"
)

// TestScenario: the sequences that break a careless guard, by their numbers in the table, through the real server. Those about approvals, lookups, windows and
// late answers (8, 9, 11 to 14, 17, 18, 20, 21) have tests of their own in this package.
func TestScenario(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, policy string
		replaced     []string
		play         func(c *branch)
	}{
		{"06 refused after an unresolved attempt is still unknown", "timeout: 300ms", nil, func(c *branch) {
			c.bank.then(losing, refusing("insufficient funds"))
			key := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown).Key
			c.again(key)
			c.until("it is refused", func() bool {
				op := c.record(key)
				return op.Sent == 2 && op.Attempts[1].State == toolguard.AttemptRefused
			})
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.got(c.pay("evt-1", "INV-1", 800), toolguard.Blocked, toolguard.ReasonArgumentsChanged)
			c.bank.had(2, 1)
		}},
		{"07 refused, then corrected", "", nil, func(c *branch) {
			c.bank.then(refusing("invalid amount"))
			if v := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Fresh, ""); v.Status != toolguard.StatusFailed {
				c.Errorf("%+v", v)
			}
			if v := c.got(c.pay("evt-1", "INV-1", 800), toolguard.Fresh, ""); v.Attempt != 2 || v.Occurrence != 1 {
				c.Errorf("%+v", v)
			}
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Blocked, toolguard.ReasonArgumentsChanged)
			c.bank.had(2, 1)
		}},
		{"10 the first attempt's late success while the second runs", "timeout: 500ms", nil, func(c *branch) {
			first, second := make(chan struct{}), make(chan struct{})
			defer close(second)
			c.bank.then(c.bank.late(first), c.bank.slow(second))
			key := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown).Key
			c.again(key)
			c.until("the second arrived", func() bool { sent, _ := c.bank.count(0); return sent == 2 })
			close(first)
			c.becomes(key, toolguard.StatusSucceeded)
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Replayed, toolguard.ReasonDone)
			c.bank.had(2, 1)
		}},
		{"15 the same event redelivered after other work", "", nil, func(c *branch) {
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Fresh, "")
			c.got(c.pay("evt-1", "VOID-1", 1), toolguard.Fresh, "")
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Replayed, toolguard.ReasonDone)
			c.bank.had(2, 2)
		}},
		{"16 another event for the same invoice is held while the first is unknown", "", nil, func(c *branch) {
			c.bank.then(losing)
			first := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.got(c.pay("evt-2", "INV-1", 900), toolguard.Blocked, toolguard.ReasonEarlierUnknown)
			c.bank.had(1, 1)
			c.resolved(c.record(first.Key), "applied")
			c.got(c.pay("evt-2", "INV-1", 900), toolguard.Fresh, "")
			c.bank.had(2, 2)
		}},
		{"19 abandoned: only an order opens the next one", "", nil, func(c *branch) {
			c.bank.then(dropping)
			first := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.resolved(c.record(first.Key), "abandoned")
			for range 2 {
				c.got(c.pay("evt-1", "INV-1", 900), toolguard.Blocked, toolguard.ReasonAbandoned)
			}
			c.bank.had(1, 0)
			c.must("olga", "operations/"+first.Key+"/repeat", `{"occurrence":1}`)
			if v := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Fresh, ""); v.Occurrence != 2 {
				c.Errorf("%+v", v)
			}
			c.bank.had(2, 1)
		}},
		{"22 a state is not set while another one may still arrive", strings.Replace(byKey, soon, "timeout: 1s, ", 1), []string{identity, settable}, func(c *branch) {
			c.bank.then(dropping)
			gone := c.leave("evt-1", "INV-1", 1)
			c.until("the first was sent", func() bool { sent, _ := c.bank.count(0); return sent == 1 })
			gone()
			first := c.operations()[0].Attempts[0]
			second := c.got(c.pay("evt-2", "INV-1", 2), toolguard.Fresh, "")
			if at := c.record(second.Key).Attempts[0].Started; at.Before(first.Deadline.Add(500 * time.Millisecond)) {
				c.Errorf("set at %v, and the first might have arrived until %v", at, first.Deadline)
			}
			c.bank.had(2, 1)
		}},
		{"23 a state that goes back and forth", "", []string{identity, settable}, func(c *branch) {
			for _, amount := range []int{1, 2, 1} {
				c.got(c.pay("evt-1", "INV-1", amount), toolguard.Fresh, "")
			}
			c.bank.had(3, 3)
		}},
		{"27 once_per declared while a call is open", "", []string{identity, "effect: write"}, func(c *branch) {
			c.bank.then(losing)
			first := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.kill()
			c.declare("")
			c.start()
			if v := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown); v.Key != first.Key {
				c.Errorf("%s became %s", first.Key, v.Key)
			}
			c.bank.had(1, 1)
		}},
		{"28 a default is added to the schema between two attempts", "", []string{identity, "effect: write", "may_differ: [/memo], ", ""}, func(c *branch) {
			c.bank.then(refusing("invalid amount"))
			first, before := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Fresh, ""), c.policy()
			c.bank.lists(func() { c.bank.memo = `{"type":"string","default":"none"}` })
			c.until("the change is known", func() bool { return c.policy() != before })
			a := c.event(c.at, "evt-1", "pay", `{"invoice_id":"INV-1","amount":900,"memo":"none"}`)
			if v := c.got(a, toolguard.Fresh, ""); v.Key != first.Key || v.Attempt != 2 {
				c.Errorf("%+v, then %+v", first, v)
			}
		}},
		{"29 another run for the same target sees what it meets, once", "", []string{"once_per: [source_event, ", "once_per: [run, ", "actor: {value: erin}", "run: {http: {header: Toolguard-Run}}"}, func(c *branch) {
			let := make(chan struct{})
			c.bank.then(c.bank.late(let))
			r := c.calling(c.at, "evt-1", "pay", order("INV-1", 10))
			r.Header.Set("Toolguard-Run", "run-1")
			go func() { _, _ = http.DefaultClient.Do(r) }() // and it is never heard of again
			c.until("it is paid", func() bool { _, paid := c.bank.count(0); return paid == 1 })
			close(let)
			c.until("it is done", func() bool { return len(c.operations("--status", "succeeded")) == 1 })
			a := c.of("Toolguard-Run", "run-2", "evt-1", "INV-1", 20)
			c.got(a, toolguard.Blocked, toolguard.ReasonEarlierUnknown)
			if !strings.Contains(a.text(), "PAY-1") {
				c.Error(a.text())
			}
			c.got(c.of("Toolguard-Run", "run-2", "evt-1", "INV-1", 20), toolguard.Fresh, "")
			c.bank.had(2, 2)
		}},
		{"30 a key that is used or in progress is no refusal", "downstream_key: {meta: k}", nil, func(c *branch) {
			for i, words := range []string{"invalid: idempotency key already used with other parameters", "rejected: a request with this idempotency key is in progress"} {
				c.bank.then(refusing(words))
				c.got(c.pay("evt-1", fmt.Sprint("INV-", i), 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			}
		}},
		{"33 the body is gone, and done stays done", "retention: 1s", nil, func(c *branch) {
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Fresh, "")
			c.until("the body has expired", func() bool { return c.pay("evt-1", "INV-1", 900).Meta.Verdict.Reason == toolguard.ReasonBodyExpired })
			if a := c.pay("evt-1", "INV-1", 900); !strings.HasPrefix(a.text(), "ALREADY DONE") {
				c.Error(a.text())
			}
			c.bank.had(1, 1)
		}},
		{"34 two tenants, same everything", "", []string{fixed, "tenant: {http: {header: Toolguard-Tenant}}"}, func(c *branch) {
			one := c.got(c.of("Toolguard-Tenant", "acme", "evt-1", "INV-1", 900), toolguard.Fresh, "")
			two := c.got(c.of("Toolguard-Tenant", "other", "evt-1", "INV-1", 900), toolguard.Fresh, "")
			if status, _ := c.ask(c.at, c.staff["olga"], "GET", "operations/"+two.Key, ""); one.Key == two.Key || status != http.StatusNotFound {
				c.Errorf("%s and %s, which acme sees: %d", one.Key, two.Key, status)
			}
			c.bank.had(2, 2)
		}},
		{"36 some of it failed", "", nil, func(c *branch) {
			c.bank.then(refusing("1 of 3 items failed: not found"))
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.bank.had(1, 0)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, test.policy, test.replaced...)
			test.play(c)
			if out := c.good("verify", "--data", "ledger"); !strings.HasPrefix(out, "the audit is intact") {
				t.Error(out)
			}
		})
	}
}
