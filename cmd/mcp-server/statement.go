package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// statement says what a tool's policy comes to, in sentences that whoever answers for the process can sign.
func statement(e *registry.Entry, c config.Context) []string {
	s := &stated{e: e, p: &e.Policy, c: c}
	switch e.Effect {
	case registry.Read:
		return []string{"It only reads: every call is sent."}
	case registry.Deny:
		return []string{"It is never called."}
	case registry.Idempotent:
		s.state()
	default:
		s.identity()
	}
	s.exceptions()
	s.approval()
	s.lost()
	s.records()
	return s.lines
}

// stated is a statement in the making.
type stated struct {
	e     *registry.Entry
	p     *registry.Policy
	c     config.Context
	lines []string
}

func (s *stated) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// plainWords writes facts and pointers as people say them: source event, invoice_id.
func plainWords(words []string) []string {
	var out []string
	for _, w := range words {
		if strings.HasPrefix(w, "/") {
			out = append(out, strings.NewReplacer("~1", "/", "~0", "~").Replace(strings.ReplaceAll(w[1:], "/", ".")))
			continue
		}
		out = append(out, strings.ReplaceAll(w, "_", " "))
	}
	return out
}

// state is for a tool that sets a state.
func (s *stated) state() {
	of := "what it sets"
	per := "of this tool"
	if len(s.p.Entity) > 0 {
		of = listed(plainWords(s.p.Entity))
		per = "per " + of
	}
	s.say("The last call counts: it sets the state of %s. Calls are sent one at a time %s, again whenever they come, and never while an earlier one could still arrive; only a call that the client repeats under its own call id is not sent again.", of, per)
}

// identity is what makes two calls of a writing tool the same one.
func (s *stated) identity() {
	differ := ""
	if len(s.p.MayDiffer) > 0 {
		differ = "; " + listed(plainWords(s.p.MayDiffer)) + " may differ"
	}
	var facts []string
	for _, name := range []string{"source_event", "run", "step"} {
		if s.c.Names(name) {
			facts = append(facts, name)
		}
	}
	switch {
	case s.p.OncePer != nil:
		words := slices.DeleteFunc(slices.Clone(s.p.OncePer), func(w string) bool { return w == "tenant" || w == "workflow" })
		per := "per tenant and workflow"
		if len(words) > 0 {
			per = "per " + listed(plainWords(words))
		}
		until := "Once done it stays done: every later call with the same gets the recorded result"
		if s.p.RepeatAfter > 0 {
			until = fmt.Sprintf("Until %s after its result was delivered, every call with the same gets the recorded result; then a call is a new one", brief(s.p.RepeatAfter))
		}
		s.say("One call %s. %s.", per, until)
		if others := s.others(); others != "" {
			s.say("A second call with another %s is refused until a person allows it%s.", others, differ)
		} else if differ != "" {
			s.say("%s may differ.", listed(plainWords(s.p.MayDiffer)))
		}
	case len(facts) > 0:
		s.say("One call per %s and arguments. Once done it stays done: the same call again gets the recorded result%s.", listed(plainWords(facts)), differ)
		s.say("Other arguments are another call, which is held back only while the first one is in doubt.")
	default:
		s.say("The same arguments are the same call until its result is known to have arrived, and after that until something else is written to %s, at most for 60 s%s.", s.e.Server, differ)
		s.say("Planned anew later, it is done again: nothing says which piece of work a call belongs to.")
	}
}

// others are the arguments that are neither part of the identity nor may differ.
func (s *stated) others() string {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(s.e.InputSchema, &schema) != nil {
		return "argument"
	}
	if len(schema.Properties) == 0 {
		return ""
	}
	spoken := slices.Concat(s.p.OncePer, s.p.MayDiffer, []string{s.p.DownstreamKey.Argument})
	var names []string
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		pointer := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if !slices.Contains(spoken, pointer) {
			names = append(names, name)
		}
	}
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("%d more", more))
	}
	return strings.Replace(listed(names), " and ", " or ", 1)
}

