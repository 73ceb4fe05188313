package registry_test

import (
	"encoding/json"
	"strings"
	"testing"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func parse(t testing.TB, text string) any {
	t.Helper()
	v, err := keyderive.Parse([]byte(text))
	if err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return v
}

func expression(t testing.TB, source string, kind registry.Kind) *registry.Expression {
	t.Helper()
	x, err := registry.CompileExpression(source, kind)
	if err != nil {
		t.Fatalf("compile %s: %v", source, err)
	}
	return x
}

func conditions(t testing.TB, sources ...string) []*registry.Expression {
	t.Helper()
	var out []*registry.Expression
	for _, s := range sources {
		out = append(out, expression(t, s, registry.KindAnswer))
	}
	return out
}

func tool(schema string, p registry.Policy) registry.Tool {
	return registry.Tool{Server: "books", Name: "pay", InputSchema: json.RawMessage(schema), Effect: registry.Write,
		EffectSource: "declared", Policy: p}
}

func compile(t testing.TB, schema string, p registry.Policy) *registry.Entry {
	t.Helper()
	e, err := registry.Compile(tool(schema, p))
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return e
}

// plain fails the test unless text is one short line without the validator's jargon.
func plain(t testing.TB, text string) {
	t.Helper()
	if strings.ContainsAny(text, "\n\r") || strings.Contains(text, "jsonschema") || strings.Contains(text, "urn:") || len(text) > 420 {
		t.Errorf("not a plain sentence: %q", text)
	}
}
