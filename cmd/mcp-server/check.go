package main

import (
	"cmp"
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
	Config    string          `json:"config"`
	Mode      string          `json:"mode"` // enforce or observe
	Ledger    string          `json:"ledger"`
	OK        bool            `json:"ok"`
	Unguarded []string        `json:"unguarded,omitempty"` // what cannot be guarded: tools, and servers whose tools are not known
	Servers   []checkedServer `json:"servers"`
	Tools     []finding       `json:"tools"`
	Weak      []string        `json:"weak,omitempty"`     // whatever the tool
	Sealing   []string        `json:"sealing,omitempty"`  // how secret arguments are kept, and from whom not
	Faults    []string        `json:"faults,omitempty"`   // of the configuration
	Warnings  []string        `json:"warnings,omitempty"` // of the configuration

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
		Use: "check", Short: "Check the configuration against the servers, and say what each policy comes to", Args: noArguments,
		Long: "check reads the configuration, starts every server, and says for each tool what it does to the world, what counts as\n" +
			"the same call, and three answers: is there a stable key on every attempt, does the downstream reject repeats, is there\n" +
			"a record of each retry. It sends no call and opens no ledger. Exit 1 if a tool cannot be guarded.\n\n" +
			"With --drill it rehearses, for each tool that writes, what goes wrong with agents: the same event twice, a retry after a\n" +
			"time-out, a restart in mid-action, an approval rejected, and a payload changed under the same key. The policies, the keys\n" +
			"and the guard are the real ones; the ledger is a scratch one, the arguments are made up from the schemas, and nothing is\n" +
			"sent to any server. The tools' times run faster, in proportion. Exit 1 if a rehearsal fails.",
		RunE: func(c *cobra.Command, _ []string) error {
			if drill {
				return p.drill(c)
			}
			return p.check(c)
		},
	}
	c.Flags().BoolVar(&drill, "drill", false, "rehearse five failures against the policies, sending nothing")
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
	r := inspect(cfg, append(ask(c.Context(), cfg.Servers), requests(cfg)...))
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
	r := &checked{Config: cfg.File, Mode: "enforce", Servers: []checkedServer{}, Tools: []finding{}, Weak: contextWeak(cfg), Warnings: contextWarnings(cfg, true)}
	if cfg.Observe {
		r.Mode = "observe"
	}
	var actions []string
	down := map[string]bool{}
	shown := map[string]string{}
	for _, o := range offers {
		s := checkedServer{Name: o.server, Version: strings.TrimSpace(o.info.Name + " " + o.info.Version), Tools: len(o.tools)}
		if o.err != nil {
			s.Error = short(o.err.Error(), 500)
			down[o.server] = true
			r.Unguarded = append(r.Unguarded, "the server "+o.server)
		}
		r.Servers = append(r.Servers, s)
		for _, t := range o.tools {
			actions = append(actions, t.Action())
			f := r.tool(cfg, t, o.tools)
			name := shownName(t.Tool, len(offers))
			if other, ok := shown[name]; ok && f.Error == "" {
				f.Error = fmt.Sprintf("clients would see it as %s, as they do %s", name, other)
			}
			shown[name] = t.Action()
			if f.Error != "" {
				r.Unguarded = append(r.Unguarded, f.Tool)
			}
			r.Tools = append(r.Tools, f)
		}
	}
	if slices.ContainsFunc(r.Tools, func(f finding) bool { return len(f.Secret) > 0 }) {
		r.Sealing = sealing
	}
	r.Warnings = append(r.Warnings, nameWarnings(cfg, offers)...)
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
	r.OK = len(r.Unguarded) == 0 && len(r.faults) == 0
	return r
}

// tool judges one tool.
func (r *checked) tool(cfg *config.Config, t found, all []found) finding {
	t.Effect, t.EffectSource, t.Policy = cfg.Resolve(t.Server, t.Name, t.annotations)
	if faults := cfg.Faults(t.Tool, effectsOf(cfg, all)); len(faults) > 0 {
		r.faults = append(r.faults, faults...)
		return finding{Tool: t.Action(), Effect: t.Effect, Source: t.EffectSource, Error: "its policy does not fit it"}
	}
	e, err := registry.Compile(t.Tool)
	if err != nil {
		return finding{Tool: t.Action(), Effect: t.Effect, Source: t.EffectSource, Error: short(err.Error(), 500)}
	}
	f := examine(e, cfg.Context)
	for _, key := range cfg.Idle(t.Server, t.Name, t.Effect) {
		f.Weak = append(f.Weak, fmt.Sprintf("%s has no use with effect %s", key, t.Effect))
	}
	return f
}

func (r *checked) print(w io.Writer) error {
	if r.Mode == "observe" {
		fmt.Fprintln(w, "mode: observe: every call is sent, also one that was done before; what would have been held back is only recorded")
	}
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
	r.explain(w, "What counts as the same call", nil, func(f finding) []string {
		if f.Effect == registry.Read || f.SameCall == "" {
			return nil
		}
		return []string{f.SameCall}
	})
	r.explain(w, "To be signed by who answers for it", nil, func(f finding) []string {
		if f.Effect != registry.Write && f.Effect != registry.Idempotent || len(f.Statement) == 0 {
			return nil
		}
		return []string{strings.Join(f.Statement, "\n")}
	})
	r.explain(w, "Why", nil, func(f finding) []string {
		var out []string
		if f.StableKey.Answer == "partly" || f.StableKey.Answer == "no" {
			out = append(out, "stable key: "+f.StableKey.Answer+", "+f.StableKey.Why)
		}
		if f.RejectsRepeats.Answer != "" {
			out = append(out, "repeats downstream: "+f.RejectsRepeats.Answer+", "+f.RejectsRepeats.Why)
		}
		return out
	})
	r.explain(w, "Secrets", r.Sealing, func(f finding) []string {
		if len(f.Secret) == 0 {
			return nil
		}
		return []string{"secret: " + listed(f.Secret)}
	})
	r.explain(w, "Weak", r.Weak, func(f finding) []string { return f.Weak })
	r.explain(w, "Cannot be guarded", nil, func(f finding) []string {
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
	verdict := "Every tool can be guarded."
	switch {
	case len(r.Unguarded) > 0:
		named := r.Unguarded[:min(len(r.Unguarded), maxNamed)]
		if more := len(r.Unguarded) - len(named); more > 0 {
			named = append(slices.Clone(named), fmt.Sprintf("%d more", more))
		}
		verdict = "Not everything can be guarded; what cannot: " + listed(named) + "."
	case !r.OK:
		verdict = "The configuration has " + counted(len(r.faults), "fault") + "."
	}
	_, err := fmt.Fprintf(w, "\n%s\n", printable(verdict))
	return err
}

func (a answer) cell() string {
	if a.Answer == "" {
		return "-"
	}
	return a.Answer
}

// explain prints a section: first what holds whatever the tool, then lines about tools, which share a line where the
// same is said of them.
func (r *checked) explain(w io.Writer, title string, first []string, lines func(finding) []string) {
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
	if len(order)+len(first) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, line := range first {
		fmt.Fprintf(w, "  %s\n", printable(line))
	}
	for _, line := range order {
		for sentence := range strings.SplitSeq(line, "\n") {
			if sentence != line {
				sentence = folded(sentence, "  ")
			} else {
				sentence = printable(line)
			}
			fmt.Fprintf(w, "  %s\n", sentence)
		}
		fmt.Fprintf(w, "      %s\n", printable(strings.Join(tools[line], ", ")))
	}
}
