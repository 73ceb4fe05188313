package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/cmd/mcp-server/drill"
	"toolguard.dev/registry"
)

// drilled is what check --drill found, as --json shows it.
type drilled struct {
	Config    string         `json:"config"`
	Mode      string         `json:"mode"`
	OK        bool           `json:"ok"` // no rehearsal failed, and everything could be guarded
	Passed    int            `json:"passed"`
	Failed    int            `json:"failed"`
	Not       int            `json:"not_applicable"`
	Unguarded []string       `json:"unguarded,omitempty"`
	Faults    []string       `json:"faults,omitempty"`
	Tools     []rehearsedOne `json:"tools"`
}

// rehearsedOne is one tool and what its rehearsals came to.
type rehearsedOne struct {
	Tool       string            `json:"tool"`
	Arguments  json.RawMessage   `json:"arguments,omitempty"` // those it was called with
	Rehearsals []drill.Rehearsal `json:"rehearsals"`
}

// abreast is how many tools are drilled at a time: most of it is waiting.
const abreast = 8

func (p *program) drill(c *cobra.Command) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	offers := append(ask(c.Context(), cfg.Servers), requests(cfg)...)
	judged := inspect(cfg, offers)
	d := &drilled{Config: cfg.File, Mode: judged.Mode, Unguarded: judged.Unguarded, Faults: judged.Faults, Tools: []rehearsedOne{}}
	if err := d.rehearse(c.Context(), cfg, subjects(cfg, offers, judged), p.progress()); err != nil {
		return err
	}
	d.OK = d.Failed == 0 && judged.OK
	if p.json {
		err = p.printJSON(d)
	} else {
		err = d.print(p.stdout)
	}
	switch {
	case err != nil:
		return err
	case len(judged.faults) > 0:
		return judged.faults
	case !d.OK:
		return said{exitFailed}
	}
	return nil
}

// subjects are the tools that are guarded, with their policies.
func subjects(cfg *config.Config, offers []offer, judged *checked) []drill.Subject {
	fine := map[string]bool{}
	for _, f := range judged.Tools {
		fine[f.Tool] = f.Error == ""
	}
	facts := map[string]string{}
	for name := range cfg.Context.Lines {
		facts[name] = cfg.Context.Facts[name].Value
		if facts[name] == "" {
			facts[name] = cfg.Context.HTTP[name].Value
		}
	}
	var out []drill.Subject
	for _, o := range offers {
		for _, t := range o.tools {
			t.Effect, t.EffectSource, t.Policy = cfg.Resolve(t.Server, t.Name, t.annotations)
			if fine[t.Action()] && (t.Effect == registry.Write || t.Effect == registry.Idempotent) {
				out = append(out, drill.Subject{Tool: t.Tool, Facts: facts, Observe: cfg.Observe})
			}
		}
	}
	return out
}

// rehearse drills the tools, some at a time, and counts how it went.
func (d *drilled) rehearse(ctx context.Context, cfg *config.Config, all []drill.Subject, progress func(done, all int, tool string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.Tools = make([]rehearsedOne, len(all))
	slots := make(chan struct{}, abreast)
	var running sync.WaitGroup
	var mu sync.Mutex
	made, planned := 0, len(all)*len(drill.Names())
	for i := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			one := &d.Tools[i]
			one.Tool = all[i].Tool.Action()
			var err error
			one.Arguments, err = drill.Run(ctx, &all[i], func(r drill.Rehearsal) {
				one.Rehearsals = append(one.Rehearsals, r)
				mu.Lock()
				defer mu.Unlock()
				made++
				progress(made, planned, one.Tool)
				switch r.Result {
				case drill.Pass:
					d.Passed++
				case drill.Fail:
					d.Failed++
				default:
					d.Not++
				}
			})
			if err != nil {
				cancel(fmt.Errorf("the drill itself failed: %w", err))
			}
		})
	}
	running.Wait()
	progress(0, 0, "")
	return context.Cause(ctx)
}

// progress shows on a terminal how far the drill is; elsewhere nothing.
func (p *program) progress() func(done, all int, tool string) {
	if !isTerminal(p.stderr) {
		return func(int, int, string) {}
	}
	return func(done, all int, tool string) {
		const clear = "\r\x1b[K"
		if all == 0 {
			fmt.Fprint(p.stderr, clear)
			return
		}
		fmt.Fprintf(p.stderr, "%srehearsal %d of %d: %s", clear, done, all, short(tool, 50))
	}
}

// alike puts together the tools of which there is the same to say, in their order.
func alike(tools []rehearsedOne) [][]rehearsedOne {
	var out [][]rehearsedOne
	for _, t := range tools {
		i := slices.IndexFunc(out, func(same []rehearsedOne) bool { return reflect.DeepEqual(same[0].Rehearsals, t.Rehearsals) })
		if i < 0 {
			out = append(out, []rehearsedOne{t})
			continue
		}
		out[i] = append(out[i], t)
	}
	return out
}

func (d *drilled) print(w io.Writer) error {
	fmt.Fprintf(w, "configuration  %s\nmode           %s\n", printable(d.Config), d.Mode)
	fmt.Fprintln(w, "Nothing was sent to any server: each call met the real policy, a scratch ledger, and a stand-in that counts what it does.")
	for _, same := range alike(d.Tools) {
		fmt.Fprintln(w)
		for _, t := range same {
			fmt.Fprintf(w, "%s  %s\n", printable(t.Tool), short(string(t.Arguments), 300))
		}
		for _, r := range same[0].Rehearsals {
			fmt.Fprintf(w, "  %-15s%s\n%17s%s\n", r.Result, r.Name, "", folded(r.Why, fmt.Sprintf("%17s", "")))
			for _, weak := range r.Weak {
				fmt.Fprintf(w, "%17sweak: %s\n", "", folded(weak, fmt.Sprintf("%23s", "")))
			}
		}
	}
	if len(d.Unguarded) > 0 {
		fmt.Fprintf(w, "\nNot rehearsed, because it cannot be guarded (mcp-server check says why): %s\n", printable(listed(d.Unguarded)))
	}
	verdict := fmt.Sprintf("%d passed, %d FAILED, %d not applicable, which is no pass.", d.Passed, d.Failed, d.Not)
	if len(d.Tools) == 0 {
		verdict = "There is no tool that writes and can be guarded: nothing was rehearsed."
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}
