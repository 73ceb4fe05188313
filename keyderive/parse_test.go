package keyderive_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

func TestParse(t *testing.T) {
	got := parse(" {\"a\":[1.0,-0,\"x\\u00e9\\ud83d\\ude00\",true,false,null,{}],\"b\":[]} \r\n")
	want := map[string]any{
		"a": []any{json.Number("1"), json.Number("0"), "xé😀", true, false, nil, map[string]any{}},
		"b": []any{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v", got)
	}
	if got := canonical(parse(`"\b\f\n\r\t\u0008\u001F\u007f"`)); got != `"\b\f\n\r\t\b\u001f`+"\x7f\"" {
		t.Errorf("got %s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "the text ends where a value is expected at byte 0"},
		{"  ", "the text ends where a value is expected at byte 2"},
		{"nul", "a value is expected at byte 0"},
		{"\ufeff1", "a value is expected at byte 0"},
		{`{"a":1} x`, "text after the value at byte 8"},
		{`{"a":1,"\u0061":2}`, `a second member "a" at byte 7`},
		{`{"a":1,}`, "a member name is expected at byte 7"},
		{`{"a" 1}`, "a colon is expected at byte 5"},
		{`{"a":1 "b":2}`, "a comma or the object's end is expected at byte 7"},
		{`[1 2]`, "a comma or the array's end is expected at byte 3"},
		{`[1,]`, "a value is expected at byte 3"},
		{`["\ud800"]`, "a lone surrogate at byte 2"},
		{`["\ud800\ud800"]`, "a lone surrogate at byte 2"},
		{`["\udc00\ud800"]`, "a lone surrogate at byte 2"},
		{`["\ud800\n"]`, "a lone surrogate at byte 2"},
		{`["\u12g4"]`, "an escape without four hex digits at byte 2"},
		{`["\u12`, "an escape without four hex digits at byte 2"},
		{`["\x"]`, "an unknown escape at byte 2"},
		{`["\`, "a string that does not end at byte 3"},
		{`["a`, "a string that does not end at byte 3"},
		{`["\n`, "a string that does not end at byte 4"},
		{"[\"a\tb\"]", "a control character in a string at byte 3"},
		{"[\"\\n\x00\"]", "a control character in a string at byte 4"},
		{"[\"a\xff\"]", "invalid UTF-8 at byte 3"},
		{"[\"\ufffd\xed\xa0\x80\"]", "invalid UTF-8 at byte 5"},
		{"01", "a number with a leading zero at byte 0"},
		{"-", "the text ends where a digit is expected at byte 1"},
		{"1.", "the text ends where a digit is expected at byte 2"},
		{"1.e5", "a digit is expected at byte 2"},
		{"1e+", "the text ends where a digit is expected at byte 3"},
		{"+1", "a value is expected at byte 0"},
		{"[1", "the text ends where a comma or the array's end is expected at byte 2"},
		{strings.Repeat("[", 129) + strings.Repeat("]", 129), "nesting deeper than 128 at byte 128"},
		{strings.Repeat(`{"a":`, 129) + "1" + strings.Repeat("}", 129), "nesting deeper than 128 at byte 640"},
	}
	for _, test := range tests {
		v, err := keyderive.Parse([]byte(test.text))
		if v != nil || !errors.Is(err, keyderive.ErrJSON) {
			t.Errorf("%.40q: value %v, error %v", test.text, v, err)
		} else if got := strings.TrimPrefix(err.Error(), "not strict JSON: "); got != test.want {
			t.Errorf("%.40q: %s, want %s", test.text, got, test.want)
		}
	}
	parse(strings.Repeat("[", 128) + strings.Repeat("]", 128))
}

func TestNumber(t *testing.T) {
	tests := []struct{ in, want string }{
		{"0", "0"}, {"-0", "0"}, {"-0.000", "0"}, {"0e999999999999999999999", "0"}, {"100", "100"}, {"100.0", "100"}, {"1e2", "100"},
		{"1E+02", "100"}, {"1e00000000000000000000000000002", "100"}, {"10e-1", "1"}, {"0.10", "0.1"}, {"00000001e0", ""},
		{"123456789012345678901", "123456789012345678901"}, {"1234567890123456789012", "1.234567890123456789012e+21"},
		{"1000000000000000000000", "1e+21"}, {"-1000000000000000000000.5", "-1.0000000000000000000005e+21"},
		{"0.0000012", "0.0000012"}, {"0.00000012", "1.2e-7"}, {"0.000000", "0"}, {"123.456e-9", "1.23456e-7"}, {"123.456e-8", "0.00000123456"},
		{"1.5e300", "1.5e+300"}, {"-2.50E-300", "-2.5e-300"}, {"123.456e3", "123456"}, {"123.456e1", "1234.56"},
		{"1e999999999999999999", "1e+999999999999999999"}, {"10e999999999999999999", "1e+1000000000000000000"},
		{"0.1e1000000000000000000", "1e+999999999999999999"}, {"0.1e-1000000000000000000", "1e-1000000000000000001"},
		{"10e-1000000000000000000", "1e-999999999999999999"}, {"12.5e99999999999999999999", "1.25e+100000000000000000000"},
		{"0.00125e-99999999999999999999", "1.25e-100000000000000000002"}, {"0.5e+100000000000000000000", "5e+99999999999999999999"},
		{"", ""}, {"-", ""}, {" 1", ""}, {"1 ", ""}, {"0x1", ""}, {"1_0", ""}, {"Infinity", ""}, {".5", ""}, {"1e", ""}, {"--1", ""},
	}
	for _, test := range tests {
		got, err := keyderive.Number(test.in)
		if string(got) != test.want || (err != nil) != (test.want == "") {
			t.Errorf("Number(%q) = %q, %v; want %q", test.in, got, err, test.want)
		}
		if err != nil && !errors.Is(err, keyderive.ErrJSON) {
			t.Errorf("Number(%q): error %v", test.in, err)
		}
	}
}

func TestCheckNumbers(t *testing.T) {
	tests := []struct{ text, pointer string }{
		{`{"a":[1e1000,-1e-1000,0.5]}`, ""},
		{`{"a":[1,1e1001],"b":1e9999}`, "/a/1"},
		{`{"a/b":-1e-1001}`, "/a~1b"},
		{`1e999999999999999999999999`, ""},
		{`0e99999`, ""},
		{strings.Repeat("9", 1001), ""},
		{`[` + strings.Repeat("9", 1002) + `]`, "/0"},
		{`["1e9999",true,null]`, ""},
	}
	for i, test := range tests {
		err := keyderive.CheckNumbers(parse(test.text))
		refused := test.pointer != "" || i == 3
		if errors.Is(err, keyderive.ErrNumberRange) != refused {
			t.Errorf("%.40s: error %v", test.text, err)
		} else if refused && !strings.Contains(err.Error(), `"`+test.pointer+`"`) {
			t.Errorf("%.40s: %v does not name %q", test.text, err, test.pointer)
		}
	}
}

// TestForeignValues shows what becomes of Go values that Parse does not make.
func TestForeignValues(t *testing.T) {
	tests := []struct {
		v    any
		want string
	}{
		{map[string]any{"n": 100, "f": 1e21, "u": uint8(3)}, `{"f":1e+21,"n":100,"u":3}`},
		{json.Number("1.0E2"), "100"},
		{map[string]int{"b": 1, "a": 2}, `{"a":2,"b":1}`},
		{[]string{"<"}, `["<"]`},
		{map[string]any(nil), "{}"},
		{[]any(nil), "[]"},
	}
	for _, test := range tests {
		if got := canonical(test.v); got != test.want {
			t.Errorf("%#v: %s, want %s", test.v, got, test.want)
		}
	}
	for _, v := range []any{math.NaN(), make(chan int), json.Number("x"), func() {}, []any{math.Inf(1)}} {
		if got := canonical(v); json.Valid([]byte(got)) {
			t.Errorf("%#v is written as the JSON %s", v, got)
		}
	}
}
