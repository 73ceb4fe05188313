package registry_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

func TestExpandJSONAndFields(t *testing.T) {
	args, err := keyderive.Parse([]byte(`{"a":1.50,"list":["x",2,true],"none":null,"empty":"","object":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	v := registry.Values{Key: "K", Arguments: args}
	for _, c := range []struct{ template, json, field string }{ // "": left out, "!": an error
		{"{{args.a}}", `1.5`, `["1.5"]`},
		{"{{ key }}", `"K"`, `["K"]`},
		{"a={{args.a}}", `"a=1.5"`, `["a=1.5"]`},
		{"{{args.list}}", `["x",2,true]`, `["x","2","true"]`},
		{"{{args.empty}}", `""`, `[""]`},
		{"{{args.none}}", `null`, ""},
		{"{{args.missing}}", "", ""},
		{"a={{args.missing}}", "!", "!"},
		{"{{args.object}}", `{}`, "!"},
	} {
		value, ok, err := registry.ExpandJSON(c.template, v)
		if got := told(value, ok, err); got != c.json {
			t.Errorf("%s in JSON: %s, want %s", c.template, got, c.json)
		}
		texts, err := registry.ExpandField(c.template, v)
		if got := told(texts, texts != nil, err); got != c.field {
			t.Errorf("%s in a field: %s, want %s", c.template, got, c.field)
		}
	}
	body := map[string]any{"a": "{{args.a}}", "gone": "{{args.missing}}", "in": []any{"{{args.missing}}", "{{key}}"}}
	if got, _, _ := registry.ExpandJSON(body, v); !reflect.DeepEqual(got, map[string]any{"a": json.Number("1.5"), "in": []any{"K"}}) {
		t.Errorf("%v", got)
	}
}

func told(value any, ok bool, err error) string {
	switch {
	case err != nil:
		return "!"
	case !ok:
		return ""
	}
	if list, is := value.([]string); is {
		text, _ := json.Marshal(list)
		return string(text)
	}
	return string(keyderive.AppendCanonical(nil, value))
}

func TestWords(t *testing.T) {
	for result, want := range map[string]string{
		`{"content":[{"type":"text","text":"a <b>"},{"type":"image","mimeType":"image/png","data":"x"}]}`: "a <b>\n[image image/png, not shown here]",
		`{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"b"}}]}`:                     "file:///a:\nb",
		`{"content":[{"type":"resource_link","name":"n","uri":"u"}]}`:                                     "n u",
		`{"content":[],"structuredContent":{"a":1}}`:                                                      `{"a":1}`,
		`{"content":["odd"]}`: `"odd"`,
		`no JSON`:             "no JSON",
		`{}`:                  "",
	} {
		if got := (registry.Answer{Result: json.RawMessage(result)}).Words(); got != want {
			t.Errorf("%s says %q, want %q", result, got, want)
		}
	}
	if got := (registry.Answer{Error: &registry.ProtocolError{Code: -32603, Message: "no"}}).Words(); got != "no" {
		t.Errorf("a protocol error says %q", got)
	}
}

func TestNewAnswer(t *testing.T) {
	a, err := registry.NewAnswer(json.RawMessage(`{"n":9007199254740993}`), true, "a <b>", "c")
	if want := `{"content":[{"type":"text","text":"a <b>"},{"type":"text","text":"c"}],"structuredContent":{"n":9007199254740993},"isError":true}`; err != nil || string(a.Result) != want {
		t.Errorf("%s, %v", a.Result, err)
	}
	if a, err = registry.NewAnswer(nil, false); err != nil || string(a.Result) != `{"content":[]}` {
		t.Errorf("%s, %v", a.Result, err)
	}
	if _, err = registry.NewAnswer(json.RawMessage(`{`), false); err == nil {
		t.Error("half an object is taken")
	}
}
