package badgerstore

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Records are written often and read seldom, and encoding/json takes longer to write one than Badger does. appendJSON
// writes what encoding/json would (but for the escapes that only HTML minds), by a plan made once per type; what
// it has no plan for goes to encoding/json.

// writer appends the JSON of a value of its type.
type writer func(b []byte, v reflect.Value) ([]byte, error)

var writers sync.Map // reflect.Type → writer

func appendJSON(b []byte, v reflect.Value) ([]byte, error) { return writerOf(v.Type())(b, v) }

func writerOf(t reflect.Type) writer {
	if w, ok := writers.Load(t); ok {
		return w.(writer)
	}
	w := newWriter(t)
	writers.Store(t, w)
	return w
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	rawType       = reflect.TypeFor[json.RawMessage]()
	marshalerType = reflect.TypeFor[json.Marshaler]()
	textType      = reflect.TypeFor[encoding.TextMarshaler]()
)

func newWriter(t reflect.Type) writer {
	switch t {
	case timeType:
		return appendTime
	case rawType:
		return appendRaw
	}
	if p := reflect.PointerTo(t); p.Implements(marshalerType) || p.Implements(textType) {
		return appendOther
	}
	switch t.Kind() {
	case reflect.String:
		return func(b []byte, v reflect.Value) ([]byte, error) { return appendText(b, v.String()) }
	case reflect.Bool:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendBool(b, v.Bool()), nil }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendInt(b, v.Int(), 10), nil }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendUint(b, v.Uint(), 10), nil }
	case reflect.Pointer:
		elem := writerOf(t.Elem())
		return func(b []byte, v reflect.Value) ([]byte, error) {
			if v.IsNil() {
				return append(b, "null"...), nil
			}
			return elem(b, v.Elem())
		}
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // bytes are text
			return listWriter(writerOf(t.Elem()))
		}
	case reflect.Struct:
		if fields, ok := membersOf(t); ok {
			return objectWriter(fields)
		}
	}
	return appendOther
}

func appendOther(b []byte, v reflect.Value) ([]byte, error) {
	buf := bytes.NewBuffer(b)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Interface()); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func appendRaw(b []byte, v reflect.Value) ([]byte, error) {
	if v.IsNil() {
		return append(b, "null"...), nil
	}
	return appendOther(b, v)
}

func appendText(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendOther(b, reflect.ValueOf(s))
		}
	}
	return append(append(append(b, '"'), s...), '"'), nil
}

func appendTime(b []byte, v reflect.Value) ([]byte, error) {
	t, _ := reflect.TypeAssert[time.Time](v)
	b, err := t.AppendText(append(b, '"'))
	return append(b, '"'), err
}

func listWriter(elem writer) writer {
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = elem(b, v.Index(i)); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
}

// member is a field of a struct.
type member struct {
	index int
	name  string // quoted, with its colon
	leave func(reflect.Value) bool
	write writer
}

// membersOf plans the fields of a struct, or gives up on one that has what is rarer than tags with omitempty or omitzero.
func membersOf(t reflect.Type) ([]member, bool) {
	var ms []member
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if f.Anonymous || name == "" {
			return nil, false
		}
		m := member{index: i, name: strconv.Quote(name) + ":", write: writerOf(f.Type)}
		switch option {
		case "":
		case "omitempty":
			m.leave = empty
		case "omitzero":
			if _, own := f.Type.MethodByName("IsZero"); own && f.Type != timeType {
				return nil, false
			}
			m.leave = zero
		default:
			return nil, false
		}
		ms = append(ms, m)
	}
	return ms, true
}

func objectWriter(ms []member) writer {
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		b = append(b, '{')
		first := true
		for i := range ms {
			m := &ms[i]
			f := v.Field(m.index)
			if m.leave != nil && m.leave(f) {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			if b, err = m.write(append(b, m.name...), f); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	}
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Map, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func zero(v reflect.Value) bool {
	if t, ok := reflect.TypeAssert[time.Time](v); ok {
		return t.IsZero()
	}
	return v.IsZero()
}
