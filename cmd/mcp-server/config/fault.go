package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	File string // as the user named it
	Line int    // 1, 2, …
	Path string // key path; "" where the whole file is meant
	What string
}

// String is the one line that a user sees.
func (f Fault) String() string {
	if f.Path == "" {
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.What)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Path, f.What)
}

// Faults are all that is wrong with a configuration, in the order of the lines. Never empty where returned as an error.
type Faults []Fault

// Error is one line per fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the faults in the order of their lines, each once.
func (f Faults) sorted() Faults {
	slices.SortStableFunc(f, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return slices.Compact(f)
}

// oneLine makes any text fit for a line, and for a terminal.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// closest returns the known word that a mistyped one probably meant; "" for none.
func closest(word string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		d := editDistance(strings.ToLower(word), k)
		if d < distance && d*3 <= max(len(word), 3) {
			best, distance = k, d
		}
	}
	if best == "" && len(word) > 2 {
		if i := slices.IndexFunc(known, func(k string) bool { return strings.HasPrefix(k, word) }); i >= 0 {
			return known[i]
		}
	}
	return best
}

// unknownWord says that a word is none of the known ones, and which it probably should be.
func unknownWord(what, word string, known []string) string {
	if k := closest(word, known); k != "" {
		return fmt.Sprintf("unknown %s %q; did you mean %s?", what, word, k)
	}
	return fmt.Sprintf("unknown %s %q; known: %s", what, word, strings.Join(known, ", "))
}

// editDistance counts the letters to insert, delete, replace or swap with their neighbour to make b of a.
func editDistance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if len(s) > 64 || len(t) > 64 {
		return 64
	}
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}
