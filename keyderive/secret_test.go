package keyderive_test

import (
	"errors"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

func TestSecretsReplace(t *testing.T) {
	for _, c := range []struct{ name, patterns, value, want string }{
		{"member", "/card", `{"card":"4111","n":1}`, `{"card":"S","n":1}`},
		{"number", "/card", `{"card":4111}`, `{"card":"S"}`},
		{"object whole", "/card", `{"card":{"pan":"4111"}}`, `{"card":"S"}`},
		{"nested", "/card/pan", `{"card":{"pan":"4111","exp":"12/30"}}`, `{"card":{"exp":"12/30","pan":"S"}}`},
		{"every element", "/cards/*", `{"cards":["1","2"]}`, `{"cards":["S","S"]}`},
		{"member of every element", "/cards/*/pan", `{"cards":[{"pan":"1","x":2},{"x":3}]}`, `{"cards":[{"pan":"S","x":2},{"x":3}]}`},
		{"one element", "/cards/1", `{"cards":["1","2"]}`, `{"cards":["1","S"]}`},
		{"absent", "/card", `{"n":1}`, `{"n":1}`},
		{"null", "/card", `{"card":null}`, `{"card":null}`},
		{"two patterns", "/a /b/c", `{"a":1,"b":{"c":2,"d":3}}`, `{"a":"S","b":{"c":"S","d":3}}`},
		// Something else than was expected on the way is no way round.
		{"a text for an array", "/cards/*", `{"cards":"4111"}`, `{"cards":"S"}`},
		{"a text for an object", "/card/pan", `{"card":"4111"}`, `{"card":"S"}`},
		{"an array for an object", "/card/pan", `{"card":[{"pan":"4111"}]}`, `{"card":"S"}`},
		{"an object for an array", "/cards/*", `{"cards":{"pan":"4111"}}`, `{"cards":"S"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := keyderive.ParseSecrets(strings.Fields(c.patterns))
			if err != nil {
				t.Fatal(err)
			}
			v := parse(c.value)
			got := s.Replace(v, func(any) any { return "S" })
			if text := string(keyderive.AppendCanonical(nil, got)); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if text, want := keyderive.AppendCanonical(nil, v), keyderive.AppendCanonical(nil, parse(c.value)); string(text) != string(want) {
				t.Errorf("the value itself became %s", text)
			}
		})
	}
}

func TestSecretsCut(t *testing.T) {
	s, err := keyderive.ParseSecrets([]string{"/card", "/to/*/pin"})
	if err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"/card": "/card", "/card/pan/0": "/card", "/amount": "/amount", "": "", "/to/1/pin/x": "/to/1/pin", "/to/1/a~1b": "/to/1/a~1b",
	} {
		if got := s.Cut(pointer); got != want {
			t.Errorf("%s: got %q, want %q", pointer, got, want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/card", "/card", true}, {"/card", "/card/pan", true}, {"/card/pan", "/card", true}, {"/card", "/cards", false},
		{"/to/*", "/to/3", true}, {"/to/*/a", "/to/3/b", false}, {"/to/*", "/to/name", false}, {"/to", "/to/*", true}, {"card", "/card", false},
	} {
		if got := keyderive.Overlap(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

// A secret counts in an identity, but only by what the veil makes of it.
func TestDeriveVeilsSecrets(t *testing.T) {
	derive := func(d keyderive.Definition, veil keyderive.Veil, args string) (keyderive.Identity, error) {
		t.Helper()
		d.Version = keyderive.KeyVersion
		deriver, err := d.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if veil != nil {
			deriver = deriver.WithVeil(veil)
		}
		return deriver.Derive("a/b", keyderive.Facts{Tenant: "t", Workflow: "w"}, parse(args))
	}
	veil := func(c []byte) string { return "veil " + keyderive.Digest(append([]byte("key"), c...)) }
	d := keyderive.Definition{Secret: []string{"/card"}, Normalize: keyderive.Normalize{"/card": {"trim"}}}
	one, err := derive(d, veil, `{"amount":1,"card":" 4111 "}`)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(keyderive.AppendCanonical(nil, one.Payload)); strings.Contains(text, "4111") || !strings.Contains(text, "veil sha256:") {
		t.Errorf("payload %s", text)
	}
	same, _ := derive(d, veil, `{"card":"4111","amount":1.0}`)
	other, _ := derive(d, veil, `{"card":"4112","amount":1}`)
	elsewhere, _ := derive(d, func(c []byte) string { return "veil " + keyderive.Digest(c) }, `{"amount":1,"card":"4111"}`)
	if one.Intent != same.Intent || one.Intent == other.Intent || one.Intent == elsewhere.Intent {
		t.Error("the veiled value is not what counts")
	}
	if _, err := derive(d, nil, `{"card":"4111"}`); !errors.Is(err, keyderive.ErrDefinition) {
		t.Errorf("without a veil: %v", err)
	}
	for _, target := range []string{"/card", "/card/pan"} {
		bad := keyderive.Definition{Version: keyderive.KeyVersion, Declared: true, Secret: []string{"/card"}, Target: []string{target}}
		if _, err := bad.Compile(); !errors.Is(err, keyderive.ErrDefinition) {
			t.Errorf("target %s: %v", target, err)
		}
	}
	if d.ID() == (keyderive.Definition{Version: keyderive.KeyVersion, Normalize: d.Normalize}).ID() {
		t.Error("the definition's ID does not tell")
	}
}
