package registry

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"toolguard.dev/keyderive"
)

// Hidden stands where a secret stood.
const Hidden = "(secret)"

const (
	minHidden  = 4  // shorter secrets are hidden in their own place only: anything may hold three letters
	minInside  = 8  // from here on a secret is found inside other words too, in other spellings and encodings
	maxHidden  = 64 // secret values of one call; of one with more no text is shown at all
	maxGrouped = 64 // letters and digits of a secret that is found with spaces or dashes in it
)

// Redactor hides the secrets of one call in what is shown or kept of it. It does not change and may be used from any
// number of goroutines; nil hides nothing.
type Redactor struct {
	places keyderive.Secrets
	values []byte            // canonical, to compare
	words  []string          // short ones: hidden where they are a word of their own
	long   []string          // as they are
	forms  *strings.Replacer // these and their other spellings
	spaced []*regexp.Regexp  // with spaces and dashes in them
	all    bool              // too many: nothing is shown
}

// Redactor returns what hides the secrets among arguments, which keyderive.Parse made; nil where the policy has none.
func (e *Entry) Redactor(args any) *Redactor {
	if len(e.secrets) == 0 {
		return nil
	}
	r := &Redactor{places: e.secrets}
	var found []any
	var texts []string
	e.secrets.Replace(args, func(x any) any {
		found = append(found, x)
		keyderive.Leaves(x, func(_ string, leaf any) bool {
			switch v := leaf.(type) {
			case string:
				texts = append(append(texts, v), lines(v)...)
			case json.Number:
				texts = append(texts, string(v))
			}
			return true
		})
		return Hidden
	})
	r.values = keyderive.AppendCanonical(nil, found)
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if r.all = len(texts) > maxHidden; !r.all {
		r.look(texts)
	}
	return r
}

// Cut returns the part of a pointer to an argument that tells nothing of a secret: its own members' names are a part of it.
func (e *Entry) Cut(pointer string) string {
	if len(e.secrets) == 0 {
		return pointer
	}
	return e.secrets.Cut(pointer)
}

// lines are the lines of a secret that has several and may be shown one by one.
func lines(text string) []string {
	if !strings.Contains(strings.TrimSpace(text), "\n") {
		return nil
	}
	return strings.Split(text, "\n")
}

// look makes ready to find the texts.
func (r *Redactor) look(texts []string) {
	var forms []string
	for _, s := range texts {
		s = strings.TrimSpace(s)
		switch n := utf8.RuneCountInString(s); {
		case n < minHidden:
		case n < minInside:
			r.words = append(r.words, s)
		default:
			r.long = append(r.long, s)
			forms = append(forms, spellings(s)...)
			if g := grouped(s); g != nil {
				r.spaced = append(r.spaced, g)
			}
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	var pairs []string
	for _, f := range slices.Compact(forms) {
		if len(f) >= minInside {
			pairs = append(pairs, f, Hidden)
		}
	}
	r.forms = strings.NewReplacer(pairs...)
}

// spellings are the ways in which programs write a text into others.
func spellings(s string) []string {
	plain, _ := json.Marshal(s)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	var units, upper strings.Builder
	for _, c := range s {
		fmt.Fprintf(&units, `\u%04x`, c)
		fmt.Fprintf(&upper, `\u%04X`, c)
	}
	list := []string{
		s, unquote(string(plain)), unquote(strings.TrimSpace(b.String())), unquote(strconv.Quote(s)), unquote(strconv.QuoteToASCII(s)),
		url.QueryEscape(s), url.PathEscape(s), html.EscapeString(s),
		hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))), units.String(), upper.String(),
	}
	for before := range 3 { // in base64 a text looks differently for each number of bytes before it
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			padded := append(make([]byte, before), s...)
			from, to := (before*8+5)/6, len(padded)*8/6
			list = append(list, enc.EncodeToString(padded)[from:to])
		}
	}
	return list
}

func unquote(s string) string { return s[1 : len(s)-1] }

