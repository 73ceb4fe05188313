package registry

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"toolguard.dev/keyderive"
)

// object is a JSON object whose members keep their order and their bytes. Its methods return another object where
// they change something.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// readObject reads a JSON object; false if raw is none.
func readObject(raw json.RawMessage) (object, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	out := object{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		out = append(out, member{name, value})
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	return out, !d.More()
}

func (o object) index(name string) int {
	return slices.IndexFunc(o, func(m member) bool { return m.name == name })
}

func (o object) get(name string) (json.RawMessage, bool) {
	if i := o.index(name); i >= 0 {
		return o[i].value, true
	}
	return nil, false
}

// object returns a member that is an object.
func (o object) object(name string) (object, bool) {
	raw, _ := o.get(name)
	return readObject(raw)
}

// names returns a member that is an array of strings.
func (o object) names(name string) []string {
	raw, _ := o.get(name)
	var out []string
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

func (o object) set(name string, value json.RawMessage) object {
	out := slices.Clone(o)
	if i := o.index(name); i >= 0 {
		out[i].value = value
		return out
	}
	return append(out, member{name, value})
}

func (o object) without(name string) object {
	return slices.DeleteFunc(slices.Clone(o), func(m member) bool { return m.name == name })
}

// merge adds a property that another alternative describes: where both do, either may hold, or both must.
func (o object) merge(m member, both bool) object {
	i := o.index(m.name)
	if i < 0 {
		return append(slices.Clone(o), m)
	}
	if bytes.Equal(o[i].value, m.value) {
		return o
	}
	keyword := "anyOf"
	if both {
		keyword = "allOf"
	}
	if merged, ok := readObject(o[i].value); ok && len(merged) == 1 && merged[0].name == keyword {
		var branches []json.RawMessage
		if json.Unmarshal(merged[0].value, &branches) == nil {
			if slices.ContainsFunc(branches, func(b json.RawMessage) bool { return bytes.Equal(b, m.value) }) {
				return o
			}
			return o.set(m.name, object{{keyword, list(append(branches, m.value))}}.text())
		}
	}
	return o.set(m.name, object{{keyword, list([]json.RawMessage{o[i].value, m.value})}}.text())
}

// follow returns what the $ref of a schema means within root.
func (o object) follow(root object) (object, bool) {
	raw, _ := o.get("$ref")
	var ref string
	if json.Unmarshal(raw, &ref) != nil {
		return nil, false
	}
	fragment, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, false
	}
	p, err := keyderive.ParsePointer("/" + fragment)
	if err != nil {
		return nil, false
	}
	at := root
	for _, t := range tokens(p.String()) {
		if at, ok = at.object(t); !ok {
			return nil, false
		}
	}
	return at, true
}

// text writes the object.
func (o object) text() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(keyderive.AppendCanonical(nil, m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// list writes an array of values.
func list(values []json.RawMessage) json.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(rawBytes(values), []byte(",")), []byte("]"))
}

func rawBytes(values []json.RawMessage) [][]byte {
	out := make([][]byte, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// texts writes an array of strings.
func texts(list []string) json.RawMessage {
	values := make([]any, len(list))
	for i, s := range list {
		values[i] = s
	}
	return keyderive.AppendCanonical(nil, values)
}
