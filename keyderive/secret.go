package keyderive

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Veil makes of a secret value's canonical JSON the text that stands for it in
// identities: always the same for the same value, and telling nothing of it to
// whoever does not have the veil's key.
type Veil func(canonical []byte) string

// WithVeil returns a deriver under the same definition that veils its secrets.
func (d *Deriver) WithVeil(v Veil) *Deriver {
	out := *d
	out.veil = v
	return &out
}

// Secret tells whether the definition has secrets, for which [Deriver.Derive]
// needs a [Veil].
func (d *Deriver) Secret() bool { return len(d.secret) > 0 }

// Secrets are the places of secret values. They do not change.
type Secrets []Pointer

// ParseSecrets reads patterns: JSON Pointers in which the token * is every
// index of an array. An error wraps [ErrPointer].
func ParseSecrets(patterns []string) (Secrets, error) { return parsePointers(patterns) }

// Replace returns v with what f makes of each secret value in the place of it.
// Where something else stands than a pattern expects on its way (a text in the
// place of an object or an array), that is taken for the secret. v is left as it
// is; what is unchanged is shared with it.
func (s Secrets) Replace(v any, f func(x any) any) any {
	for _, p := range s {
		v = replace(v, p.tokens, f)
	}
	return v
}

func replace(v any, tokens []string, f func(any) any) any {
	switch x := v.(type) {
	case nil:
		return nil
	case map[string]any:
		if len(tokens) == 0 || tokens[0] == "*" && x["*"] == nil {
			break
		}
		y, ok := x[tokens[0]]
		if !ok {
			return v
		}
		out := maps.Clone(x)
		out[tokens[0]] = replace(y, tokens[1:], f)
		return out
	case []any:
		if len(tokens) == 0 || !anyIndex(tokens[0]) {
			break
		}
		out := slices.Clone(x)
		for i := range out {
			if at, ok := index(tokens[0], len(x)); tokens[0] == "*" || ok && at == i {
				out[i] = replace(out[i], tokens[1:], f)
			}
		}
		return out
	}
	return f(v)
}

// Cut returns the part of a JSON Pointer to an argument that tells nothing of
// a secret value's own members: the pointer itself, or the place of the secret
// that it leads into.
func (s Secrets) Cut(pointer string) string {
	q, err := ParsePointer(pointer)
	if err != nil {
		return ""
	}
	for _, p := range s {
		if within(q.tokens, p.tokens) {
			q.tokens = q.tokens[:len(p.tokens)]
		}
	}
	var out []byte
	for _, t := range q.tokens {
		out = appendToken(out, t)
	}
	return string(out)
}

// Overlap tells whether the places that two patterns name may be one, or may
// lie one in the other. What is no pattern overlaps with nothing.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }

// Within tells whether the place that a pattern names may be that of another
// one, or may lie in it. What is no pattern lies in nothing.
func Within(pattern, outer string) bool {
	p, err := ParsePointer(pattern)
	if err != nil {
		return false
	}
	q, err := ParsePointer(outer)
	return err == nil && within(p.tokens, q.tokens)
}

func within(tokens, outer []string) bool {
	if len(tokens) < len(outer) {
		return false
	}
	for i, t := range outer {
		if t != tokens[i] && !(t == "*" && anyIndex(tokens[i])) && !(tokens[i] == "*" && anyIndex(t)) {
			return false
		}
	}
	return true
}

// anyIndex tells whether a token may be an array's index.
func anyIndex(token string) bool {
	return token == "*" || token != "" && strings.Trim(token, "0123456789") == ""
}

// secrets reads the places of the secrets, none of which may be in the target.
func (d *Definition) secrets() (Secrets, error) {
	s, err := ParseSecrets(d.Secret)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	for _, secret := range d.Secret {
		for _, target := range d.Target {
			if Overlap(secret, target) {
				return nil, fmt.Errorf("%w: %s is in the target, which is recorded as it is, and %s is secret", ErrDefinition, target, secret)
			}
		}
	}
	return s, nil
}
