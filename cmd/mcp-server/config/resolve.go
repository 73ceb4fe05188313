package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"toolguard.dev/registry"
)

// Resolve says what a tool does to the world, how that is known ("declared", "annotated" or "presumed"), and its
// policy. Each policy key comes from the most exact rule that has it: the tool's own name first, then the pattern
// with the most letters beside its *; between equals, the one that stands first.
func (c *Config) Resolve(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy) {
	d := described{policy: c.defaults}
	for _, s := range c.settings(server, tool) {
		s.apply(&d)
	}
	if d.effect != "" {
		return d.effect, "declared", d.policy
	}
	effect, source := registry.PresumedEffect(tool, annotations)
	return effect, source, d.policy
}

// Ruled tells whether the file has a rule for a tool, by its name or by a pattern.
func (c *Config) Ruled(server, tool string) bool { return len(c.matching(server, tool)) > 0 }

// settings are the policy keys that hold for a tool.
func (c *Config) settings(server, tool string) map[string]setting {
	out := map[string]setting{}
	for _, r := range c.matching(server, tool) {
		for key, s := range r.set {
			if _, ok := out[key]; !ok {
				out[key] = s
			}
		}
	}
	return out
}

// Secrets tells whether any tool may have secret arguments.
func (c *Config) Secrets() bool {
	return slices.ContainsFunc(c.rules, func(r rule) bool { _, ok := r.set["secret"]; return ok })
}

// matching lists the rules for a tool, the most exact first.
func (c *Config) matching(server, tool string) []rule {
	var out []rule
	for _, r := range c.rules {
		if matches(r.server, server) && matches(r.tool, tool) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b rule) int { return cmp.Compare(b.exactness(), a.exactness()) })
	return out
}

// exact tells whether a rule names one tool.
func (r *rule) exact() bool { return !strings.Contains(r.pattern, "*") }

// exactness orders rules: those that name one tool first, then by the letters beside the *.
func (r *rule) exactness() int {
	if r.exact() {
		return math.MaxInt
	}
	return len(r.pattern) - strings.Count(r.pattern, "*")
}

