package evals

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/evals/recorded"
	"toolguard.dev/registry"
)

// Options of [Run].
type Options struct {
	Seed   uint64
	Faults []Fault // nil: all
	Arms   []Arm   // nil: all
	// Labels says what is known of a run; nil: nothing is.
	Labels func(*recorded.Run) *recorded.Label
	// Policy is what the arms with a policy have; nil: one is derived for each tool from its calls in the run, and the
	// runtime says all facts.
	Policy *Policy
	// Process has the runs played on real processes; nil: in this one. The table then depends on the machine, too.
	Process *Process
	// Progress is told, from one goroutine at a time, how many runs were played whole, and how often one was played under one
	// fault in one arm; on real processes also each second in which nothing of this changes.
	Progress func(runs, episodes int)
}

// Run plays runs under each fault in each arm. What it holds does not grow with the runs. The result depends on the runs,
// their order and the options alone. It ends early, with an error, when ctx ends or a run cannot be played.
func Run(ctx context.Context, runs iter.Seq2[*recorded.Run, error], o Options) (*Table, error) {
	if o.Faults == nil {
		o.Faults = Faults
	}
	if o.Arms == nil {
		o.Arms = Arms
	}
	if o.Progress == nil {
		o.Progress = func(int, int) {}
	}
	if o.Labels == nil {
		o.Labels = func(*recorded.Run) *recorded.Label { return nil }
	}
	if o.Process.Behind() {
		if err := o.Process.offers(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &board{table: newTable(&o), progress: o.Progress, ruled: map[string]bool{}}
	jobs := make(chan job)
	var workers sync.WaitGroup
	var atOnce chan struct{}
	players := runtime.GOMAXPROCS(0)
	if o.Process != nil {
		defer b.tick()()
		o.Process.starts = make(chan struct{}, 4*players)
		players *= episodesAtOnce
		atOnce = make(chan struct{}, players)
	}
	for range players {
		workers.Go(func() {
			p := &player{options: &o, slot: &slot{}, board: b, atOnce: atOnce}
			for j := range jobs {
				tallies, stories, err := p.play(ctx, j.plan)
				if err != nil {
					cancel(err)
					continue
				}
				b.add(j.number, tallies, stories)
			}
		})
	}
	feed(ctx, runs, &o, b, jobs)
	close(jobs)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	b.table.finish()
	return b.table, nil
}

// job is one run to play.
type job struct {
	number int
	plan   *Plan
}

// feed reads the runs.
func feed(ctx context.Context, runs iter.Seq2[*recorded.Run, error], o *Options, b *board, jobs chan<- job) {
	number := 0
	for r, err := range runs {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.skip(err)
			continue
		}
		label := o.Labels(r)
		plan := PlanOf(r, label)
		b.doubt(doubts(plan, label))
		b.rule(plan, o.Policy)
		if len(plan.meant()) == 0 || !o.Process.fits(plan) {
			b.idle()
			continue
		}
		if label != nil {
			b.labelled()
		}
		select {
		case jobs <- job{number, plan}:
			number++
		case <-ctx.Done():
			return
		}
	}
}

func newTable(o *Options) *Table {
	t := &Table{Seed: o.Seed}
	for _, f := range o.Faults {
		row := Row{Fault: f.Name, Title: f.Title}
		for _, a := range o.Arms {
			row.Cells = append(row.Cells, Cell{Arm: a.Name, Title: a.Title, Known: f.Known(&a)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// board is the table while it is made.
type board struct {
	mu       sync.Mutex
	table    *Table
	episodes int
	progress func(runs, episodes int)
	ruled    map[string]bool // by tool: the operator's policy has a rule for it
}

func (b *board) skip(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Skipped++
	if len(b.table.Why) < maxWhy {
		b.table.Why = append(b.table.Why, err.Error())
	}
}

// rule finds out whether the operator's policy has a rule for the tools that a run writes with.
func (b *board) rule(p *Plan, o *Policy) {
	if o == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range p.Calls {
		c := &p.Calls[i]
		action := serverOf(&c.Call) + "/" + c.Tool
		if _, known := b.ruled[action]; known || c.Step < 0 || len(b.ruled) >= maxEntries {
			continue
		}
		b.ruled[action] = o.Of(serverOf(&c.Call), c.Tool).Ruled
		switch {
		case b.ruled[action]:
			b.table.Ruled++
		case len(b.table.Unruled) < maxWhy:
			b.table.Unruled = append(b.table.Unruled, c.Tool)
		}
	}
}

func (b *board) doubt(list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Doubted += len(list)
	b.table.Doubts = append(b.table.Doubts, list[:min(len(list), maxWhy-len(b.table.Doubts))]...)
}

func (b *board) idle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Idle++
}

func (b *board) labelled() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Labels++
}

// played counts an episode.
func (b *board) played() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.episodes++
	b.progress(b.table.Runs, b.episodes)
}

// tick tells each second how far it is, until it is stopped.
func (b *board) tick() (stop func()) {
	over := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Second):
				b.mu.Lock()
				b.progress(b.table.Runs, b.episodes)
				b.mu.Unlock()
			}
		}
	})
	return func() {
		close(over)
		ticking.Wait()
	}
}

