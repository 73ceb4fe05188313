package config

import (
	"maps"
	"slices"
	"strings"
)

// Server is one MCP server to guard, reached over stdio.
type Server struct {
	Name     string // its name in keys and policies
	Command  string
	Args     []string
	Env      []string // NAME=value, what the entry says
	Dir      string   // working folder; "" means this process's own
	Disabled bool
	EnvFile  string // a client's envFile, which is not read
	Line     int
}

// clientMembers are members of a server's entry that MCP clients know and that mean nothing here. Any other is let
// pass as well, unless it looks like a mistyped one of ours.
var clientMembers = []string{"type", "transport", "timeout", "alwaysAllow", "autoApprove", "disabledTools", "enabledTools",
	"envFile", "envVars", "env_vars", "description", "name", "note", "notes", "icon", "tools", "trust", "dev"}

// servers reads mcpServers, pasted from any client.
func (r *reader) servers(v value) []Server {
	var out []Server
	enabled := false
	for _, m := range r.members(v) {
		s, ok := r.server(m)
		enabled = enabled || !s.Disabled || !ok
		out = append(out, s)
	}
	if !enabled && (v.kind == mapping || v.kind == null) {
		if len(out) == 0 {
			r.fault(v, "is empty: no server to guard")
		} else {
			r.fault(v, "every server is disabled: none is left to guard")
		}
	}
	return out
}

func (r *reader) server(m entry) (Server, bool) {
	v, s := m.value, Server{Name: m.name, Line: m.line}
	before := len(r.faults)
	if what := badName(m.name); what != "" {
		r.fault(v, "%s", what)
	}
	if v.kind != mapping {
		r.wrong(v, "a mapping with a command")
		return s, false
	}
	if d := v.member("disabled"); d != nil {
		s.Disabled, _ = r.boolean(value{d.value, join(v.path, "disabled")})
	}
	known := fields{
		"command":  func(v value) { s.Command = r.command(v) },
		"args":     func(v value) { s.Args, _ = listOf(r, v, func(v value) (string, bool) { return r.expanded(v, true) }) },
		"env":      func(v value) { s.Env = r.childEnv(v) },
		"cwd":      func(v value) { s.Dir, _ = r.expanded(v, true) },
		"disabled": func(value) {},
		"type":     r.transport,
		"url":      r.byURL("a server reached by url"),
		"headers":  r.byURL("a header for a server reached by url"),
		"envFile":  func(v value) { s.EnvFile = v.node.text },
	}
	names := slices.Sorted(maps.Keys(known))
	if r.keys != nil {
		r.keys["mcpServers.*"] = names
	}
	for _, member := range r.members(v) {
		read, ok := known[member.name]
		switch {
		case s.Disabled: // it is never started, so nothing in it matters
		case ok:
			read(member.value)
		case slices.Contains(clientMembers, member.name):
		case editDistance(strings.ToLower(member.name), closest(member.name, names)) == 1:
			r.faultAt(member.line, member.value.path, "%s", unknownKey(member.name, names))
		}
	}
	if !s.Disabled && v.member("command") == nil && v.member("url") == nil {
		r.fault(v, "has no command")
	}
	return s, len(r.faults) == before
}

// badName says why a server cannot have a name; "" if it can.
func badName(name string) string {
	switch {
	case name == "":
		return "a server needs a name"
	case strings.ContainsAny(name, "/*"):
		return "a server's name cannot hold / or *: policies are written SERVER/TOOL"
	case strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "a server's name cannot hold control characters"
	}
	return ""
}

func (r *reader) command(v value) string {
	if _, ok := r.text(v); !ok {
		return ""
	}
	s, ok := r.expanded(v, true)
	if ok && s == "" {
		r.fault(v, "is empty")
	}
	return s
}

// childEnv reads what the server's environment has beside the safe list. Clients' files have numbers and null in it too.
func (r *reader) childEnv(v value) []string {
	var out []string
	for _, m := range r.members(v) {
		if m.name == "" || strings.ContainsAny(m.name, "=\x00") {
			r.fault(m.value, "is no name of an environment variable")
			continue
		}
		if m.value.kind == null {
			out = append(out, m.name+"=")
			continue
		}
		if s, ok := r.expanded(m.value, true); ok {
			out = append(out, m.name+"="+s)
		}
	}
	return out
}

func (r *reader) transport(v value) {
	switch s, ok := r.text(v); {
	case !ok, s == "stdio", s == "local":
	default:
		r.byURL("a server of type " + brief(s))(v)
	}
}

func (r *reader) byURL(what string) func(value) {
	return func(v value) {
		r.fault(v, "%s is not supported yet by this version; remove the server or set disabled: true", what)
	}
}
