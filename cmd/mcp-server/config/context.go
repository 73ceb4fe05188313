package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/keyderive"
)

// Context says where the runtime facts of a call come from.
type Context struct {
	Preset string            // auto, none, claude-code, codex or vscode
	Facts  map[string]Source // over stdio, by the name of the fact
	HTTP   map[string]Source // over HTTP
	Lines  map[string]int    // where each fact is named
}

// Names reports whether it names a source for a fact, over stdio or over HTTP.
func (c Context) Names(fact string) bool {
	_, stdio := c.Facts[fact]
	_, http := c.HTTP[fact]
	return stdio || http
}

// Source is where a fact comes from: exactly one member is set.
type Source struct {
	Value  string
	Env    string // name of an environment variable
	Meta   string // JSON Pointer into the request's _meta
	Header string // name of an HTTP header
}

// String says it in words.
func (s Source) String() string {
	switch {
	case s.Env != "":
		return "the environment variable " + s.Env
	case s.Meta != "":
		return "the request's _meta at " + s.Meta
	case s.Header != "":
		return "the header " + s.Header
	}
	return "the fixed value " + s.Value
}

// keyFacts may be part of a key; otherFacts are only recorded.
var (
	keyFacts   = []string{"tenant", "workflow", "source_event", "request", "run", "step"}
	otherFacts = []string{"session", "actor", "call_id", "workflow_version"}
	presets    = []string{"auto", "none", "claude-code", "codex", "vscode"}
)

func (r *reader) context(v value) Context {
	c := Context{Preset: "auto", Facts: map[string]Source{}, HTTP: map[string]Source{}, Lines: map[string]int{}}
	known := fields{"preset": func(v value) {
		if s, ok := r.oneOf(v, "preset", presets...); ok {
			c.Preset = s
		}
	}}
	for _, fact := range slices.Concat(keyFacts, otherFacts) {
		known[fact] = func(v value) {
			c.Lines[fact] = v.line
			r.sources(v, fact, &c)
		}
	}
	r.object(v, known)
	return c
}

// sources reads one source, or one per transport.
func (r *reader) sources(v value, fact string, c *Context) {
	if v.kind == mapping && (v.member("stdio") != nil || v.member("http") != nil) {
		r.object(v, fields{
			"stdio": func(v value) { r.source(v, c.Facts, fact) },
			"http":  func(v value) { r.source(v, c.HTTP, fact) },
		})
		return
	}
	if r.source(v, c.Facts, fact) {
		c.HTTP[fact] = c.Facts[fact]
	}
}

func (r *reader) source(v value, into map[string]Source, fact string) bool {
	var s Source
	good := true
	read := func(target *string, check func(string) string) func(value) {
		return func(v value) {
			text, ok := r.expanded(v, false)
			if ok && text == "" {
				r.fault(v, "is empty")
				ok = false
			}
			if ok && check != nil {
				if what := check(text); what != "" {
					r.fault(v, "%s", what)
					ok = false
				}
			}
			*target = text
			good = good && ok
		}
	}
	known := fields{
		"value":  read(&s.Value, nil),
		"env":    read(&s.Env, nil),
		"meta":   read(&s.Meta, badMetaPointer),
		"header": read(&s.Header, badHeader),
	}
	if v.kind != mapping {
		r.wrong(v, "a source: {value: …}, {env: NAME}, {meta: POINTER} or {header: NAME}")
		return false
	}
	if len(v.members) > 1 {
		names := slices.Sorted(maps.Keys(known))
		for _, m := range v.members {
			if !slices.Contains(names, m.name) {
				r.object(v, known)
				return false
			}
		}
		r.fault(v, "has %d sources; a fact has one, or one each under stdio and http", len(v.members))
		return false
	}
	if len(v.members) == 0 {
		r.fault(v, "names no source; write value, env, meta or header")
		return false
	}
	before := len(r.faults)
	r.object(v, known)
	if !good || len(r.faults) > before {
		return false
	}
	into[fact] = s
	return true
}

// badPointer says why a text is no JSON Pointer to something below the root; "" if it is one.
func badPointer(s string) string {
	if s == "" {
		return "is empty; write a JSON Pointer such as /invoice_id"
	}
	if _, err := keyderive.ParsePointer(s); err != nil {
		what := oneLine(err.Error())
		if !strings.HasPrefix(s, "/") {
			return what + "; write /" + s
		}
		return what
	}
	return ""
}

// badMetaPointer is badPointer for a place in a request's _meta, whose members have names such as dev.toolguard/context.
func badMetaPointer(s string) string {
	first, rest, more := strings.Cut(s, "/")
	if s == "" || first == "" || !more || strings.Contains(first, "~") {
		return badPointer(s)
	}
	escaped := "/" + first + "~1" + rest
	if _, err := keyderive.ParsePointer(escaped); err != nil {
		return badPointer(s)
	}
	what := "bad JSON Pointer: " + strconv.Quote(s) + " does not begin with /; write " + escaped
	if !strings.Contains(first, ".") {
		what += " if " + strings.Split(s, "/")[0] + "/" + strings.Split(s, "/")[1] + " is one name, else /" + s
	}
	return what
}

// slashed is a place in _meta as it was probably meant, where a name that holds a slash was written as two; else "".
func slashed(pointer string) string {
	first, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if !more || !strings.Contains(first, ".") || strings.Contains(first, "~1") {
		return ""
	}
	return "/" + first + "~1" + rest
}

// Doubts lists the places in _meta that are probably meant otherwise, with their places in the file.
func (c *Config) Doubts() Faults {
	var out Faults
	for name, line := range c.Context.Lines {
		for _, source := range []Source{c.Context.Facts[name], c.Context.HTTP[name]} {
			if meant := slashed(source.Meta); meant != "" {
				out = append(out, Fault{c.File, line, "context." + name,
					fmt.Sprintf("looks in the member %s of _meta; if the member's name holds the slash, it is written ~1: %s", strings.Split(source.Meta, "/")[1], meant)})
			}
		}
	}
	return out.sorted()
}

func badHeader(s string) string {
	for _, c := range s {
		if c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) {
			return "is no name of an HTTP header"
		}
	}
	return ""
}