// matches tells whether a pattern, in which * is any run of characters, is the whole of s.
func matches(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// Faults lists what is wrong with the policy of a tool that a server offers, such as a pointer that its schema does
// not have, or a lookup that is no read, with the places in the file. effects says what the server's other tools do, if it has them.
func (c *Config) Faults(t registry.Tool, effects func(tool string) (registry.Effect, bool)) Faults {
	var out Faults
	settings := c.settings(t.Server, t.Name)
	for _, s := range settings {
		if err := s.fits(t); err != nil {
			out = append(out, c.fault(s, err))
		}
	}
	if s, ok := settings["lookup"]; ok {
		for _, err := range unreadable(s, t.Server, effects) {
			out = append(out, c.fault(s, err))
		}
	}
	if s, ok := settings["downstream_key"]; ok {
		if what := c.headless(s, func(server Server) bool { return server.Name == t.Server }); what != "" {
			out = append(out, Fault{c.File, s.line, s.path, what})
		}
	}
	if len(out) > 0 {
		return out.sorted()
	}
	t.Effect, t.EffectSource, t.Policy = c.Resolve(t.Server, t.Name, nil)
	if _, err := registry.Compile(t); errors.Is(err, registry.ErrPolicy) { // two settings that do not fit each other
		for _, r := range c.matching(t.Server, t.Name) {
			return Faults{{c.File, r.line, r.path, policyText(err)}}
		}
	}
	return nil
}

// unreadable are the lookups of a setting whose tool is not there, or does not only read.
func unreadable(s setting, server string, effects func(tool string) (registry.Effect, bool)) (errs []error) {
	var d described
	s.apply(&d)
	for _, l := range d.policy.Lookups {
		effect, there := effects(l.Tool)
		switch {
		case l.Tool == "": // a request of its own
		case !there && strings.HasPrefix(l.Tool, server+"/"):
			errs = append(errs, fmt.Errorf("%s is a name with its server; a lookup asks its own server, so write %s", l.Tool, strings.TrimPrefix(l.Tool, server+"/")))
		case !there:
			errs = append(errs, fmt.Errorf("%s is no tool of the server %s", l.Tool, server))
		case effect != registry.Read:
			errs = append(errs, fmt.Errorf("%s is no read but %q; if it only reads, declare its effect", l.Tool, effect))
		}
	}
	return errs
}

// headless says that a key would be sent in a header to servers of which none gets headers; "" if it is not so.
func (c *Config) headless(s setting, about func(Server) bool) string {
	var d described
	s.apply(&d)
	var named []string
	for _, name := range c.HTTPServers() {
		if about(Server{Name: name}) {
			return ""
		}
	}
	for _, server := range c.Servers {
		if server.URL != "" && !server.Disabled && about(server) {
			return ""
		}
		if !server.Disabled && about(server) {
			named = append(named, server.Name)
		}
	}
	if d.policy.DownstreamKey.Header == "" || len(named) == 0 {
		return ""
	}
	return fmt.Sprintf("names the header %s, but %s is not reached by url: it gets no headers", d.policy.DownstreamKey.Header, strings.Join(named, ", "))
}

// headlessKeys reports rules that send a key in a header to no server that gets headers.
func (r *reader) headlessKeys(c *Config) {
	for _, ru := range c.rules {
		if s, ok := ru.set["downstream_key"]; ok {
			if what := c.headless(s, func(server Server) bool { return matches(ru.server, server.Name) }); what != "" {
				r.faultAt(s.line, s.path, "%s", what)
			}
		}
	}
}

// fault places an error about a setting at the pointer or expression that it quotes.
func (c *Config) fault(s setting, err error) Fault {
	f := Fault{c.File, s.line, s.path, policyText(err)}
	longest := 0
	for _, t := range s.terms {
		if len(t.text) > longest && strings.Contains(f.What, oneLine(t.text)) {
			longest, f.Line, f.Path = len(t.text), t.line, t.path
		}
	}
	return f
}

// Unfit is a rule that fits no tool.
type Unfit struct {
	Fault
	Exact bool // it names one tool, so it is probably mistyped
}

// Unused lists the rules that fit none of the tools ("server/tool"), in the order of the file. Servers whose tools are
// not known are left out, as are disabled ones.
func (c *Config) Unused(tools []string, unknown func(server string) bool) []Unfit {
	var out []Unfit
	for _, r := range c.rules {
		used := slices.ContainsFunc(tools, func(t string) bool {
			server, tool, _ := strings.Cut(t, "/")
			return matches(r.server, server) && matches(r.tool, tool)
		})
		if used || c.silent(r, unknown) {
			continue
		}
		what := "fits no tool of any server"
		if r.exact() {
			what = fmt.Sprintf("the server %s has no tool of this name", r.server)
			if near := closest(r.pattern, tools); near != "" {
				what += "; did you mean " + near + "?"
			}
		}
		out = append(out, Unfit{Fault{c.File, r.line, r.path, what}, r.exact()})
	}
	return out
}

// Names tells whether a policy names one tool of a server.
func (c *Config) Names(server string) bool {
	return slices.ContainsFunc(c.rules, func(r rule) bool { return r.exact() && r.server == server })
}

// Idle lists the policy keys that are declared for a tool and have no use with its effect. What a pattern says of many
// tools counts only where it says the effect too.
func (c *Config) Idle(server, tool string, effect registry.Effect) []string {
	useful := map[registry.Effect][]string{registry.Read: {"effect", "owner", "answer_within", "timeout", "secret"}, registry.Deny: {"effect", "owner"}}[effect]
	if useful == nil {
		return nil
	}
	var out []string
	for _, r := range c.matching(server, tool) {
		if _, says := r.set["effect"]; !r.exact() && !says {
			continue
		}
		for key := range r.set {
			if !slices.Contains(useful, key) && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	slices.Sort(out)
	return out
}

// silent tells whether a server that a rule is about is disabled, or could not be asked for its tools.
func (c *Config) silent(r rule, unknown func(string) bool) bool {
	return slices.ContainsFunc(c.Servers, func(s Server) bool {
		return matches(r.server, s.Name) && (s.Disabled || unknown(s.Name))
	})
}

// unknownServers reports rules about servers that are not in the file.
func (r *reader) unknownServers(c *Config) {
	names := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		names[i] = s.Name
	}
	for _, name := range c.HTTPServers() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, ru := range c.rules {
		if len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return matches(ru.server, name) }) {
			r.faultAt(ru.line, ru.path, "%s", unknownWord("server", ru.server, names))
		}
	}
}
