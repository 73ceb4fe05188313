package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader reads a tree into a [Config] and collects everything that is wrong with it.
type reader struct {
	file   string
	env    func(string) (string, bool)
	faults Faults
	keys   map[string][]string // the keys known under each key path that was read; for tests
}

// value is a node and the way to it.
type value struct {
	*node
	path string
}

func (r *reader) faultAt(line int, path, format string, args ...any) {
	r.faults = append(r.faults, Fault{r.file, line, path, oneLine(fmt.Sprintf(format, args...))})
}

func (r *reader) fault(v value, format string, args ...any) {
	r.faultAt(v.line, v.path, format, args...)
}

var plainKey = regexp.MustCompile(`^[^\s."\[\]:]+$`)

// join adds a member's name to a key path.
func join(path, name string) string {
	if !plainKey.MatchString(name) {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// index adds an element's place to a key path.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// fields says what is done with each known member of a mapping.
type fields map[string]func(value)

// object reads a mapping with known members; nothing at all counts as an empty one.
func (r *reader) object(v value, known fields) {
	names := slices.Sorted(maps.Keys(known))
	if r.keys != nil {
		r.keys[v.path] = names
	}
	for _, m := range r.members(v) {
		if read, ok := known[m.name]; ok {
			read(m.value)
			continue
		}
		r.faultAt(m.line, m.value.path, "%s", unknownKey(m.name, names))
	}
}

func unknownKey(name string, known []string) string {
	if k := closest(name, known); k != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", k)
	}
	return "unknown key; known here: " + strings.Join(known, ", ")
}

// entry is one member of a mapping, with the line of its name.
type entry struct {
	name  string
	line  int
	value value
}

// members lists the members of a mapping; nothing at all counts as an empty one.
func (r *reader) members(v value) []entry {
	if v.kind == null {
		return nil
	}
	if v.kind != mapping {
		r.wrong(v, "a mapping")
		return nil
	}
	out := make([]entry, len(v.members))
	for i, m := range v.members {
		node := *m.value
		if node.kind == null || node.kind == mapping {
			node.line = m.line
		}
		out[i] = entry{m.name, m.line, value{&node, join(v.path, m.name)}}
	}
	return out
}

// wrong says that a value is of another kind than is wanted.
func (r *reader) wrong(v value, want string) {
	switch {
	case v.kind == null:
		r.fault(v, "has no value; must be %s", want)
	case v.scalar():
		r.fault(v, "must be %s, not %s (%s)", want, v.kind, brief(v.text))
	default:
		r.fault(v, "must be %s, not %s", want, v.kind)
	}
}

func brief(s string) string {
	s = oneLine(s)
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return s
}

// text reads a text that is not empty.
func (r *reader) text(v value) (string, bool) {
	if v.kind != text {
		r.wrong(v, "text")
		return "", false
	}
	if v.node.text == "" {
		r.fault(v, "is empty")
		return "", false
	}
	return v.node.text, true
}

// spelled reads a text, a number, true or false, as it is spelled; it may be empty.
func (r *reader) spelled(v value) (string, bool) {
	if !v.scalar() {
		r.wrong(v, "text")
		return "", false
	}
	return v.node.text, true
}

// list reads a list with one reader for all elements, which says whether it could be read.
func listOf[T any](r *reader, v value, read func(value) (T, bool)) ([]T, bool) {
	if v.kind != list {
		r.wrong(v, "a list")
		return nil, false
	}
	out, good := make([]T, 0, len(v.items)), true
	for i, item := range v.items {
		x, ok := read(value{item, index(v.path, i)})
		good = good && ok
		out = append(out, x)
	}
	return out, good
}

func (r *reader) boolean(v value) (bool, bool) {
	if v.kind != boolean {
		r.wrong(v, "true or false")
		return false, false
	}
	return v.node.text == "true" || v.node.text == "True" || v.node.text == "TRUE", true
}

// oneOf reads one of a few words.
func (r *reader) oneOf(v value, what string, words ...string) (string, bool) {
	s, ok := r.text(v)
	if ok && !slices.Contains(words, s) {
		r.fault(v, "%s", unknownWord(what, s, words))
		return "", false
	}
	return s, ok
}

// count reads a whole number from 1 to limit.
func (r *reader) count(v value, limit int) (int, bool) {
	if v.kind != number {
		r.wrong(v, "a whole number")
		return 0, false
	}
	n, err := strconv.Atoi(v.node.text)
	if err != nil || n < 1 || n > limit {
		r.fault(v, "must be a whole number from 1 to %d, not %s", limit, brief(v.node.text))
		return 0, false
	}
	return n, true
}

// duration reads a time span above 0, such as 45s, 10m or 720h.
func (r *reader) duration(v value) (time.Duration, bool) {
	if v.kind != text && v.kind != number {
		r.wrong(v, "a duration such as 45s, 10m or 720h")
		return 0, false
	}
	d, err := time.ParseDuration(v.node.text)
	switch {
	case v.kind == number && err != nil:
		r.fault(v, "%s has no unit; write a duration such as %ss", brief(v.node.text), brief(v.node.text))
	case err != nil:
		r.fault(v, "%q is no duration; write one such as 45s, 10m or 720h", brief(v.node.text))
	case d <= 0:
		r.fault(v, "must be longer than nothing, not %s", brief(v.node.text))
	default:
		return d, true
	}
	return 0, false
}
