package config

import (
	"errors"
	"slices"
	"strings"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// rule is one entry of tools: what the operator says about the tools that a pattern names.
type rule struct {
	pattern string
	server  string // may hold *
	tool    string // may hold *
	line    int
	path    string
	set     map[string]setting // by policy key
}

// setting is one policy key of a rule.
type setting struct {
	line  int
	path  string
	terms []term // what an error may quote
	apply func(*described)
}

// term is a text of the policy, with its own place.
type term struct {
	text string
	line int
	path string
}

// described is what is being put together for one tool.
type described struct {
	effect registry.Effect // "" where not declared
	policy registry.Policy
}

var effects = []string{"read", "idempotent", "write", "deny"}

// normalizeSteps are the steps that keyderive knows.
var normalizeSteps = []string{"trim", "lower", "upper", "collapse", "sort", "unique"}

// tools reads the policies: SERVER/TOOL, or a pattern with *.
func (r *reader) tools(v value) []rule {
	var out []rule
	for _, m := range r.members(v) {
		server, tool, ok := strings.Cut(m.name, "/")
		if !ok || server == "" || tool == "" {
			r.fault(m.value, "must be written SERVER/TOOL, or with * such as SERVER/create_*")
			continue
		}
		ru := rule{m.name, server, tool, m.line, m.value.path, map[string]setting{}}
		r.policy(m.value, &ru)
		out = append(out, ru)
	}
	return out
}

// policy reads what is said about a rule's tools.
func (r *reader) policy(v value, ru *rule) {
	p := policyReader{r, ru}
	known := fields{
		"effect": func(v value) {
			if s, ok := r.oneOf(v, "effect", effects...); ok {
				p.set("effect", v, nil, func(d *described) { d.effect = registry.Effect(s) })
			}
		},
		"reads_when": func(v value) {
			p.expression("reads_when", v, registry.KindArguments, func(pol *registry.Policy, e *registry.Expression) { pol.ReadsWhen = e })
		},
		"once_per": p.oncePer,
		"may_differ": func(v value) {
			p.pointers("may_differ", v, func(pol *registry.Policy, list []string) { pol.MayDiffer = list })
		},
		"entity": func(v value) {
			p.pointers("entity", v, func(pol *registry.Policy, list []string) { pol.Entity = list })
		},
		"normalize":      p.normalize,
		"repeat_after":   p.repeatAfter,
		"downstream_key": p.downstreamKey,
		"downstream_id": func(v value) {
			p.expression("downstream_id", v, registry.KindAnswer, func(pol *registry.Policy, e *registry.Expression) { pol.DownstreamID = e })
		},
		"classify": p.classify,
		"errors": func(v value) {
			if s, ok := r.oneOf(v, "reading of errors", "words", "status", "refused", "unknown"); ok {
				p.set("errors", v, nil, func(d *described) { d.policy.Errors = registry.ErrorMode(s) })
			}
		},
		"result": func(v value) {
			if s, ok := r.oneOf(v, "way to keep results", "keep", "receipt"); ok {
				p.set("result", v, nil, func(d *described) { d.policy.Receipt = s == "receipt" })
			}
		},
		"owner": func(v value) {
			if s, ok := r.text(v); ok {
				p.set("owner", v, nil, func(d *described) { d.policy.Owner = s })
			}
		},
		"approval": p.approval,
		"lookup":   p.lookups,
		"secret": func(v value) {
			p.pointers("secret", v, func(pol *registry.Policy, list []string) { pol.Secret = list })
		},
	}
	p.limits(known)
	r.object(v, known)
	p.contradictions()
}

// defaults reads what holds for every tool that does not say otherwise.
func (r *reader) defaults(v value) registry.Policy {
	ru := rule{set: map[string]setting{}}
	known := fields{}
	policyReader{r, &ru}.limits(known)
	r.object(v, known)
	d := described{}
	for _, s := range ru.set {
		s.apply(&d)
	}
	return d.policy
}

// policyReader reads the members of one rule.
type policyReader struct {
	*reader
	rule *rule
}

// set keeps a policy key, unless it is wrong whatever the tool's schema is.
func (p policyReader) set(key string, v value, terms []term, apply func(*described)) {
	s := setting{v.line, v.path, terms, apply}
	if err := s.fits(registry.Tool{Server: "any", Name: "tool"}); err != nil {
		p.fault(v, "%s", policyText(err))
		return
	}
	p.rule.set[key] = s
}

// fits tells what is wrong with a setting, by itself, for a tool.
func (s setting) fits(t registry.Tool) error {
	var d described
	s.apply(&d)
	t.Effect, t.Policy = registry.Write, d.policy
	_, err := registry.Compile(t)
	if errors.Is(err, registry.ErrPolicy) {
		return err
	}
	return nil
}

// policyText is the sentence in an error about a policy, without what the key path says already.
func policyText(err error) string {
	s := strings.TrimPrefix(oneLine(err.Error()), registry.ErrPolicy.Error()+": ")
	if action, rest, ok := strings.Cut(s, ": "); ok && strings.Contains(action, "/") && !strings.Contains(action, " ") {
		s = rest
	}
	return s
}

// limits are the members that may also stand under defaults.
func (p policyReader) limits(known fields) {
	known["answer_within"] = func(v value) {
		if d, ok := p.duration(v); ok {
			p.set("answer_within", v, nil, func(x *described) { x.policy.AnswerWithin = d })
		}
	}
	known["timeout"] = func(v value) {
		if d, ok := p.duration(v); ok {
			p.set("timeout", v, nil, func(x *described) { x.policy.Timeout = d })
		}
	}
	known["retention"] = func(v value) {
		if d, ok := p.duration(v); ok {
			p.set("retention", v, nil, func(x *described) { x.policy.Retention = d })
		}
	}
	known["attempts"] = func(v value) {
		if n, ok := p.count(v, 100); ok {
			p.set("attempts", v, nil, func(x *described) { x.policy.Attempts = n })
		}
	}
}

func (p policyReader) expression(key string, v value, kind registry.Kind, apply func(*registry.Policy, *registry.Expression)) {
	if e := p.compiled(v, kind); e != nil {
		p.set(key, v, []term{{v.node.text, v.line, v.path}}, func(d *described) { apply(&d.policy, e) })
	}
}

// compiled reads a CEL expression; nil if it is none.
func (p policyReader) compiled(v value, kind registry.Kind) *registry.Expression {
	s, ok := p.text(v)
	if !ok {
		return nil
	}
	e, err := registry.CompileExpression(s, kind)
	if err != nil {
		what := policyText(err)
		if strings.Contains(what, "undeclared reference") {
			what += "; known here: " + strings.Join(variables[kind], ", ")
		}
		p.fault(v, "%s", what)
		return nil
	}
	return e
}

// variables are what an expression sees.
var variables = map[registry.Kind][]string{
	registry.KindArguments: {"args", "context", "tool"},
	registry.KindAnswer:    {"args", "context", "tool", "result"},
}

// pointer reads one JSON Pointer to an argument.
func (p policyReader) pointer(v value) (term, bool) {
	s, ok := p.text(v)
	if !ok {
		return term{}, false
	}
	if what := badPointer(s); what != "" {
		p.fault(v, "%s", what)
		return term{}, false
	}
	return term{s, v.line, v.path}, true
}

func (p policyReader) pointers(key string, v value, apply func(*registry.Policy, []string)) {
	terms, ok := listOf(p.reader, v, p.pointer)
	if ok {
		p.set(key, v, terms, func(d *described) { apply(&d.policy, texts(terms)) })
	}
}

func texts(terms []term) []string {
	out := make([]string, len(terms))
	for i, t := range terms {
		out[i] = t.text
	}
	return out
}

// oncePer reads facts and pointers: what makes an operation one of its kind.
func (p policyReader) oncePer(v value) {
	terms, ok := listOf(p.reader, v, func(v value) (term, bool) {
		s, ok := p.text(v)
		switch {
		case !ok:
			return term{}, false
		case strings.HasPrefix(s, "/"):
			return p.pointer(v)
		case slices.Contains(otherFacts, s):
			p.fault(v, "%s may not be in once_per: it is recorded, but never identifies an operation", s)
			return term{}, false
		case !slices.Contains(keyFacts, s):
			p.fault(v, "%s (an argument is written /%s)", unknownWord("fact", s, keyFacts), s)
			return term{}, false
		}
		return term{s, v.line, v.path}, true
	})
	if ok {
		p.set("once_per", v, terms, func(d *described) { d.policy.OncePer = texts(terms) })
	}
}

func (p policyReader) normalize(v value) {
	n, terms, before := keyderive.Normalize{}, []term(nil), len(p.faults)
	for _, m := range p.members(v) {
		if what := badPointer(m.name); what != "" {
			p.fault(m.value, "%s", what)
			continue
		}
		n[m.name], _ = listOf(p.reader, m.value, func(v value) (string, bool) { return p.oneOf(v, "step", normalizeSteps...) })
		terms = append(terms, term{m.name, m.line, m.value.path})
	}
	if len(p.faults) > before {
		return
	}
	if err := n.Validate(); err != nil {
		p.fault(v, "%s", oneLine(err.Error()))
		return
	}
	p.set("normalize", v, terms, func(d *described) { d.policy.Normalize = n })
}

func (p policyReader) repeatAfter(v value) {
	if v.kind == text && v.node.text == "never" {
		p.set("repeat_after", v, nil, func(d *described) { d.policy.RepeatAfter = 0 })
		return
	}
	if d, ok := p.duration(v); ok {
		p.set("repeat_after", v, nil, func(x *described) { x.policy.RepeatAfter = d })
	}
}

// downstreamKey reads where a tool takes an idempotency key, and for how long it honours one.
func (p policyReader) downstreamKey(v value) {
	var key registry.DownstreamKey
	var terms []term
	before := len(p.faults)
	p.object(v, fields{
		"argument": func(v value) {
			if t, ok := p.pointer(v); ok {
				key.Argument, terms = t.text, []term{t}
			}
		},
		"meta": func(v value) { key.Meta, _ = p.text(v) },
		"header": func(v value) {
			s, ok := p.text(v)
			if err := mcpguard.CheckHeader(s); ok && err != nil {
				p.fault(v, "%s", err)
			}
			key.Header = s
		},
		"window": func(v value) { key.Window, _ = p.duration(v) },
	})
	if len(p.faults) > before {
		return
	}
	if places := slices.DeleteFunc([]string{key.Argument, key.Meta, key.Header}, func(s string) bool { return s == "" }); len(places) != 1 {
		p.fault(v, "must say where the key goes: either argument, meta or header")
		return
	}
	p.set("downstream_key", v, terms, func(d *described) { d.policy.DownstreamKey = key })
}

// approval reads when a person must say yes.
func (p policyReader) approval(v value) {
	if v.kind == text {
		if s, ok := p.oneOf(v, "approval", "always", "never"); ok {
			p.set("approval", v, nil, func(d *described) {
				if d.policy.Approval = nil; s == "always" {
					d.policy.Approval = &registry.Approval{}
				}
			})
		}
		return
	}
	a := &registry.Approval{}
	var terms []term
	before := len(p.faults)
	p.object(v, fields{
		"when": func(v value) {
			if a.When = p.compiled(v, registry.KindArguments); a.When != nil {
				terms = append(terms, term{v.node.text, v.line, v.path})
			}
		},
		"expires": func(v value) { a.Expires, _ = p.duration(v) },
		"reviewers": func(v value) {
			a.Reviewers, _ = listOf(p.reader, v, func(v value) (string, bool) {
				s, ok := p.text(v)
				terms = append(terms, term{s, v.line, v.path})
				return s, ok
			})
		},
	})
	if len(p.faults) == before {
		p.set("approval", v, terms, func(d *described) { d.policy.Approval = a })
	}
}

// lookups reads how to learn what became of an attempt.
func (p policyReader) lookups(v value) {
	var terms []term
	lookups, ok := listOf(p.reader, v, func(v value) (l registry.Lookup, ok bool) {
		before := len(p.faults)
		condition := func(into **registry.Expression) func(value) {
			return func(v value) {
				if *into = p.compiled(v, registry.KindAnswer); *into != nil {
					terms = append(terms, term{v.node.text, v.line, v.path})
				}
			}
		}
		p.object(v, fields{
			"tool": func(v value) {
				if s, ok := p.text(v); ok {
					l.Tool = s
					terms = append(terms, term{s, v.line, v.path})
				}
			},
			"arguments": func(v value) {
				l.Arguments = p.template(v)
				for _, name := range l.Arguments.Placeholders() {
					terms = append(terms, term{"{{" + name + "}}", v.line, v.path})
				}
			},
			"request": func(v value) { terms = append(terms, p.look(v, &l)...) },
			"applied": condition(&l.Applied),
			"absent":  condition(&l.Absent),
			"settle":  func(v value) { l.Settle, _ = p.duration(v) },
		})
		switch asks := v.member("request") != nil; {
		case len(p.faults) > before:
		case l.Tool == "" && !asks:
			p.fault(v, "names no tool, and no request, to look with")
		case asks && (l.Tool != "" || v.member("arguments") != nil):
			p.fault(v, "has a request, which takes no tool and no arguments beside it")
		}
		return l, len(p.faults) == before
	})
	if ok {
		p.set("lookup", v, terms, func(d *described) { d.policy.Lookups = lookups })
	}
}

// template reads the arguments of a lookup, with their placeholders.
func (p policyReader) template(v value) *registry.Template {
	if v.kind != mapping {
		p.wrong(v, "a mapping of arguments")
		return nil
	}
	t, err := registry.ParseTemplate(v.json())
	if err != nil {
		p.fault(v, "%s", policyText(err))
		return nil
	}
	return t
}

// classify reads how answers are recognised.
func (p policyReader) classify(v value) {
	var notApplied, unknown []*registry.Expression
	var terms []term
	before := len(p.faults)
	expressions := func(into *[]*registry.Expression) func(value) {
		return func(v value) {
			*into, _ = listOf(p.reader, v, func(v value) (*registry.Expression, bool) {
				e := p.compiled(v, registry.KindAnswer)
				if e != nil {
					terms = append(terms, term{v.node.text, v.line, v.path})
				}
				return e, e != nil
			})
		}
	}
	p.object(v, fields{"not_applied": expressions(&notApplied), "unknown": expressions(&unknown)})
	if len(p.faults) == before {
		p.set("classify", v, terms, func(d *described) { d.policy.NotApplied, d.policy.Unknown = notApplied, unknown })
	}
}

// contradictions reports arguments that one rule uses in two ways that exclude each other.
func (p policyReader) contradictions() {
	once := p.rule.set["once_per"].terms
	for _, t := range p.rule.set["may_differ"].terms {
		if slices.Contains(texts(once), t.text) {
			p.faultAt(t.line, t.path, "%s is in once_per too: it cannot both identify the operation and differ", t.text)
		}
	}
	for _, t := range p.rule.set["secret"].terms {
		for _, where := range []string{"once_per", "entity", "downstream_key"} {
			for _, o := range p.rule.set[where].terms {
				if strings.HasPrefix(o.text, "/") && keyderive.Overlap(t.text, o.text) {
					p.faultAt(t.line, t.path, "%s has %s: what identifies a call is recorded as it is, so it cannot be secret", where, o.text)
				}
			}
		}
	}
	for _, t := range p.rule.set["downstream_key"].terms {
		if slices.Contains(texts(once), t.text) {
			p.faultAt(t.line, t.path, "%s is in once_per too: toolguard fills it in, so it cannot identify the operation", t.text)
		}
	}
}
