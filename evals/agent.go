package evals

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"toolguard.dev/evals/recorded"
)

// How an agent spends its time.
const (
	thinks    = 3 * time.Second  // between calls
	listens   = 10 * time.Second // while the user speaks
	patience  = time.Minute      // of its client
	impatient = 20 * time.Second // of its client, where that is the fault
	asksAgain = 30 * time.Second // about what is pending
)

// How often an agent tries before it tells the user.
const (
	maxTries = 3  // after an error
	maxAsks  = 30 // while something is pending
)

// agent plays one run. It makes the recorded calls in their order, and where something goes wrong it does what agents do.
// It believes what it is told: what is done is done, what is pending is asked for again, what is a person's is told the user.
type agent struct {
	ctx    context.Context // of a run on real processes: when it ends, nothing is waited for any more
	plan   *Plan
	shapes map[string]*shape // by server and tool
	fault  *Fault
	line   line
	world  *World
	story  *Story
	real   bool // on real processes, in real time, pace times faster
	asks   bool // a write waits for a person's yes, where that is the fault

	hits    map[int]bool   // the steps that the fault hits
	met     map[int]bool   // hits that the fault has hit
	told    map[int]bool   // steps that the agent told the user of, because it does not know
	done    map[int]bool   // steps that it takes for done
	asked   map[int]bool   // steps that it asked for at all
	keys    map[int]string // that the model made up, by call
	calls   int
	played  int // how often the run was begun
	planned int // how often something was planned, for the model's keys
	acts    int
	took    func()
	waited  map[int]time.Duration // by step
	replays map[int]bool          // turns whose prompt comes again
	failed  error                 // why the run cannot be played on
}

// choosing picks the steps that a fault hits: each that it fits with an even chance, one at least, if there is one.
func choosing(p *Plan, shapes map[string]*shape, f *Fault, seed uint64) map[int]bool {
	hits := map[int]bool{}
	if f.Name == Faults[0].Name {
		return hits
	}
	r := rand.New(rand.NewPCG(seed, sum64(p.Run.Form, p.Run.Name, f.Name)))
	var fit []int
	for _, step := range p.meant() {
		v := f.again
		if f.story == replanned {
			v = changed
		}
		c := p.Steps[step].call
		if _, ok := shapes[serverOf(c)+"/"+c.Tool].vary(c.Arguments, v); ok {
			fit = append(fit, step)
		}
	}
	for _, step := range fit {
		if r.IntN(2) == 0 {
			hits[step] = true
		}
	}
	if len(fit) > 0 && len(hits) == 0 {
		hits[fit[r.IntN(len(fit))]] = true
	}
	return hits
}

// play plays the run to its end.
func (a *agent) play() {
	a.once()
	if a.fault.story == redelivered && len(a.hits) > 0 && a.failed == nil {
		a.sleep(5 * time.Minute)
		a.note(-1, "agent", "the event is delivered again, and another worker takes it")
		clear(a.keys)
		a.once()
	}
	a.goOn()
}

// once plays the run from its beginning.
func (a *agent) once() {
	a.played++
	turn, begun := -1, 0
	for i := 0; i < len(a.plan.Calls) && a.failed == nil; i++ {
		c := &a.plan.Calls[i]
		if c.Turn != turn {
			if a.again(turn) {
				i = begun - 1
				continue
			}
			turn, begun = c.Turn, i
			a.sleep(listens)
		}
		if !a.make(c) {
			a.back()
			i = begun - 1
		}
	}
	if turn >= 0 && a.failed == nil && a.again(turn) {
		for i := begun; i < len(a.plan.Calls); i++ {
			a.make(&a.plan.Calls[i])
		}
	}
}

// again reports whether the prompt of a turn that is over comes again.
func (a *agent) again(turn int) bool {
	if !a.replays[turn] {
		return false
	}
	delete(a.replays, turn)
	a.note(-1, "agent", "the harness sends the prompt again")
	clear(a.keys)
	return true
}

// back is the agent's start after its process died: it knows what the user said last, and nothing of what it did since.
func (a *agent) back() {
	if a.fault.offline {
		a.note(-1, "agent", "it comes back when the downstream has forgotten its keys")
		a.wait(a.world.Window + a.world.Window/24)
	}
	a.took = nil
	a.sleep(listens)
	if now := time.Since(a.story.began); !a.real {
		time.Sleep(now.Truncate(time.Second) + time.Second - now)
	}
	clear(a.keys)
	a.note(-1, "agent", "a new process plans the turn again")
	a.failed = a.line.restart()
}

