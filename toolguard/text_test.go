package toolguard

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// Every text that a model may read, in one file that people can read.
func TestTexts(t *testing.T) {
	sent := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	done := sent.Add(2 * time.Second)
	op := func(status Status) *Operation {
		op := &Operation{Key: "108d4a9d-108e-88cc-aeea-ba110c849ec8", Action: "books/pay_invoice", Status: status, Attempts: []Attempt{{N: 1, Started: sent}}}
		if status == StatusSucceeded {
			op.Settled, op.Delivered = done, done
		}
		return op
	}
	owed := op(StatusSucceeded)
	owed.Delivered = time.Time{}
	named := op(StatusSucceeded)
	named.DownstreamID = "PAY-1"
	given := op(StatusAbandoned)
	given.Resolved = &Decision{At: done}
	mail := &Operation{Action: "mail/send_mail"}

	var b strings.Builder
	say := func(o Outcome, r Reason, v Verdict, t told) {
		v.Outcome, v.Reason, v.SettledAt = o, r, &done
		if t.op != nil {
			v.Key = t.op.Key
		}
		fmt.Fprintf(&b, "%s/%s\n\t%s\n\n", o, r, text("pay_invoice", v, t))
	}
	say(Fresh, "", Verdict{}, told{op: op(StatusSucceeded)})
	say(Replayed, ReasonDone, Verdict{}, told{op: named})
	say(Replayed, ReasonDone, Verdict{Differs: []string{"/memo"}}, told{op: named, since: []*Operation{mail, mail, mail, mail}})
	say(Replayed, ReasonDone, Verdict{}, told{op: owed, owed: true, since: []*Operation{mail}})
	say(Replayed, ReasonDone, Verdict{}, told{op: named, bare: true})
	say(Replayed, ReasonBodyExpired, Verdict{}, told{op: named})
	say(Replayed, ReasonBodyNotStored, Verdict{}, told{op: named})
	say(Pending, ReasonInProgress, Verdict{}, told{op: op(StatusDispatching)})
	say(Pending, ReasonReconciling, Verdict{RetryAfterMS: 34400}, told{op: op(StatusUnknown), says: "503 upstream gone", answered: true})
	say(Pending, ReasonReconciling, Verdict{RetryAfterMS: 34400}, told{op: op(StatusUnknown), sets: true})
	say(Escalated, ReasonOutcomeUnknown, Verdict{}, told{op: op(StatusEscalated), says: "no answer in time"})
	say(Escalated, ReasonAttemptsSpent, Verdict{}, told{op: op(StatusEscalated)})
	say(Blocked, ReasonInvalidArguments, Verdict{}, told{what: "amount must be a number, not a string"})
	say(Blocked, ReasonContextRequired, Verdict{}, told{what: "source_event"})
	say(Blocked, ReasonContextConflict, Verdict{}, told{what: "run"})
	say(Blocked, ReasonDenied, Verdict{}, told{})
	say(Blocked, ReasonStoreUnavailable, Verdict{}, told{})
	say(Blocked, ReasonToolUnavailable, Verdict{}, told{what: "the server is not running"})
	say(Blocked, ReasonRefused, Verdict{}, told{op: op(StatusFailed), says: "insufficient funds", answered: true})
	say(Blocked, ReasonAbandoned, Verdict{}, told{op: given})
	say(Blocked, ReasonArgumentsChanged, Verdict{Differs: []string{"/amount", "/lines/0/price"}}, told{op: op(StatusSucceeded)})
	say(Blocked, ReasonArgumentsChanged, Verdict{Differs: []string{"/amount"}}, told{op: op(StatusDispatching)})
	say(Blocked, ReasonArgumentsChanged, Verdict{}, told{op: op(StatusEscalated)})
	say(Blocked, ReasonArgumentsChanged, Verdict{Differs: []string{"/amount"}}, told{op: owed, result: "paid 10"})
	say(Blocked, ReasonEarlierUnknown, Verdict{Differs: []string{"/n"}}, told{op: op(StatusEscalated), pointer: "/to"})
	say(Blocked, ReasonEarlierUnknown, Verdict{}, told{op: op(StatusUnknown)})
	say(Blocked, ReasonEarlierUnknown, Verdict{Differs: []string{"/amount"}}, told{op: owed, result: "paid 10"})

	for _, word := range []string{"retry", "Retry", "try again", "resend", "force"} {
		if strings.Contains(b.String(), word) {
			t.Errorf("a text says %q", word)
		}
	}
	const golden = "testdata/texts.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the texts changed; go test ./toolguard -run Texts -update, and read the difference\n%s", b.String())
	}
}
