package keyderive

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Canonical returns the canonical form of a JSON text: what [AppendCanonical]
// writes of what [Parse] reads. Two texts have the same form exactly when they
// are the same JSON value. Errors are those of Parse.
func Canonical(text []byte) ([]byte, error) {
	v, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return AppendCanonical(make([]byte, 0, len(text)), v), nil
}

// AppendCanonical appends the canonical form of v, a value such as [Parse]
// makes, to dst: the layout of RFC 8785 with exact decimals.
//
// Strings are written byte for byte. A json.Number is respelled if it was not
// canonical yet. A value of another Go type is written as encoding/json would
// have it; one that JSON cannot hold (NaN, a channel) is written as text that
// is no JSON, so that it shares its form with no value.
func AppendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		if v {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case string:
		return appendString(dst, v)
	case json.Number:
		n, err := Number(string(v))
		if err != nil {
			return appendForeign(dst, v)
		}
		return append(dst, n...)
	case []any:
		dst = append(dst, '[')
		for i, x := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendCanonical(dst, x)
		}
		return append(dst, ']')
	case map[string]any:
		return appendObject(dst, v)
	default:
		return appendForeign(dst, v)
	}
}

func appendObject(dst []byte, m map[string]any) []byte {
	var room [16]string
	names := appendNames(room[:0], m)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, name)
		dst = append(dst, ':')
		dst = AppendCanonical(dst, m[name])
	}
	return append(dst, '}')
}

// appendNames appends the member names of m in canonical order.
func appendNames(names []string, m map[string]any) []string {
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	return names
}

// appendForeign writes a value that Parse does not make.
func appendForeign(dst []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err == nil {
		if v, err = Parse(text); err == nil {
			return AppendCanonical(dst, v)
		}
	}
	return append(dst, fmt.Sprintf("!%T(%v)", v, v)...)
}

// AppendString is [AppendCanonical] of a string, without the cost of an
// interface value.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

// appendString writes a string with the escapes of RFC 8785, section 3.2.2.2.
func appendString(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// compareUTF16 orders UTF-8 strings by their UTF-16 code units (RFC 8785,
// section 3.2.3). That is the order of the bytes, except that characters from
// U+10000 on (first byte F0 and up), being surrogates in UTF-16, come before
// U+E000 to U+FFFF (first byte EE or EF).
func compareUTF16(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}

// equal is true if two parsed values have the same canonical form.
func equal(a, b any) bool {
	switch a := a.(type) {
	case nil, bool, string, json.Number:
		switch b.(type) {
		case nil, bool, string, json.Number:
			return a == b
		}
		return false
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, x := range a {
			if y, ok := b[name]; !ok || !equal(x, y) {
				return false
			}
		}
		return true
	}
	return string(AppendCanonical(nil, a)) == string(AppendCanonical(nil, b))
}

// Digest returns "sha256:" and the hex SHA-256 of a canonical form.
func Digest(canonical []byte) string {
	const prefix = "sha256:"
	sum := sha256.Sum256(canonical)
	var out [len(prefix) + 2*sha256.Size]byte
	copy(out[:], prefix)
	hex.Encode(out[len(prefix):], sum[:])
	return string(out[:])
}

// Hash returns the hex SHA-256 of a text.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	var out [2 * sha256.Size]byte
	hex.Encode(out[:], sum[:])
	return string(out[:])
}
