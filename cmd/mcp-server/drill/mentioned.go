package drill

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// literal is a number, a text, true or false in an expression.
var literal = regexp.MustCompile(`-?\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\btrue\b|\bfalse\b`)

// mentioned are sample arguments in which one member has a value that a condition of the policy mentions, or one next to it.
func (a *act) mentioned(turn int) []json.RawMessage {
	base, _ := sample(a.entry, turn, func(any) bool { return true })
	v, err := keyderive.Parse(base)
	args, ok := v.(map[string]any)
	if base == nil || err != nil || !ok {
		return nil
	}
	properties := map[string]any{}
	if root, err := schemaOf(a.entry.InputSchema); err == nil {
		if m, ok := root.(map[string]any); ok {
			properties, _ = m["properties"].(map[string]any)
		}
	}
	names := slices.Sorted(maps.Keys(properties))
	var out []json.RawMessage
	p := a.entry.Policy
	conditions := []*registry.Expression{p.ReadsWhen}
	if p.Approval != nil {
		conditions = append(conditions, p.Approval.When)
	}
	for _, x := range conditions {
		if x == nil {
			continue
		}
		for _, value := range values(x.String()) {
			for _, name := range names {
				if !strings.Contains(x.String(), name) {
					continue
				}
				changed := maps.Clone(args)
				changed[name] = value
				out = append(out, keyderive.AppendCanonical(nil, changed))
			}
		}
	}
	return out
}

// values are those that an expression mentions, and the numbers next to them.
func values(expression string) []any {
	var out []any
	for _, text := range literal.FindAllString(expression, 32) {
		switch c := text[0]; {
		case text == "true", text == "false":
			out = append(out, true, false)
		case c == '"' || c == '\'':
			out = append(out, text[1:len(text)-1])
		default:
			f, err := strconv.ParseFloat(text, 64)
			if err != nil || f > 1e15 || f < -1e15 {
				continue
			}
			for _, n := range []float64{f, f + 1, f - 1} {
				out = append(out, json.Number(strconv.FormatFloat(n, 'f', -1, 64)))
			}
		}
	}
	return out
}
