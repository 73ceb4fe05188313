package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// draftHead explains a drafted configuration.
const draftHead = `# yaml-language-server: $schema=./` + config.SchemaFile + `
#
# What toolguard guards, and how. "mcp-server check" says what it comes to; after a change, run it again.
# Suggestions that only you can judge are commented out.
version: 1

# mode: observe                   # dispatches everything, and records what would have been held back or replayed

`

const draftContext = `
# Facts about a call that the program around the model knows, never the model. They say which calls belong to the same
# piece of work, even after a crash or in a new chat. With one of source_event, run or step, a write is done once for it.
# context:
#   source_event: {meta: /dev.toolguard~1context/source_event}
#   run: {env: RUN_ID}
`

const draftTools = `
# Policies by SERVER/TOOL, or a pattern such as SERVER/create_*; the most exact one wins, key by key. The settings that
# matter most:
#   effect          read passes through, idempotent sets a state, write is guarded in full, deny is never called
#   once_per        the arguments (and facts) that make a call one of its kind: once done, it stays done. Only where a
#                   second call with the same values is always a mistake
#   may_differ      arguments that a model rewords, and that make no other operation of it
#   downstream_key  where the server takes an idempotency key, and for how long it honours one
tools:
`

// drafted is a configuration in the making.
type drafted struct {
	entries []clientEntry // to be guarded
	older   []clientEntry // reached over HTTP+SSE
	offers  []offer
	failed  map[string]string // why a server could not be asked
	writes  int               // policies drafted
}

// text is the whole file.
func (d *drafted) text() string {
	var b strings.Builder
	b.WriteString(draftHead)
	b.WriteString(serversText(d.entries))
	for _, e := range d.older {
		fmt.Fprintf(&b, "  # %s is reached over HTTP+SSE, the older transport, which is not guarded: leave it in the client\n", printable(e.name))
	}
	b.WriteString(draftContext)
	b.WriteString(draftTools)
	for _, o := range d.offers {
		b.WriteString(d.server(o))
	}
	for _, e := range d.entries {
		if why, ok := d.failed[e.name]; ok {
			fmt.Fprintf(&b, "\n  # %s could not be asked for its tools: %s\n", printable(e.name), short(why, 200))
		}
	}
	return b.String()
}

// serversText is mcpServers with the entries as they came.
func serversText(entries []clientEntry) string {
	var b strings.Builder
	b.WriteString("mcpServers:\n")
	for _, e := range entries {
		fmt.Fprintf(&b, "  %s:\n", yamlKey(e.name))
		first := []string{"command", "args", "env", "cwd", "type", "url", "headers"}
		rest := slices.DeleteFunc(slices.Sorted(maps.Keys(e.members)), func(m string) bool { return slices.Contains(first, m) })
		for _, m := range slices.Concat(first, rest) {
			raw, ok := e.members[m]
			var env map[string]json.RawMessage // or headers
			switch {
			case !ok:
			case (m == "env" || m == "headers") && json.Unmarshal(raw, &env) == nil && len(env) > 0:
				b.WriteString("    " + m + ":\n")
				for _, name := range slices.Sorted(maps.Keys(env)) {
					fmt.Fprintf(&b, "      %s: %s\n", yamlKey(name), flow(env[name]))
				}
			default:
				fmt.Fprintf(&b, "    %s: %s\n", yamlKey(m), flow(raw))
			}
		}
	}
	return b.String()
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(/[A-Za-z0-9_.-]+)?$`)

// yamlKey quotes a key where YAML could read it as something else.
func yamlKey(s string) string {
	if plainName.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	return quoted(s)
}

// quoted is a text as JSON writes it, which YAML reads too.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can be
	return strings.TrimSpace(b.String())
}

// flow is a JSON value on one line, with a space after each colon and comma as YAML wants.
func flow(raw json.RawMessage) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "null"
	}
	return flowOf(v)
}

func flowOf(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, quoted(name)+": "+flowOf(v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, x := range v {
			parts = append(parts, flowOf(x))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return quoted(v)
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// server drafts the policies of one server's tools.
func (d *drafted) server(o offer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n  # %s: %s\n", printable(o.server), counted(len(o.tools), "tool"))
	bySource := map[string][]string{}
	for _, t := range o.tools {
		if effect, source := registry.PresumedEffect(t.Name, t.annotations); effect == registry.Read {
			bySource[source] = append(bySource[source], printable(t.Name))
		}
	}
	if names := bySource["annotated"]; len(names) > 0 {
		fmt.Fprintf(&b, "  # these say that they only read, and pass through: %s\n", strings.Join(names, ", "))
	}
	if names := bySource["presumed"]; len(names) > 0 {
		fmt.Fprintf(&b, "  # these are presumed to only read, from their names; if one writes, declare it (effect: write): %s\n", strings.Join(names, ", "))
	}
	for _, t := range o.tools {
		if effect, source := registry.PresumedEffect(t.Name, t.annotations); effect != registry.Read {
			b.WriteString(policyText(t, effect, source))
			d.writes++
		}
	}
	return b.String()
}

// policyText drafts one tool's policy.
func policyText(t found, effect registry.Effect, source string) string {
	var b strings.Builder
	if t.description != "" {
		fmt.Fprintf(&b, "  # %s\n", short(firstSentence(t.description), 110))
	}
	fmt.Fprintf(&b, "  %s:\n", yamlKey(t.Action()))
	line := func(setting, why string) { fmt.Fprintf(&b, "    %-40s # %s\n", setting, why) }
	line("effect: "+string(effect), map[string]string{"annotated": "as its server says", "presumed": "nothing says that it only reads"}[source])
	s := suggest(t)
	switch {
	case s.entity == "":
	case effect == registry.Idempotent:
		line("entity: ["+s.entity+"]", "one at a time per "+s.entity[1:]+", not per tool")
	case s.changes:
		line("entity: ["+s.entity+"]", "what it changes: after another change of the same "+s.entity[1:]+", the same call is a new one")
	}
	if s.key != "" {
		line("downstream_key: {argument: "+s.key+"}", "toolguard fills it in; add window: 24h if it is honoured for so long")
	}
	if s.target != "" {
		line("# once_per: ["+s.target+"]", "if one "+printable(t.Name)+" per "+s.target[1:]+" is all there may ever be")
		if len(s.reworded) > 0 {
			line("# may_differ: ["+strings.Join(s.reworded, ", ")+"]", "what a model may reword without asking for something else")
		}
	}
	return b.String()
}

func firstSentence(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i]
	}
	return strings.TrimSuffix(s, ".")
}
