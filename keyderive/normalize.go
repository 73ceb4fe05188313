package keyderive

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Normalize says which arguments are brought into a common form before they
// are compared, and how: it maps a pattern to steps, which are done in their
// order. A pattern is a JSON Pointer in which the token * is every index of an
// array (in an object it is the member *).
//
// The steps on strings are trim (no white space at the ends), lower, upper and
// collapse (each run of white space becomes one space); those on arrays are
// sort (by canonical forms, as bytes) and unique (without later elements that
// equal an earlier one). White space and case are Unicode's. A step leaves a
// value of another kind as it is.
//
// Longer patterns are applied first, those of equal length in the order of
// their bytes, so that {"/to/*": [lower], "/to": [sort]} sorts what is lower
// case already.
type Normalize map[string][]string

// steps are the known steps.
var steps = map[string]func(any) any{
	"trim":     onString(strings.TrimSpace),
	"lower":    onString(strings.ToLower),
	"upper":    onString(strings.ToUpper),
	"collapse": onString(collapse),
	"sort":     onArray(sorted),
	"unique":   onArray(unique),
}

// rule is a compiled entry of a Normalize.
type rule struct {
	tokens []string
	steps  []func(any) any
}

// Validate returns an error that wraps [ErrNormalize] and names the pattern, if
// that is no JSON Pointer or has an unknown step.
func (n Normalize) Validate() error {
	_, err := n.compile()
	return err
}

// Apply returns v in the common form. What [Normalize.Validate] would refuse is
// not applied. v is left as it is; what is unchanged is shared with it.
func (n Normalize) Apply(v any) any {
	rules, _ := n.compile()
	return normalized(rules, v)
}

func normalized(rules []rule, v any) any {
	for _, r := range rules {
		v, _ = r.apply(v, 0)
	}
	return v
}

// compile returns the usable rules in the order of their application, and an
// error for the first that is not.
func (n Normalize) compile() ([]rule, error) {
	var rules []rule
	var failed error
	for _, pattern := range slices.Sorted(maps.Keys(n)) {
		r, err := compileRule(pattern, n[pattern])
		if err == nil {
			rules = append(rules, r)
		} else if failed == nil {
			failed = fmt.Errorf("%w: %w", ErrNormalize, err)
		}
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return cmp.Compare(len(b.tokens), len(a.tokens)) })
	return rules, failed
}

func compileRule(pattern string, names []string) (rule, error) {
	p, err := ParsePointer(pattern)
	if err != nil {
		return rule{}, err
	}
	r := rule{tokens: p.tokens}
	for _, name := range names {
		step, ok := steps[name]
		if !ok {
			return rule{}, fmt.Errorf("%q has the unknown step %q", pattern, name)
		}
		r.steps = append(r.steps, step)
	}
	return r, nil
}

// apply normalises what the tokens from depth on name in v, and tells whether
// the result is another value.
func (r rule) apply(v any, depth int) (any, bool) {
	if depth == len(r.tokens) {
		before := v
		for _, step := range r.steps {
			v = step(v)
		}
		return v, !equal(before, v)
	}
	token := r.tokens[depth]
	switch x := v.(type) {
	case map[string]any:
		if y, ok := x[token]; ok {
			if y, ok = r.apply(y, depth+1); ok {
				out := maps.Clone(x)
				out[token] = y
				return out, true
			}
		}
	case []any:
		if token == "*" {
			return r.elements(x, 0, len(x), depth)
		}
		if i, ok := index(token, len(x)); ok {
			return r.elements(x, i, i+1, depth)
		}
	}
	return v, false
}

// elements applies the tokens behind depth to the elements from from to to.
func (r rule) elements(a []any, from, to, depth int) (any, bool) {
	var out []any
	for i := from; i < to; i++ {
		y, changed := r.apply(a[i], depth+1)
		if !changed {
			continue
		}
		if out == nil {
			out = slices.Clone(a)
		}
		out[i] = y
	}
	if out == nil {
		return a, false
	}
	return out, true
}

func onString(f func(string) string) func(any) any {
	return func(v any) any {
		if s, ok := v.(string); ok {
			return f(s)
		}
		return v
	}
}

func onArray(f func([]any) []any) func(any) any {
	return func(v any) any {
		if a, ok := v.([]any); ok {
			return f(a)
		}
		return v
	}
}

func collapse(s string) string {
	var b strings.Builder
	inRun := false
	for _, r := range s {
		space := unicode.IsSpace(r)
		switch {
		case !space:
			b.WriteRune(r)
		case !inRun:
			b.WriteByte(' ')
		}
		inRun = space
	}
	return b.String()
}

func sorted(a []any) []any {
	type element struct {
		value     any
		canonical []byte
	}
	list := make([]element, len(a))
	for i, v := range a {
		list[i] = element{v, AppendCanonical(nil, v)}
	}
	slices.SortFunc(list, func(x, y element) int { return bytes.Compare(x.canonical, y.canonical) })
	out := make([]any, len(a))
	for i, e := range list {
		out[i] = e.value
	}
	return out
}

func unique(a []any) []any {
	seen := make(map[string]bool, len(a))
	out := make([]any, 0, len(a))
	for _, v := range a {
		form := string(AppendCanonical(nil, v))
		if !seen[form] {
			seen[form] = true
			out = append(out, v)
		}
	}
	return out
}

// document is the JSON value that stands for n.
func (n Normalize) document() any {
	out := make(map[string]any, len(n))
	for pattern, names := range n {
		out[pattern] = texts(names)
	}
	return out
}

// texts is a list of strings as a JSON value; a nil list is null.
func texts(list []string) any {
	if list == nil {
		return nil
	}
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
