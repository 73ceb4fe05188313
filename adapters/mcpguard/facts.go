package mcpguard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"toolguard.dev/keyderive"
)

// contextMember is the member of a request's _meta in which a host may send runtime facts.
const contextMember = "dev.toolguard/context"

// Source is where one runtime fact comes from. Exactly one member is set; none means that the fact is not declared.
type Source struct {
	Value  string // this very value
	Env    string // an environment variable of this process
	Meta   string // a JSON Pointer into the request's _meta
	Header string // an HTTP header of the request
}

// FactSource is where a fact comes from on each transport.
type FactSource struct {
	Stdio, HTTP Source
}

// From is one source for every transport.
func From(s Source) FactSource { return FactSource{Stdio: s, HTTP: s} }

// Sources says where the runtime facts of calls come from. The arguments of a call are never a source.
type Sources struct {
	Preset string                // "auto", "none", "claude-code", "codex" or "vscode"; "" means "none"
	Facts  map[string]FactSource // by name: tenant, workflow, source_event, request, run, step, session, actor, call_id, workflow_version
}

// fact is one of the facts that can be declared.
type fact struct {
	field  func(*keyderive.Facts) *string
	header string // the standard header that carries it, if any
	blocks bool   // when it is declared and does not come, the call is blocked
}

var facts = map[string]fact{
	"tenant":           {func(f *keyderive.Facts) *string { return &f.Tenant }, "Toolguard-Tenant", true},
	"workflow":         {func(f *keyderive.Facts) *string { return &f.Workflow }, "Toolguard-Workflow", true},
	"source_event":     {func(f *keyderive.Facts) *string { return &f.SourceEvent }, "Toolguard-Source-Event", true},
	"request":          {func(f *keyderive.Facts) *string { return &f.Request }, "Toolguard-Request", true},
	"run":              {func(f *keyderive.Facts) *string { return &f.Run }, "Toolguard-Run", true},
	"step":             {func(f *keyderive.Facts) *string { return &f.Step }, "Toolguard-Step", true},
	"session":          {func(f *keyderive.Facts) *string { return &f.Session }, "", false},
	"actor":            {func(f *keyderive.Facts) *string { return &f.Actor }, "Toolguard-Actor", true},
	"call_id":          {func(f *keyderive.Facts) *string { return &f.CallID }, "", false},
	"workflow_version": {func(f *keyderive.Facts) *string { return &f.WorkflowVersion }, "", false},
}

// Check says what is wrong with the sources: an unknown name or preset, a source with more than one member, a bad
// pointer.
func (s Sources) Check() error {
	if _, ok := presets[s.Preset]; !ok && !slices.Contains([]string{"", "auto", "none"}, s.Preset) {
		return fmt.Errorf("context: there is no preset %q", s.Preset)
	}
	for name, from := range s.Facts {
		if _, ok := facts[name]; !ok {
			return fmt.Errorf("context: there is no fact %q", name)
		}
		for _, source := range []Source{from.Stdio, from.HTTP} {
			set := 0
			for _, m := range []string{source.Value, source.Env, source.Meta, source.Header} {
				if m != "" {
					set++
				}
			}
			if set > 1 {
				return fmt.Errorf("context: %s has more than one source for one transport", name)
			}
			if _, err := keyderive.ParsePointer(source.Meta); err != nil {
				return fmt.Errorf("context: %s: %w", name, err)
			}
		}
	}
	return nil
}

// Gather collects what the runtime says about one call. The transport is "stdio" or "http"; meta is the request's
// _meta, headers are those of the HTTP request or nil, env reads the environment, client is the client's name.
//
// missing names the declared facts that did not come, of those that may be part of a key, and the actor. conflict names the declared
// facts of which a standard carrier (the _meta member dev.toolguard/context, a Toolguard header) says something else
// than the declared source; a _meta that cannot be read beyond doubt may say something else of every one of them.
func (s Sources) Gather(transport string, meta json.RawMessage, headers http.Header, env func(string) string, client string) (f keyderive.Facts, missing, conflict []string) {
	in := &incoming{headers: headers, env: env}
	preset := s.preset(transport, client, env)
	var unreadable error
	if len(meta) > 0 && len(preset)+len(s.Facts) > 0 { // or nobody looks into it
		in.meta, unreadable = keyderive.Parse(meta)
	}
	f = keyderive.Facts{Tenant: "default", Workflow: "default", Client: usable(client)}
	for name, source := range preset {
		*facts[name].field(&f) = source(in)
	}
	for name, from := range s.Facts {
		source := from.Stdio
		if transport == "http" {
			source = from.HTTP
		}
		known, ok := facts[name]
		if !ok || source == (Source{}) {
			continue
		}
		value, agree := in.value(source)
		*known.field(&f) = value
		if value == "" && known.blocks {
			missing = append(missing, name)
		}
		if !agree || unreadable != nil || value != "" && in.contradicts(name, known.header, value) {
			conflict = append(conflict, name)
		}
	}
	slices.Sort(missing)
	slices.Sort(conflict)
	return f, missing, conflict
}

