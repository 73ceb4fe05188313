// Package drill rehearses what goes wrong with agents against a policy: the real guard, a scratch ledger, and in the place
// of the tool a downstream that counts what it does. Nothing leaves the process.
package drill

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Subject is a tool with its policy, as it would be served.
type Subject struct {
	Tool    registry.Tool     // its Handler is not called, nor are those of its lookups
	Facts   map[string]string // the facts that are declared; "" where their value comes with each call
	Observe bool              // the guard only observes
}

func (s *Subject) has(fact string) bool {
	_, ok := s.Facts[fact]
	return ok
}

// Result says how a rehearsal ended.
type Result string

const (
	Pass          Result = "pass"
	Fail          Result = "FAIL"
	NotApplicable Result = "not applicable" // no pass: it was not rehearsed
)

// Rehearsal is one rehearsal of one tool.
type Rehearsal struct {
	Name   string   `json:"name"`
	Result Result   `json:"result"`
	Why    string   `json:"why"`               // in plain words
	Weak   []string `json:"weak,omitempty"`    // what a pass rests on
	Calls  int      `json:"calls,omitempty"`   // that reached the downstream
	Effect int      `json:"effects,omitempty"` // of these

	late bool // the machine took longer than the tool's time: it says nothing
}

// The rehearsals, in order.
var rehearsals = []struct {
	name string
	play func(context.Context, *act) (Rehearsal, error)
}{
	{"the same event twice", sameEvent},
	{"retry after a time-out", timedOut},
	{"restart in mid-action", restarted},
	{"approval rejected", rejected},
	{"payload changed under the same key", changed},
}

// Names of the rehearsals, in the order in which [Run] makes them.
func Names() []string {
	var out []string
	for _, r := range rehearsals {
		out = append(out, r.name)
	}
	return out
}

// limit is how long one rehearsal may take.
const limit = time.Minute

// Run makes all five rehearsals of a tool, in some seconds, and tells done of each. arguments are those it was called
// with; nil where none could be made up. An error is one of the drill's own, such as a full disk.
func Run(ctx context.Context, s *Subject, done func(Rehearsal)) (arguments json.RawMessage, err error) {
	a := &act{subject: s}
	var why error
	if a.entry, err = registry.Compile(a.shape()); err != nil {
		return nil, err
	}
	a.arguments, why = a.seek(0, func(args any) bool { return !a.asks(args) })
	if why != nil {
		a.arguments, why = a.seek(0, func(any) bool { return true })
	}
	for _, r := range rehearsals {
		if why != nil {
			done(Rehearsal{Name: r.name, Result: NotApplicable, Why: why.Error()})
			continue
		}
		a.pace = quick
		got, err := a.play(ctx, r.play)
		if err == nil && got.late {
			a.pace = slow
			got, err = a.play(ctx, r.play)
		}
		if err != nil {
			return a.arguments, fmt.Errorf("%s, %s: %w", s.Tool.Action(), r.name, err)
		}
		got.Name = r.name
		done(got)
	}
	return a.arguments, nil
}

// act is what the rehearsals of a tool have in common.
type act struct {
	subject   *Subject
	entry     *registry.Entry // as served, but for the handlers
	arguments json.RawMessage
	pace      time.Duration
	*stage
}

func (a *act) shape() registry.Tool {
	t := a.subject.Tool
	t.Policy = shrunk(t.Policy, quick)
	return t
}

// play makes one rehearsal on a stage of its own.
func (a *act) play(ctx context.Context, play func(context.Context, *act) (Rehearsal, error)) (r Rehearsal, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if a.stage, err = newStage(ctx, a.subject, a.pace); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	r, err = play(ctx, a)
	if r.Calls == 0 { // else it has counted several stages by itself
		r.Calls, r.Effect = a.down.calls(), a.down.effects()
	}
	return r, err
}

// anew goes on with a stage on which nothing has happened yet.
func (a *act) anew(ctx context.Context) error {
	if a.calls == 0 {
		return nil
	}
	err := a.close()
	if err == nil {
		a.stage, err = newStage(ctx, a.subject, a.pace)
	}
	return err
}

// input is what expressions see of a call.
func (a *act) input(args any) registry.Input {
	f := (&stage{subject: a.subject}).facts(0)
	f.Tenant, f.Workflow = cmp.Or(f.Tenant, "default"), cmp.Or(f.Workflow, "default")
	return registry.Input{Arguments: args, Facts: f, Tool: a.entry.Action()}
}

// asks reports whether a call needs a person's word.
func (a *act) asks(args any) bool { return a.entry.NeedsApproval(a.input(args)) }

// seek makes arguments for which the call writes and that are accepted, first as a schema suggests, then with the values
// that the conditions of the policy mention.
func (a *act) seek(from int, accept func(args any) bool) (json.RawMessage, error) {
	reads := true
	fits := func(args any) bool {
		if a.entry.Reads(a.input(args)) {
			return false
		}
		reads = false
		return accept(args)
	}
	var first error
	for turn := from; turn < from+4; turn++ {
		text, err := sample(a.entry, turn, fits)
		if text != nil && err == nil {
			return text, nil
		}
		if first == nil {
			first = err
		}
		for _, text := range a.mentioned(turn) {
			args, err := keyderive.Parse(text)
			if err == nil && a.entry.Validate(args) == nil && fits(args) {
				return text, nil
			}
		}
	}
	if first == errNoSample && reads && a.entry.Policy.ReadsWhen != nil {
		first = fmt.Errorf("no sample arguments could be made up for which reads_when (%s) does not hold", a.entry.Policy.ReadsWhen)
	}
	return nil, first
}
