package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/registry"
)

// Reviewer is a person who proves by a token who decides.
type Reviewer struct {
	Name    string
	Token   string   // SHA-256 of the token, in hex
	Roles   []string // viewer, reviewer or operator; one at least
	Tenants []string // whose operations exist for them; none: all
}

var (
	roles       = []string{"viewer", "reviewer", "operator"}
	tokenSum    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	personsName = regexp.MustCompile(`^[^\s*:\x00-\x1f\x7f][^*:\x00-\x1f\x7f]{0,63}$`)
)

const (
	emptySum     = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of no token at all
	maxReviewers = 256
)

// reviewers reads who may see and decide.
func (r *reader) reviewers(v value) []Reviewer {
	var out []Reviewer
	taken := map[string]string{} // by the sum of their token
	members := r.members(v)
	if len(members) == 0 && v.kind == mapping || v.kind == null {
		r.fault(v, "names nobody; mcp-server token new NAME --role reviewer prints a line for it")
	}
	if len(members) > maxReviewers {
		r.fault(v, "has %d reviewers; there may be %d", len(members), maxReviewers)
		return nil
	}
	for _, m := range members {
		p := Reviewer{Name: m.name}
		if !personsName.MatchString(m.name) {
			r.fault(m.value, "is no name for a reviewer; write up to 64 letters without : and *")
		}
		r.object(m.value, fields{
			"token_sha256": func(v value) {
				s, ok := r.spelled(v)
				switch {
				case !ok:
				case !tokenSum.MatchString(s) || s == emptySum:
					r.fault(v, "is no SHA-256 of a token; mcp-server token new %s --role reviewer makes one", shellSafe(m.name))
				case taken[s] != "":
					r.fault(v, "is also the token of %s; each reviewer needs one of their own", taken[s])
				default:
					p.Token, taken[s] = s, m.name
				}
			},
			"roles": func(v value) {
				p.Roles, _ = listOf(r, v, func(v value) (string, bool) { return r.oneOf(v, "role", roles...) })
				if v.kind == list && len(p.Roles) == 0 {
					r.fault(v, "is empty; write %s", strings.Join(roles, ", "))
				}
			},
			"tenants": func(v value) {
				p.Tenants, _ = listOf(r, v, r.text)
				if v.kind == list && len(p.Tenants) == 0 {
					r.fault(v, "is empty; leave it out for all tenants")
				}
			},
		})
		for _, name := range []string{"token_sha256", "roles"} {
			if m.value.kind == mapping && m.value.member(name) == nil {
				r.faultAt(m.line, join(m.value.path, name), "is missing")
			}
		}
		out = append(out, p)
	}
	return out
}

// shellSafe is a name as it may stand in a command that somebody pastes.
func shellSafe(name string) string {
	if plainKey.MatchString(name) {
		return name
	}
	return "NAME"
}

// strangers reports approvals that nobody could decide: their reviewers are not in the file, or may only look.
func (r *reader) strangers(c *Config) {
	people := map[string]Reviewer{}
	for _, p := range c.Reviewers {
		people[p.Name] = p
	}
	for _, ru := range c.rules {
		s, ok := ru.set["approval"]
		if !ok {
			continue
		}
		d := described{policy: registry.Policy{}}
		if s.apply(&d); d.policy.Approval == nil {
			continue
		}
		for _, name := range d.policy.Approval.Reviewers {
			at := term{name, s.line, s.path}
			if i := slices.IndexFunc(s.terms, func(t term) bool { return t.text == name && strings.Contains(t.path, ".reviewers[") }); i >= 0 {
				at = s.terms[i]
			}
			p, known := people[name]
			switch {
			case known && !slices.ContainsFunc(p.Roles, func(role string) bool { return role != "viewer" }):
				r.faultAt(at.line, at.path, "%s may only look; approvals take the role reviewer", name)
			case known:
			case len(people) == 0:
				r.faultAt(at.line, at.path, "names %s, but there are no reviewers in the file", name)
			default:
				r.faultAt(at.line, at.path, "%s", unknownWord("reviewer", name, slices.Sorted(maps.Keys(people))))
			}
		}
	}
}

// ReviewersOf reads only the reviewers of a configuration file, so that what others decide does not depend on the rest
// of it. The error is [Faults] where these cannot be read.
func ReviewersOf(path string, env func(string) (string, bool)) ([]Reviewer, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	c, r := parse(path, data, env)
	var faults Faults
	for _, f := range r.faults.sorted() {
		if f.Path == "" || f.Path == "reviewers" || strings.HasPrefix(f.Path, "reviewers.") {
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("who may decide is not known: %w", faults)
	}
	return c.Reviewers, nil
}

// ReviewerLines are the lines of a configuration that let a person in. The error says what cannot be configured so.
func ReviewerLines(p Reviewer) (string, error) {
	quoted := func(list []string) string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = yamlText(s)
		}
		return strings.Join(out, ", ")
	}
	line := fmt.Sprintf("  %s: {token_sha256: %q, roles: [%s]", yamlText(p.Name), p.Token, quoted(p.Roles))
	if len(p.Tenants) > 0 {
		line += ", tenants: [" + quoted(p.Tenants) + "]"
	}
	text := "reviewers:\n" + line + "}\n"
	c, r := parse("", []byte("mcpServers: {any: {command: any}}\n"+text), func(string) (string, bool) { return "", false })
	if len(r.faults) > 0 {
		return "", fmt.Errorf("%s %s", strings.TrimPrefix(r.faults[0].Path, "reviewers."), r.faults[0].What)
	}
	if !reflect.DeepEqual(c.Reviewers, []Reviewer{p}) {
		return "", fmt.Errorf("%q cannot be written in a configuration", p.Name)
	}
	return text, nil
}

// yamlText writes a text as YAML does, plainly where that cannot be taken for anything else.
func yamlText(s string) string {
	if yamlPlain.MatchString(s) && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off", "null"}, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

var yamlPlain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
