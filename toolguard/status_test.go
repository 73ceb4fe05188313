package toolguard

import (
	"slices"
	"testing"
	"time"
)

// What is learned of attempts behind a request for approval leaves the request alone, unless one of them was done.
func TestSettleBehindARequest(t *testing.T) {
	for state, want := range map[AttemptState]Status{
		AttemptUnsent: StatusAwaitingApproval, AttemptUnknown: StatusAwaitingApproval, AttemptSucceeded: StatusEscalated,
	} {
		op := &Operation{Status: StatusAwaitingApproval, Frozen: "new", Sent: 1, Attempts: []Attempt{{N: 1, State: AttemptRefused, Frozen: "old", Finished: true}}}
		settle(op, evidence{attempt: 1, state: state, finished: true}, time.Now())
		if op.Status != want {
			t.Errorf("%s: %s, want %s", state, op.Status, want)
		}
	}
}

// Every pair of statuses: become goes where the table leads, and nowhere else; what is final leads nowhere.
func TestTransitions(t *testing.T) {
	statuses := []Status{"", StatusAwaitingApproval, StatusApproved, StatusRejected, StatusDispatching, StatusSucceeded, StatusFailed, StatusUnknown, StatusEscalated, StatusAbandoned}
	if len(transitions) != len(statuses) {
		t.Fatalf("the table has %d rows, there are %d statuses", len(transitions), len(statuses))
	}
	goes := func(from, to Status) (ok bool) {
		defer func() { ok = recover() == nil }()
		(&Operation{Status: from}).become(to)
		return true
	}
	for _, from := range statuses {
		if from.Final() && len(transitions[from]) > 0 {
			t.Errorf("%q is final and leads to %q", from, transitions[from])
		}
		for _, to := range statuses {
			if want := slices.Contains(transitions[from], to); goes(from, to) != want {
				t.Errorf("from %q to %q: want %v", from, to, want)
			}
		}
	}
	// What must never be, whatever the table says.
	for _, pair := range [][2]Status{
		{StatusSucceeded, StatusDispatching}, {StatusSucceeded, StatusFailed}, {StatusAbandoned, StatusDispatching},
		{StatusFailed, StatusUnknown}, {StatusAwaitingApproval, StatusDispatching}, {StatusRejected, StatusAwaitingApproval}, {StatusUnknown, StatusAwaitingApproval}, {"", StatusSucceeded}, {StatusEscalated, StatusUnknown},
	} {
		if goes(pair[0], pair[1]) {
			t.Errorf("from %q to %q", pair[0], pair[1])
		}
	}
}
