package codec

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// A text is its length and form in one number, and itself: most texts of a record are hashes and keys, which take half the room
// as bytes.
const (
	formPlain  = iota
	formHex    // lower-case hexadecimal
	formDigest // the same behind "sha256:"
	formUUID   // lower-case, with its hyphens
	forms

	digestPrefix = "sha256:"
	leastHex     = 16 // shorter ones are not worth looking at
)

func appendText(b []byte, s string) []byte {
	digits, form := s, formHex
	switch {
	case len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-':
		var room [32]byte
		digits = string(append(append(append(append(append(room[:0], s[:8]...), s[9:13]...), s[14:18]...), s[19:23]...), s[24:]...))
		form = formUUID
	case strings.HasPrefix(s, digestPrefix):
		digits, form = s[len(digestPrefix):], formDigest
	}
	if n := len(digits) / 2; len(digits) >= leastHex && len(digits)%2 == 0 {
		at := len(b)
		b = binary.AppendUvarint(b, uint64(n*forms+form))
		bad := byte(0)
		for i := 0; i+1 < len(digits); i += 2 {
			high, low := digit[digits[i]], digit[digits[i+1]]
			bad |= high | low
			b = append(b, high<<4|low)
		}
		if bad < notDigit {
			return b
		}
		b = b[:at]
	}
	return appendPlain(b, s)
}

func appendPlain(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))*forms+formPlain), s...)
}

// digit is the value of each lower-case hexadecimal digit, and notDigit for any other byte.
var digit = func() (values [256]byte) {
	for i := range values {
		values[i] = notDigit
	}
	for i, c := range []byte("0123456789abcdef") {
		values[c] = byte(i)
	}
	return values
}()

const notDigit = 0x80

// text reads what appendText wrote.
func (d *decoder) text() string {
	n := d.uvarint()
	s := d.take(n / forms)
	var room [96]byte
	switch n % forms {
	case formHex:
		return string(hex.AppendEncode(room[:0], []byte(s)))
	case formDigest:
		return string(hex.AppendEncode(append(room[:0], digestPrefix...), []byte(s)))
	case formUUID:
		if len(s) != 16 {
			d.fail()
			return ""
		}
		b := room[:0]
		for i, to := range []int{4, 6, 8, 10, 16} {
			from := []int{0, 4, 6, 8, 10}[i]
			if i > 0 {
				b = append(b, '-')
			}
			b = hex.AppendEncode(b, []byte(s[from:to]))
		}
		return string(b)
	}
	if d.copies {
		return strings.Clone(s)
	}
	return s
}
