package evals

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Policy is what an operator declared in a toolguard.yaml, as far as it is about the tools of runs.
type Policy struct {
	// Of says what was declared for a tool.
	Of func(server, tool string) Declared
	// Known leaves of a call's facts those that the file's context declares, with the values that the file itself gives.
	Known func(*keyderive.Facts)
	// Servers are the names of the file's servers. Tools and Defaults are these parts of the file as they were read: with them
	// real processes are configured, and only with them.
	Servers  []string
	Tools    map[string]map[string]any
	Defaults map[string]any
}

// NoKey says why a server on stdio gets no key by this policy; "": a tool of it does.
func (p *Policy) NoKey() string {
	why := "no --policy says where a tool takes its key"
	if p == nil {
		return why
	}
	for _, rule := range p.Tools {
		key, ok := rule["downstream_key"].(map[string]any)
		switch {
		case !ok:
		case key["header"] != nil:
			why = "the policy sends keys in a header, which a server on stdio does not get"
		case key["window"] == nil:
			why = "the policy gives no key a window: no server honours one"
		default:
			return ""
		}
	}
	return why
}

// NoLookup says why a server cannot be asked by this policy; "": it can, about a tool of it.
func (p *Policy) NoLookup() string {
	if p != nil {
		for _, rule := range p.Tools {
			if rule["lookup"] != nil {
				return ""
			}
		}
	}
	return "no --policy has a lookup"
}

// Declared is what was declared for one tool.
type Declared struct {
	Server string // its server, as the file calls it
	Ruled  bool   // the file has a rule for it; else only its defaults hold
	Effect registry.Effect
	Source string // how the effect is known: "declared" or "presumed"
	Policy registry.Policy
}

// What the derived policy, and the downstream beside it, are made with.
const (
	timeout = 30 * time.Second // of an attempt
	window  = 24 * time.Hour   // how long a downstream honours a key
	lag     = 20 * time.Second // how long an effect does not show in a lookup
	settles = time.Minute      // how long a lookup's "absent" proves nothing
	late    = 50 * time.Second // how long a late effect takes
)

// schema is the input schema of a tool that nobody described: an object with the arguments that were seen.
func (s *shape) schema() json.RawMessage {
	properties := map[string]struct{}{}
	for _, name := range s.names {
		properties[name] = struct{}{}
	}
	text, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return text
}

// anError recognises what the servers of recorded runs answer when they have done nothing.
var anError = sync.OnceValues(func() (*registry.Expression, error) {
	return registry.CompileExpression("result.is_error", registry.KindAnswer)
})

// derived is the policy that a careful operator would write for a tool: once per event, step and target; free text may
// differ; what such a server answers as an error did not happen.
func (s *shape) derived() (Declared, error) {
	refusal, err := anError()
	p := registry.Policy{OncePer: []string{"source_event", "step"}, NotApplied: []*registry.Expression{refusal}, Timeout: timeout}
	for _, name := range s.target {
		p.OncePer = append(p.OncePer, "/"+name)
	}
	for _, name := range s.free {
		p.MayDiffer = append(p.MayDiffer, "/"+name)
	}
	return Declared{s.server, true, registry.Write, "declared", p}, err
}

// declared is what holds for a tool in an arm with a policy: what the operator declared, or else what a careful one would
// have. An arm whose downstream takes no keys, or cannot be asked, has a policy that does not say so either.
func (s *shape) declared(a *Arm, o *Policy) (d Declared, err error) {
	if o == nil {
		d, err = s.derived()
	} else {
		d = o.Of(s.server, s.tool)
	}
	p := &d.Policy
	switch {
	case a.keyed && p.DownstreamKey.Window == 0:
		p.DownstreamKey = registry.DownstreamKey{Meta: keyMember, Window: window}
	case a.keyed:
	case a.lookup: // it may be the key that is looked for
		p.DownstreamKey.Window = 0
	default:
		p.DownstreamKey = registry.DownstreamKey{}
	}
	if !a.lookup {
		p.Lookups = nil
	}
	if p.Approval != nil { // of whom there is one here
		approval := *p.Approval
		approval.Reviewers = nil
		p.Approval = &approval
	}
	return d, err
}

