package keyderive

import (
	"fmt"
	"maps"
	"slices"
)

// Remove returns v without the places that ptrs name: object members, and
// array elements, behind which the others move up. All pointers mean places of
// v as it was given; those that name nothing are no error. Without the root it
// is nil. v is left as it is; what is unchanged is shared with it.
func Remove(v any, ptrs []Pointer) any {
	return cutsOf(ptrs).remove(v)
}

// cuts is a set of places to remove, as a tree.
type cuts struct {
	whole  bool
	tokens []string
	below  []*cuts // one for each token
}

func cutsOf(ptrs []Pointer) *cuts {
	root := &cuts{}
	for _, p := range ptrs {
		c := root
		for _, t := range p.tokens {
			i := slices.Index(c.tokens, t)
			if i < 0 {
				i = len(c.tokens)
				c.tokens = append(c.tokens, t)
				c.below = append(c.below, &cuts{})
			}
			c = c.below[i]
		}
		c.whole = true
	}
	return root
}

func (c *cuts) remove(v any) any {
	out, _ := c.apply(v)
	return out
}

// apply returns v without the cuts, and whether that is another value.
func (c *cuts) apply(v any) (any, bool) {
	if c.whole {
		return nil, true
	}
	switch v := v.(type) {
	case map[string]any:
		return c.members(v)
	case []any:
		return c.elements(v)
	}
	return v, false
}

func (c *cuts) members(m map[string]any) (any, bool) {
	var out map[string]any
	for i, t := range c.tokens {
		x, ok := m[t]
		if !ok {
			continue
		}
		y, changed := c.below[i].apply(x)
		if !changed {
			continue
		}
		if out == nil {
			out = maps.Clone(m)
		}
		if c.below[i].whole {
			delete(out, t)
		} else {
			out[t] = y
		}
	}
	if out == nil {
		return m, false
	}
	return out, true
}

func (c *cuts) elements(a []any) (any, bool) {
	var out []any
	var gone []int
	for i, t := range c.tokens {
		at, ok := index(t, len(a))
		if !ok {
			continue
		}
		y, changed := c.below[i].apply(a[at])
		if !changed {
			continue
		}
		if out == nil {
			out = slices.Clone(a)
		}
		if c.below[i].whole {
			gone = append(gone, at)
		} else {
			out[at] = y
		}
	}
	if out == nil {
		return a, false
	}
	slices.Sort(gone)
	for _, at := range slices.Backward(gone) {
		out = slices.Delete(out, at, at+1)
	}
	return out, true
}

// Set returns v with x at p, the place of a present or new member of an object
// that is there; at the root the result is x itself. Arrays may lie on the way
// but cannot be given elements. An error wraps [ErrPointer]. v is left as it
// is; what is unchanged is shared with it.
func Set(v any, p Pointer, x any) (any, error) {
	out, ok := set(v, p.tokens, x)
	if !ok {
		return nil, fmt.Errorf("%w: %q names no member of an object that is there", ErrPointer, p.text)
	}
	return out, nil
}

func set(v any, tokens []string, x any) (any, bool) {
	if len(tokens) == 0 {
		return x, true
	}
	last := len(tokens) == 1
	old, present := child(v, tokens[0])
	if !present && !last {
		return nil, false
	}
	y, ok := set(old, tokens[1:], x)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		if out == nil {
			out = make(map[string]any, 1)
		}
		out[tokens[0]] = y
		return out, true
	case []any:
		at, ok := index(tokens[0], len(v))
		if last || !ok {
			return nil, false
		}
		out := slices.Clone(v)
		out[at] = y
		return out, true
	}
	return nil, false
}
