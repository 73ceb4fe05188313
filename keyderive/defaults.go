package keyderive

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Defaults are the defaults of an object schema: which members count as absent
// for a digest because they say what would hold anyway. Make them with
// [SchemaDefaults]; the zero value has none. They do not change once made.
//
// As JSON they are an array of objects, one for each kind of object in the
// schema, the arguments themselves first. Such an object has a member for each
// member of that kind that has a default ("default") or is an object with
// defaults in it ("object", an index into the array):
//
//	[{"currency":{"default":"USD"},"options":{"object":1}},{"retries":{"default":3}}]
type Defaults struct {
	kinds [][]memberDefaults // each sorted by name
}

// memberDefaults is what is known of one member of an object.
type memberDefaults struct {
	name   string
	has    bool // a default; value may be nil
	value  any  // as the schema has it
	bare   any  // value without the defaults in it, to compare with
	object int  // index of its own kind, -1 if nothing is known
}

// Drop returns v without the members that equal their default, in v and in the
// objects that are present in it. Values are compared as canonical forms, and
// only after what equals a default inside them has gone too: with a default of
// 3 for retries, {"retries":3} and {} are one value for options. A null equals
// a default of null only. An object that was emptied stays, unless it equals
// its own default. v is left as it is; what is unchanged is shared with it.
func (d Defaults) Drop(v any) any {
	if len(d.kinds) == 0 {
		return v
	}
	return d.drop(0, v)
}

func (d Defaults) drop(kind int, v any) any {
	out, _ := d.apply(kind, v)
	return out
}

// apply returns v without its defaults, and whether that is another value.
func (d Defaults) apply(kind int, v any) (any, bool) {
	m, ok := v.(map[string]any)
	if !ok || kind < 0 {
		return v, false
	}
	var out map[string]any
	for i := range d.kinds[kind] {
		member := &d.kinds[kind][i]
		x, ok := m[member.name]
		if !ok {
			continue
		}
		y, changed := d.apply(member.object, x)
		gone := member.has && equal(y, member.bare)
		if !changed && !gone {
			continue
		}
		if out == nil {
			out = maps.Clone(m)
		}
		if gone {
			delete(out, member.name)
		} else {
			out[member.name] = y
		}
	}
	if out == nil {
		return m, false
	}
	return out, true
}

// bareDefaults fills in every bare. A default that contains itself through a
// recursive schema has none, and is given up.
func (d Defaults) bareDefaults() {
	b := barer{d, make(map[*memberDefaults]barerState)}
	for _, kind := range d.kinds {
		for i := range kind {
			b.member(&kind[i])
		}
	}
}

type barerState int

const (
	barerBegun barerState = iota + 1
	barerDone
)

type barer struct {
	Defaults
	state map[*memberDefaults]barerState
}

// member fills in one bare, after those of the defaults that occur in it.
func (b barer) member(m *memberDefaults) {
	switch {
	case !m.has || b.state[m] == barerDone:
		return
	case b.state[m] == barerBegun:
		m.has, m.value = false, nil
		return
	}
	b.state[m] = barerBegun
	b.inside(m.object, m.value)
	if m.has {
		m.bare = b.drop(m.object, m.value)
	}
	b.state[m] = barerDone
}

// inside fills in the bares that drop will compare with in v.
func (b barer) inside(kind int, v any) {
	object, ok := v.(map[string]any)
	if !ok || kind < 0 {
		return
	}
	for i := range b.kinds[kind] {
		m := &b.kinds[kind][i]
		if x, ok := object[m.name]; ok {
			b.inside(m.object, x)
			b.member(m)
		}
	}
}

// pruned returns d without the members and kinds that say nothing. Kinds are
// numbered in the order in which they are met.
func (d Defaults) pruned() Defaults {
	useful := make([]bool, len(d.kinds))
	says := func(m memberDefaults) bool { return m.has || m.object >= 0 && useful[m.object] }
	for again := true; again; {
		again = false
		for i, kind := range slices.Backward(d.kinds) {
			if !useful[i] && slices.ContainsFunc(kind, says) {
				useful[i], again = true, true
			}
		}
	}
	if len(useful) == 0 || !useful[0] {
		return Defaults{}
	}
	number := map[int]int{0: 0}
	order := []int{0}
	var out Defaults
	for i := 0; i < len(order); i++ {
		var kept []memberDefaults
		for _, m := range d.kinds[order[i]] {
			if !says(m) {
				continue
			}
			if m.object >= 0 && !useful[m.object] {
				m.object = -1
			}
			if m.object >= 0 {
				n, ok := number[m.object]
				if !ok {
					n = len(order)
					number[m.object] = n
					order = append(order, m.object)
				}
				m.object = n
			}
			kept = append(kept, m)
		}
		out.kinds = append(out.kinds, kept)
	}
	return out
}

// MarshalJSON writes the canonical form of the defaults.
func (d Defaults) MarshalJSON() ([]byte, error) {
	return AppendCanonical(nil, d.document()), nil
}

// document is the JSON value that stands for d.
func (d Defaults) document() any {
	kinds := make([]any, len(d.kinds))
	for i, kind := range d.kinds {
		members := make(map[string]any, len(kind))
		for _, m := range kind {
			member := make(map[string]any, 2)
			if m.has {
				member["default"] = m.value
			}
			if m.object >= 0 {
				member["object"] = json.Number(strconv.Itoa(m.object))
			}
			members[m.name] = member
		}
		kinds[i] = members
	}
	return kinds
}

// UnmarshalJSON reads what [Defaults.MarshalJSON] wrote. An error wraps
// [ErrDefinition] or [ErrJSON].
func (d *Defaults) UnmarshalJSON(text []byte) error {
	v, err := Parse(text)
	if err != nil {
		return err
	}
	kinds, ok := v.([]any)
	if !ok && v != nil {
		return fmt.Errorf("%w: defaults are no array", ErrDefinition)
	}
	var out Defaults
	for _, kind := range kinds {
		members, ok := kind.(map[string]any)
		if !ok {
			return fmt.Errorf("%w: defaults of what is no object", ErrDefinition)
		}
		var list []memberDefaults
		for _, name := range slices.Sorted(maps.Keys(members)) {
			m, ok := readMember(name, members[name], len(kinds))
			if !ok {
				return fmt.Errorf("%w: defaults of member %q", ErrDefinition, name)
			}
			list = append(list, m)
		}
		out.kinds = append(out.kinds, list)
	}
	out.bareDefaults()
	*d = out
	return nil
}

// readMember reads one member's entry in defaults of so many kinds.
func readMember(name string, v any, kinds int) (memberDefaults, bool) {
	m := memberDefaults{name: name, object: -1}
	entry, ok := v.(map[string]any)
	if !ok {
		return m, false
	}
	m.value, m.has = entry["default"]
	if x, given := entry["object"]; given {
		n, _ := x.(json.Number)
		if m.object, ok = index(string(n), kinds); !ok {
			return m, false
		}
	}
	return m, true
}