// grouped finds a number or code with spaces, dashes or dots in it, or without those that it has; nil for other texts.
func grouped(s string) *regexp.Regexp {
	var parts []string
	digits := 0
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			digits++
			parts = append(parts, string(c))
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			parts = append(parts, string(c))
		case c != ' ' && c != '-' && c != '.':
			return nil
		}
	}
	if digits < minInside/2 || len(parts) < minInside || len(parts) > maxGrouped {
		return nil
	}
	return regexp.MustCompile(`(?i)` + strings.Join(parts, `[\s.,\-]*`))
}

// Text returns a text without the secrets.
func (r *Redactor) Text(text string) string {
	if r == nil || text == "" {
		return text
	}
	if r.all {
		return Hidden
	}
	if strings.Contains(text, `\u`) {
		text = r.escaped(text)
	}
	text = r.forms.Replace(text)
	for _, g := range r.spaced {
		text = g.ReplaceAllString(text, Hidden)
	}
	for _, w := range r.words {
		text = hideWord(text, w)
	}
	return r.tail(text)
}

// escaped hides secrets in a text that is JSON, however its strings are escaped.
func (r *Redactor) escaped(text string) string {
	v, err := keyderive.Parse([]byte(text))
	if err != nil {
		return text
	}
	if hidden := keyderive.AppendCanonical(nil, r.value(v)); !bytes.Equal(hidden, keyderive.AppendCanonical(nil, v)) {
		return string(hidden)
	}
	return text
}

// tail hides what a text that was cut ends with: more than half of a secret.
func (r *Redactor) tail(text string) string {
	for _, s := range r.long {
		cut := strings.TrimRight(text, "….")
		for n := min(len(s)-1, len(cut)); n > len(s)/2; n-- {
			if strings.HasSuffix(cut, s[:n]) {
				text = cut[:len(cut)-n] + Hidden
				break
			}
		}
	}
	return text
}

// hideWord hides a word where no letter or digit touches it.
func hideWord(text, word string) string {
	var b strings.Builder
	rest := text
	for {
		i := strings.Index(rest, word)
		if i < 0 {
			b.WriteString(rest)
			return b.String()
		}
		end := i + len(word)
		before, _ := utf8.DecodeLastRuneInString(text[:len(text)-len(rest)+i])
		after, _ := utf8.DecodeRuneInString(rest[end:])
		b.WriteString(rest[:i])
		if wordly(before) || wordly(after) {
			b.WriteString(word)
		} else {
			b.WriteString(Hidden)
		}
		rest = rest[end:]
	}
}

func wordly(c rune) bool {
	return c != utf8.RuneError && (unicode.IsLetter(c) || unicode.IsDigit(c))
}

// value returns a JSON value without the secrets, in member names too.
func (r *Redactor) value(v any) any {
	switch x := v.(type) {
	case string:
		return r.Text(x)
	case json.Number:
		if r.Text(string(x)) != string(x) {
			return Hidden
		}
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = r.value(x[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for name := range x {
			out[r.Text(name)] = r.value(x[name])
		}
		return out
	}
	return v
}

// Arguments returns the JSON of arguments, which keyderive.Parse made, without the secrets.
func (r *Redactor) Arguments(args any) json.RawMessage {
	return keyderive.AppendCanonical(nil, r.value(r.places.Replace(args, func(any) any { return Hidden })))
}

// JSON returns a JSON text without the secrets: as it was, where there are none in it, and nil where it cannot be read.
func (r *Redactor) JSON(text json.RawMessage) json.RawMessage {
	if r == nil || len(text) == 0 {
		return text
	}
	v, strict := decode(text)
	if v == nil && !strict {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	before := b.String()
	b.Reset()
	if e.Encode(r.value(v)) != nil {
		return nil
	}
	if b.String() == before {
		return text
	}
	return bytes.TrimSpace(b.Bytes())
}

// Shows tells whether a secret of at least 8 characters stands in a text: shorter ones may be there by chance.
func (r *Redactor) Shows(text string) bool {
	if r == nil || r.all {
		return false
	}
	return r.forms.Replace(text) != text || slices.ContainsFunc(r.spaced, func(g *regexp.Regexp) bool { return g.MatchString(text) })
}

// Same tells whether two calls of a tool have the same secrets, letter by letter.
func (r *Redactor) Same(o *Redactor) bool {
	return r == o || r != nil && o != nil && bytes.Equal(r.values, o.values)
}
