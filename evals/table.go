package evals

import (
	"cmp"
	"math"
)

// Table is what came of all runs: one cell for each fault and arm.
type Table struct {
	Seed    uint64   `json:"seed"`
	Runs    int      `json:"runs"`                         // played: those that write
	Idle    int      `json:"idle"`                         // that write nothing that is meant, or with tools that the server has not, and were not played
	Skipped int      `json:"skipped"`                      // that could not be read
	Why     []string `json:"why,omitempty"`                // of these, the first ones: which and why
	Labels  int      `json:"labelled"`                     // of the runs that were played
	Unruled []string `json:"tools_without_rule,omitempty"` // tools that runs write with, for which the operator's policy has no rule, the first ones
	Ruled   int      `json:"tools_with_rule,omitempty"`    // for how many it has one
	Doubts  []string `json:"label_doubts,omitempty"`       // what labels say that their runs do not bear out, the first ones: file, line and what
	Doubted int      `json:"doubted,omitempty"`            // how many such there are
	Total   []Cell   `json:"total"`                        // of all faults together, without the row of no fault
	Rows    []Row    `json:"rows"`
}

// maxWhy is how many skipped runs are named.
const maxWhy = 50

// Row is what came of one fault.
type Row struct {
	Fault string `json:"fault"`
	Title string `json:"title"`
	Cells []Cell `json:"cells"`
}

// Cell is what came of all runs under one fault in one arm. Shares are per 100, with their 95% Wilson interval.
type Cell struct {
	Arm   string `json:"arm"`
	Title string `json:"title"`
	Known bool   `json:"known"` // the arm can come to know each outcome under this fault
	Tally

	Duplicates Share    `json:"duplicates_per_100"`              // intended writes that happened more than once, or although a person had said no
	Lost       Share    `json:"lost_per_100"`                    // intended writes that did not happen, and nobody is told
	HeldBack   Share    `json:"held_back_per_100"`               // of the needed repeats: those that did not happen, and nobody is told
	Person     Share    `json:"to_a_person_per_100"`             // of all writes asked for: those that a person must look at
	Added      *Latency `json:"latency_added_seconds,omitempty"` // per write asked for, compared with no fault and no guard; nil: these were not played
	WorstRun   string   `json:"worst_run,omitempty"`             // its file and name: of the runs that the fault hit
	Worst      *Story   `json:"-"`                               // what happened in it; the wording of what was said at one moment may differ from time to time

	worst worst
}

// Tally counts what came of runs.
type Tally struct {
	Intended   int     `json:"intended"`   // writes that were meant, and asked for
	Hit        int     `json:"hit"`        // of these, those that the fault hit
	Effects    int     `json:"effects"`    // what the downstream really did
	Duplicated int     `json:"duplicated"` // intended writes that happened more than once, or although a person had said no
	Extra      int     `json:"extra"`      // effects too many
	Missing    int     `json:"missing"`    // intended writes that did not happen, and nobody is told; not those that a server of the user's refused
	Believed   int     `json:"believed"`   // of these, those that the agent takes for done
	Needed     int     `json:"needed"`     // intended writes that repeat an earlier one
	Held       int     `json:"held"`       // of these, those that did not happen, and nobody is told
	Asked      int     `json:"asked"`      // writes asked for, those that the run shows as refused included
	ToPerson   int     `json:"to_person"`  // of these, those that a person must look at
	Stray      int     `json:"stray"`      // effects of which nobody knows whose they are
	Waited     float64 `json:"waited_seconds"`

	waited, squares int64 // of the writes asked for, in ms and ms²: whole numbers, whose sum is the same in any order
}

func (t *Tally) add(o *Tally) {
	t.Intended += o.Intended
	t.Hit += o.Hit
	t.Effects += o.Effects
	t.Duplicated += o.Duplicated
	t.Extra += o.Extra
	t.Missing += o.Missing
	t.Believed += o.Believed
	t.Needed += o.Needed
	t.Held += o.Held
	t.Asked += o.Asked
	t.ToPerson += o.ToPerson
	t.Stray += o.Stray
	t.waited += o.waited
	t.squares += o.squares
}

// badness orders runs: what happened twice and what was lost weigh more than what a person must look at.
func (t *Tally) badness() int {
	return 1_000_000*(t.Extra+t.Duplicated+t.Missing+t.Held+t.Stray) + t.ToPerson
}

// Share is k of n, per 100.
type Share struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	K     int     `json:"k"`
	N     int     `json:"n"` // 0: there was nothing of the kind, and no value
}

