package keyderive_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	surrogate     = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	loneSurrogate = regexp.MustCompile(`\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)
)

// oracleRefuses tells whether a text is no strict JSON, by encoding/json and
// regular expressions.
func oracleRefuses(text []byte) bool {
	if !json.Valid(text) || !utf8.Valid(text) {
		return true
	}
	plain := bytes.ReplaceAll(text, []byte(`\\`), nil)
	if loneSurrogate.Match(surrogate.ReplaceAll(plain, []byte("x"))) {
		return true
	}
	return oracleDuplicatesOrDepth(text)
}

// oracleDuplicatesOrDepth walks the tokens of valid JSON.
func oracleDuplicatesOrDepth(text []byte) bool {
	type level struct {
		names map[string]bool // nil in an array
		value bool            // a value comes next, not a name
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return false
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].names != nil {
			top := &stack[n-1]
			if !top.value {
				name := token.(string)
				if top.names[name] {
					return true
				}
				top.names[name] = true
			}
			top.value = !top.value
		}
		if delim, ok := token.(json.Delim); ok {
			if len(stack) == 128 {
				return true
			}
			next := level{}
			if delim == '{' {
				next.names = map[string]bool{}
			}
			stack = append(stack, next)
		}
	}
}

func oracleDecode(t *testing.T, text []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", text, err)
	}
	return v
}

// oracleEqual compares as JSON values; ok is false if a number is too large to
// be compared as a fraction.
func oracleEqual(a, b any) (same, ok bool) {
	switch a := a.(type) {
	case json.Number:
		b, isNumber := b.(json.Number)
		if !isNumber {
			return false, true
		}
		x, okX := oracleFraction(string(a))
		y, okY := oracleFraction(string(b))
		if !okX || !okY {
			return false, false
		}
		return x.Cmp(y) == 0, true
	case []any:
		b, isArray := b.([]any)
		if !isArray || len(a) != len(b) {
			return false, true
		}
		same, ok = true, true
		for i := range a {
			s, o := oracleEqual(a[i], b[i])
			same, ok = same && s, ok && o
		}
		return same, ok
	case map[string]any:
		b, isObject := b.(map[string]any)
		if !isObject || len(a) != len(b) {
			return false, true
		}
		same, ok = true, true
		for name, x := range a {
			y, present := b[name]
			if !present {
				return false, true
			}
			s, o := oracleEqual(x, y)
			same, ok = same && s, ok && o
		}
		return same, ok
	}
	switch b.(type) {
	case []any, map[string]any:
		return false, true
	}
	return a == b, true
}

func oracleFraction(n string) (*big.Rat, bool) {
	if _, exponent, ok := strings.Cut(strings.ToLower(n), "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e < -500 || e > 500 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(n)
}