// add adds what came of a run.
func (b *board) add(number int, tallies [][]Tally, stories [][]*Story) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table.Runs++
	b.progress(b.table.Runs, b.episodes)
	for f := range tallies {
		for a := range tallies[f] {
			cell := &b.table.Rows[f].Cells[a]
			cell.add(&tallies[f][a])
			if tallies[f][a].Hit == 0 && b.table.Rows[f].Fault != Faults[0].Name {
				continue
			}
			if w := (worst{tallies[f][a].badness(), number, stories[f][a]}); cell.worst.story == nil || w.better(cell.worst) {
				cell.worst = w
			}
		}
	}
}

// episodesAtOnce is how many runs are played at once on real processes, for each processor: mostly they wait.
const episodesAtOnce = 32

// player plays runs one after the other.
type player struct {
	options *Options
	slot    *slot
	board   *board
	atOnce  chan struct{} // room for an episode on real processes; nil: in this process they are played one by one
}

// play plays one run under all faults in all arms.
func (p *player) play(ctx context.Context, plan *Plan) (tallies [][]Tally, stories [][]*Story, err error) {
	list := shapesOf(plan)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var playing sync.WaitGroup
	for f := range p.options.Faults {
		fault := &p.options.Faults[f]
		hits := choosing(plan, shapesBy(list), fault, p.options.Seed)
		tallies, stories = append(tallies, make([]Tally, len(p.options.Arms))), append(stories, make([]*Story, len(p.options.Arms)))
		for a := range p.options.Arms {
			play := func() {
				var err error
				if tallies[f][a], stories[f][a], err = p.episode(ctx, plan, list, fault, &p.options.Arms[a], hits); err != nil {
					cancel(fmt.Errorf("%s, %s, %s: %w", nameOf(plan.Run), fault.Name, p.options.Arms[a].Name, err))
				}
				p.board.played()
			}
			switch {
			case ctx.Err() != nil:
			case p.atOnce == nil:
				play()
			default:
				p.atOnce <- struct{}{}
				playing.Go(func() {
					defer func() { <-p.atOnce }()
					play()
				})
			}
		}
	}
	playing.Wait()
	return tallies, stories, context.Cause(ctx)
}

// errStuck is a run that got stuck: something waits that nothing will wake. It is a fault of this program.
var errStuck = errors.New("the run got stuck")

// episode plays one run under one fault in one arm, in a time of its own.
func (p *player) episode(ctx context.Context, plan *Plan, list []*shape, f *Fault, arm *Arm, hits map[int]bool) (tally Tally, story *Story, err error) {
	if p.options.Process != nil {
		return p.act(ctx, plan, list, f, arm, hits, nil)
	}
	var entries []*registry.Entry
	if arm.guarded {
		for _, s := range list {
			e, err := p.slot.entry(s, arm, f, p.options.Policy)
			if err != nil {
				return tally, nil, err
			}
			entries = append(entries, e)
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errStuck, r)
		}
	}()
	synctest.Test(new(testing.T), func(*testing.T) {
		tally, story, err = p.act(ctx, plan, list, f, arm, hits, entries)
	})
	return tally, story, err
}