// wait lets d pass, in real time only until the run is given up.
func (a *agent) wait(d time.Duration) {
	if !a.real {
		time.Sleep(d)
		return
	}
	select {
	case <-time.After(d):
	case <-a.ctx.Done():
	}
}

// goOn is the agent's next move, by which it is known to have had the last answer.
func (a *agent) goOn() {
	if a.took != nil {
		a.took()
		a.took = nil
	}
}

// sleep lets at least d pass. The agent then acts at a moment at which nothing else does, so that nothing depends on who is
// first: what guards it does things by itself at whole seconds from its start, and after whole seconds from the agent's
// earlier acts.
func (a *agent) sleep(d time.Duration) {
	a.goOn()
	if a.real {
		a.wait(min((d+1500*time.Millisecond)/pace, longest)) // in its own time it waits for the next second but one
		return
	}
	a.acts++
	at := (time.Since(a.story.began) + d).Truncate(time.Second) + time.Second
	at += 200*time.Millisecond + time.Duration(a.acts%199)*3*time.Millisecond
	time.Sleep(at - time.Since(a.story.began))
}

// make makes one recorded call and deals with what comes of it. It reports whether the process lives.
func (a *agent) make(c *Planned) bool {
	if c.Step < 0 && a.real {
		return true
	}
	a.sleep(thinks)
	if c.Step < 0 {
		return true
	}
	step := c.Step
	hit := a.hits[step] && !a.met[step] && !c.Failed // a call that the run shows as refused is refused first
	if hit {
		a.met[step] = true
	}
	a.asked[step] = true
	if hit && a.fault.story == rejects && !a.asks {
		a.note(step, "person", "says no to this, but nothing here asks before it is sent")
	}
	began := time.Now()
	defer func() { a.waited[step] += time.Since(began) }()
	if !hit {
		return a.follow(c, c.Arguments, a.ask(c, c.Arguments, patience), verbatim)
	}
	switch a.fault.story {
	case parallel:
		return a.follow(c, c.Arguments, a.atOnce(c, 4, 1), verbatim)
	case twice:
		return a.follow(c, c.Arguments, a.atOnce(c, 2, 2), verbatim)
	case reconnects:
		a.ask(c, c.Arguments, 3*time.Second)
		a.took = nil
		a.note(step, "agent", "the client has lost its stream and sends the call again")
		return a.follow(c, c.Arguments, a.ask(c, c.Arguments, patience), verbatim)
	case diesDone:
		a.ask(c, c.Arguments, patience)
		a.took = nil
		a.note(step, "agent", "the process dies before the agent has the answer")
		a.line.die()
		return false
	case replanned:
		if !a.follow(c, c.Arguments, a.ask(c, c.Arguments, patience), verbatim) {
			return false
		}
		args, _ := a.shape(c).vary(c.Arguments, changed)
		a.sleep(thinks)
		a.note(step, "agent", "it plans the same step again, with another amount")
		delete(a.keys, c.Index)
		return a.follow(c, c.Arguments, a.ask(c, args, patience), verbatim)
	case fixed:
		s := a.ask(c, c.Arguments, patience)
		if s.kind == saidRefused {
			a.sleep(time.Minute)
			a.note(step, "agent", "the reason of the refusal is put right; the same call again")
			s = a.ask(c, c.Arguments, patience)
		}
		return a.follow(c, c.Arguments, s, verbatim)
	case reprompted:
		a.replays[c.Turn] = true
	}
	wait := patience
	if a.fault.impatient {
		wait = impatient
	}
	return a.follow(c, c.Arguments, a.ask(c, c.Arguments, wait), a.fault.again)
}

func (a *agent) shape(c *Planned) *shape { return a.shapes[serverOf(&c.Call)+"/"+c.Tool] }

