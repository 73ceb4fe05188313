package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"toolguard.dev/keyderive"
)

// Template is a JSON value whose strings may hold placeholders: {{key}}, {{args.x}}, {{context.tenant}} and
// {{downstream_id}}. A string that is nothing but one placeholder becomes the value itself, whatever its type. It does
// not change and may be used from any number of goroutines.
type Template struct {
	source json.RawMessage
	value  any
	keyed  bool
}

// Values are what placeholders stand for.
type Values struct {
	Key          string          // {{key}}: the key sent downstream
	Arguments    any             // {{args.x}}, {{args.x.y}}, {{args.list.0}}: what keyderive.Parse made of the arguments
	Facts        keyderive.Facts // {{context.tenant}} and the other facts that are known
	DownstreamID string          // {{downstream_id}}
}

// maxTemplateValue is the most bytes that a template may come to.
const maxTemplateValue = 1 << 20

// ParseTemplate reads a template. The error wraps [ErrPolicy] and says what is wrong.
func ParseTemplate(source json.RawMessage) (*Template, error) {
	value, err := keyderive.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("%w: a template is no JSON: %w", ErrPolicy, err)
	}
	t := &Template{source: bytes.Clone(source), value: value}
	for _, name := range placeholders(value, nil) {
		if err := checkPlaceholder(name); err != nil {
			return nil, err
		}
		t.keyed = t.keyed || name == "key"
	}
	return t, nil
}

// Keyed reports whether the key is in it.
func (t *Template) Keyed() bool { return t != nil && t.keyed }

// MarshalJSON makes a template's source stand for it.
func (t *Template) MarshalJSON() ([]byte, error) { return t.source, nil }

// Placeholders returns the names between the braces, in no particular order.
func (t *Template) Placeholders() []string {
	if t == nil {
		return nil
	}
	return placeholders(t.value, nil)
}

// Expand puts values in. A placeholder without a value is an error, and so is a result of more than 1 MiB.
func (t *Template) Expand(v Values) (json.RawMessage, error) {
	if t == nil {
		return json.RawMessage("{}"), nil
	}
	value, err := expand(t.value, v)
	if err != nil {
		return nil, err
	}
	text := keyderive.AppendCanonical(nil, value)
	if len(text) > maxTemplateValue {
		return nil, fmt.Errorf("a template came to more than %d bytes", maxTemplateValue)
	}
	return text, nil
}

func expand(value any, v Values) (any, error) {
	switch x := value.(type) {
	case string:
		return expandText(x, v)
	case []any:
		out := make([]any, len(x))
		for i := range x {
			var err error
			if out[i], err = expand(x[i], v); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for name := range x {
			var err error
			if out[name], err = expand(x[name], v); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return value, nil
}

func expandText(text string, v Values) (any, error) {
	if before, name, after, ok := cutPlaceholder(text); ok && before == "" && after == "" {
		return v.of(name)
	}
	return ExpandText(text, v, func(s string) string { return s })
}

// ExpandText puts values into a text. What is no text or number becomes JSON; escape is applied to each value.
func ExpandText(text string, v Values, escape func(string) string) (string, error) {
	var b strings.Builder
	for {
		before, name, after, ok := cutPlaceholder(text)
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		value, err := v.of(name)
		if err != nil {
			return "", err
		}
		switch x := value.(type) {
		case string:
			b.WriteString(escape(x))
		case json.Number:
			b.WriteString(escape(string(x)))
		default:
			b.WriteString(escape(string(keyderive.AppendCanonical(nil, x))))
		}
		if b.Len() > maxTemplateValue {
			return "", fmt.Errorf("a template came to more than %d bytes", maxTemplateValue)
		}
		text = after
	}
}

// of returns what a placeholder stands for.
func (v Values) of(name string) (any, error) {
	value, _ := v.Lookup(name)
	if value == nil || value == "" {
		return nil, fmt.Errorf("{{%s}} has no value here", name)
	}
	return value, nil
}

// Lookup returns what a placeholder of that name stands for, and whether there is such a value: arguments may be null
// or "", anything else that is empty is not there.
func (v Values) Lookup(name string) (value any, ok bool) {
	text := ""
	switch head, rest, _ := strings.Cut(name, "."); head {
	case "key":
		text = v.Key
	case "downstream_id":
		text = v.DownstreamID
	case "context":
		text, _ = known(&v.Facts)[rest].(string)
	case "args":
		return memberAt(v.Arguments, rest)
	}
	return text, text != ""
}

// Placeholder returns the name in a text that is nothing but one placeholder.
func Placeholder(text string) (name string, ok bool) {
	before, name, after, ok := cutPlaceholder(text)
	return name, ok && before == "" && after == ""
}

// Placeholders returns the names between braces in the texts of a JSON value, in no particular order.
func Placeholders(value any) []string { return placeholders(value, nil) }

// memberAt follows names and list indexes, with dots between.
func memberAt(value any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		var ok bool
		switch x := value.(type) {
		case map[string]any:
			value, ok = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if ok = err == nil && i >= 0 && i < len(x); ok {
				value = x[i]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return value, true
}

// CheckTextTemplate says what is wrong with the placeholders of a text; nil: nothing. It wraps [ErrPolicy].
func CheckTextTemplate(text string) error {
	for _, name := range placeholders(text, nil) {
		if err := checkPlaceholder(name); err != nil {
			return err
		}
	}
	return nil
}

// argumentPointer is the JSON Pointer of the argument that a placeholder names.
func argumentPointer(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "args.")
	if !ok {
		return "", false
	}
	return "/" + strings.ReplaceAll(strings.NewReplacer("~", "~0", "/", "~1").Replace(rest), ".", "/"), true
}

func checkPlaceholder(name string) error {
	head, rest, dotted := strings.Cut(name, ".")
	switch {
	case (head == "key" || head == "downstream_id") && !dotted:
		return nil
	case head == "args" && rest != "":
		return nil
	case head == "context" && slices.Contains(contextMembers, rest):
		return nil
	}
	return fmt.Errorf("%w: {{%.60s}} is none of {{key}}, {{args.NAME}}, {{context.FACT}} and {{downstream_id}}", ErrPolicy, name)
}

// placeholders collects the names between braces.
func placeholders(value any, names []string) []string {
	switch x := value.(type) {
	case string:
		for {
			_, name, after, ok := cutPlaceholder(x)
			if !ok {
				return names
			}
			names, x = append(names, name), after
		}
	case []any:
		for _, e := range x {
			names = placeholders(e, names)
		}
	case map[string]any:
		for _, e := range x {
			names = placeholders(e, names)
		}
	}
	return names
}

// cutPlaceholder takes the first placeholder out of a text.
func cutPlaceholder(text string) (before, name, after string, ok bool) {
	before, rest, ok := strings.Cut(text, "{{")
	if !ok {
		return text, "", "", false
	}
	name, after, ok = strings.Cut(rest, "}}")
	if !ok {
		return text, "", "", false
	}
	return before, strings.TrimSpace(name), after, true
}