// act is an episode, inside its bubble.
func (p *player) act(ctx context.Context, plan *Plan, list []*shape, f *Fault, arm *Arm, hits map[int]bool, entries []*registry.Entry) (Tally, *Story, error) {
	story := &Story{Run: nameOf(plan.Run), Fault: f.Title, Arm: arm.Title, began: time.Now()}
	w := p.downstream(plan, list, f, arm, hits)
	w.note = func(step int, text string) { story.add(step, "downstream", text) }
	end, err := p.options.Process.behind(ctx, w, arm, p.options.Policy)
	if err != nil {
		return Tally{}, nil, err
	}
	defer end()
	l, err := p.line(ctx, plan, list, f, arm, w, entries)
	if err != nil {
		return Tally{}, nil, err
	}
	defer w.Settle()
	defer l.end()
	w.Die = l.die
	a := &agent{
		ctx: ctx, plan: plan, shapes: shapesBy(list), fault: f, line: l, world: w, story: story, real: p.options.Process != nil, asks: arm.policy, hits: hits,
		met: map[int]bool{}, told: map[int]bool{}, done: map[int]bool{}, asked: map[int]bool{}, keys: map[int]string{}, replays: map[int]bool{}, waited: map[int]time.Duration{},
	}
	if a.play(); a.failed != nil {
		return Tally{}, nil, a.failed
	}
	w.Settle()
	l.settle()
	withdrawn, although := map[int]bool{}, ""
	if f.story == rejects {
		withdrawn, although = hits, ", or happened although a person had said no"
	}
	t := judge(plan, w, a, l.waiting(), withdrawn)
	story.add(-1, verdict, fmt.Sprintf("%d of %d intended writes happened more than once%s, %d were lost, %d needed repeats were held back, %d writes are with a person",
		t.Duplicated, t.Intended, although, t.Missing, t.Held, t.ToPerson))
	return t, story, nil
}

// downstream is what the writes of an episode go to.
func (p *player) downstream(plan *Plan, list []*shape, f *Fault, arm *Arm, hits map[int]bool) *World {
	w := NewWorld(plan)
	at, promised := time.Duration(1), promisesOf(list, p.options.Policy)
	if p.options.Process != nil {
		at = pace
		promised.window = day
	}
	w.Took, w.Late, w.Slow, w.Away, w.Lag = 100*time.Millisecond/at, promised.late()/at, 10*time.Second/at, 2*time.Minute/at, promised.lag()/at
	if (arm.keyed || arm.key != noKey) && !p.options.Process.Behind() {
		w.Keys = KeysReplay
		if f.unique {
			w.Keys = KeysUnique
		}
	}
	if f.window {
		w.Window = promised.window
	}
	n := 0
	for i := range plan.Steps {
		if !hits[i] {
			continue
		}
		if n++; n%2 == 0 && f.trouble2 != nil {
			w.Trouble(i, f.trouble2...)
		} else if f.trouble != nil {
			w.Trouble(i, f.trouble...)
		}
	}
	return w
}

// line is what an arm puts between the agent and the downstream.
func (p *player) line(ctx context.Context, plan *Plan, list []*shape, f *Fault, arm *Arm, w *World, entries []*registry.Entry) (line, error) {
	event := "event " + plan.Run.Name
	switch {
	case !arm.guarded:
		b := newBare(arm, w)
		b.real = p.options.Process != nil
		return b, nil
	case p.options.Process != nil:
		return newProcesses(ctx, p.options, arm, f, w, event, list)
	}
	p.slot.world.Store(w)
	return newGuarded(arm, f, w, event, entries, p.options.Policy)
}
