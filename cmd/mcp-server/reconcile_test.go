package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"toolguard.dev/toolguard"
)

// How lookups end a policy of pay: by our key, or by the invoice, which sees what others paid, too.
const (
	soon      = `timeout: 1s, answer_within: 1s, `
	byKey     = soon + `lookup: [{tool: find_payment, arguments: {reference: "{{key}}"}, ` + counting + `}]`
	byInvoice = soon + `lookup: [{tool: find_payment, arguments: {invoice: "{{args.invoice_id}}"}, ` + counting + `}]`
	twoReads  = soon + `lookup: [{tool: find_payment, arguments: {reference: "{{key}}"}, ` + counting + `}, {tool: read_statement, arguments: {reference: "{{key}}"}, ` + counting + `}]`
	byText    = soon + `lookup: [{tool: find_payment, arguments: {reference: "{{key}}"}, applied: 'result.text.contains("PAY-")', absent: '!result.text.contains("PAY-")', settle: 500ms}]`
	counting  = `applied: size(result.json.payments) == 1, absent: size(result.json.payments) == 0, settle: 500ms`
)

// doubtful waits for so many rounds of lookups that could have proved something, and did not, and checks that it may not be known.
func (c *branch) doubtful(key string, rounds int) (op recordOf) {
	c.Helper()
	c.until(fmt.Sprintf("there were %d rounds", rounds), func() bool { op = c.record(key); return op.Looked >= rounds })
	if op.Status != toolguard.StatusUnknown && op.Status != toolguard.StatusEscalated || op.happened(toolguard.EventReconciled, "proves", true) > 0 {
		c.Errorf("it is %s", op.Status)
	}
	return op
}

// resolved is a person's verdict.
func (c *branch) resolved(op recordOf, verdict string) {
	c.Helper()
	c.must("olga", "operations/"+op.Key+"/resolve", fmt.Sprintf(`{"verdict":%q,"occurrence":%d,"attempt":%d,"note":"looked"}`, verdict, op.Occurrence, op.Sent))
}

// TestLookupCannotTell: the payment was made and its answer lost, and the lookup lies, answers with an error, finds two, or nothing ever. Nothing is sent
// again, and a person decides in the end.
func TestLookupCannotTell(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, policy string
		answer       func(found int) string
		rounds       int
	}{
		{"lies, and another one contradicts it", twoReads, func(int) string { return finds(0) }, 1},
		{"says that it is busy, which has no payment in it", byText, func(int) string { return `{"isError":true,"content":[{"type":"text","text":"busy"}]}` }, 1},
		{"finds two", byKey, func(int) string { return finds(2) }, 1},
		{"times out", byKey, func(int) string { return timedOut }, 1},
		{"never answers, and a person does not wait for it", byKey, func(int) string { return "" }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, test.policy)
			c.bank.says("find_payment", test.answer)
			c.bank.then(losing)
			began := time.Now()
			v := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Pending, toolguard.ReasonReconciling)
			c.resolved(c.doubtful(v.Key, test.rounds), "applied")
			c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
			if waited := time.Since(began); waited > 20*time.Second { // a lookup may take 30 s
				t.Errorf("waited %s for the lookup", waited)
			}
			c.bank.had(1, 1)
		})
	}
}

// TestLookupLags: the payment shows only after a while, which is what settle is for. It is found, and not sent again.
func TestLookupLags(t *testing.T) {
	t.Parallel()
	c := newBranch(t, strings.Replace(byKey, "500ms", "3s", 1))
	asked := 0
	c.bank.says("find_payment", func(found int) string {
		if asked++; asked < 3 {
			return finds(0)
		}
		return finds(found)
	})
	c.bank.then(losing)
	v := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Pending, toolguard.ReasonReconciling)
	op := c.becomes(v.Key, toolguard.StatusSucceeded)
	if n := op.happened(toolguard.EventReconciled, "found", "absent"); n != 2 || op.happened(toolguard.EventReconciled, "proves", true) != 1 {
		t.Errorf("%d rounds found nothing: %+v", n, op.Events)
	}
	c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
	c.bank.had(1, 1)
}

// TestLookupProvesAbsence is what all these are measured against: a payment that did not arrive is sent again, by itself, once.
func TestLookupProvesAbsence(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{"by key": byKey, "by invoice": byInvoice} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, policy)
			c.bank.then(dropping)
			v := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Pending, toolguard.ReasonReconciling)
			op := c.becomes(v.Key, toolguard.StatusSucceeded)
			if first, second := op.Attempts[0], op.Attempts[1]; second.Started.Before(first.Deadline.Add(500 * time.Millisecond)) {
				t.Errorf("sent again at %v, the deadline was %v", second.Started, first.Deadline)
			}
			c.bank.had(2, 1)
			if all := c.bank.all(); all[0] != all[1] {
				t.Errorf("sent %+v", all)
			}
		})
	}
}

