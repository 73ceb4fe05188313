package keyderive

import (
	"encoding/binary"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Bounds on what SchemaDefaults collects, against schemas that refer to
// themselves in so many ways that their defaults would fill the memory. What
// lies beyond them counts as having no default.
const (
	maxDefaults = 1 << 20 // bytes of Defaults as JSON, roughly
	maxTogether = 64      // subschemas that describe one member
)

// defaultDepth is how deep a default stands in [Defaults] as JSON.
const defaultDepth = 3

// SchemaDefaults collects the defaults of a parsed JSON Schema: those of its
// properties, of their properties, and so on, also through "$ref" to a place in
// the same document ("#" and "#/…"), recursive ones included. A "$ref" and what
// stands beside it both count, as since draft 2019-09; where both give a member
// a default, the one beside the "$ref" wins.
//
// Nothing is taken from under allOf, anyOf, oneOf, if or items, where a default
// may hold or not, nor from an embedded schema with an "$id" of its own, whose
// references mean other places. What is no object schema has no defaults; of
// defaults above 1 MiB in all, those of the deepest objects are left out.
func SchemaDefaults(schema any) Defaults {
	root, ok := schema.(map[string]any)
	if !ok {
		return Defaults{}
	}
	r := schemaReader{root: root, room: maxDefaults, numbers: make(map[string]int)}
	r.number(r.closure([]map[string]any{root}))
	for kind := 0; kind < len(r.kinds) && r.room > 0; kind++ {
		r.read(kind)
	}
	r.out.bareDefaults()
	return r.out.pruned()
}

// schemaReader numbers the kinds of objects in a schema: a kind is a list of
// subschemas that describe an object together, the nearest first.
type schemaReader struct {
	root    map[string]any
	kinds   [][]map[string]any
	numbers map[string]int // by the identities of the subschemas
	room    int            // bytes left of maxDefaults
	out     Defaults
}

// closure follows each reference, right behind the subschema that makes it; no
// subschema comes twice, so that a loop ends.
func (r *schemaReader) closure(list []map[string]any) []map[string]any {
	var out []map[string]any
	seen := make(map[uintptr]bool)
	for _, schema := range list {
		for schema != nil && !seen[identity(schema)] && len(out) < maxTogether {
			seen[identity(schema)] = true
			if schema["$id"] != nil && identity(schema) != identity(r.root) {
				break
			}
			out = append(out, schema)
			schema = r.resolve(schema["$ref"])
		}
	}
	return out
}

// identity tells one decoded object from another.
func identity(m map[string]any) uintptr { return reflect.ValueOf(m).Pointer() }

// resolve finds the subschema that a local reference means, nil if none.
func (r *schemaReader) resolve(ref any) map[string]any {
	text, _ := ref.(string)
	fragment, ok := strings.CutPrefix(text, "#")
	if !ok {
		return nil
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return nil
	}
	p, err := ParsePointer(fragment)
	if err != nil {
		return nil
	}
	v, _ := p.Lookup(r.root)
	schema, _ := v.(map[string]any)
	return schema
}

// number returns the number of the kind that a closure describes, -1 if that
// is no object.
func (r *schemaReader) number(closure []map[string]any) int {
	var kind []map[string]any
	var name []byte
	for _, schema := range closure {
		if properties, _ := schema["properties"].(map[string]any); len(properties) > 0 {
			kind = append(kind, properties)
			name = binary.NativeEndian.AppendUint64(name, uint64(identity(properties)))
		}
	}
	if kind == nil {
		return -1
	}
	n, ok := r.numbers[string(name)]
	if !ok {
		n = len(r.kinds)
		r.numbers[string(name)] = n
		r.kinds = append(r.kinds, kind)
		r.out.kinds = append(r.out.kinds, nil)
	}
	return n
}

// read fills in what is known of the members of a kind.
func (r *schemaReader) read(kind int) {
	described := make(map[string][]map[string]any)
	for _, properties := range r.kinds[kind] {
		for name, v := range properties {
			if schema, ok := v.(map[string]any); ok {
				described[name] = append(described[name], schema)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		closure := r.closure(described[name])
		m := memberDefaults{name: name, object: r.number(closure)}
		size := 32 + len(name)
		for _, schema := range closure {
			if v, ok := schema["default"]; ok {
				text := AppendCanonical(nil, v)
				m.value, m.has = reparsed(text)
				size += len(text)
				break
			}
		}
		if r.room -= size; r.room < 0 {
			return
		}
		r.out.kinds[kind] = append(r.out.kinds[kind], m)
	}
}

// reparsed reads a default, which some other decoder may have made, as Parse
// will read it inside Defaults; false if it cannot.
func reparsed(text []byte) (any, bool) {
	p := parser{text: string(text)}
	v, err := p.value(defaultDepth)
	return v, err == nil
}