// ShareOf is k of n with its 95% interval after Wilson.
func ShareOf(k, n int) Share {
	s := Share{K: k, N: n}
	if n == 0 {
		return s
	}
	const z = 1.959963984540054
	p, m := float64(k)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	s.Value, s.Low, s.High = tenth(100*p), tenth(100*max(0, middle-half)), tenth(100*min(1, middle+half))
	return s
}

func tenth(x float64) float64 {
	if x = math.Round(10*x) / 10; x == 0 {
		return 0 // and not -0
	}
	return x
}

// Latency is a mean with its 95% interval, in seconds.
type Latency struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// added is how much longer a write of o waits than one of base, on average.
func added(o, base *Tally) *Latency {
	if base == nil {
		return nil
	}
	mean := func(t *Tally) (m, variance float64) {
		n := float64(max(t.Asked, 1))
		m = float64(t.waited) / n
		return m, max(0, float64(t.squares)/n-m*m) / n
	}
	m, v := mean(o)
	b, w := mean(base)
	half := 1.959963984540054 * math.Sqrt(v+w)
	if o == base {
		half = 0
	}
	return &Latency{tenth((m - b) / 1000), tenth((m - b - half) / 1000), tenth((m - b + half) / 1000)}
}

// worst is the worst run of a cell so far: of equals, the first in the order of the runs.
type worst struct {
	badness, run int
	story        *Story
}

func (w worst) better(o worst) bool {
	return cmp.Or(cmp.Compare(w.badness, o.badness), cmp.Compare(o.run, w.run)) > 0
}

// finish makes the totals and the shares.
func (t *Table) finish() {
	var base *Tally
	if c := t.Cell(Faults[0].Name, Arms[0].Name); c != nil {
		base = &c.Tally
	}
	for r := range t.Rows {
		for c := range t.Rows[r].Cells {
			cell := &t.Rows[r].Cells[c]
			if r == 0 {
				t.Total = append(t.Total, Cell{Arm: cell.Arm, Title: cell.Title})
			}
			if t.Rows[r].Fault != Faults[0].Name || len(t.Rows) == 1 {
				t.Total[c].add(&cell.Tally)
			}
			cell.finish(base)
		}
	}
	for c := range t.Total {
		t.Total[c].finish(base)
	}
}

// finish makes the shares; base is what came of it without fault and guard, nil where that was not played.
func (c *Cell) finish(base *Tally) {
	c.Duplicates = ShareOf(c.Duplicated, c.Intended)
	c.Lost = ShareOf(c.Missing, c.Intended)
	c.HeldBack = ShareOf(c.Held, c.Needed)
	c.Person = ShareOf(c.ToPerson, c.Asked)
	c.Added = added(&c.Tally, base)
	c.Waited = math.Round(float64(c.waited) / 1000)
	if c.Worst = c.worst.story; c.Worst != nil {
		c.WorstRun = c.Worst.Run
	}
}

// Cell returns the cell of a fault and an arm, by name; nil: there is none.
func (t *Table) Cell(fault, arm string) *Cell {
	for r := range t.Rows {
		if t.Rows[r].Fault != fault {
			continue
		}
		for c := range t.Rows[r].Cells {
			if t.Rows[r].Cells[c].Arm == arm {
				return &t.Rows[r].Cells[c]
			}
		}
	}
	return nil
}

// judge compares what happened with what was meant.
func judge(p *Plan, w *World, a *agent, persons map[int]bool, withdrawn map[int]bool) Tally {
	t := Tally{Hit: len(a.met)}
	happened := map[int]int{}
	for _, e := range w.Effects() {
		happened[e.Step]++
	}
	t.Stray = happened[-1]
	t.Effects = t.Stray
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Left || !a.asked[i] {
			continue
		}
		t.Asked++
		t.waited += a.waited[i].Milliseconds()
		t.squares += a.waited[i].Milliseconds() * a.waited[i].Milliseconds()
		person := persons[i] || a.told[i]
		if person {
			t.ToPerson++
		}
		if s.Refused {
			t.Extra += happened[i]
			t.Effects += happened[i]
			continue
		}
		n := happened[i]
		t.Intended++
		t.Effects += n
		if s.Needed {
			t.Needed++
		}
		wanted := 1
		if withdrawn[i] {
			wanted = 0
		}
		switch {
		case n > wanted:
			t.Duplicated++
			t.Extra += n - wanted
		case n == wanted || person || w.turned[i]:
		case s.Needed:
			t.Held++
		default:
			t.Missing++
			if a.done[i] {
				t.Believed++
			}
		}
	}
	return t
}