// TestLookupByInvoiceInACrowd (row 14): while another event's payment of the invoice is open, a lookup that does not ask for our key proves nothing.
func TestLookupByInvoiceInACrowd(t *testing.T) {
	t.Parallel()
	c := newBranch(t, byInvoice)
	let := make(chan struct{})
	c.bank.then(c.bank.slow(let), dropping)
	c.leave("evt-1", "INV-1", 120)
	c.until("the first arrived", func() bool { sent, _ := c.bank.count(0); return sent == 1 })
	second := c.got(c.pay("evt-2", "INV-1", 120), toolguard.Pending, toolguard.ReasonReconciling)
	op := c.doubtful(second.Key, 1)
	if n := op.happened(toolguard.EventReconciled, "why", "another operation on the target was open"); n == 0 {
		t.Errorf("%+v", op.Events)
	}
	close(let)
	c.until("the first is done", func() bool { _, paid := c.bank.count(0); return paid == 1 })
	op = c.doubtful(second.Key, op.Looked+1)
	c.resolved(op, "abandoned")
	c.got(c.pay("evt-2", "INV-1", 120), toolguard.Blocked, toolguard.ReasonAbandoned)
	c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
	c.bank.had(2, 1)
}

// TestLookupByInvoiceFindsTheFirst (row 17): a person allowed a second payment, whose request is lost. What the lookup finds is the first.
func TestLookupByInvoiceFindsTheFirst(t *testing.T) {
	t.Parallel()
	c := newBranch(t, byInvoice)
	first := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Fresh, "")
	c.must("olga", "operations/"+first.Key+"/repeat", `{"occurrence":1,"note":"two months"}`)
	done := c.record(first.Key).Settled
	c.until("the first shows by now", func() bool { return time.Since(done) > 500*time.Millisecond })
	c.bank.then(dropping)
	second := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Pending, toolguard.ReasonReconciling)
	if second.Occurrence != 2 || second.Key == first.Key {
		t.Fatalf("%+v", second)
	}
	op := c.doubtful(second.Key, 1)
	if n := op.happened(toolguard.EventReconciled, "why", "something of the kind was there before the call"); n < 1 || n != op.happened(toolguard.EventReconciled) {
		t.Errorf("%+v", op.Events)
	}
	c.bank.had(2, 1)
	c.resolved(op, "not_applied")
	c.got(c.pay("evt-1", "INV-1", 120), toolguard.Fresh, "")
	c.bank.had(3, 2)
}

// TestVerdictTooEarly (row 8): not applied, before the deadline and settle, is refused; forced, it is an order to send the same again, which waits
// until then. After it, it is a verdict.
func TestVerdictTooEarly(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{true, false} {
		t.Run(map[bool]string{true: "forced", false: "in time"}[force], func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, strings.Replace(byKey, soon, "timeout: 3s, answer_within: 100ms, ", 1))
			c.bank.says("find_payment", func(int) string { return finds(2) })
			c.bank.then(dropping)
			key := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Pending, toolguard.ReasonReconciling).Key
			path, verdict := "operations/"+key+"/resolve", `{"verdict":"not_applied","occurrence":1,"attempt":1}`
			if got := c.decides("olga", path, verdict); got != http.StatusConflict {
				t.Fatalf("taken: %d", got)
			}
			due := c.record(key).Attempts[0].Deadline.Add(500 * time.Millisecond)
			if force {
				c.must("olga", path, strings.Replace(verdict, "}", `,"force":true}`, 1))
				c.until("it is sent again", func() bool { sent, _ := c.bank.count(0); return sent == 2 })
			} else {
				c.until("it is taken", func() bool { return c.decides("olga", path, verdict) == http.StatusOK })
				c.becomes(key, toolguard.StatusFailed)
				c.got(c.pay("evt-1", "INV-1", 120), toolguard.Fresh, "")
			}
			op := c.becomes(key, toolguard.StatusSucceeded)
			if second := op.Attempts[1]; !force && second.Started.Before(due) || second.Started.Before(op.Attempts[0].Deadline) {
				t.Errorf("sent again at %v, not after %v", second.Started, due)
			}
			c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
			c.bank.had(2, 1)
		})
	}
}

// TestAnswerAfterTheVerdict: the bank answers after a person has decided. Given up, it is a conflict that a person has to look at; held for not applied, it is
// done (row 9). Nothing is sent either way.
func TestAnswerAfterTheVerdict(t *testing.T) {
	t.Parallel()
	for verdict, status := range map[string]toolguard.Status{"abandoned": toolguard.StatusAbandoned, "not_applied": toolguard.StatusSucceeded} {
		t.Run(verdict, func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, "timeout: 500ms")
			let := make(chan struct{})
			c.bank.then(c.bank.late(let))
			v := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
			c.resolved(c.record(v.Key), verdict)
			close(let)
			var op recordOf
			c.until("the answer is in", func() bool { op = c.record(v.Key); return op.Attempts[0].State == toolguard.AttemptSucceeded })
			if op.Status != status {
				t.Errorf("it is %s, want %s", op.Status, status)
			}
			if verdict == "not_applied" {
				c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
				c.bank.had(1, 1)
				return
			}
			if !strings.Contains(op.Conflict, `decided "abandoned"`) || op.happened(toolguard.EventConflict) != 1 {
				t.Errorf("conflict %q", op.Conflict)
			}
			c.got(c.pay("evt-1", "INV-1", 120), toolguard.Blocked, toolguard.ReasonAbandoned)
			queue := func() string { return c.good("ops", "list", "--queue", "--data", "ledger") }
			if out := queue(); !strings.Contains(out, v.Key[:8]) {
				t.Errorf("it does not wait for a person:\n%s", out)
			}
			c.resolved(op, "applied")
			if out := queue(); strings.Contains(out, v.Key[:8]) {
				t.Errorf("it waits still:\n%s", out)
			}
			c.got(c.pay("evt-1", "INV-1", 120), toolguard.Blocked, toolguard.ReasonAbandoned)
			c.bank.had(1, 1)
		})
	}
}

