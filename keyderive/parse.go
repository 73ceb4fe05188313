package keyderive

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Parse reads one strict JSON text (RFC 8259, with the demands of RFC 7493 on
// names and strings). The value is nil, bool, string, json.Number (already in
// canonical spelling), []any or map[string]any.
//
// Duplicate members (compared after unescaping), lone surrogates, invalid
// UTF-8, trailing text and nesting beyond [MaxDepth] are refused. An error
// wraps [ErrJSON] and says what is wrong, and at which byte offset from 0.
//
// The strings of the value share one copy of text, which thus lives as long as
// any of them; text itself may be reused.
func Parse(text []byte) (any, error) {
	p := parser{text: string(text)}
	if !utf8.ValidString(p.text) {
		return nil, fail(firstInvalid(p.text), "invalid UTF-8")
	}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.text) {
		return nil, fail(p.pos, "text after the value")
	}
	return v, nil
}

// parser reads text, which is valid UTF-8, from pos on.
type parser struct {
	text string
	pos  int
}

func fail(at int, format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d", ErrJSON, fmt.Sprintf(format, args...), at)
}

func firstInvalid(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return len(s)
}

func (p *parser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek returns the next byte that is no white space, 0 at the end.
func (p *parser) peek() byte {
	p.space()
	if p.pos == len(p.text) {
		return 0
	}
	return p.text[p.pos]
}

// expected is the error for something else, or nothing, where what should be.
func (p *parser) expected(what string) error {
	if p.pos >= len(p.text) {
		return fail(len(p.text), "the text ends where %s is expected", what)
	}
	return fail(p.pos, "%s is expected", what)
}

// value reads one value that stands inside depth arrays and objects.
func (p *parser) value(depth int) (any, error) {
	switch c := p.peek(); c {
	case '{':
		return p.object(depth + 1)
	case '[':
		return p.array(depth + 1)
	case '"':
		return boxed(p.string())
	case 't':
		return true, p.literal("true")
	case 'f':
		return false, p.literal("false")
	case 'n':
		return nil, p.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return boxed(p.number())
		}
		return nil, p.expected("a value")
	}
}

func boxed[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (p *parser) literal(word string) error {
	if !strings.HasPrefix(p.text[p.pos:], word) {
		return p.expected("a value")
	}
	p.pos += len(word)
	return nil
}

func (p *parser) object(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fail(p.pos, "nesting deeper than %d", MaxDepth)
	}
	p.pos++
	m := make(map[string]any)
	if p.peek() == '}' {
		p.pos++
		return m, nil
	}
	for {
		if p.peek() != '"' {
			return nil, p.expected("a member name")
		}
		at := p.pos
		name, err := p.string()
		if err != nil {
			return nil, err
		}
		if _, ok := m[name]; ok {
			return nil, fail(at, "a second member %.40q", name)
		}
		if p.peek() != ':' {
			return nil, p.expected("a colon")
		}
		p.pos++
		if m[name], err = p.value(depth); err != nil {
			return nil, err
		}
		switch p.peek() {
		case ',':
			p.pos++
		case '}':
			p.pos++
			return m, nil
		default:
			return nil, p.expected("a comma or the object's end")
		}
	}
}

func (p *parser) array(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fail(p.pos, "nesting deeper than %d", MaxDepth)
	}
	p.pos++
	a := []any{}
	if p.peek() == ']' {
		p.pos++
		return a, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		a = append(a, v)
		switch p.peek() {
		case ',':
			p.pos++
		case ']':
			p.pos++
			return a, nil
		default:
			return nil, p.expected("a comma or the array's end")
		}
	}
}

// string reads a string from its opening quote on.
func (p *parser) string() (string, error) {
	start := p.pos + 1
	for i := start; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.pos = i + 1
			return p.text[start:i], nil
		case c == '\\':
			return p.escaped(start, i)
		case c < ' ':
			return "", fail(i, "a control character in a string")
		}
	}
	return "", fail(len(p.text), "a string that does not end")
}

// escaped reads the string that begins at start and has its first escape at i.
func (p *parser) escaped(start, i int) (string, error) {
	out := append(make([]byte, 0, i-start+32), p.text[start:i]...)
	for i < len(p.text) {
		switch c := p.text[i]; {
		case c == '"':
			p.pos = i + 1
			return string(out), nil
		case c < ' ':
			return "", fail(i, "a control character in a string")
		case c != '\\':
			out = append(out, c)
			i++
		default:
			r, n, err := p.escape(i)
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return "", fail(len(p.text), "a string that does not end")
}

// escape decodes the escape at i and returns how many bytes it takes: a
// surrogate pair takes both halves.
func (p *parser) escape(i int) (rune, int, error) {
	if i+1 >= len(p.text) {
		return 0, 0, fail(len(p.text), "a string that does not end")
	}
	switch c := p.text[i+1]; c {
	case '"', '\\', '/':
		return rune(c), 2, nil
	case 'b':
		return '\b', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'u':
	default:
		return 0, 0, fail(i, "an unknown escape")
	}
	r, ok := p.unit(i)
	if !ok {
		return 0, 0, fail(i, "an escape without four hex digits")
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	low, ok := p.unit(i + 6)
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 12, nil
	}
	return 0, 0, fail(i, "a lone surrogate")
}

// unit decodes a \uXXXX at i.
func (p *parser) unit(i int) (rune, bool) {
	if len(p.text)-i < 6 || p.text[i] != '\\' || p.text[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(p.text[i+2:i+6], 16, 16)
	return rune(n), err == nil
}
