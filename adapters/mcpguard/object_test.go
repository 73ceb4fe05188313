package mcpguard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/keyderive"
)

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { "a" : [ 1 , {"b":"}"} ] , "\u0061b" : "\\\"" } `, `{"a":1,"a":2}`, `{"a":-1e400,"b":null,"c":true}`, `[1]`, `{"a":`, "{\"\xff\":\"\xff\"}", `{"":{}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := mcpguard.Split([]byte(text))
		if err != nil {
			if canonical, good := keyderive.Canonical([]byte(text)); good == nil && canonical[0] == '{' {
				t.Fatalf("refused %q: %v", text, err)
			}
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q", text, got)
		}
		want, err := keyderive.Canonical([]byte(text))
		if err != nil {
			return // looser than canonical JSON: lone surrogates, inner duplicates
		}
		canonical, err := keyderive.Canonical(got)
		if err != nil || string(canonical) != string(want) {
			t.Fatalf("%q became %q (%v)", text, got, err)
		}
	})
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"a\r\n\nb", []string{"a", "", "b"}},
		{strings.Repeat("y", 64) + "\n", []string{strings.Repeat("y", 64)}},
		{`{"id":17,"x":"` + long + "\"}\nnext\n", []string{"!17", "next"}},
		{`{"x":{"id":1,"y":"` + long + `\",\"id\":2"},"id":18}` + "\nnext", []string{"!18", "next"}},
		{`{"x":"` + long + `","id":"19"}` + "\n", []string{"!"}},
		{`{"method":"x","id":20,"x":"` + long + `"}` + "\n", []string{"!"}},
		{`[{"id":21,"x":"` + long + `"}]` + "\n", []string{"!"}},
		{long, []string{"!"}},
	} {
		for _, chunk := range []int{1, 7, 1 << 10} {
			if got := mcpguard.Lines(test.text, 64, chunk); !slices.Equal(got, test.want) {
				t.Errorf("%s in chunks of %d: %q, want %q", test.text, chunk, got, test.want)
			}
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	deep := func(n int) []byte {
		return []byte(fmt.Sprintf(`{"a":%s1%s}`, strings.Repeat("[", n), strings.Repeat("]", n)))
	}
	if _, err := mcpguard.Split(deep(999)); err != nil {
		t.Error(err)
	}
	if _, err := mcpguard.Split(deep(1000)); err == nil {
		t.Error("no bound")
	}
}
