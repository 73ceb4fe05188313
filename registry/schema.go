package registry

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/keyderive"
)

// Bounds on a schema, against those that would take for ever.
const (
	maxSchemaSize = 1 << 20 // bytes
	maxObjects    = 5_000   // objects and arrays in it: the compiler takes the square of that
	maxReferences = 32      // references followed one after the other
)

// document is a parsed input schema, to be walked. It only ever says what it is sure of.
type document struct {
	root map[string]any
}

// place is the list of subschemas that together describe one value, the nearest first; empty: nothing is known.
type place []map[string]any

// parseSchema reads an input schema. An absent one and true mean any object.
func parseSchema(raw json.RawMessage) (document, error) {
	if len(raw) == 0 {
		return document{map[string]any{}}, nil
	}
	if len(raw) > maxSchemaSize {
		return document{}, fmt.Errorf("it has %d bytes, more than %d", len(raw), maxSchemaSize)
	}
	v, err := keyderive.Parse(raw)
	if err != nil {
		return document{}, fmt.Errorf("it is unreadable: %w", err)
	}
	if err := keyderive.CheckNumbers(v); err != nil {
		return document{}, err
	}
	if objects(v) > maxObjects {
		return document{}, fmt.Errorf("it has more than %d objects and arrays", maxObjects)
	}
	switch v := v.(type) {
	case map[string]any:
		return document{v}, nil
	case bool:
		if v {
			return document{map[string]any{}}, nil
		}
		return document{}, fmt.Errorf("it is false, which no arguments satisfy")
	case nil:
		return document{map[string]any{}}, nil
	}
	return document{}, fmt.Errorf("it is no JSON object")
}

// objects counts the objects and arrays in v.
func objects(v any) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		n = 1
		for _, x := range v {
			n += objects(x)
		}
	case []any:
		n = 1
		for _, x := range v {
			n += objects(x)
		}
	}
	return n
}

// top is the place of the arguments themselves.
func (d document) top() place { return d.at(d.root) }

// at returns the subschema v with what it refers to.
func (d document) at(v any) place {
	var out place
	for range maxReferences {
		m, ok := v.(map[string]any)
		if !ok || len(out) > 0 && m["$id"] != nil {
			break
		}
		out = append(out, m)
		ref, ok := m["$ref"].(string)
		if !ok {
			break
		}
		if v, ok = d.reference(ref); !ok {
			break
		}
	}
	return out
}

// reference finds what a reference within the document means.
func (d document) reference(ref string) (any, bool) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, false
	}
	p, err := keyderive.ParsePointer(fragment)
	if err != nil {
		return nil, false
	}
	return p.Lookup(d.root)
}

// member returns the place of a member of p, and whether the schema describes it.
func (d document) member(p place, name string) (place, bool) {
	var out place
	found := false
	for _, m := range p {
		properties, _ := m["properties"].(map[string]any)
		if v, ok := properties[name]; ok {
			out, found = append(out, d.at(v)...), true
		}
	}
	if found {
		return out, true
	}
	for _, m := range p {
		if more, _ := m["additionalProperties"].(map[string]any); len(more) > 0 {
			return d.at(more), true
		}
	}
	return nil, false
}

// element returns the place of element i of p (-1: of any), and whether the schema describes it.
func (d document) element(p place, i int) (place, bool) {
	for _, m := range p {
		for _, keyword := range []string{"prefixItems", "items"} {
			switch items := m[keyword].(type) {
			case []any:
				if i >= 0 && i < len(items) {
					return d.at(items[i]), true
				}
			case map[string]any:
				return d.at(items), true
			}
		}
	}
	return nil, false
}

// openKeywords may describe members that properties does not name.
var openKeywords = []string{"$dynamicRef", "$recursiveRef", "allOf", "anyOf", "dependencies", "dependentSchemas", "if",
	"oneOf", "patternProperties", "unevaluatedProperties"}

// lacks tells whether the schema surely has nothing at the pointer. Where it has properties, one that is not among
// them is taken for misspelt, though undeclared members may be allowed. In a pattern, the token * is any index.
func (d document) lacks(pointer string, pattern bool) bool {
	p := d.top()
	for _, token := range tokens(pointer) {
		i, isIndex := arrayIndex(token)
		isIndex = isIndex && (pattern || token != "*")
		if next, ok := d.member(p, token); ok {
			p = next
			continue
		}
		if next, ok := d.element(p, i); ok && isIndex && mayBe(p, "array") {
			p = next
			continue
		}
		return !d.open(p, isIndex)
	}
	return false
}

// open tells whether there may be members in p that member and element do not find.
func (d document) open(p place, isIndex bool) bool {
	if len(p) == 0 {
		return true
	}
	for _, m := range p {
		if ref, ok := m["$ref"].(string); ok {
			if v, ok := d.reference(ref); !ok || v == true {
				return true
			}
		}
		if slices.ContainsFunc(openKeywords, func(k string) bool { _, ok := m[k]; return ok }) {
			return true
		}
	}
	if isIndex && mayBe(p, "array") {
		return true
	}
	for _, m := range p {
		if m["properties"] != nil || m["additionalProperties"] == false {
			return false
		}
	}
	return mayBe(p, "object")
}

// mayBe tells whether the type keywords of p allow a value of that type.
func mayBe(p place, kind string) bool {
	for _, m := range p {
		switch t := m["type"].(type) {
		case string:
			if t != kind {
				return false
			}
		case []any:
			if !slices.Contains(t, any(kind)) {
				return false
			}
		}
	}
	return true
}

// enumerated tells whether p allows only values that the schema lists (and null).
func (d document) enumerated(p place, depth int) bool {
	for _, m := range p {
		if m["enum"] != nil || hasMember(m, "const") {
			return true
		}
		if depth == 0 {
			continue
		}
		for _, keyword := range []string{"anyOf", "oneOf"} {
			branches, _ := m[keyword].([]any)
			listed := 0
			for _, b := range branches {
				q := d.at(b)
				if d.enumerated(q, depth-1) {
					listed++
				} else if len(q) != 1 || q[0]["type"] != "null" {
					listed = -len(branches)
				}
			}
			if listed > 0 {
				return true
			}
		}
		branches, _ := m["allOf"].([]any)
		for _, b := range branches {
			if d.enumerated(d.at(b), depth-1) {
				return true
			}
		}
	}
	return false
}

func hasMember(m map[string]any, name string) bool {
	_, ok := m[name]
	return ok
}

// tokens splits a pointer, which keyderive.ParsePointer has taken.
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	out := strings.Split(pointer[1:], "/")
	for i, t := range out {
		out[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return out
}

// escapeToken is the inverse for one token.
func escapeToken(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// arrayIndex reads a token as an index; -1 for *.
func arrayIndex(token string) (int, bool) {
	if token == "*" {
		return -1, true
	}
	if len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	i, err := strconv.ParseUint(token, 10, 31)
	return int(i), err == nil
}