// exceptions are the calls that only read, and the arguments that count in another form than they are sent.
func (s *stated) exceptions() {
	if x := s.p.ReadsWhen; x != nil {
		s.say("Calls for which `%s` holds only read, and are always sent.", x)
	}
	if n := s.p.Normalize; len(n) > 0 {
		var parts []string
		for _, pointer := range slices.Sorted(maps.Keys(n)) {
			parts = append(parts, fmt.Sprintf("%s after %s", strings.Join(plainWords([]string{pointer}), ""), listed(n[pointer])))
		}
		s.say("Compared is %s; sent is what the caller wrote.", listed(parts))
	}
}

// approval is who must say yes to what, and how long that is good.
func (s *stated) approval() {
	a := s.p.Approval
	if a == nil {
		return
	}
	who, when := "a reviewer", "Before each call"
	if len(a.Reviewers) > 0 {
		who = strings.Replace(listed(a.Reviewers), " and ", " or ", 1)
	}
	if a.When != nil {
		when = fmt.Sprintf("Before a call for which `%s` holds, or cannot be told,", a.When)
	}
	s.say("%s %s must approve these very arguments, and nobody who asked for it may. The approval is good once, for %s.", when, who, brief(cmp.Or(a.Expires, registry.DefaultExpires)))
}

// lost is what happens when an answer is lost.
func (s *stated) lost() {
	owner := "a person (no owner is named)"
	if s.p.Owner != "" {
		owner = s.p.Owner
	}
	timeout := brief(cmp.Or(s.p.Timeout, registry.DefaultTimeout))
	attempts := counted(cmp.Or(s.p.Attempts, registry.DefaultAttempts), "attempt")
	begin := fmt.Sprintf("When an answer is lost, or none comes within %s, nobody is told that it was done or not: ", timeout)
	for i, l := range s.p.Lookups {
		asked := cmp.Or(l.Tool, fmt.Sprintf("lookup %d", i+1))
		by, unsure := " by our key", ""
		if !l.Keyed() {
			by = ""
			unsure = " It does not ask for our key, so it cannot tell this call's effect from another's on the same thing: what it finds counts only if it was not there before and nobody else was at it."
		}
		finds := "whether it happened"
		switch {
		case l.Applied == nil:
			finds = "whether it did not happen"
		case l.Absent == nil:
			finds = "whether it happened, and finding nothing proves nothing"
		}
		text := fmt.Sprintf("%s%s is asked%s %s", begin, asked, by, finds)
		if l.Absent != nil {
			text += fmt.Sprintf("; that nothing is found counts from %s after the attempt's end on, and then it is sent again", brief(l.Settle))
		}
		s.say("%s.%s", text, unsure)
		begin = "Also "
	}
	k := s.p.DownstreamKey
	switch {
	case s.e.Effect == registry.Idempotent && len(s.p.Lookups) == 0:
		s.say("When an answer is lost, or none comes within %s, the next call sets the state again.", timeout)
	case s.e.Effect == registry.Idempotent:
	case k.Window > 0:
		s.say("%sthe same bytes are sent again by themselves under the same key, at most %s altogether and all within %s, for which %s must honour the key; after that %s must find out.", begin, attempts, brief(k.Window), s.e.Server, owner)
	case len(s.p.Lookups) > 0:
		s.say("What cannot be found out so, with at most %s, %s must find out.", attempts, owner)
	default:
		s.say("%snothing is sent again, and %s must find out.", begin, owner)
	}
}

// records are what is kept, and who answers for it.
func (s *stated) records() {
	if len(s.p.Secret) > 0 {
		s.say("What is in %s is never shown, and kept only sealed.", listed(plainWords(s.p.Secret)))
	}
	s.say("Arguments and results are kept for %s, that and when it was done for ever.", brief(cmp.Or(s.p.Retention, registry.DefaultRetention)))
	if s.p.Owner != "" {
		s.say("Owner: %s.", s.p.Owner)
	}
}
