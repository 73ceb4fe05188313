package config

import (
	"fmt"
	"regexp"
	"strings"
)

// reference is one ${…}: an environment variable, in the spellings that MCP clients have for it.
var reference = regexp.MustCompile(`\$\{([^{}]*)\}`)

var (
	plainReference   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	envReference     = regexp.MustCompile(`^env:([A-Za-z_][A-Za-z0-9_]*)$`) // Cursor, VS Code
	notOfName        = regexp.MustCompile(`^[0-9]|[^A-Za-z0-9_]`)
	defaultReference = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*):-([^{}]*)$`) // Claude Code
)

// expand puts the values of environment variables in the place of ${NAME}, and under mcpServers also of ${env:NAME} and
// ${NAME:-default}, which clients know. It reads the text once: what a variable holds is not expanded again.
func expand(s string, client bool, env func(string) (string, bool)) (string, []string) {
	var faults []string
	out := reference.ReplaceAllStringFunc(s, func(ref string) string {
		name, fallback, optional := ref[2:len(ref)-1], "", false
		if m := envReference.FindStringSubmatch(name); client && m != nil {
			name = m[1]
		} else if m := defaultReference.FindStringSubmatch(name); client && m != nil {
			name, fallback, optional = m[1], m[2], true
		}
		if input, ok := strings.CutPrefix(name, "input:"); ok && client {
			input = notOfName.ReplaceAllString(input, "_")
			faults = append(faults, fmt.Sprintf("%s is asked for by the editor alone; write ${%s} and set %s in the environment", ref, input, input))
			return ref
		}
		if !plainReference.MatchString(name) {
			faults = append(faults, fmt.Sprintf("%s is no environment variable; only ${NAME} is replaced here", ref))
			return ref
		}
		value, ok := env(name)
		if !ok || optional && value == "" {
			if !optional {
				faults = append(faults, fmt.Sprintf("the environment variable %s is not set", name))
			}
			return fallback
		}
		return value
	})
	if rest := reference.ReplaceAllString(s, ""); strings.Contains(rest, "${") {
		faults = append(faults, "a ${ has no } after it")
	}
	return out, faults
}

// expanded reads a text in which environment variables are replaced.
func (r *reader) expanded(v value, client bool) (string, bool) {
	s, ok := r.spelled(v)
	if !ok {
		return "", false
	}
	s, faults := expand(s, client, r.env)
	for _, what := range faults {
		r.fault(v, "%s", what)
	}
	return s, len(faults) == 0
}
