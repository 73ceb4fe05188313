package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Lookup is one way to learn what became of an attempt: a read of the downstream, and how its answer is understood. An
// answer that is an error, or speaks like one, counts only for a condition that names result.is_error or result.status,
// or, for Absent, asks for something that is in that answer: that a text is missing from "busy" proves nothing.
type Lookup struct {
	Tool      string        // the read, by its name at the same server; "" where Handler is no tool
	Arguments *Template     // what it is called with; nil: {}
	Applied   *Expression   // over its answer: the attempt had its effect
	Absent    *Expression   // over its answer: there is no such effect
	Settle    time.Duration // how long after an attempt an effect may take to show: before that Absent proves nothing
	// Version names what is asked where Tool does not: a digest of the request. An approval relies on it.
	Version string
	// Handler sends the read: raw, never recorded as an operation. Whoever reaches the tool sets it.
	Handler Handler `json:"-"`
}

// Keyed reports whether the lookup asks for our key. One that does not sees what others did, too.
func (l *Lookup) Keyed() bool { return l.Arguments.Keyed() }

// Approval says when a person must say yes before a call is sent.
type Approval struct {
	When      *Expression   // over the arguments; nil: always
	Expires   time.Duration // how long a request, or the yes to it, is good; 0: DefaultExpires
	Reviewers []string      // who may decide; none: every reviewer
}

// DefaultExpires is [Approval].Expires where the policy does not say.
const DefaultExpires = 24 * time.Hour

// NeedsApproval reports whether a call needs a person's yes. A condition that fails needs it.
func (e *Entry) NeedsApproval(in Input) bool {
	p := e.Policy.Approval
	if p == nil {
		return false
	}
	if p.When == nil {
		return true
	}
	needs, err := p.When.Bool(in)
	return needs || err != nil
}

// Finding is what a lookup found.
type Finding string

const (
	Applied Finding = "applied" // the attempt had its effect
	Absent  Finding = "absent"  // there is no such effect, as far as the lookup sees
	Unclear Finding = "unclear" // it could not tell
)

// Found is what a lookup found, and in which words.
type Found struct {
	Finding      Finding
	Says         string // the answer's own words, or why it could not tell: one line of at most 500 bytes
	DownstreamID string // by downstream_id over the lookup's answer, where that applies
}

// Look asks lookup number i of the policy. values must hold what its placeholders and expressions need.
func (e *Entry) Look(ctx context.Context, i int, values Values) Found {
	l := &e.Policy.Lookups[i]
	hide := e.Redactor(values.Arguments)
	unclear := func(err error) Found { return Found{Finding: Unclear, Says: oneLine(hide.Text(err.Error()), maxSays)} }
	arguments, err := l.Arguments.Expand(values)
	if err != nil {
		return unclear(err)
	}
	answer, err := lookUp(ctx, l.Handler, arguments, &values)
	if err != nil {
		return unclear(err)
	}
	v := answer.view()
	f := Found{Finding: Unclear, Says: v.says(&answer, hide)}
	if !v.readable || v.incomplete {
		return f
	}
	act := &activation{in: Input{Arguments: values.Arguments, Facts: values.Facts, Tool: e.Action(), Answer: &answer}, view: v}
	applied, absent := holds(l.Applied, act), holds(l.Absent, act)
	if v.isError || v.saysError {
		empty := activation{in: act.in, view: noAnswer.view()}
		empty.in.Answer = &noAnswer
		applied = applied && l.Applied.asksForErrors()
		absent = absent && (l.Absent.asksForErrors() || !holds(l.Absent, &empty))
	}
	switch {
	case applied && !absent:
		f.Finding = Applied
	case absent && !applied:
		f.Finding = Absent
	}
	if e.Policy.DownstreamID != nil && f.Finding == Applied {
		if id, err := e.Policy.DownstreamID.text(act); err == nil {
			f.DownstreamID = plainID(id, hide)
		}
	}
	return f
}

// noAnswer is an error answer without a word.
var noAnswer = Answer{Result: json.RawMessage(`{"content":[],"isError":true}`)}

// asksForErrors reports whether a condition names what tells an error from other answers.
func (x *Expression) asksForErrors() bool {
	return strings.Contains(x.source, "result.is_error") || strings.Contains(x.source, "result.status")
}

// holds evaluates a condition; one that fails, or is not there, does not hold.
func holds(x *Expression, a *activation) bool {
	if x == nil {
		return false
	}
	ok, err := x.bool(a)
	return ok && err == nil
}

func lookUp(ctx context.Context, h Handler, arguments json.RawMessage, values *Values) (a Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the lookup panicked: %v", p)
		}
	}()
	return h(ctx, &Dispatch{Arguments: arguments, Values: values, Sending: func() error { return nil }, Sent: func() {}})
}

// CheckPlaceholders says which of the names between braces, if any, is an argument that the tool's schema does not have.
// The error wraps [ErrPolicy].
func (e *Entry) CheckPlaceholders(names []string) error {
	for _, name := range names {
		if pointer, ok := argumentPointer(name); ok && e.schema.lacks(pointer, false) {
			return e.policyError("{{%s}} is an argument that the tool's input schema does not have", name)
		}
	}
	return nil
}

// checkLookups checks what the policy says about lookups and approval by itself.
func (e *Entry) checkLookups() error {
	for i := range e.Policy.Lookups {
		l := &e.Policy.Lookups[i]
		switch {
		case l.Applied == nil && l.Absent == nil:
			return e.policyError("lookup %d tells nothing: it needs applied, absent, or both", i+1)
		case l.Absent != nil && l.Settle <= 0:
			return e.policyError("lookup %d has absent but no settle: how long after an attempt may its effect take to show?", i+1)
		}
		for _, x := range []*Expression{l.Applied, l.Absent} {
			if x != nil && (x.kind != KindAnswer || !x.boolean) {
				return e.policyError("lookup %d has what is no condition: %s", i+1, x)
			}
		}
		for _, name := range l.Arguments.Placeholders() {
			if pointer, ok := argumentPointer(name); ok && e.schema.lacks(pointer, false) {
				return e.policyError("lookup %d names {{%s}}, which the tool's input schema does not have", i+1, name)
			}
		}
	}
	if p := e.Policy.Approval; p != nil && p.When != nil && (p.When.kind != KindArguments || !p.When.boolean) {
		return e.policyError("approval.when must be a condition over the arguments, not %s", p.When.source)
	}
	return nil
}