// keyMember is the member of _meta in which a downstream takes keys where the policy names no other place.
const keyMember = "idempotency-key"

// register makes the tool as an arm's guard has it.
func (s *shape) register(a *Arm, f *Fault, o *Policy, slot *slot) (*registry.Entry, error) {
	t := registry.Tool{Server: s.server, Name: s.tool, InputSchema: s.schema(), Effect: registry.Write, EffectSource: "presumed"}
	if a.policy {
		d, err := s.declared(a, o)
		if err != nil {
			return nil, err
		}
		t.Effect, t.EffectSource, t.Policy = d.Effect, d.Source, d.Policy
		if o != nil {
			t.InputSchema = nil // the policy may name arguments that the run has not
		}
		if f.story == rejects {
			t.Policy.Approval = &registry.Approval{}
		}
		if a.lookup {
			if t.Policy.Lookups, err = slot.lookups(s.tool, t.Policy.Lookups); err != nil {
				return nil, fmt.Errorf("the policy of %s/%s: %w", d.Server, s.tool, err)
			}
		}
	}
	t.Handler = func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		return slot.world.Load().Handle(ctx, s.tool, d)
	}
	return registry.Compile(t)
}

// slot is where the handlers of compiled tools find the downstream of the run that is being played.
type slot struct {
	world   atomic.Pointer[World]
	entries map[string]*registry.Entry // compiled before, by everything that they depend on
}

// maxEntries is how many compiled tools are kept.
const maxEntries = 2000

// lookups makes lookups ask the downstream of the runs. A tool whose policy has none gets the downstream's own.
func (s *slot) lookups(tool string, declared []registry.Lookup) ([]registry.Lookup, error) {
	if len(declared) == 0 {
		l, err := ownLookup()
		declared = []registry.Lookup{l}
		if err != nil {
			return nil, err
		}
	}
	list := make([]registry.Lookup, len(declared))
	for i, l := range declared {
		q, err := newQuery(tool, l)
		if err != nil {
			return nil, fmt.Errorf("lookup %d: %w", i+1, err)
		}
		l.Handler = func(_ context.Context, d *registry.Dispatch) (registry.Answer, error) {
			return s.world.Load().Find([]*query{q}, d.Arguments)
		}
		list[i] = l
	}
	return list, nil
}

// entry returns a tool compiled for an arm.
func (s *slot) entry(sh *shape, a *Arm, f *Fault, o *Policy) (*registry.Entry, error) {
	id := fmt.Sprintf("%q %q %q %q %q %q %t", a.Name, sh.server, sh.tool, sh.names, sh.target, sh.free, f.story == rejects)
	if e := s.entries[id]; e != nil {
		return e, nil
	}
	e, err := sh.register(a, f, o, s)
	if err != nil {
		return nil, err
	}
	if len(s.entries) >= maxEntries {
		s.entries = nil
	}
	if s.entries == nil {
		s.entries = map[string]*registry.Entry{}
	}
	s.entries[id] = e
	return e, nil
}

// promises are what the policies of a run's tools say of the downstream. It keeps them.
type promises struct {
	timeout, settle time.Duration // the shortest
	window          time.Duration // the longest
	provable        time.Duration // the longest time after which a lookup can prove an absence
}

func promisesOf(list []*shape, o *Policy) promises {
	p := promises{timeout, settles, 0, timeout + settles}
	for _, s := range list {
		if o == nil {
			break
		}
		d := o.Of(s.server, s.tool)
		t := d.Policy.Timeout
		if t == 0 {
			t = registry.DefaultTimeout
		}
		p.timeout = min(p.timeout, t)
		p.window = max(p.window, d.Policy.DownstreamKey.Window)
		for _, l := range d.Policy.Lookups {
			if l.Settle > 0 {
				p.settle = min(p.settle, l.Settle)
			}
			p.provable = max(p.provable, t+l.Settle)
		}
	}
	if p.window == 0 {
		p.window = window
	}
	return p
}

// late is how long a late effect takes: it comes after the attempt's deadline, and shows before a lookup's settle is over.
func (p promises) late() time.Duration { return min(late, p.timeout+p.settle/3) }

// lag is how long an effect does not show in a lookup.
func (p promises) lag() time.Duration { return min(lag, p.settle/3) }
