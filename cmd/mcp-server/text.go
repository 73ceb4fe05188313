package main

import (
	"fmt"
	"strings"
	"unicode"
)

// printable keeps what comes from others from moving the terminal's cursor about or faking lines.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s)
}

// short cuts a text to n letters.
func short(s string, n int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n-1])) + "…"
	}
	return s
}

// listed joins words as people do: a, b and c.
func listed(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

// counted is a number of things: 1 tool, 2 tools.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		thing = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// folded breaks a text into lines of some 100 letters; all but the first begin with indent.
func folded(s, indent string) string {
	var b strings.Builder
	width := 0
	for i, word := range strings.Fields(printable(s)) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case width+1+n > 100:
			b.WriteString("\n" + indent)
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += n
	}
	return b.String()
}