// carried adds the facts that the Go context of a call carries, as far as they are not declared for the transport. It
// names the declared ones that differ.
func (s Sources) carried(transport string, from keyderive.Facts, to *keyderive.Facts) (conflict []string) {
	if from == (keyderive.Facts{}) {
		return nil
	}
	for name, known := range facts {
		value, place := *known.field(&from), known.field(to)
		source := s.Facts[name].Stdio
		if transport == "http" {
			source = s.Facts[name].HTTP
		}
		switch {
		case value == "" || value == *place:
		case source == (Source{}):
			*place = value
		case *place != "":
			conflict = append(conflict, name)
		}
	}
	slices.Sort(conflict)
	return conflict
}

// incoming is what came with a call.
type incoming struct {
	meta    any
	headers http.Header
	env     func(string) string
}

// value reads one source: "" if it says nothing that can be used. It does not agree with itself when a header comes
// twice with different values.
func (in *incoming) value(s Source) (value string, agree bool) {
	switch {
	case s.Value != "":
		return usable(s.Value), true
	case s.Env != "":
		return usable(in.env(s.Env)), true
	case s.Header != "":
		values := in.headers.Values(s.Header)
		if len(values) == 0 {
			return "", true
		}
		for _, v := range values {
			if v != values[0] {
				return "", false
			}
		}
		return usable(values[0]), true
	}
	return in.at(s.Meta), true
}

// at reads a place in _meta.
func (in *incoming) at(pointer string) string {
	p, err := keyderive.ParsePointer(pointer)
	if err != nil {
		return ""
	}
	v, _ := p.Lookup(in.meta)
	return scalar(v)
}

// contradicts reports whether a standard carrier names the fact and says anything else than value.
func (in *incoming) contradicts(name, header, value string) bool {
	if m, ok := in.meta.(map[string]any); ok {
		if carried, ok := m[contextMember].(map[string]any); ok {
			if v := carried[name]; v != nil && v != "" && scalar(v) != value {
				return true
			}
		}
	}
	if header == "" {
		return false
	}
	for _, v := range in.headers.Values(header) {
		if v != "" && usable(v) != value {
			return true
		}
	}
	return false
}

// scalar is a string, or a number in its canonical spelling; "" for anything else.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return usable(v)
	case json.Number:
		return usable(v.String())
	}
	return ""
}

// usable is a value within the limits, else "": a fact that cannot be used did not come.
func usable(v string) string {
	if !keyderive.UsableFact(v) {
		return ""
	}
	return v
}

// presets are what known clients say by themselves. A value of a preset that does not come blocks nothing.
var presets = map[string]map[string]func(*incoming) string{
	"claude-code": {
		"session": func(in *incoming) string { return usable(in.env(claudeSession)) },
		"call_id": func(in *incoming) string { return in.at("/claudecode~1toolUseId") },
	},
	"codex": {
		"request": func(in *incoming) string { return in.turn() },
		"session": func(in *incoming) string { return in.at("/sessionId") },
		"call_id": func(in *incoming) string { return in.at("/callId") },
	},
	"vscode": {
		"request": func(in *incoming) string { return in.at("/vscode.requestId") },
		"session": func(in *incoming) string { return in.at("/vscode.conversationId") },
	},
}

const claudeSession = "CLAUDE_CODE_SESSION_ID"

// preset picks what applies to a client. The environment belongs to the client only on stdio.
func (s Sources) preset(transport, client string, env func(string) string) map[string]func(*incoming) string {
	name := s.Preset
	if name == "auto" {
		client = strings.ToLower(client)
		switch {
		case strings.HasPrefix(client, "claude-code"):
			name = "claude-code"
		case strings.HasPrefix(client, "codex"):
			name = "codex"
		case strings.HasPrefix(client, "visual studio code"), strings.HasPrefix(client, "vscode"):
			name = "vscode"
		case transport == "stdio" && env(claudeSession) != "":
			name = "claude-code"
		}
	}
	chosen := presets[name]
	if name == "claude-code" && transport != "stdio" {
		return map[string]func(*incoming) string{"call_id": chosen["call_id"]}
	}
	return chosen
}

// turn reads Codex's turn id. Its metadata comes as an object or as one in a string.
func (in *incoming) turn() string {
	m, _ := in.meta.(map[string]any)
	data := m["x-codex-turn-metadata"]
	if text, ok := data.(string); ok {
		data, _ = keyderive.Parse([]byte(text))
	}
	o, _ := data.(map[string]any)
	return scalar(o["turn_id"])
}
