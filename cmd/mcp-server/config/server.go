package config

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"toolguard.dev/adapters/mcpguard"
)

// Server is one MCP server to guard: a command, to speak with on stdio, or a url.
type Server struct {
	Name     string // its name in keys and policies
	Command  string
	Args     []string
	Env      []string    // NAME=value, what the entry says
	Dir      string      // working folder; "" means this process's own
	URL      string      // reached over streamable HTTP, in the place of a command
	Header   http.Header // sent with every request to the url
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
		r.wrong(v, "a mapping with a command or a url")
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
		"type":     func(v value) { r.transport(v) },
		"url":      func(v value) { s.URL = r.url(v) },
		"headers":  func(v value) { s.Header = r.headers(v) },
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
	if !s.Disabled {
		r.reached(v)
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

// reached reports entries that do not say, or not clearly, how the server is reached.
func (r *reader) reached(v value) {
	has := func(name string) bool { return v.member(name) != nil }
	switch {
	case !has("command") && !has("url"):
		r.fault(v, "has no command and no url")
	case has("command") && has("url"):
		r.fault(v, "has a command and a url; remove one")
	case has("headers") && !has("url"):
		r.fault(v, "has headers, which only a server reached by url gets")
	}
}

// transport reads the type that some clients write. What counts is whether there is a command or a url.
func (r *reader) transport(v value) {
	switch t, ok := r.text(v); {
	case !ok:
	case t == "stdio", t == "local", t == "http", t == "remote", strings.HasPrefix(strings.ToLower(t), "streamable"):
	case t == "sse":
		r.fault(v, "sse is the older HTTP+SSE transport, which is not supported; use the server's streamable HTTP address with type: http, or set disabled: true")
	default:
		r.fault(v, "%s", unknownWord("type", t, []string{"stdio", "http"}))
	}
}

// url reads the address of a server. It may hold a secret, and is in no fault.
func (r *reader) url(v value) string {
	if _, ok := r.text(v); !ok {
		return ""
	}
	s, ok := r.expanded(v, true)
	if !ok {
		return ""
	}
	if err := mcpguard.CheckURL(s); err != nil {
		r.fault(v, "%s", err)
		return ""
	}
	return s
}

// headers reads what is sent with every request to a server. The values are in no fault.
func (r *reader) headers(v value) http.Header {
	out := http.Header{}
	for _, m := range r.members(v) {
		if err := mcpguard.CheckHeader(m.name); err != nil {
			r.fault(m.value, "%s", err)
			continue
		}
		if out.Get(m.name) != "" {
			r.fault(m.value, "comes twice: the case of letters does not count in the name of a header")
			continue
		}
		s, ok := r.expanded(m.value, true)
		if ok && strings.ContainsFunc(s, unicode.IsControl) {
			r.fault(m.value, "holds a control character")
			continue
		}
		if ok {
			out.Set(m.name, s)
		}
	}
	return out
}
