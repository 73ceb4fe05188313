package evals

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one row of the table: what goes wrong with the writes that it hits, and what the agent does about it.
type Fault struct {
	Name  string // as the command line takes it
	Title string // as the table shows it

	trouble   []Trouble // of the hit steps' attempts, from the first on
	trouble2  []Trouble // instead, for every second hit step
	impatient bool      // the agent's client gives up on the hit call before the tool's answer is due
	again     variation // how the agent spells a retry
	story     story     // what the agent, or the harness around it, does besides
	offline   bool      // the agent is away for a day before it retries
	unique    bool      // the downstream has a unique constraint in the place of replaying answers
	window    bool      // the downstream forgets keys after a day
}

// variation is how a retry differs from the call that it repeats.
type variation int

const (
	verbatim variation = iota
	respelled
	reworded
	changed
)

// story is what happens around the hit step.
type story int

const (
	noStory     story = iota
	redelivered       // the event comes again once the run is over, and the whole run is played again
	reprompted        // the turn is played again once it is over
	crashes           // the process died: the turn is played again by a new one
	diesDone          // the process dies when the step is done, before the agent knows
	replanned         // the step is planned again with another amount, once it is done
	parallel          // the call is sent four times at once
	reconnects        // the client loses its stream and sends the call again at once, under a new id
	rejects           // a person must say yes to each write, and says no to the hit ones
	twice             // two processes work at the step at the same moment
	fixed             // the tool refuses, its reason is put right, and the same call is made again
)

// Faults are all rows, in the order of the table.
var Faults = []Fault{
	{Name: "none", Title: "no fault"},
	{Name: "answer-lost", Title: "answer lost after commit", trouble: []Trouble{AnswerLost}},
	{Name: "timeout", Title: "time-out before commit", trouble: []Trouble{Silent}, impatient: true},
	{Name: "late-commit", Title: "late commit", trouble: []Trouble{Late}, impatient: true},
	{Name: "event-redelivered", Title: "event redelivered", story: redelivered},
	{Name: "crash-before-dispatch", Title: "crash between record and dispatch", trouble: []Trouble{DiesBefore}, story: crashes},
	{Name: "crash-after-dispatch", Title: "crash after dispatch", trouble: []Trouble{DiesAfter}, story: crashes},
	{Name: "crash-after-answer", Title: "crash after the answer", story: diesDone},
	{Name: "prompt-resent", Title: "harness re-sends the prompt", story: reprompted},
	{Name: "respelled", Title: "retry with reordered keys and other number forms", trouble: []Trouble{SilentDone}, impatient: true, again: respelled},
	{Name: "reworded", Title: "reworded free text", trouble: []Trouble{SilentDone}, impatient: true, again: reworded},
	{Name: "changed-parameter", Title: "changed parameter after a time-out", trouble: []Trouble{SilentDone}, impatient: true, again: changed},
	{Name: "changed-amount", Title: "changed amount under the same request", story: replanned},
	{Name: "parallel", Title: "parallel duplicates", trouble: []Trouble{Slow, Slow, Slow, Slow}, story: parallel},
	{Name: "reconnect", Title: "reconnect, re-sent under a new id", trouble: []Trouble{Slow, Slow}, story: reconnects},
	{Name: "approval-rejected", Title: "approval rejected", story: rejects},
	{Name: "two-processes", Title: "two processes on one ledger", trouble: []Trouble{Slow, Slow}, story: twice},
	{Name: "refused-then-fixed", Title: "refusal, precondition fixed, same call", trouble: []Trouble{Refuses}, story: fixed},
	{Name: "already-exists", Title: "answer lost, then “already exists”", trouble: []Trouble{AnswerLost}, unique: true},
	{Name: "key-forgotten", Title: "answer lost, and the key forgotten a day later", trouble: []Trouble{DiesAfter}, story: crashes, offline: true, window: true},
	{Name: "downstream-dies", Title: "the downstream's process dies in the call", trouble: []Trouble{LosesProcess}, trouble2: []Trouble{FailsBefore}},
}

// processes is how many processes the agent works with.
func (f *Fault) processes() int {
	if f.story == twice {
		return 2
	}
	return 1
}

// Known reports whether under this fault an arm can come to know each outcome: it has a warrant that is good for long enough.
func (f *Fault) Known(a *Arm) bool {
	switch {
	case a.lookup:
		return true
	case a.keyed:
		return !f.window
	}
	return false
}

// SelectFaults returns the faults of a list of names divided by commas; "" is all of them.
func SelectFaults(list string) ([]Fault, error) {
	return choose(list, Faults, "fault", func(f Fault) string { return f.Name })
}

// choose picks what a list names, in the order of all.
func choose[T any](list string, all []T, what string, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var names, known []string
	for _, one := range strings.Split(list, ",") {
		names = append(names, strings.TrimSpace(one))
	}
	var chosen []T
	for _, one := range all {
		known = append(known, name(one))
		if slices.Contains(names, name(one)) {
			chosen = append(chosen, one)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("there is no %s %q; there are %s", what, n, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
