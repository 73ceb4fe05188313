package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// checked is what check found, as --json shows it.
type checked struct {
	Config   string          `json:"config"`
	Ledger   string          `json:"ledger"`
	OK       bool            `json:"ok"`
	Servers  []checkedServer `json:"servers"`
	Tools    []finding       `json:"tools"`
	Faults   []string        `json:"faults,omitempty"`   // of the configuration
	Warnings []string        `json:"warnings,omitempty"` // of the configuration

	faults config.Faults
}

type checkedServer struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // as it names itself
	Tools   int    `json:"tools"`
	Error   string `json:"error,omitempty"`
}

func (p *program) checkCommand() *cobra.Command {
	var drill bool
	c := &cobra.Command{
		Use: "check", Short: "Check the configuration against the servers, and say what each policy comes to", Args: cobra.NoArgs,
		Long: "check reads the configuration, starts every server, and says for each tool what it does to the world, what counts as\n" +
			"the same call, and three answers: is there a stable key on every attempt, does the downstream reject repeats, is there\n" +
			"a record of each retry. It sends no call and opens no ledger. Exit 1 if a tool cannot be guarded.",
		RunE: func(c *cobra.Command, _ []string) error {
			if drill {
				return usage{errors.New("check --drill is not supported yet by this version; check alone explains the policies")}
			}
			return p.check(c)
		},
	}
	c.Flags().BoolVar(&drill, "drill", false, "rehearse failures against the policies (not supported yet)")
	return c
}

func (p *program) check(c *cobra.Command) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	ledger, err := p.ledgerOf(cfg.File, cfg.Ledger)
	if err != nil {
		return err
	}
	r := inspect(cfg, ask(c.Context(), cfg.Servers))
	r.Ledger = ledger
	if p.json {
		err = p.printJSON(r)
	} else {
		err = r.print(p.stdout)
	}
	switch {
	case err != nil:
		return err
	case len(r.faults) > 0:
		return r.faults
	case !r.OK:
		return said{exitFailed}
	}
	return nil
}

// inspect judges what the servers offer by the configuration.
func inspect(cfg *config.Config, offers []offer) *checked {
	r := &checked{Config: cfg.File, OK: true, Servers: []checkedServer{}, Tools: []finding{}, Warnings: contextWarnings(cfg, true)}
	var actions []string
	down := map[string]bool{}
	shown := map[string]string{}
	for _, o := range offers {
		s := checkedServer{Name: o.server, Version: strings.TrimSpace(o.info.Name + " " + o.info.Version), Tools: len(o.tools)}
		if o.err != nil {
			s.Error = short(o.err.Error(), 500)
			down[o.server] = true
			r.OK = false
		}
		r.Servers = append(r.Servers, s)
		for _, t := range o.tools {
			actions = append(actions, t.Action())
			f := r.tool(cfg, t)
			name := t.Name
			if len(offers) > 1 {
				name = t.Server + "__" + t.Name
			}
			if other, ok := shown[name]; ok && f.Error == "" {
				f.Error = fmt.Sprintf("clients would see it as %s, as they do %s", name, other)
			}
			shown[name] = t.Action()
			r.OK = r.OK && f.Error == ""
			r.Tools = append(r.Tools, f)
		}
	}
	for _, f := range cfg.Unused(actions, func(server string) bool { return down[server] }) {
		if f.Exact {
			r.faults = append(r.faults, f.Fault)
		} else {
			r.Warnings = append(r.Warnings, f.Fault.String())
		}
	}
	slices.SortStableFunc(r.faults, func(a, b config.Fault) int { return cmp.Compare(a.Line, b.Line) })
	for _, f := range r.faults {
		r.Faults = append(r.Faults, f.String())
	}
	r.OK = r.OK && len(r.faults) == 0
	return r
}

