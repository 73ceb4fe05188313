package main

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolguard.dev/toolguard"
)

const above500 = "approval: {when: args.amount > 500}"

// asked is a request for approval of 900 for INV-1.
func (c *branch) asked() toolguard.Verdict {
	c.Helper()
	return c.got(c.pay("evt-1", "INV-1", 900), toolguard.Pending, toolguard.ReasonApprovalRequired)
}

func (c *branch) approve(id string) {
	c.Helper()
	c.must("dana", "approvals/"+id+"/approve", `{"note":"seen"}`)
}

// policy is what an approval given now would rely on, told by a payment that needs none, whatever becomes of it.
func (c *branch) policy() string {
	c.Helper()
	c.probes++
	return c.record(c.pay("evt-p", fmt.Sprint("PROBE-", c.probes), 1).Meta.Verdict.Key).Policy
}

// renewed waits until there is a new request for approval in the place of one that nothing was sent on.
func (c *branch) renewed(old toolguard.Verdict) (id string) {
	c.Helper()
	c.until("there is another request", func() bool { id = c.record(old.Key).Approval.ID; return id != old.Approval })
	if op := c.record(old.Key); op.Status != toolguard.StatusAwaitingApproval || op.Approval.State != toolguard.ApprovalOpen {
		c.Errorf("the new request is %s, the operation %s", op.Approval.State, op.Status)
	}
	if got := c.decides("dana", "approvals/"+old.Approval+"/approve", "{}"); got != http.StatusConflict {
		c.Errorf("the old request was approved: %d", got)
	}
	if sent, _ := c.bank.count(900); sent > 0 {
		c.Errorf("sent on the old approval: %+v", c.bank.all())
	}
	return id
}

// TestApprovalIsForOneThing (row 21): policy, schema or upstream is another one when the approved call is to be sent. It is not
// sent, and there is a new request; approved, that is sent once.
func TestApprovalIsForOneThing(t *testing.T) {
	t.Parallel()
	for _, what := range []struct {
		name   string
		change func(c *branch)
	}{
		{"policy", func(c *branch) { c.declare("approval: {when: args.amount > 400}") }},
		{"schema", func(c *branch) { c.bank.lists(func() { c.bank.memo = `{"type":"number"}` }) }},
		{"upstream", func(c *branch) { c.bank.restarts(func() { c.bank.version = "2" }) }},
	} {
		t.Run(what.name+" changed before the word", func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, above500)
			asked, before := c.asked(), c.policy()
			what.change(c)
			if what.name == "policy" {
				c.kill()
				c.start()
			}
			c.until("the change is known", func() bool { return c.policy() != before })
			c.approve(asked.Approval)
			c.sentOnce(asked, c.renewed(asked))
		})
		t.Run(what.name+" changed after the word", func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, above500)
			asked := c.asked()
			c.kill()
			if _, errs, code := c.as(c.staff["dana"], "approvals", "approve", asked.Approval, "--data", "ledger"); code != 0 {
				t.Fatalf("exit %d, %s", code, errs)
			}
			what.change(c)
			c.start()
			c.sentOnce(asked, c.renewed(asked))
		})
	}
}

// sentOnce approves the new request.
func (c *branch) sentOnce(asked toolguard.Verdict, id string) {
	c.Helper()
	if n := c.record(asked.Key).happened(toolguard.EventApprovalDecided, "verdict", "withdrawn"); n != 1 {
		c.Errorf("%d requests are on record as withdrawn", n)
	}
	c.approve(id)
	c.becomes(asked.Key, toolguard.StatusSucceeded)
	c.got(c.pay("evt-1", "INV-1", 900), toolguard.Replayed, toolguard.ReasonDone)
	if sent, paid := c.bank.count(900); sent != 1 || paid != 1 {
		c.Errorf("%d sent, %d paid", sent, paid)
	}
}

