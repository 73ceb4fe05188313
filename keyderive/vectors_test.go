package keyderive_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
)

// readVectors decodes one of the files of right values, which were computed
// independently of this package.
func readVectors(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestCanonicalVectors(t *testing.T) {
	var vectors struct {
		Valid   []struct{ Name, Input, Canonical, Digest string }
		Invalid []struct{ Name, Input string }
	}
	readVectors(t, "canonical.json", &vectors)
	if len(vectors.Valid) == 0 || len(vectors.Invalid) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors.Valid {
		t.Run(v.Name, func(t *testing.T) {
			got, err := keyderive.Canonical([]byte(v.Input))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != v.Canonical {
				t.Errorf("canonical %s, want %s", got, v.Canonical)
			}
			if digest := keyderive.Digest(got); digest != v.Digest {
				t.Errorf("digest %s, want %s", digest, v.Digest)
			}
		})
	}
	for _, v := range vectors.Invalid {
		t.Run(v.Name, func(t *testing.T) {
			if got, err := keyderive.Canonical([]byte(v.Input)); !errors.Is(err, keyderive.ErrJSON) {
				t.Errorf("got %s, error %v", got, err)
			}
		})
	}
}

func TestKeyVectors(t *testing.T) {
	var vectors struct {
		Keys []struct {
			Material     json.RawMessage
			MaterialText string `json:"material_text"`
			Canonical    string
			Key          string
		}
		Generations []struct {
			Key           string
			Generation    int
			DownstreamKey string `json:"downstream_key"`
		}
	}
	readVectors(t, "keys.json", &vectors)
	if len(vectors.Keys) == 0 || len(vectors.Generations) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors.Keys {
		text := []byte(v.MaterialText)
		if v.MaterialText == "" {
			text = v.Material
		}
		canonical := must(keyderive.Canonical(text))
		if string(canonical) != v.Canonical {
			t.Errorf("canonical %s, want %s", canonical, v.Canonical)
		}
		if key := keyderive.KeyOf(canonical); key != v.Key {
			t.Errorf("key of %s is %s, want %s", canonical, key, v.Key)
		}
		key, material := deriveFrom(t, canonical)
		if string(material) != v.Canonical || key != v.Key {
			t.Errorf("derived %s from %s, want %s from %s", key, material, v.Key, v.Canonical)
		}
	}
	for _, v := range vectors.Generations {
		if key := keyderive.Generation(v.Key, v.Generation); key != v.DownstreamKey {
			t.Errorf("generation %d of %s is %s, want %s", v.Generation, v.Key, key, v.DownstreamKey)
		}
		for _, g := range []int{-1, 0, 1} {
			if key := keyderive.Generation(v.Key, g); key != v.Key {
				t.Errorf("generation %d of %s is %s", g, v.Key, key)
			}
		}
	}
}

// deriveFrom makes up a definition, facts and arguments that must lead to a
// key material, and derives it.
func deriveFrom(t *testing.T, want []byte) (string, []byte) {
	t.Helper()
	var m struct {
		Scope      map[string]string
		Action     string
		Target     map[string]json.RawMessage
		Occurrence int
	}
	if err := json.Unmarshal(want, &m); err != nil {
		t.Fatal(err)
	}
	facts := keyderive.Facts{
		Tenant: m.Scope["tenant"], Workflow: m.Scope["workflow"], SourceEvent: m.Scope["source_event"],
		Run: m.Scope["run"], Step: m.Scope["step"], Session: "s", CallID: "call_0",
	}
	def := keyderive.Definition{Version: 1, Declared: true}
	for name := range m.Scope {
		def.Facts = append(def.Facts, name)
	}
	args := parse(`{"to":[],"edits":[{"old":"a","new":"b"}]}`)
	for pointer, value := range m.Target {
		if pointer == "" {
			// The digest is of arguments that the vectors do not give.
			digest := strings.Trim(string(value), `"`)
			def.Declared, def.Facts = false, nil
			id := derive(t, def, m.Action, facts, args)
			key, material := id.Key(m.Occurrence)
			replaced := strings.Replace(string(material), id.MaterialDigest, digest, 1)
			if key != keyderive.KeyOf(material) {
				t.Error("Key and KeyOf disagree")
			}
			return keyderive.KeyOf([]byte(replaced)), []byte(replaced)
		}
		def.Target = append(def.Target, pointer)
		if pointer == "/to/0" {
			args = must(keyderive.Set(args, pointerTo("/to"), []any{parse(string(value))}))
		} else {
			args = must(keyderive.Set(args, pointerTo(pointer), parse(string(value))))
		}
	}
	return derive(t, def, m.Action, facts, args).Key(m.Occurrence)
}

func TestMaterialVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			Name        string
			Schema      json.RawMessage
			OncePer     []string `json:"once_per"`
			MayDiffer   []string `json:"may_differ"`
			KeyArgument string   `json:"key_argument"`
			Arguments   string
			Material    string
			Digest      string
		}
	}
	readVectors(t, "material.json", &vectors)
	if len(vectors.Cases) == 0 {
		t.Fatal("no vectors")
	}
	facts := keyderive.Facts{Tenant: "acme", Workflow: "w", SourceEvent: "evt_1"}
	for _, v := range vectors.Cases {
		t.Run(v.Name, func(t *testing.T) {
			def := keyderive.Definition{
				Version: 1, Declared: len(v.OncePer) > 0, MayDiffer: v.MayDiffer, KeyArgument: v.KeyArgument,
				Defaults: keyderive.SchemaDefaults(parse(string(v.Schema))),
			}
			for _, what := range v.OncePer {
				if strings.HasPrefix(what, "/") {
					def.Target = append(def.Target, what)
				} else {
					def.Facts = append(def.Facts, what)
				}
			}
			id := derive(t, def, "billing/pay_invoice", facts, parse(v.Arguments))
			if got := canonical(id.Material); got != v.Material {
				t.Errorf("material %s, want %s", got, v.Material)
			}
			if id.MaterialDigest != v.Digest {
				t.Errorf("digest %s, want %s", id.MaterialDigest, v.Digest)
			}
		})
	}
}
