package keyderive

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// maxExponent bounds the decimal exponents that [CheckNumbers] lets pass: some
// readers of numbers expand them, and fall over what they get.
const maxExponent = 1000

// Number returns the canonical spelling of one JSON number: the layout of
// ECMAScript's Number::toString (which RFC 8785 prescribes), on the exact
// decimal digits instead of those of the nearest double. 100, 100.0 and 1e2
// are "100", 1e21 is "1e+21", -0 is "0", 9007199254740993 stays what it is.
// No exponent is too large, and none is expanded. An error wraps [ErrJSON].
func Number(s string) (json.Number, error) {
	p := parser{text: s}
	n, err := p.number()
	if err == nil && p.pos < len(s) {
		return "", fail(p.pos, "text after the number")
	}
	return n, err
}

// number reads a number and returns its canonical spelling.
func (p *parser) number() (json.Number, error) {
	start := p.pos
	p.skip('-')
	whole := p.pos
	if p.digits() == 0 {
		return "", p.expected("a digit")
	}
	if p.text[whole] == '0' && p.pos > whole+1 {
		return "", fail(whole, "a number with a leading zero")
	}
	n := decimal{negative: whole > start, whole: p.text[whole:p.pos]}
	if p.skip('.') {
		at := p.pos
		if p.digits() == 0 {
			return "", p.expected("a digit")
		}
		n.fraction = p.text[at:p.pos]
	}
	if p.skip('e') || p.skip('E') {
		n.exponentNegative = p.skip('-')
		if !n.exponentNegative {
			p.skip('+')
		}
		at := p.pos
		if p.digits() == 0 {
			return "", p.expected("a digit")
		}
		n.exponent = strings.TrimLeft(p.text[at:p.pos], "0")
		return json.Number(n.append(nil)), nil
	}
	if n.isCanonical() {
		return json.Number(p.text[start:p.pos]), nil
	}
	return json.Number(n.append(nil)), nil
}

func (p *parser) skip(c byte) bool {
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// digits skips digits and returns how many.
func (p *parser) digits() int {
	start := p.pos
	for p.pos < len(p.text) && isDigit(p.text[p.pos]) {
		p.pos++
	}
	return p.pos - start
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// decimal is a number taken apart: digits as written, exponent without leading
// zeros ("" for none or 0).
type decimal struct {
	negative         bool
	whole, fraction  string
	exponentNegative bool
	exponent         string
}

// isCanonical is true for the common numbers without an exponent that are
// canonical as written; false says nothing.
func (n decimal) isCanonical() bool {
	if n.fraction == "" {
		return len(n.whole) <= 21 && (n.whole != "0" || !n.negative)
	}
	return len(n.whole) <= 21 && n.whole != "0" && n.fraction[len(n.fraction)-1] != '0'
}

// append writes the canonical spelling.
func (n decimal) append(dst []byte) []byte {
	digits := strings.TrimLeft(n.whole+n.fraction, "0")
	point := len(n.whole) - (len(n.whole) + len(n.fraction) - len(digits)) // value = 0.digits × 10^(point+exponent)
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return append(dst, '0')
	}
	if n.negative {
		dst = append(dst, '-')
	}
	if len(n.exponent) > 18 {
		e := shift([]byte(n.exponent), n.exponentNegative, point-1)
		return appendScientific(dst, digits, n.exponentNegative, e)
	}
	e, _ := strconv.ParseInt("0"+n.exponent, 10, 64)
	if n.exponentNegative {
		e = -e
	}
	e += int64(point)
	k := int64(len(digits))
	switch {
	case k <= e && e <= 21:
		dst = append(dst, digits...)
		for ; k < e; k++ {
			dst = append(dst, '0')
		}
		return dst
	case 0 < e && e <= 21:
		dst = append(dst, digits[:e]...)
		dst = append(dst, '.')
		return append(dst, digits[e:]...)
	case -6 < e && e <= 0:
		dst = append(dst, "0.00000"[:2-e]...)
		return append(dst, digits...)
	}
	if e--; e < 0 {
		return appendScientific(dst, digits, true, strconv.AppendInt(nil, -e, 10))
	}
	return appendScientific(dst, digits, false, strconv.AppendInt(nil, e, 10))
}

func appendScientific(dst []byte, digits string, negative bool, exponent []byte) []byte {
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	sign := byte('+')
	if negative {
		sign = '-'
	}
	dst = append(dst, 'e', sign)
	return append(dst, exponent...)
}

// shift adds by to an exponent of more than 18 digits, so large that its sign
// stays whatever the length of a text can add to it, and returns the digits.
func shift(digits []byte, negative bool, by int) []byte {
	if negative {
		by = -by
	}
	for i := len(digits) - 1; by != 0; i-- {
		if i < 0 {
			digits = append([]byte{'0'}, digits...)
			i = 0
		}
		sum := int(digits[i]-'0') + by
		by = sum / 10
		if sum%10 < 0 {
			sum += 10
			by--
		}
		digits[i] = '0' + byte(sum%10)
	}
	for digits[0] == '0' {
		digits = digits[1:]
	}
	return digits
}

// CheckNumbers returns an error that wraps [ErrNumberRange] and names the
// pointer if a number in v, which [Parse] made, has a decimal exponent beyond
// ±1000 in scientific notation: 1e1001 and 1e-1001 are refused, and a whole
// number of more than 1001 digits. No number is expanded.
func CheckNumbers(v any) error {
	if numbersInRange(v) {
		return nil
	}
	var err error
	Leaves(v, func(pointer string, x any) bool {
		if n, ok := x.(json.Number); ok && !inRange(string(n)) {
			err = fmt.Errorf("%w: the exponent at %q is beyond ±%d", ErrNumberRange, pointer, maxExponent)
		}
		return err == nil
	})
	return err
}

func numbersInRange(v any) bool {
	switch v := v.(type) {
	case json.Number:
		return inRange(string(v))
	case []any:
		for _, x := range v {
			if !numbersInRange(x) {
				return false
			}
		}
	case map[string]any:
		for _, x := range v {
			if !numbersInRange(x) {
				return false
			}
		}
	}
	return true
}

// inRange looks at a canonical spelling: without an exponent it is small.
func inRange(n string) bool {
	i := strings.IndexByte(n, 'e')
	if i < 0 {
		return true
	}
	e, err := strconv.Atoi(n[i+1:])
	return err == nil && -maxExponent <= e && e <= maxExponent
}
