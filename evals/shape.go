package evals

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"toolguard.dev/evals/recorded"
)

// shape is what the calls of one tool in a run look like.
type shape struct {
	server, tool string
	names        []string // arguments
	target       []string // what is acted on: identifiers that each call has
	free         []string // free text
	amounts      []string // what is neither, and may be changed by a model
}

// identifying are endings of the names of arguments that name what is acted on.
var identifying = []string{"id", "iban", "email", "to", "recipient", "recipients", "user", "username", "path", "file", "filename", "channel", "url",
	"order", "invoice", "account", "ticket", "customer", "number", "repo", "owner", "branch", "name", "key"}

// wordy are endings of the names of arguments that hold free text.
var wordy = []string{"memo", "note", "notes", "message", "body", "text", "content", "comment", "summary", "description", "reason", "subject", "title"}

func ending(name string, list []string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '-' || r == ' ' })
	return len(words) > 0 && slices.Contains(list, words[len(words)-1])
}

// shapesOf describes the tools that a run writes with.
func shapesOf(p *Plan) []*shape {
	var all []*shape
	calls := map[string][]map[string]any{}
	of := map[string]*shape{}
	for i := range p.Calls {
		c := &p.Calls[i]
		if c.Step < 0 {
			continue
		}
		action := serverOf(&c.Call) + "/" + c.Tool
		if of[action] == nil {
			of[action] = &shape{server: serverOf(&c.Call), tool: c.Tool}
			all = append(all, of[action])
		}
		args, err := decode(c.Arguments)
		if err != nil {
			args = map[string]any{}
		}
		calls[action] = append(calls[action], args)
	}
	for action, s := range of {
		s.describe(calls[action])
	}
	return all
}

// serverOf is the server of a call's tool; runs that name none are all at one.
func serverOf(c *recorded.Call) string {
	if c.Server == "" {
		return "runs"
	}
	return c.Server
}

func (s *shape) describe(calls []map[string]any) {
	kinds := map[string]int{} // how many calls have it as an identifier
	free, other := map[string]bool{}, map[string]bool{}
	for _, args := range calls {
		for name, v := range args {
			if strings.ContainsAny(name, "~/") {
				continue
			}
			text, isText := v.(string)
			_, isNumber := v.(json.Number)
			switch {
			case isText && (ending(name, wordy) || strings.Count(text, " ") > 4):
				free[name] = true
			case (isText && text != "" || isNumber) && ending(name, identifying):
				kinds[name]++
			default:
				other[name] = true
			}
		}
	}
	seen := map[string]bool{}
	for _, args := range calls {
		for name := range args {
			seen[name] = true
		}
	}
	s.names = sortedKeys(seen)
	for _, name := range s.names {
		switch {
		case free[name]:
			s.free = append(s.free, name)
		case kinds[name] == len(calls):
			s.target = append(s.target, name)
		case other[name] || kinds[name] > 0:
			s.amounts = append(s.amounts, name)
		}
	}
}

// vary spells arguments in another way; ok: there is something to vary.
func (s *shape) vary(args json.RawMessage, v variation) (json.RawMessage, bool) {
	m, err := decode(args)
	if err != nil {
		return args, false
	}
	switch v {
	case verbatim:
		return args, true
	case respelled:
		return respell(m), true
	case reworded:
		for _, name := range s.free {
			if text, ok := m[name].(string); ok && text != "" {
				m[name] = text + " (as said before)"
				return encode(m), true
			}
		}
		return args, false
	}
	for _, name := range s.amounts { // numbers first: amounts
		if n, ok := m[name].(json.Number); ok {
			if n = another(n); n != "" {
				m[name] = n
				return encode(m), true
			}
		}
	}
	for _, name := range s.amounts {
		switch x := m[name].(type) {
		case string:
			m[name] = x + "2"
			return encode(m), true
		case bool:
			m[name] = !x
			return encode(m), true
		case []any:
			if len(x) > 0 {
				m[name] = append(slices.Clone(x), x[0])
				return encode(m), true
			}
		}
	}
	return args, false
}

// another is another number, "" where none is easily told.
func another(n json.Number) json.Number {
	switch text := n.String(); {
	case strings.ContainsAny(text, "eE"):
		return ""
	case text == "0":
		return "5"
	default:
		return json.Number(text + "5")
	}
}

func encode(m map[string]any) json.RawMessage {
	text, _ := json.Marshal(m) // it was JSON
	return text
}

// respell writes members in the other order and whole numbers with a decimal point.
func respell(v any) json.RawMessage {
	switch x := v.(type) {
	case map[string]any:
		names := sortedKeys(x)
		slices.Reverse(names)
		text := []byte("{")
		for i, name := range names {
			if i > 0 {
				text = append(text, ", "...)
			}
			quoted, _ := json.Marshal(name)
			text = append(append(append(text, quoted...), ": "...), respell(x[name])...)
		}
		return append(text, '}')
	case []any:
		text := []byte("[")
		for i, e := range x {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = append(text, respell(e)...)
		}
		return append(text, ']')
	case json.Number:
		if !strings.ContainsAny(x.String(), ".eE") {
			return []byte(x.String() + ".0")
		}
	}
	text, _ := json.Marshal(v)
	return text
}

// clip cuts a text to n bytes, with a mark where it was cut.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
