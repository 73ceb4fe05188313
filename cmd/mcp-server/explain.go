package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/cmd/mcp-server/drill"
	"toolguard.dev/registry"
)

// answer is one of the three answers that check gives for a tool.
type answer struct {
	Answer string `json:"answer"` // yes, no or partly; "" where the question does not arise
	Why    string `json:"why,omitempty"`
}

// finding is what check says about one tool.
type finding struct {
	Tool           string          `json:"tool"`
	Effect         registry.Effect `json:"effect,omitempty"`
	Source         string          `json:"effect_source,omitempty"`
	SameCall       string          `json:"same_call,omitempty"`
	Statement      []string        `json:"statement,omitempty"`      // the whole policy in sentences
	StableKey      answer          `json:"stable_key,omitzero"`      // on every attempt?
	RejectsRepeats answer          `json:"rejects_repeats,omitzero"` // does the downstream?
	Recorded       answer          `json:"recorded,omitzero"`        // is there a record of each retry?
	Secret         []string        `json:"secret,omitempty"`         // arguments that are never shown
	Weak           []string        `json:"weak,omitempty"`
	Error          string          `json:"error,omitempty"` // why it cannot be guarded
}

// examine says what a tool's policy comes to.
func examine(e *registry.Entry, c config.Context) finding {
	f := finding{Tool: e.Action(), Effect: e.Effect, Source: e.EffectSource, Secret: e.Policy.Secret}
	switch e.Effect {
	case registry.Read:
		f.SameCall = "reads pass through"
	case registry.Deny:
		f.SameCall = "never called"
	case registry.Idempotent:
		f.state(e)
	default:
		f.write(e, c)
	}
	if e.Effect == registry.Write || e.Effect == registry.Idempotent {
		f.Recorded = answer{"yes", "every attempt is recorded before it is sent"}
		f.downstream(e)
		if x := e.Policy.ReadsWhen; x != nil {
			f.SameCall += fmt.Sprintf("; calls for which `%s` holds only read", x)
		}
	}
	f.Statement = statement(e, c)
	if e.Policy.Approval != nil && !c.Names("actor") {
		f.Weak = append(f.Weak, "context names no actor, so nobody can tell who asked: a reviewer may approve what they asked for themselves")
	}
	if e.EffectSource == "presumed" && e.Effect == registry.Read {
		f.Weak = append(f.Weak, "that it only reads is presumed from its name: declare its effect")
	}
	return f
}

// state explains a tool that sets a state.
func (f *finding) state(e *registry.Entry) {
	f.SameCall = "the same call id; anything else is sent, one at a time per tool"
	if len(e.Policy.Entity) > 0 {
		f.SameCall = "the same call id; anything else is sent, one at a time per " + listed(e.Policy.Entity)
	}
	f.StableKey = answer{"partly", "only where the client sends call ids"}
	if len(e.Policy.Entity) == 0 {
		f.Weak = append(f.Weak, "no entity: its calls wait for each other although they may set different things")
	}
}

// write explains a tool that is guarded in full.
func (f *finding) write(e *registry.Entry, c config.Context) {
	p := e.Policy
	if p.OncePer != nil {
		f.declared(p, c)
		return
	}
	var facts []string
	for _, name := range []string{"source_event", "run", "step"} {
		if c.Names(name) {
			facts = append(facts, name)
		}
	}
	if len(facts) > 0 {
		f.SameCall = "the same arguments" + differing(p) + " with the same " + listed(facts) + "; once done, it stays done"
		f.StableKey = answer{"yes", "from " + listed(facts) + " and all arguments"}
		return
	}
	turn := ""
	if c.Names("request") || slices.Contains([]string{"codex", "vscode"}, c.Preset) {
		turn = " in the same chat turn"
	}
	f.SameCall = "the same arguments" + differing(p) + turn + ", until the result was delivered; after that until another write to " + e.Server
	if turn == "" {
		f.SameCall += ", at most for 60 s"
	}
	f.StableKey = answer{"partly", "until the result was delivered: nothing says which piece of work a call belongs to"}
	f.Weak = append(f.Weak, "no once_per and no fact of its work (source_event, run, step): a call planned anew after the answer arrived is a new one")
}