// TestWindowOfTheKey: the bank honours a key for a while. A payment whose answer is lost is sent again under its key inside of that, by itself, and has one
// effect; never after it, also not by a server that starts then.
func TestWindowOfTheKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, window string
		killed       bool
		sent         int
	}{
		{"inside", "1h", false, 2},
		{"inside, by the next server", "1h", true, 2},
		{"its arrival may fall outside (row 11)", "1900ms", false, 1},
		{"the next server starts after it (row 12)", "2500ms", true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newBranch(t, soon+"downstream_key: {meta: idempotency_key, window: "+test.window+"}")
			c.bank.mu.Lock()
			c.bank.honours = test.sent > 1
			c.bank.mu.Unlock()
			let := make(chan struct{})
			c.bank.then(c.bank.late(let))
			began := time.Now()
			c.leave("evt-1", "INV-1", 120)
			c.until("it is paid", func() bool { _, paid := c.bank.count(0); return paid == 1 })
			if test.killed {
				c.kill()
				c.until("the window is over", func() bool { return test.sent > 1 || time.Since(began) > 2500*time.Millisecond })
				c.start()
			}
			key := c.operations()[0].Key
			if test.sent > 1 {
				op := c.becomes(key, toolguard.StatusSucceeded)
				if op.Attempts[1].Started.Before(op.Attempts[0].Deadline) || op.Attempts[0].SentKey != op.Attempts[1].SentKey {
					t.Errorf("%+v", op.Attempts)
				}
			} else {
				op := c.becomes(key, toolguard.StatusEscalated)
				c.got(c.pay("evt-1", "INV-1", 120), toolguard.Escalated, toolguard.ReasonOutcomeUnknown)
				c.resolved(op, "applied")
			}
			c.got(c.pay("evt-1", "INV-1", 120), toolguard.Replayed, toolguard.ReasonDone)
			c.bank.had(test.sent, 1)
			close(let)
		})
	}
}

// TestStaleForms: what a person looked at is not what there is now, or too early to be decided. The page says so in a sentence, and nothing is decided.
func TestStaleForms(t *testing.T) {
	t.Parallel()
	c := newBranch(t, "timeout: 20s")
	c.bank.then(losing)
	key := c.got(c.pay("evt-1", "INV-1", 120), toolguard.Escalated, toolguard.ReasonOutcomeUnknown).Key
	_, _, set := c.form(c.at, "/login", nil, url.Values{"token": {c.staff["olga"]}}, nil)
	_, page, _ := c.form(c.at, "/operations/"+key, set[0], nil, nil)
	form := csrf.FindStringSubmatch(page)
	if form == nil || !strings.Contains(page, "120") {
		t.Fatal(page)
	}
	for _, test := range []struct {
		name, key, verdict, occurrence, attempt string
		want                                    int
		says                                    string
	}{
		{"another attempt", key, "applied", "1", "2", 409, "Nothing was changed"},
		{"another occurrence", key, "applied", "2", "1", 409, "Nothing was changed"},
		{"ordered for another occurrence", key, "repeat", "2", "1", 409, "Nothing was changed"},
		{"too early", key, "not_applied", "1", "1", 409, "may still arrive"},
		{"no such operation", "nobody", "applied", "1", "1", 404, "nothing of that name"},
		{"no such verdict", key, "maybe", "1", "1", 400, "Nothing was decided"},
		{"no number", key, "applied", "1", "one", 400, "Nothing was decided"},
		{"good", key, "applied", "1", "1", 303, ""},
		{"decided otherwise already", key, "abandoned", "1", "1", 409, "Nothing was changed"},
	} {
		values := url.Values{"csrf": {form[1]}, "verdict": {test.verdict}, "occurrence": {test.occurrence}, "attempt": {test.attempt}}
		status, page, _ := c.form(c.at, "/operations/"+test.key, set[0], values, nil)
		if status != test.want || !strings.Contains(page, test.says) {
			t.Errorf("%s: %d, want %d %q: %s", test.name, status, test.want, test.says, page)
		}
	}
	if n := c.record(key).happened(toolguard.EventResolved); n != 1 {
		t.Errorf("%d decisions", n)
	}
	c.bank.had(1, 1)
}
