package main

import (
	"fmt"
	"strings"
	"testing"

	"toolguard.dev/toolguard"
)

// The five that everybody asks for, through the real server, a real ledger and a bank that counts.

// The same event is delivered twice, the second time to another process: paid once, and the second delivery gets what the first one got.
func TestSameEventTwice(t *testing.T) {
	t.Parallel()
	c := newBranch(t, "")
	first := c.pay("evt-1", "INV-1", 120)
	c.got(first, toolguard.Fresh, "")
	again := c.pay("evt-1", "INV-1", 120)
	c.got(again, toolguard.Replayed, toolguard.ReasonDone)
	c.kill()
	c.start()
	c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
	if !strings.Contains(again.text(), "ALREADY DONE") || !strings.Contains(again.text(), first.text()) {
		t.Errorf("%q, then %q", first.text(), again.text())
	}
	c.bank.had(1, 1)
	c.got(c.pay("evt-2", "INV-1", 120), toolguard.Fresh, "") // another event is another payment
	c.bank.had(2, 2)
}

// The bank pays and does not answer in time. The retry is told that nobody knows, not that it failed; the late answer is what the next one gets.
func TestRetryAfterATimeout(t *testing.T) {
	t.Parallel()
	c := newBranch(t, "timeout: 500ms")
	let := make(chan struct{})
	c.bank.then(c.bank.late(let))
	first := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
	c.got(c.pay("evt-1", "INV-1", 120), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
	close(let)
	c.becomes(first.Key, toolguard.StatusSucceeded)
	a := c.pay("evt-1", "INV-1", 120)
	c.got(a, toolguard.Replayed, toolguard.ReasonDone)
	if !strings.Contains(a.text(), "PAY-1") {
		t.Error(a.text())
	}
	c.bank.had(1, 1)
}

// The server is killed while the bank works on a payment. The next one asks the bank, which did it.
func TestWorkerRestartedInMidAction(t *testing.T) {
	t.Parallel()
	c := newBranch(t, byKey)
	let := make(chan struct{})
	defer close(let)
	c.bank.then(c.bank.late(let))
	c.leave("evt-1", "INV-1", 120)
	c.until("it is paid", func() bool { _, paid := c.bank.count(0); return paid == 1 })
	c.kill()
	c.start()
	c.until("it is found out", func() bool { return c.pay("evt-1", "INV-1", 120).Meta.Verdict.Status == toolguard.StatusSucceeded })
	c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
	c.bank.had(1, 1)
}

// A person says no: nothing is sent, and the same call stays blocked and says whose word that is. Another amount is another question (row 18).
func TestApprovalRejected(t *testing.T) {
	t.Parallel()
	c := newBranch(t, "approval: always")
	v := c.got(c.pay("evt-1", "INV-1", 900), toolguard.Pending, toolguard.ReasonApprovalRequired)
	c.must("dana", "approvals/"+v.Approval+"/reject", `{"note":"not our supplier"}`)
	for range 2 {
		a := c.pay("evt-1", "INV-1", 900)
		c.got(a, toolguard.Blocked, toolguard.ReasonApprovalRejected)
		if !strings.Contains(a.text(), "not our supplier") {
			t.Error(a.text())
		}
		c.kill()
		c.start()
	}
	if got := c.decides("dana", "approvals/"+v.Approval+"/approve", "{}"); got != 409 {
		t.Errorf("approved after all: %d", got)
	}
	c.bank.had(0, 0)
	other := c.got(c.pay("evt-1", "INV-1", 800), toolguard.Pending, toolguard.ReasonApprovalRequired)
	c.got(c.pay("evt-1", "INV-1", 900), toolguard.Blocked, toolguard.ReasonApprovalRejected)
	c.must("dana", "approvals/"+other.Approval+"/approve", "{}")
	c.becomes(other.Key, toolguard.StatusSucceeded)
	c.bank.had(1, 1)
	if sent, _ := c.bank.count(800); sent != 1 {
		t.Errorf("sent %+v", c.bank.all())
	}
}

// Under one key there is one payload, whether what became of the first is known or not: the other is blocked, and says what differs.
func TestPayloadChangedUnderTheSameKey(t *testing.T) {
	t.Parallel()
	c := newBranch(t, "")
	c.bank.then(happening, losing)
	for invoice, first := range []toolguard.Outcome{toolguard.Fresh, toolguard.Escalated} {
		invoice := fmt.Sprint("INV-", invoice)
		if v := c.pay("evt-1", invoice, 120).Meta.Verdict; v.Outcome != first {
			t.Errorf("%s: %+v", invoice, v)
		}
		v := c.got(c.pay("evt-1", invoice, 121), toolguard.Blocked, toolguard.ReasonArgumentsChanged)
		if len(v.Differs) != 1 || v.Differs[0] != "/amount" {
			t.Errorf("differs in %v", v.Differs)
		}
	}
	c.bank.had(2, 2)
	if sent, _ := c.bank.count(121); sent != 0 {
		t.Errorf("sent %+v", c.bank.all())
	}
}
