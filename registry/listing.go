package registry

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"

	"toolguard.dev/keyderive"
)

// verdictMember is what a replay adds to structured content.
const verdictMember = "_toolguard"

var anyObject = json.RawMessage(`{"type":"object"}`)

// ListedInput returns the input schema to show to clients: the server's own bytes, except that the downstream key
// argument is hidden, and that oneOf, anyOf and allOf at the top, which Claude's API refuses, are replaced by their
// members as far as one object schema can say it: what fits the original fits this one. Arguments are still
// validated against the original.
func (e *Entry) ListedInput() json.RawMessage { return bytes.Clone(e.listedInput) }

// ListedOutput returns the output schema to show to clients, nil if the tool declared none, and whether a member
// _toolguard may be added to structured content under it. Where it may, the schema says so; where it may not, it is
// as the server sent it.
func (e *Entry) ListedOutput() (schema json.RawMessage, widened bool) {
	return bytes.Clone(e.listedOutput), e.widened
}

func listedInput(raw json.RawMessage, keyArgument []string) json.RawMessage {
	o, ok := readObject(raw)
	if !ok {
		return anyObject
	}
	changed := false
	if keyArgument != nil {
		o, changed = hide(o, o, keyArgument)
	}
	for _, k := range combinators {
		if _, ok := o.get(k); ok {
			return flatten(o, o, 4).text()
		}
	}
	if !changed {
		return raw
	}
	return o.text()
}

var combinators = []string{"allOf", "anyOf", "oneOf"}

// hide returns schema o without the property at path, and whether that is another one. A reference on the way is
// unrolled, or the property would be hidden wherever it leads.
func hide(root, o object, path []string) (object, bool) {
	changed := false
	for _, k := range combinators {
		raw, ok := o.get(k)
		var branches []json.RawMessage
		if !ok || json.Unmarshal(raw, &branches) != nil {
			continue
		}
		some := false
		for i, b := range branches {
			if branch, ok := readObject(b); ok {
				if branch, hidden := hide(root, branch, path); hidden {
					branches[i], some = branch.text(), true
				}
			}
		}
		if some {
			o, changed = o.set(k, list(branches)), true
		}
	}
	if target, ok := o.follow(root); ok {
		if hidden, ok := hide(root, target, path); ok {
			o = o.without("$ref")
			for _, m := range hidden {
				if _, ok := o.get(m.name); !ok {
					o = append(o, m)
				}
			}
			changed = true
		}
	}
	properties, _ := o.object("properties")
	if raw, ok := properties.get(path[0]); ok {
		if len(path) == 1 {
			o, changed = o.set("properties", properties.without(path[0]).text()), true
		} else if below, ok := readObject(raw); ok {
			if below, hidden := hide(root, below, path[1:]); hidden {
				o, changed = o.set("properties", properties.set(path[0], below.text()).text()), true
			}
		}
	}
	if required := o.names("required"); len(path) == 1 && slices.Contains(required, path[0]) {
		required = slices.DeleteFunc(required, func(s string) bool { return s == path[0] })
		o, changed = o.set("required", texts(required)), true
		if len(required) == 0 {
			o = o.without("required") // draft-04 wants at least one
		}
	}
	return o, changed
}

// flatten returns an object schema without combinators that takes all that schema o takes.
func flatten(root, o object, depth int) object {
	properties, _ := o.object("properties")
	own := slices.Clone(properties)
	required := o.names("required")
	closed := false
	if raw, ok := o.get("additionalProperties"); ok {
		closed = string(raw) == "false"
	}
	for _, k := range combinators {
		raw, ok := o.get(k)
		if !ok {
			continue
		}
		o = o.without(k)
		var branches []json.RawMessage
		if depth == 0 || json.Unmarshal(raw, &branches) != nil {
			continue
		}
		var common []string // what every alternative requires
		for i, b := range branches {
			branch, _ := readObject(b)
			if target, ok := branch.follow(root); ok {
				branch = append(slices.Clone(branch.without("$ref")), target...)
			}
			branch = flatten(root, branch, depth-1)
			members, _ := branch.object("properties")
			for _, m := range members {
				if _, declared := own.get(m.name); !declared && !closed {
					properties = properties.merge(m, k == "allOf")
				}
			}
			needs := branch.names("required")
			if k == "allOf" || i == 0 {
				common = append(common, needs...)
			} else {
				common = slices.DeleteFunc(common, func(s string) bool { return !slices.Contains(needs, s) })
			}
		}
		required = append(required, common...)
	}
	o = o.set("type", json.RawMessage(`"object"`))
	if len(properties) > 0 {
		o = o.set("properties", properties.text())
	}
	if len(required) > 0 {
		slices.Sort(required)
		o = o.set("required", texts(slices.Compact(required)))
	}
	return o
}

// unwidened are the keywords at the top of an output schema with which it is no plain object schema, or under which
// one member more may not fit.
var unwidened = []string{"$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "const", "dependencies",
	"dependentSchemas", "enum", "if", "maxProperties", "not", "oneOf", "propertyNames"}

func listedOutput(raw json.RawMessage) (json.RawMessage, bool) {
	o, ok := readObject(raw)
	if !ok {
		return raw, false
	}
	if _, err := keyderive.Parse(raw); err != nil {
		return raw, false
	}
	if t, _ := o.get("type"); string(t) != `"object"` {
		return raw, false
	}
	for _, k := range unwidened {
		if _, ok := o.get(k); ok {
			return raw, false
		}
	}
	if more, ok := o.get("unevaluatedProperties"); ok && string(more) != "true" && string(more) != "{}" {
		return raw, false
	}
	properties, isObject := o.object("properties")
	if _, taken := properties.get(verdictMember); taken {
		return raw, false
	}
	if _, ok := o.get("properties"); ok && !isObject {
		return raw, false
	}
	if _, ok := o.get("patternProperties"); ok {
		patterns, _ := o.object("patternProperties")
		for _, p := range patterns {
			if re, err := regexp.Compile(p.name); err != nil || re.MatchString(verdictMember) {
				return raw, false
			}
		}
	}
	if more, ok := o.get("additionalProperties"); !ok || string(more) == "true" || string(more) == "{}" {
		return raw, true
	}
	return o.set("properties", properties.set(verdictMember, anyObject).text()).text(), true
}

// isObject tells whether raw is a JSON object.
func isObject(raw json.RawMessage) bool {
	_, ok := readObject(raw)
	return ok
}