// tool judges one tool.
func (r *checked) tool(cfg *config.Config, t found) finding {
	t.Effect, t.EffectSource, t.Policy = cfg.Resolve(t.Server, t.Name, t.annotations)
	if faults := cfg.Faults(t.Tool); len(faults) > 0 {
		r.faults = append(r.faults, faults...)
		return finding{Tool: t.Action(), Effect: t.Effect, Source: t.EffectSource, Error: "its policy does not fit it"}
	}
	e, err := registry.Compile(t.Tool)
	if err != nil {
		return finding{Tool: t.Action(), Effect: t.Effect, Source: t.EffectSource, Error: short(err.Error(), 500)}
	}
	return examine(e, cfg.Context)
}

// contextWarnings names what is not read, and, where stdio is served, the facts that cannot come over it.
func contextWarnings(cfg *config.Config, stdio bool) []string {
	var out []string
	for _, s := range cfg.Servers {
		if s.EnvFile != "" && !s.Disabled {
			out = append(out, fmt.Sprintf("%s:%d: mcpServers.%s.envFile: is not read; put what the server needs under env", cfg.File, s.Line, s.Name))
		}
	}
	for name, source := range cfg.Context.Facts {
		if stdio && source.Header != "" {
			out = append(out, fmt.Sprintf("%s:%d: context.%s: comes from %s, and over stdio no call has one: every guarded call is blocked", cfg.File, cfg.Context.Lines[name], name, source))
		}
	}
	slices.Sort(out)
	return out
}

func (r *checked) print(w io.Writer) error {
	fmt.Fprintf(w, "configuration  %s\nledger         %s\n\n", r.Config, r.Ledger)
	rows := [][]string{{"SERVER", "IS", "TOOLS"}}
	for _, s := range r.Servers {
		tools := fmt.Sprint(s.Tools)
		if s.Error != "" {
			tools = "none: " + s.Error
		}
		rows = append(rows, []string{s.Name, s.Version, tools})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	rows = [][]string{{"TOOL", "EFFECT", "STABLE KEY", "DOWNSTREAM REJECTS REPEATS", "RETRIES RECORDED"}}
	fmt.Fprintln(w)
	for _, f := range r.Tools {
		rows = append(rows, []string{f.Tool, fmt.Sprintf("%s (%s)", f.Effect, f.Source), f.StableKey.cell(), f.RejectsRepeats.cell(), f.Recorded.cell()})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	r.explain(w, "What counts as the same call", func(f finding) []string {
		if f.Effect == registry.Read || f.SameCall == "" {
			return nil
		}
		return []string{f.SameCall}
	})
	r.explain(w, "Why", func(f finding) []string {
		var out []string
		if f.StableKey.Answer == "partly" || f.StableKey.Answer == "no" {
			out = append(out, "stable key: "+f.StableKey.Answer+", "+f.StableKey.Why)
		}
		if f.RejectsRepeats.Answer != "" {
			out = append(out, "repeats downstream: "+f.RejectsRepeats.Answer+", "+f.RejectsRepeats.Why)
		}
		return out
	})
	r.explain(w, "Weak", func(f finding) []string { return f.Weak })
	r.explain(w, "Cannot be guarded", func(f finding) []string {
		if f.Error == "" {
			return nil
		}
		return []string{f.Error}
	})
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w, "\nThe configuration")
		for _, line := range r.Warnings {
			fmt.Fprintln(w, " ", printable(line))
		}
	}
	verdict := "\nEvery tool can be guarded."
	if !r.OK {
		verdict = "\nNot everything can be guarded."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

func (a answer) cell() string {
	if a.Answer == "" {
		return "-"
	}
	return a.Answer
}

// explain prints a section with lines about tools; tools of which the same is said share a line.
func (r *checked) explain(w io.Writer, title string, lines func(finding) []string) {
	var order []string
	tools := map[string][]string{}
	for _, f := range r.Tools {
		for _, line := range lines(f) {
			if tools[line] == nil {
				order = append(order, line)
			}
			tools[line] = append(tools[line], f.Tool)
		}
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, line := range order {
		fmt.Fprintf(w, "  %s\n      %s\n", printable(line), printable(strings.Join(tools[line], ", ")))
	}
}
