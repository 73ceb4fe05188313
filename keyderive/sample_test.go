package keyderive_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func parse(text string) any { return must(keyderive.Parse([]byte(text))) }

func canonical(v any) string { return string(keyderive.AppendCanonical(nil, v)) }

func pointerTo(s string) keyderive.Pointer { return must(keyderive.ParsePointer(s)) }

func pointersTo(list ...string) []keyderive.Pointer {
	var out []keyderive.Pointer
	for _, s := range list {
		out = append(out, pointerTo(s))
	}
	return out
}

func derive(t testing.TB, def keyderive.Definition, action string, f keyderive.Facts, args any) keyderive.Identity {
	t.Helper()
	d, err := def.Compile()
	if err != nil {
		t.Fatal(err)
	}
	id, err := d.Derive(action, f, args)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// unchanged fails the test if v is another value at its end than now.
func unchanged(t *testing.T, v any) func() {
	t.Helper()
	before := canonical(v)
	return func() {
		t.Helper()
		if after := canonical(v); after != before {
			t.Fatalf("mutated: %s became %s", before, after)
		}
	}
}

// source makes random values.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 7))} }

var sampleNames = []string{"a", "b", "to", "", "a/b", "m~n", "é", "\U0001F600", "\ufb33", "0", "*", "\n"}

var sampleScalars = []string{
	"null", "true", "false", `""`, `"x"`, `" X  y "`, `"x"`, `"\u0000\u001f\"\\/"`, `"😀"`, `"e\u0301"`,
	"0", "-1", "3", "120.5", "9007199254740993", "1e21", "1e-7", "0.000001", "12345678901234567890123", "1e400",
}

// value makes a value of at most so many levels.
func (r source) value(levels int) any {
	kind := r.IntN(4)
	if levels <= 0 || kind < 2 {
		return parse(sampleScalars[r.IntN(len(sampleScalars))])
	}
	if kind == 2 {
		a := make([]any, r.IntN(4))
		for i := range a {
			a[i] = r.value(levels - 1)
		}
		return a
	}
	return r.object(levels)
}

func (r source) object(levels int) map[string]any {
	m := make(map[string]any)
	for range r.IntN(5) {
		m[sampleNames[r.IntN(len(sampleNames))]] = r.value(levels - 1)
	}
	return m
}

// places lists the pointers of everything in v, itself first.
func places(v any) []string {
	out := []string{""}
	add := func(token string, x any) {
		token = strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
		for _, p := range places(x) {
			out = append(out, "/"+token+p)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			add(name, x)
		}
	case []any:
		for i, x := range v {
			add(strconv.Itoa(i), x)
		}
	}
	slices.Sort(out)
	return out
}

// respell writes v as another text of the same value: with white space, another
// member order, escapes, and numbers in other forms.
func (r source) respell(v any) string {
	var b strings.Builder
	r.write(&b, v)
	return b.String()
}

func (r source) space(b *strings.Builder) {
	for range r.IntN(3) {
		b.WriteByte(" \t\r\n"[r.IntN(4)])
	}
}

func (r source) write(b *strings.Builder, v any) {
	r.space(b)
	defer r.space(b)
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			r.write(b, name)
			b.WriteByte(':')
			r.write(b, v[name])
		}
		r.space(b)
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			r.write(b, x)
		}
		r.space(b)
		b.WriteByte(']')
	case string:
		r.writeString(b, v)
	case json.Number:
		b.WriteString(r.respellNumber(string(v)))
	default:
		b.Write(must(json.Marshal(v)))
	}
}

func (r source) writeString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, c := range s {
		must4 := c < ' ' || c == '"' || c == '\\'
		switch {
		case !must4 && r.IntN(3) > 0:
			b.WriteRune(c)
		case c == '/' && r.IntN(2) == 0:
			b.WriteString(`\/`)
		case c > 0xFFFF:
			for _, half := range []rune{0xD800 + (c-0x10000)>>10, 0xDC00 + (c-0x10000)&0x3FF} {
				r.writeUnit(b, half)
			}
		default:
			r.writeUnit(b, c)
		}
	}
	b.WriteByte('"')
}

func (r source) writeUnit(b *strings.Builder, c rune) {
	hex := strconv.FormatInt(int64(c)+0x10000, 16)[1:]
	if r.IntN(2) == 0 {
		hex = strings.ToUpper(hex)
	}
	b.WriteString(`\u` + hex)
}

// respellNumber gives a number trailing zeros, moves its point or changes the
// look of its exponent.
func (r source) respellNumber(n string) string {
	mantissa, exponent, scientific := strings.Cut(n, "e")
	if !scientific {
		exponent = "0"
	}
	e, err := strconv.ParseInt(exponent, 10, 62)
	if err != nil {
		return n
	}
	if strings.Contains(mantissa, ".") || r.IntN(2) == 0 {
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
		mantissa += strings.Repeat("0", 1+r.IntN(3))
	}
	if whole, fraction, ok := strings.Cut(mantissa, "."); ok && r.IntN(2) == 0 && strings.TrimLeft(whole, "-") != "0" {
		move := r.IntN(len(fraction) + 1)
		mantissa = whole + fraction[:move]
		if move < len(fraction) {
			mantissa += "." + fraction[move:]
		}
		e -= int64(move)
	}
	if e == 0 && r.IntN(2) == 0 {
		return mantissa
	}
	text := strconv.FormatInt(e, 10)
	if e >= 0 && r.IntN(2) == 0 {
		text = "+" + strings.Repeat("0", r.IntN(3)) + text
	}
	return mantissa + string("eE"[r.IntN(2)]) + text
}
