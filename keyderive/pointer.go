package keyderive

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pointer is a JSON Pointer (RFC 6901): a place in a JSON value. The zero
// Pointer is "", the root. Each place has one spelling.
type Pointer struct {
	text   string
	tokens []string // unescaped
}

// ParsePointer reads a pointer in its string form: "" or "/"-led tokens in
// which "~0" stands for "~" and "~1" for "/". An error wraps [ErrPointer].
func ParsePointer(s string) (Pointer, error) {
	if s == "" {
		return Pointer{}, nil
	}
	if s[0] != '/' {
		return Pointer{}, fmt.Errorf("%w: %q does not begin with /", ErrPointer, s)
	}
	if !utf8.ValidString(s) {
		return Pointer{}, fmt.Errorf("%w: %q is not UTF-8", ErrPointer, s)
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		if !strings.Contains(t, "~") {
			continue
		}
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(t)
		if strings.Contains(plain, "~") {
			return Pointer{}, fmt.Errorf("%w: %q has a ~ without 0 or 1 after it", ErrPointer, s)
		}
		tokens[i] = strings.NewReplacer("~0", "~", "~1", "/").Replace(t)
	}
	return Pointer{text: s, tokens: tokens}, nil
}

// parsePointers reads pointers that must name something below the root.
func parsePointers(texts []string) ([]Pointer, error) {
	pointers := make([]Pointer, len(texts))
	for i, s := range texts {
		p, err := ParsePointer(s)
		if err != nil {
			return nil, err
		}
		if s == "" {
			return nil, fmt.Errorf("%w: the root cannot be named here", ErrPointer)
		}
		pointers[i] = p
	}
	return pointers, nil
}

// String returns the text that the pointer was read from.
func (p Pointer) String() string { return p.text }

// Lookup returns the value at p in v; false if there is none. An array's
// elements have their indices in decimal, without leading zeros, as tokens.
func (p Pointer) Lookup(v any) (any, bool) {
	for _, t := range p.tokens {
		var ok bool
		if v, ok = child(v, t); !ok {
			return nil, false
		}
	}
	return v, true
}

// child returns the member or element of v that a token names.
func child(v any, token string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		x, ok := v[token]
		return x, ok
	case []any:
		if i, ok := index(token, len(v)); ok {
			return v[i], true
		}
	}
	return nil, false
}

// index reads a token as an index below n.
func index(token string, n int) (int, bool) {
	if token == "" || len(token) > 10 || token[0] == '0' && token != "0" {
		return 0, false
	}
	i, err := strconv.ParseUint(token, 10, 31)
	return int(i), err == nil && int(i) < n
}

// appendToken appends "/" and an escaped token.
func appendToken(dst []byte, token string) []byte {
	dst = append(dst, '/')
	for i := range len(token) {
		switch token[i] {
		case '~':
			dst = append(dst, "~0"...)
		case '/':
			dst = append(dst, "~1"...)
		default:
			dst = append(dst, token[i])
		}
	}
	return dst
}

// appendIndex appends "/" and an array index.
func appendIndex(dst []byte, i int) []byte {
	return strconv.AppendInt(append(dst, '/'), int64(i), 10)
}
