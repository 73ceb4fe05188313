package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"toolguard.dev/evals"
	"toolguard.dev/evals/recorded"
)

// program is what the flags say.
type program struct {
	stdout, stderr io.Writer

	runs   []string
	labels string
	faults string
	arms   string
	policy string
	seed   string
	out    string
	json   bool

	process bool
	server  string
}

func (p *program) run(ctx context.Context) error {
	o, err := p.options()
	if err != nil {
		return err
	}
	runs, known, err := p.source()
	if err != nil {
		return err
	}
	o.Labels = known.of
	if o.Process != nil {
		end, err := build(ctx, o.Process)
		if err != nil {
			return err
		}
		defer end()
	}
	if p.out != "" {
		if err := os.MkdirAll(p.out, 0o755); err != nil {
			return wrong{fmt.Errorf("--out: %w", err)}
		}
	}
	began := time.Now()
	table, err := evals.Run(ctx, runs, o)
	p.clear()
	if err != nil {
		return err
	}
	p.skipped(table)
	p.doubts(table, known)
	if table.Runs == 0 {
		return fmt.Errorf("there is no run that writes anything: %d write nothing, %d could not be read", table.Idle, table.Skipped)
	}
	if p.out != "" {
		if err := p.write(table); err != nil {
			return err
		}
	}
	if p.json {
		return encode(p.stdout, table)
	}
	printTable(p.stdout, table)
	fmt.Fprintf(p.stderr, "\n%s in %s\n", count(table.Runs, "run"), time.Since(began).Round(100*time.Millisecond))
	if p.out != "" {
		fmt.Fprintf(p.stderr, "%s shows each cell's worst run\n", filepath.Join(p.out, "index.html"))
	}
	return nil
}

// most is how many of a kind are named.
const most = 20

// skipped names the runs that could not be read.
func (p *program) skipped(table *evals.Table) {
	for _, why := range table.Why[:min(most, len(table.Why))] {
		fmt.Fprintf(p.stderr, "skipped: %s\n", evals.Printable(why))
	}
	if table.Skipped > most {
		fmt.Fprintf(p.stderr, "skipped: %d more; the report names the first %d\n", table.Skipped-most, len(table.Why))
	}
}

// doubts says what of the labels and of the policy does not fit the runs.
func (p *program) doubts(table *evals.Table, known *labels) {
	for _, doubt := range table.Doubts[:min(most, len(table.Doubts))] {
		fmt.Fprintf(p.stderr, "labels: %s\n", evals.Printable(doubt))
	}
	if table.Doubted > most {
		fmt.Fprintf(p.stderr, "labels: %d more do not fit their runs; the report names the first %d\n", table.Doubted-most, len(table.Doubts))
	}
	unmatched := known.unmatched()
	for _, l := range unmatched[:min(most, len(unmatched))] {
		fmt.Fprintf(p.stderr, "labels: %s: there is no run %s in %s that was read\n", evals.Printable(l.At), evals.Printable(l.Run), evals.Printable(l.File))
	}
	if len(unmatched) > 0 {
		fmt.Fprintf(p.stderr, "labels: %s matched no run\n", count(len(unmatched), "label"))
	}
	if len(table.Unruled) > 0 {
		fmt.Fprintf(p.stderr, "policy: %s has a rule for %d of the %s that these runs write with, and only its defaults for %s\n",
			p.policy, table.Ruled, count(table.Ruled+len(table.Unruled), "tool"), evals.Printable(strings.Join(table.Unruled[:min(most, len(table.Unruled))], ", ")))
	}
}

func (p *program) options() (o evals.Options, err error) {
	if o.Faults, err = evals.SelectFaults(p.faults); err != nil {
		return o, wrong{fmt.Errorf("--faults: %w", err)}
	}
	if o.Arms, err = evals.SelectArms(p.arms); err != nil {
		return o, wrong{fmt.Errorf("--arms: %w", err)}
	}
	if p.policy != "" {
		if o.Policy, err = loadPolicy(p.policy); err != nil {
			return o, wrong{err}
		}
	}
	if o.Seed, err = strconv.ParseUint(p.seed, 10, 64); err != nil {
		return o, wrong{fmt.Errorf("--seed: %q is not a whole number from 0 to %d", p.seed, uint64(math.MaxUint64))}
	}
	if p.process || p.server != "" {
		if err := p.processes(&o); err != nil {
			return o, wrong{err}
		}
	}
	o.Progress = p.progress(len(o.Faults) * len(o.Arms))
	return o, nil
}

// progress tells how far it is: on a terminal on one line that changes, else on a line now and then, and only where it takes long.
func (p *program) progress(each int) func(runs, episodes int) {
	last, every, begin, end := time.Now(), 15*time.Second, "", "\n"
	if terminal(p.stderr) {
		every, begin, end = 100*time.Millisecond, "\r", "\033[K"
	}
	done, since := 0, time.Now()
	return func(runs, episodes int) {
		now := time.Now()
		if episodes > done {
			done, since = episodes, now
		}
		if now.Sub(last) <= every {
			return
		}
		last = now
		fmt.Fprintf(p.stderr, "%s%s played (%s, %d for each run)", begin, count(runs, "run"), count(episodes, "replay"), each)
		if still := now.Sub(since); still > every && still > 5*time.Second {
			fmt.Fprintf(p.stderr, "; nothing has ended for %d s", int(still.Seconds()))
		}
		fmt.Fprint(p.stderr, end)
	}
}

// clear takes the progress line away.
func (p *program) clear() {
	if terminal(p.stderr) {
		fmt.Fprint(p.stderr, "\r\033[K")
	}
}

// terminal reports whether a person looks on.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// source is where the runs come from, and what is known of them.
func (p *program) source() (iter.Seq2[*recorded.Run, error], *labels, error) {
	if len(p.runs) == 0 {
		if p.labels != "" {
			return nil, nil, wrong{errors.New("--labels without --runs: the built-in runs have their own")}
		}
		runs, of, err := evals.Builtin()
		return runs, &labels{builtin: of}, err
	}
	paths := paths(p.runs)
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return nil, nil, wrong{fmt.Errorf("--runs: %w", err)}
		}
	}
	known, err := readLabels(p.labels, paths)
	if err != nil {
		return nil, nil, wrong{err}
	}
	return recorded.Files(paths...), known, nil
}

// paths takes lists apart, but for those that are a path with a comma in it.
func paths(given []string) (all []string) {
	for _, path := range given {
		if _, err := os.Stat(path); err == nil {
			all = append(all, path)
		} else {
			all = append(all, strings.Split(path, ",")...)
		}
	}
	return all
}

func encode(w io.Writer, table *evals.Table) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(table)
}

// write fills the folder of the report.
func (p *program) write(table *evals.Table) error {
	for name, fill := range map[string]func(io.Writer, *evals.Table) error{"report.json": encode, "index.html": page} {
		if err := create(filepath.Join(p.out, name), func(w io.Writer) error { return fill(w, table) }); err != nil {
			return err
		}
	}
	return nil
}

func create(name string, fill func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return fill(f)
}
