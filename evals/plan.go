package evals

import (
	"encoding/json"
	"reflect"
	"strings"

	"toolguard.dev/evals/recorded"
	"toolguard.dev/registry"
)

// Plan is what a run does, call by call, and what it means to have happened in the end.
type Plan struct {
	Run   *recorded.Run
	Calls []Planned
	Steps []Step // the writes that were meant, each once, in the order of their first call
}

// Planned is one recorded call.
type Planned struct {
	recorded.Call
	Step int // which step it asks for; -1: it only reads
}

// Step is one write of a run, however often it is asked for. A runtime that knows its plan would number it like this: a
// write that was refused and is tried again, corrected or not, keeps its step, and so does one that the agent repeats without
// being asked to; one that is wanted once more is another step.
type Step struct {
	Number  int
	Refused bool           // the run shows it as refused to the end: no effect is meant
	Needed  bool           // the same as an earlier step, and meant all the same
	Left    bool           // nobody can tell whether it is meant, or it is an attacker's: left out of every count
	NoOp    bool           // some repetition of it changes nothing more, by its label
	call    *recorded.Call // the one that did it; of a refused step the last
}

// Meant reports whether the step's effect is one of those that should be there in the end.
func (s *Step) Meant() bool { return !s.Refused && !s.Left }

// looking are words that begin the names of tools which only look or think, beyond those that a guard presumes by itself:
// the benchmarks' own.
var looking = []string{"calculate", "think", "check", "route", "fetch", "calc", "view", "show", "whois", "playwright_navigate",
	"puppeteer_navigate", "extract_key_facts", "summarize", "duckduckgo", "can_", "web_search", "web_fetch", "glob", "grep", "ls", "todoread"}

// Reads reports whether a tool of a recorded run only reads, going by its name.
func Reads(tool string) bool {
	if effect, _ := registry.PresumedEffect(tool, nil); effect == registry.Read {
		return true
	}
	name := strings.ToLower(tool)
	for _, word := range looking {
		if rest, ok := strings.CutPrefix(name, word); ok && (rest == "" || strings.HasSuffix(word, "_") || strings.ContainsAny(rest[:1], "_-")) {
			return true
		}
	}
	return name == "read" || name == "toolsearch" || name == "websearch" || name == "webfetch"
}

// PlanOf takes a run apart. The label says which repeated writes are meant; nil: each write that did not fail is.
//
// A repetition labelled unwanted_effect or no_op asks for the step it repeats; one labelled must_run_again is a needed step
// of its own; one that is ambiguous, or an attacker's, is left out of every count; what is no repetition of one write by
// another of the same tool is passed over. A write that failed has no effect, and
// the next one of the same tool that shares an argument with it is the same step tried again.
func PlanOf(r *recorded.Run, label *recorded.Label) *Plan {
	p := &Plan{Run: r, Calls: make([]Planned, 0, len(r.Calls))}
	repeats := map[int]recorded.Repeat{}
	if label != nil {
		for _, repeat := range label.Repeats {
			if repeat.Verdict != "" && unfit(r, repeat) == "" {
				repeats[repeat.Second] = repeat
			}
		}
	}
	stepOf := map[int]int{} // by the index of a call
	for i := range r.Calls {
		c := &r.Calls[i]
		if Reads(c.Tool) {
			p.Calls = append(p.Calls, Planned{*c, -1})
			continue
		}
		step := p.step(c, repeats[c.Index], stepOf)
		stepOf[c.Index] = step
		p.Calls = append(p.Calls, Planned{*c, step})
	}
	return p
}

// step says which step a call asks for, and makes one where it is another.
func (p *Plan) step(c *recorded.Call, repeat recorded.Repeat, stepOf map[int]int) int {
	if first, known := stepOf[repeat.First]; known && !c.Failed && p.Steps[first].Meant() {
		switch repeat.Verdict {
		case recorded.NoOp:
			p.Steps[first].NoOp = true
			return first
		case recorded.UnwantedEffect, recorded.UnwantedRefused:
			return first
		}
	}
	if repeat.Verdict == "" {
		for i := len(p.Steps) - 1; i >= 0; i-- {
			if s := &p.Steps[i]; s.Refused && s.call.Tool == c.Tool && s.call.Server == c.Server && share(s.call.Arguments, c.Arguments) {
				s.Refused, s.call = c.Failed, c
				return i
			}
		}
	}
	p.Steps = append(p.Steps, Step{
		Number: len(p.Steps), Refused: c.Failed, Needed: repeat.Verdict == recorded.MustRunAgain,
		Left: repeat.Verdict == recorded.Ambiguous || strings.HasPrefix(repeat.Verdict, recorded.Attacker),
		call: c,
	})
	return len(p.Steps) - 1
}

// share reports whether two calls have an argument in common.
func share(a, b json.RawMessage) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	if errX != nil || errY != nil {
		return false
	}
	for name, v := range x {
		if w, ok := y[name]; ok && reflect.DeepEqual(v, w) && v != nil && v != "" {
			return true
		}
	}
	return len(x) == 0 && len(y) == 0
}

// Writes is how many of the plan's calls write.
func (p *Plan) Writes() (n int) {
	for i := range p.Calls {
		if p.Calls[i].Step >= 0 {
			n++
		}
	}
	return n
}

// meant lists the steps that a fault may hit.
func (p *Plan) meant() []int {
	var list []int
	for i := range p.Steps {
		if p.Steps[i].Meant() {
			list = append(list, i)
		}
	}
	return list
}
