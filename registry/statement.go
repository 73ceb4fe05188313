package registry

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// statement is a text as the words that [happened] reads.
type statement []statementWord

type statementWord struct {
	text  string // in lower case; "" stands for a name in quotes
	sep   byte   // what parts it from the word before
	glued bool   // it is part of a longer name: created_at, createdAt, order.created
}

const (
	none  = iota
	pause // , : ( - and the like
	stop  // . ; ! ? and new lines
)

// clauseWords is how far a clause is followed back.
const clauseWords = 24

// at returns the word at i, "" if there is none.
func (s statement) at(i int) string {
	if i < 0 || i >= len(s) {
		return ""
	}
	return s[i].text
}

// any tells whether a word of s[from:to] is in a set.
func (s statement) any(from, to int, words map[string]bool) bool {
	for k := max(from, 0); k < to; k++ {
		if words[s[k].text] {
			return true
		}
	}
	return false
}

// parts tells whether a new clause begins with the word at i though nothing but a space stands before it.
func (s statement) parts(i int) bool {
	if s[i].text == "and" {
		before, next := s.at(i-1), s.at(i+1)
		return !(effectWords[next] && (effectWords[before] || before == "read" || strings.HasSuffix(before, "ed")))
	}
	return conjunctions[s[i].text]
}

// clause returns where the clause of the word at i begins. One word behind a pause goes with what stands before it, as
// in "must be one of: draft, paid, or sent".
func (s statement) clause(i int) int {
	end := i + 1
	for end < len(s) && end < i+4 && s[end].sep == none {
		end++
	}
	for j := i; ; j-- {
		switch {
		case j == 0 || s[j].sep == stop || i-j >= clauseWords:
			return j
		case s[j].sep == pause:
			if alone := end-j == 1 || end-j == 2 && (s[j].text == "or" || s[j].text == "and"); !alone {
				return j
			}
			end = j
		case s.parts(j):
			return j
		}
	}
}

// positive tells whether a word is a whole number above 0.
func positive(word string) bool { return isDigits(word) && strings.Trim(word, "0") != "" }

// statementOf parts a text into words. What stands in quotes and is no longer than three words is a name, unless it is
// the value of a JSON member that has something to say.
func statementOf(text string) statement {
	var s statement
	sep, glue, last := byte(stop), false, ' '
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if isQuote(r) && !isWord(last) {
			if end := quotedName(text, i, r); end > 0 {
				s = append(s, statementWord{sep: sep})
				sep, glue, last, i = none, false, r, end
				continue
			}
		}
		if !isWord(r) {
			next := firstRune(text[i+n:])
			switch {
			case strings.ContainsRune("_-.", r) && isWord(last) && isWord(next) && !(r == '.' && unicode.IsUpper(next) && unicode.IsLower(last)):
				glue = true
			default:
				sep, glue = max(sep, separator(r)), false
				if (r == ',' || r == '{' || r == '}') && isQuote(firstRune(strings.TrimLeft(text[i+n:min(len(text), i+n+8)], " \n"))) {
					sep = stop // the next member
				}
			}
			last, i = r, i+n
			continue
		}
		end := wordEnd(text, i)
		if len(s) > 0 && (glue || isWord(last)) {
			glue, s[len(s)-1].glued = true, true
		}
		s = append(s, statementWord{text: strings.ToLower(text[i:end]), sep: sep, glued: glue})
		last, _ = utf8.DecodeLastRuneInString(text[i:end])
		sep, glue, i = none, false, end
	}
	return s
}

func firstRune(text string) rune {
	r, _ := utf8.DecodeRuneInString(text)
	return r
}

func isWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

func isQuote(r rune) bool { return strings.ContainsRune("\"'`“”‘’", r) }

// wordEnd returns where the word that starts at i ends: at what is neither letter nor digit, and at a capital behind a
// small letter or before one.
func wordEnd(text string, i int) int {
	var last rune
	for k, r := range text[i:] {
		if !isWord(r) || k > 0 && unicode.IsUpper(r) && (unicode.IsLower(last) || unicode.IsUpper(last) && startsLower(text[i+k:])) {
			return i + k
		}
		last = r
	}
	return len(text)
}

func separator(r rune) byte {
	switch r {
	case '\n', '\r', ';', '.', '!', '?', '…':
		return stop
	case ' ', '\t', '"', '\'', '`', '“', '”', '‘', '’', '#', '*', '_', '$', '%', '@', '\\', '/', '=', '~':
		return none
	}
	return pause
}

// speakingMembers are the JSON members whose values are statements rather than names.
var speakingMembers = []string{"message", "error", "detail", "details", "text", "reason", "description", "code", "msg", "status",
	"state", "result", "outcome"}

// quotedName returns where a name in quotes that starts at i ends, 0 if there is none.
func quotedName(text string, i int, quote rune) int {
	closing := map[rune]rune{'“': '”', '‘': '’'}[quote]
	if closing == 0 {
		closing = quote
	}
	from := i + utf8.RuneLen(quote)
	n := strings.IndexRune(text[from:min(len(text), from+60)], closing)
	if n <= 0 {
		return 0
	}
	inner, end := text[from:from+n], from+n+utf8.RuneLen(closing)
	if isWord(firstRune(text[end:])) || strings.ContainsAny(inner, ".;\n") ||
		len(strings.Fields(inner)) > 3 || strings.TrimSpace(text[:i]) == "" {
		return 0
	}
	before := strings.TrimRight(text[max(0, i-40):i], " ")
	if before, ok := strings.CutSuffix(before, ":"); ok {
		before = strings.ToLower(strings.TrimRight(before, ` "'`))
		for _, m := range speakingMembers {
			if rest, ok := strings.CutSuffix(before, m); ok && (strings.HasSuffix(rest, `"`) || strings.HasSuffix(rest, "'")) {
				return 0
			}
		}
	}
	return end
}