// held has an approved payment of 900 wait for its turn: another event's payment of the invoice is lost.
func (c *branch) held() (asked, lost toolguard.Verdict) {
	c.Helper()
	asked = c.asked()
	c.bank.then(losing)
	lost = c.got(c.pay("evt-2", "INV-1", 100), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
	c.approve(asked.Approval)
	c.got(c.pay("evt-1", "INV-1", 900), toolguard.Blocked, toolguard.ReasonEarlierUnknown)
	return asked, lost
}

// TestApprovedArguments (row 21): approved is 900, and before its turn comes the agent wants 901. Neither is sent; 901 once a person has
// said yes to that.
func TestApprovedArguments(t *testing.T) {
	t.Parallel()
	c := newBranch(t, above500)
	asked, lost := c.held()
	other := c.got(c.pay("evt-1", "INV-1", 901), toolguard.Pending, toolguard.ReasonApprovalRequired)
	c.renewed(asked)
	c.must("olga", "operations/"+lost.Key+"/resolve", `{"verdict":"applied","occurrence":1,"attempt":1}`)
	c.got(c.pay("evt-1", "INV-1", 901), toolguard.Pending, toolguard.ReasonApprovalRequired)
	c.approve(other.Approval)
	c.becomes(asked.Key, toolguard.StatusSucceeded)
	c.got(c.pay("evt-1", "INV-1", 900), toolguard.Blocked, toolguard.ReasonArgumentsChanged)
	c.bank.had(2, 2)
	if sent, _ := c.bank.count(901); sent != 1 {
		t.Errorf("sent %+v", c.bank.all())
	}
}

// TestApprovalExpires (row 21): neither a request nor the yes to it is good for ever.
func TestApprovalExpires(t *testing.T) {
	t.Parallel()
	t.Run("before the word", func(t *testing.T) {
		t.Parallel()
		c := newBranch(t, "approval: {when: args.amount > 500, expires: 1s}")
		asked := c.asked()
		c.until("it has expired", func() bool {
			_, text := c.ask(c.at, c.staff["vic"], "GET", "approvals/"+asked.Approval, "")
			return strings.Contains(text, `"state":"expired"`)
		})
		if got := c.decides("dana", "approvals/"+asked.Approval+"/approve", "{}"); got != http.StatusConflict {
			t.Errorf("approved: %d", got)
		}
		if list := c.good("ops", "list", "--data", "ledger"); !strings.Contains(list, "nothing: its request expired, and the next call asks again") || strings.Contains(list, "wait for") {
			t.Errorf("listed as\n%s", list)
		}
		if shown := c.good("ops", "show", asked.Key, "--data", "ledger"); !strings.Contains(shown, ": expired") {
			t.Errorf("shown as\n%s", shown)
		}
		again := c.asked()
		if again.Approval == asked.Approval || again.Key != asked.Key {
			t.Errorf("%+v, then %+v", asked, again)
		}
		if shown := c.good("ops", "show", asked.Key, "--data", "ledger"); !regexp.MustCompile(`approval_decided +\S+ +expired `).MatchString(shown) {
			t.Errorf("shown as\n%s", shown)
		}
		if list := c.good("approvals", "list", "--data", "ledger"); !strings.Contains(list, again.Approval) || !strings.Contains(list, "asked for 2 times") {
			t.Errorf("listed as\n%s", list)
		}
		c.bank.had(0, 0)
	})
	t.Run("after the word", func(t *testing.T) {
		t.Parallel()
		c := newBranch(t, "approval: {when: args.amount > 500, expires: 2s}")
		asked, lost := c.held()
		c.renewed(asked)
		c.must("olga", "operations/"+lost.Key+"/resolve", `{"verdict":"applied","occurrence":1,"attempt":1}`)
		c.asked()
		if n := c.record(asked.Key).happened(toolguard.EventApprovalDecided, "verdict", "expired"); n < 1 {
			t.Error("that it expired is not on record")
		}
		c.bank.had(1, 1)
	})
}

// TestApprovedTwice: at once, and again when it is spent. One word, one dispatch.
func TestApprovedTwice(t *testing.T) {
	t.Parallel()
	c := newBranch(t, above500)
	asked := c.asked()
	var all sync.WaitGroup
	got := make([]int, 4)
	for i := range got {
		all.Go(func() {
			got[i] = c.decides([]string{"dana", "olga"}[i%2], "approvals/"+asked.Approval+"/approve", "{}")
		})
	}
	all.Wait()
	slices.Sort(got)
	if !slices.Equal(got, []int{200, 409, 409, 409}) {
		t.Errorf("%v", got)
	}
	c.becomes(asked.Key, toolguard.StatusSucceeded)
	for range 2 { // in the next process, too
		if got := c.decides("dana", "approvals/"+asked.Approval+"/approve", "{}"); got != http.StatusConflict {
			t.Errorf("a spent approval: %d", got)
		}
		c.got(c.pay("evt-1", "INV-1", 900), toolguard.Replayed, toolguard.ReasonDone)
		c.kill()
		c.start()
	}
	op := c.record(asked.Key)
	if n := op.happened(toolguard.EventApprovalDecided); n != 1 || op.Approval.State != toolguard.ApprovalSpent || op.happened(toolguard.EventDispatched) != 1 {
		t.Errorf("%d decisions, the approval is %s", n, op.Approval.State)
	}
	c.bank.had(1, 1)
}

// TestKilledBetweenDispatchAndAnswer: the approved payment was made when the server is killed. Nobody knows, and the approval warrants no
// second one.
func TestKilledBetweenDispatchAndAnswer(t *testing.T) {
	t.Parallel()
	c := newBranch(t, above500)
	let := make(chan struct{})
	c.bank.then(c.bank.late(let))
	asked := c.asked()
	c.approve(asked.Approval)
	c.until("it is paid", func() bool { _, paid := c.bank.count(0); return paid == 1 })
	c.kill()
	close(let)
	c.start()
	op := c.becomes(asked.Key, toolguard.StatusEscalated)
	if op.Approval.State != toolguard.ApprovalSpent {
		t.Errorf("the approval is %s", op.Approval.State)
	}
	c.got(c.pay("evt-1", "INV-1", 900), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
	if got := c.decides("dana", "approvals/"+asked.Approval+"/approve", "{}"); got != http.StatusConflict {
		t.Errorf("approved once more: %d", got)
	}
	c.must("olga", "operations/"+asked.Key+"/resolve", `{"verdict":"applied","occurrence":1,"attempt":1,"downstream_id":"PAY-1"}`)
	c.got(c.pay("evt-1", "INV-1", 900), toolguard.Replayed, toolguard.ReasonDone)
	c.bank.had(1, 1)
}

// TestForeignApprovals: an id that is made up, another operation's, another tenant's, of who asked, or with what another request is for.
// None sends anything.
func TestForeignApprovals(t *testing.T) {
	t.Parallel()
	c := newBranch(t, above500)
	asked := c.asked()
	other := c.got(c.pay("evt-1", "INV-2", 900), toolguard.Pending, toolguard.ReasonApprovalRequired)
	digest := c.record(other.Key).Approval.Digest
	for _, test := range []struct {
		name, who, id, body string
		want                int
	}{
		{"made up", "dana", "00000000-0000-8000-8000-000000000000.1", "{}", 404},
		{"a request not made yet", "dana", asked.Key + ".2", "{}", 404},
		{"spelt otherwise", "dana", asked.Key + ".01", "{}", 404},
		{"the operation's key", "dana", asked.Key, "{}", 404},
		{"another tenant's", "omar", asked.Approval, "{}", 404},
		{"what another request is for", "dana", asked.Approval, `{"digest":"` + digest + `"}`, 409},
		{"who asked", "erin", asked.Approval, "{}", 403},
		{"a viewer", "vic", asked.Approval, "{}", 403},
		{"nobody", "", asked.Approval, "{}", 401},
		{"a forged token", "forged", asked.Approval, "{}", 401},
	} {
		if got := c.decides(test.who, "approvals/"+test.id+"/approve", test.body); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	c.approve(other.Approval)
	c.becomes(other.Key, toolguard.StatusSucceeded)
	if op := c.record(asked.Key); op.Status != toolguard.StatusAwaitingApproval || op.happened(toolguard.EventApprovalDecided) > 0 {
		t.Errorf("it is %s", op.Status)
	}
	c.bank.had(1, 1)
}

// TestApprovalGivenBack (row 20): the bank refuses the connection, so that no byte left. The approval is good still, and the next call needs no
// second one.
func TestApprovalGivenBack(t *testing.T) {
	t.Parallel()
	c := newBranch(t, above500)
	asked := c.asked()
	c.bank.close()
	c.approve(asked.Approval)
	if op := c.becomes(asked.Key, toolguard.StatusFailed); op.Approval.State != toolguard.ApprovalApproved || op.Attempts[0].State != toolguard.AttemptUnsent {
		t.Errorf("the approval is %s, the attempt %s", op.Approval.State, op.Attempts[0].State)
	}
	c.bank.open(c.bank.address)
	c.until("it is sent", func() bool {
		v := c.pay("evt-1", "INV-1", 900).Meta.Verdict
		if v.Reason == toolguard.ReasonApprovalRequired {
			t.Fatalf("asked again: %+v", v)
		}
		return v.Status == toolguard.StatusSucceeded
	})
	if n := c.record(asked.Key).happened(toolguard.EventApprovalRequested); n != 1 {
		t.Errorf("%d requests for approval", n)
	}
	c.bank.had(1, 1)
}
