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
	value, _, err := expand(t.value, v, func(name string) (any, bool, error) {
		value, err := v.of(name)
		return value, true, err
	})
	if err != nil {
		return nil, err
	}
	text := keyderive.AppendCanonical(nil, value)
	if len(text) > maxTemplateValue {
		return nil, fmt.Errorf("a template came to more than %d bytes", maxTemplateValue)
	}
	return text, nil
}

// ExpandJSON puts values into a JSON value as [keyderive.Parse] makes it. An element or a member that is nothing but one
// placeholder is left out where there is no such value; ok is false where that is the whole. Inside a longer text a
// placeholder without a value is an error.
func ExpandJSON(value any, v Values) (out any, ok bool, err error) {
	return expand(value, v, func(name string) (any, bool, error) {
		value, ok := v.Lookup(name)
		return value, ok, nil
	})
}

// ExpandField puts values into the text of a field, and returns the texts that the field is to have: one for each
// element of a list, none where the text is nothing but one placeholder that is null or without a value.
func ExpandField(text string, v Values) ([]string, error) {
	value, ok, err := ExpandJSON(text, v)
	if err != nil || !ok || value == nil {
		return nil, err
	}
	list, several := value.([]any)
	if !several {
		list = []any{value}
	}
	var texts []string
	for _, x := range list {
		switch x := x.(type) {
		case string:
			texts = append(texts, x)
		case json.Number, bool:
			texts = append(texts, string(keyderive.AppendCanonical(nil, x)))
		default:
			return nil, fmt.Errorf("%s is no text, number, true or false", text)
		}
	}
	return texts, nil
}

// expand puts values in. whole gives the value of a text that is nothing but one placeholder, and whether it has one.
func expand(value any, v Values, whole func(name string) (any, bool, error)) (out any, ok bool, err error) {
	switch x := value.(type) {
	case string:
		if name, ok := Placeholder(x); ok {
			return whole(name)
		}
		out, err = ExpandText(x, v, func(s string) string { return s })
		return out, true, err
	case []any:
		list := make([]any, 0, len(x))
		for _, e := range x {
			if out, ok, err = expand(e, v, whole); err != nil {
				return nil, false, err
			}
			if ok {
				list = append(list, out)
			}
		}
		return list, true, nil
	case map[string]any:
		object := make(map[string]any, len(x))
		for name, e := range x {
			if out, ok, err = expand(e, v, whole); err != nil {
				return nil, false, err
			}
			if ok {
				object[name] = out
			}
		}
		return object, true, nil
	}
	return value, true, nil
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