// follow does what an agent does about an answer, until it knows, or the user is told. It reports whether the process lives.
func (a *agent) follow(c *Planned, args json.RawMessage, s said, v variation) bool {
	step, tries, asks, retry := c.Step, 0, 0, false
	for ; ; asks++ {
		if asks > maxAsks {
			a.tell(step, s.kind)
			return true
		}
		switch s.kind {
		case saidNothing:
			return false
		case saidDone:
			a.done[step] = true
			delete(a.told, step)
			return true
		case saidRefused:
			return true
		case saidPerson, saidStopped, saidRejected:
			a.tell(step, s.kind)
			return true
		case saidError:
			if tries++; tries >= maxTries {
				a.tell(step, s.kind)
				return true
			}
			a.sleep(time.Second << tries)
			if other, ok := a.shape(c).vary(args, v); ok && !retry {
				args = other
			}
			retry = true
		case saidAway:
			a.sleep(time.Minute)
		case saidPending:
			a.sleep(max(s.wait, asksAgain))
		case saidApproval:
			a.sleep(asksAgain)
			a.line.decide(a.approves)
			a.sleep(thinks)
		case saidHeld:
			if retry && s.wait < 0 { // it heard that the call which it tried again is done
				a.done[step] = true
				delete(a.told, step)
				return true
			}
			if retry || asks > 0 {
				a.tell(step, s.kind)
				return true
			}
			a.sleep(asksAgain)
		case saidChanged:
			if string(args) == string(c.Arguments) {
				a.tell(step, s.kind)
				return true
			}
			args = c.Arguments // it is told that the call is on record with other arguments: those it had first
			a.sleep(thinks)
		}
		s = a.ask(c, args, patience)
	}
}

// approves is what a person says of a write that waits for a yes: no where that is the fault, or nobody knows what it is for.
func (a *agent) approves(step int) bool {
	yes := step >= 0 && !(a.hits[step] && a.fault.story == rejects)
	if yes {
		a.note(step, "person", "says yes")
	} else {
		a.note(step, "person", "says no")
	}
	return yes
}

// tell is what an agent does when it does not know, or was stopped: it tells the user.
func (a *agent) tell(step int, heard saidKind) {
	if !a.told[step] {
		words := "this is not known"
		switch heard {
		case saidRejected:
			words = "a person said no, and that this was not done"
		case saidStopped:
			words = "this was stopped, and why"
		case saidHeld:
			words = "an earlier call of which nothing is known stands in the way"
		case saidChanged:
			words = "this is on record with other arguments"
		case saidApproval:
			words = "this still waits for a person's yes"
		}
		a.note(step, "agent", "it tells the user that "+words)
	}
	a.told[step] = true
}

// ask makes one call.
func (a *agent) ask(c *Planned, args json.RawMessage, patience time.Duration) said {
	a.goOn()
	q := a.question(c, args, patience)
	s := a.line.do(q)
	a.heard(q, s)
	a.took = s.took
	return s
}

func (a *agent) question(c *Planned, args json.RawMessage, patience time.Duration) *question {
	a.calls++
	if a.keys[c.Index] == "" {
		a.planned++
		a.keys[c.Index] = fmt.Sprintf("model-%d", a.planned)
	}
	q := &question{
		step: c.Step, server: serverOf(&c.Call), tool: c.Tool, args: args, id: fmt.Sprintf("call_%d", a.calls),
		key: a.keys[c.Index], turn: c.Turn, played: a.played, patience: patience,
	}
	words := ""
	if c.Failed {
		words = cmp.Or(c.Answer, "refused")
	}
	a.world.refuse(q.step, q.args, words)
	a.note(c.Step, "agent", q.tool+" "+clip(string(q.args), 200))
	return q
}

func (a *agent) heard(q *question, s said) {
	who := "answer"
	if s.kind == saidNothing {
		a.note(q.step, who, "none: the process is gone")
		return
	}
	a.note(q.step, who, clip(s.text, 200))
}

// atOnce makes the same call n times at the same moment, from as many processes, and returns the most telling answer. Of
// two processes the second plans for itself, so that its model makes up a key of its own.
func (a *agent) atOnce(c *Planned, n, processes int) said {
	a.goOn()
	all := make([]said, n)
	questions := make([]*question, n)
	for i := range n {
		questions[i] = a.question(c, c.Arguments, patience)
		questions[i].process = i % processes
		if i%processes > 0 {
			a.planned++
			questions[i].key = fmt.Sprintf("model-%d", a.planned)
		}
	}
	var calls sync.WaitGroup
	for i, q := range questions {
		calls.Go(func() { all[i] = a.line.do(q) })
	}
	calls.Wait()
	slices.SortStableFunc(all, func(a, b said) int { return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.text, b.text)) })
	for i, s := range all {
		a.heard(questions[i], s)
	}
	a.took = func() {
		for _, s := range all {
			if s.took != nil {
				s.took()
			}
		}
	}
	return all[0]
}

func (a *agent) note(step int, who, text string) { a.story.add(step, who, text) }

// shapesBy indexes shapes by server and tool.
func shapesBy(list []*shape) map[string]*shape {
	m := map[string]*shape{}
	for _, s := range list {
		m[s.server+"/"+s.tool] = s
	}
	return m
}

// nameOf names a run for people.
func nameOf(r *recorded.Run) string { return r.File + " " + r.Name }
