package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"toolguard.dev/keyderive"
)

// Reads tells whether a call only reads, by the policy's reads_when. The condition sees only arguments that the
// schema declares: a flag that the tool ignores must not walk a write past the guard. A condition that fails means
// that it does not only read.
func (e *Entry) Reads(in Input) bool {
	if e.Policy.ReadsWhen == nil {
		return false
	}
	in.Arguments = e.declared(e.schema.top(), in.Arguments)
	reads, err := e.Policy.ReadsWhen.Bool(in)
	return err == nil && reads
}

// declared returns v without the members that the properties of p do not name; below the top, an object about
// whose members the schema says nothing is kept whole.
func (e *Entry) declared(p place, v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := make(map[string]any, len(m))
	for name, x := range m {
		for _, s := range p {
			properties, _ := s["properties"].(map[string]any)
			if schema, ok := properties[name]; ok && schema != false {
				next := e.schema.at(schema)
				if slices.ContainsFunc(next, func(s map[string]any) bool { return s["properties"] != nil }) {
					x = e.declared(next, x)
				}
				out[name] = x
				break
			}
		}
	}
	return out
}

// Shared tells whether two argument values, which keyderive.Parse made, have the same string or number at the same
// place, and returns the first such place. After a time-out models change a parameter, and what they leave alone
// tells that it is the same call. What says nothing does not count: booleans, null, "", schema defaults, values that
// the schema lists (enum, const), may_differ arguments and the downstream key argument.
func (e *Entry) Shared(a, b any) (pointer string, ok bool) {
	if len(e.mayDiffer) > 0 {
		a = keyderive.Remove(a, e.mayDiffer)
	}
	at, ok := e.shared(nil, e.schema.top(), a, b)
	return string(at), ok
}

func (e *Entry) shared(at []byte, p place, a, b any) ([]byte, bool) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return nil, false
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if other, ok := y[name]; ok {
				next, _ := e.schema.member(p, name)
				if found, ok := e.shared(append(append(at, '/'), escapeToken(name)...), next, x[name], other); ok {
					return found, true
				}
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok {
			return nil, false
		}
		for i := range min(len(x), len(y)) {
			next, _ := e.schema.element(p, i)
			if found, ok := e.shared(strconv.AppendInt(append(at, '/'), int64(i), 10), next, x[i], y[i]); ok {
				return found, true
			}
		}
	case string, json.Number:
		if x != b || x == "" || e.schema.enumerated(p, 4) {
			return nil, false
		}
		isDefault := func(s map[string]any) bool { return s["default"] == x }
		return at, !slices.ContainsFunc(p, isDefault)
	}
	return nil, false
}

// Entity names the thing whose state a call sets: the hex SHA-256 of the canonical list of the server and the
// values of the policy's entity pointers, normalised. "" where none is declared, or one is absent, null or "".
func (e *Entry) Entity(args any) string {
	if len(e.entity) == 0 {
		return ""
	}
	args = e.Policy.Normalize.Apply(args)
	list := []any{e.Server}
	for _, p := range e.entity {
		v, ok := p.Lookup(args)
		if !ok || v == nil || v == "" {
			return ""
		}
		list = append(list, v)
	}
	return keyderive.Hash(keyderive.AppendCanonical(nil, list))
}

// WithKey returns the bytes to send: args, the caller's own, or where the tool takes the downstream key as an
// argument, the canonical form of parsed (what keyderive.Parse made of args) with the key in it. An error wraps
// [ErrArguments]: there is something in the way.
func (e *Entry) WithKey(args json.RawMessage, parsed any, key string) (json.RawMessage, error) {
	if e.keyArgument == nil {
		return args, nil
	}
	v, err := put(parsed, e.keyArgument, key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return keyderive.AppendCanonical(nil, v), nil
}

// put returns v with x at a path of members, making the objects that lead there. What is unchanged is shared.
func put(v any, path []string, x any) (any, error) {
	if len(path) == 0 {
		return x, nil
	}
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, fmt.Errorf("the downstream key does not fit in: %q cannot be a member of %s", path[0], kindOf(v))
	}
	below, err := put(m[path[0]], path[1:], x)
	if err != nil {
		return nil, err
	}
	return with(m, path[0], below), nil
}