// declared explains once_per.
func (f *finding) declared(p registry.Policy, c config.Context) {
	var words []string
	for _, w := range p.OncePer {
		if w != "tenant" && w != "workflow" {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		f.SameCall = "any call: once per tenant and workflow"
	} else {
		f.SameCall = "the same " + listed(words)
	}
	f.SameCall += differing(p)
	if p.RepeatAfter > 0 {
		f.SameCall += "; done again " + brief(p.RepeatAfter) + " after it was delivered"
	} else {
		f.SameCall += "; once done, it stays done"
	}
	f.StableKey = answer{"yes", "from once_per, tenant and workflow"}
	for _, w := range words {
		if strings.HasPrefix(w, "/") {
			if drill.MadeUp(w) {
				f.Weak = append(f.Weak, "once_per has "+w+", which looks like what a model makes up anew with each plan: a call planned again is then another one")
			}
			continue
		}
		if c.Names(w) {
			f.oneWay(w, c)
			continue
		}
		if w == "request" && c.Preset != "none" {
			f.StableKey = answer{"partly", "request comes only from clients that send it (Codex, VS Code); other calls are blocked"}
			f.Weak = append(f.Weak, "once_per has request, for which the configuration names no source: calls of clients that do not send it are blocked")
			continue
		}
		f.StableKey = answer{"no", w + " has no source"}
		f.Error = fmt.Sprintf("once_per has %s, but context names no source for it: every call would be blocked", w)
	}
}

// oneWay tells of a fact of once_per that comes over one of the transports only.
func (f *finding) oneWay(fact string, c config.Context) {
	where := ""
	if _, ok := c.Facts[fact]; !ok {
		where = "stdio"
	} else if _, ok := c.HTTP[fact]; !ok {
		where = "HTTP"
	}
	if where != "" {
		f.Weak = append(f.Weak, fmt.Sprintf("over %s no source is named for %s: calls that come there are blocked", where, fact))
	}
}

func differing(p registry.Policy) string {
	if len(p.MayDiffer) == 0 {
		return ""
	}
	return " (" + listed(p.MayDiffer) + " may differ)"
}

// downstream explains what the tool itself does about repeats.
func (f *finding) downstream(e *registry.Entry) {
	for _, l := range e.Policy.Lookups {
		if !l.Keyed() {
			f.Weak = append(f.Weak, "the lookup "+l.Tool+" does not ask for our key ({{key}}): while others act on the same thing it proves nothing")
		}
	}
	k := e.Policy.DownstreamKey
	where := ""
	switch {
	case k.Argument != "":
		where = "the argument " + k.Argument
	case k.Meta != "":
		where = "_meta." + k.Meta
	case k.Header != "":
		where = "the header " + k.Header
	}
	switch {
	case where == "":
		f.RejectsRepeats = answer{"no", "no downstream_key is declared"}
	case k.Window == 0:
		f.RejectsRepeats = answer{"no", "it gets the key in " + where + ", but no window says that it honours it"}
	default:
		f.RejectsRepeats = answer{"yes", "for " + brief(k.Window) + ", by the key in " + where}
		if e.Effect == registry.Write {
			f.window(e.Policy)
		}
		return
	}
	if e.Effect == registry.Write && len(e.Policy.Lookups) == 0 {
		f.Weak = append(f.Weak, "the downstream is not known to reject repeats: when an answer is lost, a person must find out what happened")
	}
}

// window tells whether a key's window leaves room to send again: an attempt may take its whole timeout, then the next one
// must have ended a tenth of the window before its end.
func (f *finding) window(p registry.Policy) {
	timeout := cmp.Or(p.Timeout, registry.DefaultTimeout)
	if w := p.DownstreamKey.Window; 2*timeout+w/10 > w {
		f.Weak = append(f.Weak, fmt.Sprintf("the window of %s is too short for timeout %s: nothing will be sent again by itself (it takes a window of %s, or a timeout of %s)",
			brief(w), brief(timeout), brief((2*timeout*10/9).Truncate(time.Second)+time.Second), brief(w*9/20)))
	}
}

// brief writes a duration without its zero parts.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
