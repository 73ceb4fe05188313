package config

import (
	"errors"
	"slices"
	"strings"

	"toolguard.dev/adapters/restguard"
	"toolguard.dev/registry"
)

// httpTool is one entry of httpTools.
type httpTool struct {
	tool    registry.Tool // without effect and policy
	request restguard.Request
	line    int
	path    string
}

// httpTools reads the tools that are requests of their own.
func (r *reader) httpTools(v value) []httpTool {
	var out []httpTool
	for _, m := range r.members(v) {
		server, tool, ok := strings.Cut(m.name, "/")
		if !ok || server == "" || tool == "" || strings.Contains(m.name, "*") {
			r.fault(m.value, "must be written SERVER/TOOL")
			continue
		}
		if what := badName(server); what != "" {
			r.fault(m.value, "%s", what)
			continue
		}
		before := len(r.faults)
		t := httpTool{tool: registry.Tool{Server: server, Name: tool}, line: m.line, path: m.value.path}
		known := r.requestFields(&t.request)
		known["description"] = func(v value) { t.tool.Description, _ = r.text(v) }
		known["input"] = func(v value) {
			if v.kind != mapping {
				r.wrong(v, "a JSON Schema")
				return
			}
			t.tool.InputSchema = v.json()
		}
		r.object(m.value, known)
		if len(r.faults) > before {
			continue
		}
		fit := t.tool
		fit.Effect = registry.Write // as long as its policy says nothing else
		if _, err := restguard.Compile(fit, t.request); err != nil {
			r.fault(m.value, "%s", requestText(err))
			continue
		}
		out = append(out, t)
	}
	return out
}

// requestText is the sentence in an error about a request or its schema.
func requestText(err error) string {
	return strings.TrimPrefix(policyText(err), registry.ErrSchema.Error()+": ")
}

// requestFields reads an HTTP request. Environment variables are replaced in all but the method.
func (r *reader) requestFields(q *restguard.Request) fields {
	named := func(into *map[string]string) func(value) {
		return func(v value) {
			*into = map[string]string{}
			for _, m := range r.members(v) {
				(*into)[m.name], _ = r.expanded(m.value, false)
			}
		}
	}
	return fields{
		"method":  func(v value) { q.Method, _ = r.text(v) },
		"url":     func(v value) { q.URL, _ = r.expanded(v, false) },
		"query":   named(&q.Query),
		"headers": named(&q.Header),
		"form":    named(&q.Form),
		"text":    func(v value) { q.Text, _ = r.expanded(v, false) },
		"json":    func(v value) { q.JSON = r.expandedTree(v).json() },
	}
}

// expandedTree is a value in whose texts environment variables are replaced.
func (r *reader) expandedTree(v value) *node {
	out := *v.node
	switch v.kind {
	case text:
		out.text, _ = r.expanded(v, false)
	case list:
		out.items = nil
		for i, item := range v.items {
			out.items = append(out.items, r.expandedTree(value{item, index(v.path, i)}))
		}
	case mapping:
		out.members = nil
		for _, m := range v.members {
			m.value = r.expandedTree(value{m.value, join(v.path, m.name)})
			out.members = append(out.members, m)
		}
	}
	return &out
}

// compileTools makes the entries of the httpTools, with their policies and the ways of their lookups.
func (r *reader) compileTools(c *Config) {
	effects := func(server string) func(string) (registry.Effect, bool) {
		return func(name string) (registry.Effect, bool) {
			for _, t := range c.requests {
				if t.tool.Server == server && t.tool.Name == name {
					effect, _, _ := c.Resolve(server, name, nil)
					return effect, true
				}
			}
			return "", false
		}
	}
	for _, t := range c.requests {
		if slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Name == t.tool.Server }) {
			r.faultAt(t.line, t.path, "the server %s is under mcpServers too; give one of them another name", t.tool.Server)
			continue
		}
		if faults := c.Faults(t.tool, effects(t.tool.Server)); len(faults) > 0 {
			r.faults = append(r.faults, faults...)
			continue
		}
		e, err := c.compile(t)
		if err != nil {
			line, path := t.line, t.path
			if s, ok := c.settings(t.tool.Server, t.tool.Name)["downstream_key"]; ok && errors.Is(err, registry.ErrPolicy) {
				line, path = s.line, s.path // what the request and its policy can disagree about
			}
			r.faultAt(line, path, "%s", requestText(err))
			continue
		}
		c.HTTPTools = append(c.HTTPTools, e)
	}
}

// compile makes one entry. The tools that it looks with are requests of the same server.
func (c *Config) compile(t httpTool) (*registry.Entry, error) {
	t.tool.Effect, t.tool.EffectSource, t.tool.Policy = c.Resolve(t.tool.Server, t.tool.Name, nil)
	lookups := slices.Clone(t.tool.Policy.Lookups)
	for i := range lookups {
		for _, other := range c.requests {
			if other.tool.Action() == t.tool.Server+"/"+lookups[i].Tool {
				with, err := restguard.Compile(other.tool, other.request)
				if err != nil {
					return nil, err
				}
				lookups[i].Handler = with.Handler
			}
		}
	}
	t.tool.Policy.Lookups = lookups
	return restguard.Compile(t.tool, t.request)
}

// HTTPServers are the servers of the HTTP tools, in the order of the file.
func (c *Config) HTTPServers() []string {
	var out []string
	for _, t := range c.requests {
		if !slices.Contains(out, t.tool.Server) {
			out = append(out, t.tool.Server)
		}
	}
	return out
}

// Place is where a server is named first.
func (c *Config) Place(server string) (line int, path string) {
	for _, s := range c.Servers {
		if s.Name == server {
			return s.Line, "mcpServers." + server
		}
	}
	for _, t := range c.requests {
		if t.tool.Server == server {
			return t.line, t.path
		}
	}
	return 1, ""
}

// look reads a request that finds out what became of an attempt.
func (p policyReader) look(v value, l *registry.Lookup) (terms []term) {
	var q restguard.Request
	before := len(p.faults)
	p.object(v, p.requestFields(&q))
	if len(p.faults) > before {
		return nil
	}
	found, err := restguard.LookUp(q)
	if err != nil {
		p.fault(v, "%s", strings.TrimPrefix(requestText(err), "lookup: "))
		return nil
	}
	l.Arguments, l.Version, l.Handler = found.Arguments, found.Version, found.Handler
	for _, name := range l.Arguments.Placeholders() {
		terms = append(terms, term{"{{" + name + "}}", v.line, v.path})
	}
	return terms
}
