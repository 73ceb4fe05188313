package drill

import (
	"regexp/syntax"
	"strings"
)

// matching makes a text that a pattern takes, most of the time. Other turns give other texts, extra longer ones.
func matching(pattern string, turn, extra int) string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	w := &writer{turn: turn, extra: extra}
	w.write(parsed.Simplify())
	return w.String()
}

type writer struct {
	strings.Builder
	turn, extra int
}

const maxText = 4096 // bytes of a text made from a pattern

func (w *writer) write(r *syntax.Regexp) {
	if w.Len() > maxText {
		return
	}
	switch r.Op {
	case syntax.OpLiteral:
		w.WriteString(string(r.Rune))
	case syntax.OpCharClass:
		w.WriteRune(w.letter(r.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		w.WriteRune('a' + rune((w.turn+w.Len())%26))
	case syntax.OpStar, syntax.OpPlus:
		n := w.extra
		if r.Op == syntax.OpPlus {
			n++
		}
		for range n {
			w.write(r.Sub[0])
		}
	case syntax.OpQuest:
		if w.extra > 0 {
			w.write(r.Sub[0])
		}
	case syntax.OpAlternate:
		w.write(r.Sub[w.turn%len(r.Sub)])
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range r.Sub {
			w.write(sub)
		}
	}
}

// letter picks one of a class: a letter or digit that people write, where there is one.
func (w *writer) letter(ranges []rune) rune {
	var good []rune
	for _, c := range "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz123456789" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if c >= ranges[i] && c <= ranges[i+1] {
				good = append(good, c)
			}
		}
	}
	if len(good) == 0 {
		if len(ranges) == 0 {
			return 'x'
		}
		return ranges[0]
	}
	return good[(w.turn+w.Len())%len(good)]
}
