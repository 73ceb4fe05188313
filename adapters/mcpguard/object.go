package mcpguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"toolguard.dev/keyderive"
)

// maxDepth is how deeply arrays and objects may be nested in a message.
const maxDepth = 1000

// errTooDeep: a message was nested beyond maxDepth, and not looked at any further.
var errTooDeep = errors.New("nested too deeply")

// member is one member of a JSON object, its value as it stood.
type member struct {
	name  string
	value json.RawMessage
}

// object is a JSON object whose members keep their order, spelling and exact values.
type object []member

// parseObject splits a JSON object. It refuses anything else, nesting beyond maxDepth and a name that comes twice.
func parseObject(text []byte) (object, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("not a JSON object")
	}
	if depth(text) > maxDepth {
		return nil, errTooDeep
	}
	if !json.Valid(text) {
		return nil, errors.New("not valid JSON")
	}
	var o object
	var seen map[string]bool // where there are many
	for at := skipSpace(text, 1); text[at] != '}'; {
		if text[at] == ',' {
			at = skipSpace(text, at+1)
		}
		end := skipValue(text, at)
		name := unquote(text[at:end])
		if len(o) == few {
			seen = make(map[string]bool, 2*few)
			for _, m := range o {
				seen[m.name] = true
			}
		}
		if seen[name] || seen == nil && o.has(name) {
			return nil, fmt.Errorf("member %q comes twice", name)
		}
		if seen != nil {
			seen[name] = true
		}
		at = skipSpace(text, skipSpace(text, end)+1) // over the colon
		end = skipValue(text, at)
		o = append(o, member{name, json.RawMessage(text[at:end:end])})
		at = skipSpace(text, end)
	}
	return o, nil
}

// few members are looked through faster than looked up.
const few = 16

// unquote reads a JSON string that is valid already.
func unquote(text []byte) string {
	if s := text[1 : len(text)-1]; bytes.IndexByte(s, '\\') < 0 && utf8.Valid(s) {
		return string(s)
	}
	var s string
	_ = json.Unmarshal(text, &s)
	return s
}

// decoded is a JSON value that is valid already, as encoding/json decodes it.
func decoded(text json.RawMessage) (v any, err error) {
	if text[0] == '"' {
		return unquote(text), nil
	}
	err = json.Unmarshal(text, &v)
	return v, err
}

func (o object) has(name string) bool {
	return slices.ContainsFunc(o, func(m member) bool { return m.name == name })
}

// get returns the value of a member, nil if there is none.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// text returns the value of a member that is a string, else "".
func (o object) text(name string) string {
	if v := o.get(name); len(v) > 0 && v[0] == '"' {
		return unquote(v)
	}
	return ""
}

// with returns the object with one member set, in its old place or else at the end.
func (o object) with(name string, value json.RawMessage) object {
	out := make(object, 0, len(o)+1)
	set := false
	for _, m := range o {
		if m.name == name {
			m.value, set = value, true
		}
		out = append(out, m)
	}
	if !set {
		out = append(out, member{name, value})
	}
	return out
}

// without returns the object without the members that drop reports.
func (o object) without(drop func(name string) bool) object {
	out := make(object, 0, len(o))
	for _, m := range o {
		if !drop(m.name) {
			out = append(out, m)
		}
	}
	return out
}

// raw is the object as JSON text.
func (o object) raw() json.RawMessage {
	n := 2
	for _, m := range o {
		n += len(m.name) + len(m.value) + 4
	}
	b := append(make([]byte, 0, n), '{')
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, m.name), ':')
		b = append(b, m.value...)
	}
	return append(b, '}')
}

// parseArray splits a JSON array that is valid already; nil if it is none.
func parseArray(text []byte) []json.RawMessage {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '[' {
		return nil
	}
	out := []json.RawMessage{}
	for at := skipSpace(text, 1); text[at] != ']'; {
		if text[at] == ',' {
			at = skipSpace(text, at+1)
		}
		end := skipValue(text, at)
		out = append(out, json.RawMessage(text[at:end:end]))
		at = skipSpace(text, end)
	}
	return out
}

// quote is s as a JSON string.
func quote(s string) json.RawMessage { return appendQuoted(nil, s) }

func appendQuoted(b []byte, s string) []byte {
	return keyderive.AppendString(b, strings.ToValidUTF8(s, "\uFFFD"))
}

// encode is a value of this package as JSON.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSpace(b.Bytes())
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// skipValue returns the end of the value that begins at at, in text that is valid JSON.
func skipValue(text []byte, at int) int {
	level := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = skipString(text, at)
			if level == 0 {
				return at
			}
			continue
		case '{', '[':
			level++
		case '}', ']':
			if level == 0 {
				return at
			}
			if level--; level == 0 {
				return at + 1
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if level == 0 {
				return at
			}
		}
		at++
	}
	return at
}

// skipString returns the index behind the string that begins at at.
func skipString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(text)
}

// depth is the deepest nesting of arrays and objects in text, valid or not.
func depth(text []byte) int {
	deepest, level := 0, 0
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = skipString(text, at) - 1
		case '{', '[':
			level++
			deepest = max(deepest, level)
		case '}', ']':
			level--
		}
	}
	return deepest
}
