package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
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
	seed   uint64
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
	runs, labels, err := p.source()
	if err != nil {
		return err
	}
	o.Labels = labels
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
	if table.Runs == 0 {
		return fmt.Errorf("there is no run that writes anything: %d write nothing, %d could not be read%s", table.Idle, table.Skipped, first(table.Why))
	}
	if p.out != "" {
		if err := p.write(table); err != nil {
			return err
		}
	}
	p.skipped(table)
	if p.json {
		return encode(p.stdout, table)
	}
	printTable(p.stdout, table)
	fmt.Fprintf(p.stderr, "\n%d runs in %s\n", table.Runs, time.Since(began).Round(100*time.Millisecond))
	if p.out != "" {
		fmt.Fprintf(p.stderr, "%s shows each cell's worst run\n", filepath.Join(p.out, "index.html"))
	}
	return nil
}

// skipped names the runs that could not be read.
func (p *program) skipped(table *evals.Table) {
	const most = 20
	for _, why := range table.Why[:min(most, len(table.Why))] {
		fmt.Fprintf(p.stderr, "skipped: %s\n", evals.Printable(why))
	}
	if table.Skipped > most {
		fmt.Fprintf(p.stderr, "skipped: %d more; the report names the first %d\n", table.Skipped-most, len(table.Why))
	}
}

func first(why []string) string {
	if len(why) == 0 {
		return ""
	}
	return " (the first: " + evals.Printable(why[0]) + ")"
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
	o.Seed = p.seed
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
	last, every, line := time.Now(), 15*time.Second, "%d runs played (%d replays, %d for each run)\n"
	if terminal(p.stderr) {
		every, line = 100*time.Millisecond, "\r%d runs played (%d replays, %d for each run)"
	}
	return func(runs, episodes int) {
		if now := time.Now(); now.Sub(last) > every {
			last = now
			fmt.Fprintf(p.stderr, line, runs, episodes, each)
		}
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
func (p *program) source() (iter.Seq2[*recorded.Run, error], func(*recorded.Run) *recorded.Label, error) {
	if len(p.runs) == 0 {
		if p.labels != "" {
			return nil, nil, wrong{errors.New("--labels without --runs: the built-in runs have their own")}
		}
		return evals.Builtin()
	}
	var known []*recorded.Labels
	if p.labels != "" {
		f, err := os.Open(p.labels)
		if err != nil {
			return nil, nil, wrong{err}
		}
		defer f.Close()
		dir, err := filepath.Abs(filepath.Dir(p.labels))
		if err != nil {
			return nil, nil, err
		}
		l, err := recorded.ReadLabels(dir, f)
		if err != nil {
			return nil, nil, wrong{err}
		}
		known = append(known, l)
	}
	paths := paths(p.runs)
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return nil, nil, wrong{fmt.Errorf("--runs: %w", err)}
		}
		if p.labels != "" {
			continue
		}
		l, err := recorded.FindLabels(path)
		if err != nil {
			return nil, nil, wrong{err}
		}
		known = append(known, l)
	}
	return recorded.Files(paths...), func(r *recorded.Run) *recorded.Label {
		for _, l := range known {
			if label := l.Of(r); label != nil {
				return label
			}
		}
		return nil
	}, nil
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
