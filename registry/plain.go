package registry

import (
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// The validator keeps account, for each object, member and element, of what other keywords and the text of a fault would
// need, and that costs more than deriving the key. Most schemas only name types, members and elements: what plainly
// fits those is taken without the validator. What does not, and every other schema, is the validator's to judge.

// plainSchema is a schema that says no more than its members here.
type plainSchema struct {
	types    []string // nil: any
	required []string
	members  map[string]*plainSchema
	others   *plainSchema       // for members not named; nil: anything
	closed   bool               // there are no others
	elements *plainSchema       // nil: anything
	scalar   *jsonschema.Schema // has the say about what is neither object nor array; nil: nothing more is said
	between  *bounds            // what scalar says of numbers, if that is all
}

// bounds are two numbers as close to those of a schema as tells, of any decimal fraction that is read as a float
// strictly between them, that it keeps the schema's.
type bounds struct{ low, high float64 }

var (
	plainFields = set("Location", "Draft", "Types", "Required", "Properties", "AdditionalProperties", "Items", "Items2020", "Format")
	// scalarFields say nothing of objects and arrays, and need no place in a schema.
	scalarFields = set("Minimum", "ExclusiveMinimum", "Maximum", "ExclusiveMaximum", "MultipleOf", "MinLength", "MaxLength",
		"Pattern", "Enum", "Constant")
)

// saysNothing is what the fields of a schema are where it does not say otherwise.
var saysNothing = reflect.ValueOf(jsonschema.MustCompileString("urn:nothing", "{}")).Elem()

// plainOf returns what a schema says; nil: it says more.
func plainOf(s *jsonschema.Schema) *plainSchema {
	if s.Always != nil && *s.Always {
		return &plainSchema{}
	}
	p := &plainSchema{types: s.Types, required: s.Required}
	a, b := reflect.ValueOf(s).Elem(), saysNothing
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || plainFields[f.Name] || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		if !scalarFields[f.Name] {
			return nil
		}
		p.scalar = s
	}
	if len(s.Enum) == 0 && s.Constant == nil && s.MultipleOf == nil {
		p.between = boundsOf(s)
	}
	if p.scalar != nil && (len(s.Types) == 0 || slices.Contains(s.Types, "object") || slices.Contains(s.Types, "array")) {
		return nil // an enum may list objects
	}
	below := func(s *jsonschema.Schema) (*plainSchema, bool) {
		if s == nil {
			return nil, true
		}
		p := plainOf(s)
		return p, p != nil
	}
	ok := true
	for name, s := range s.Properties {
		if p.members == nil {
			p.members = make(map[string]*plainSchema, len(s.Properties))
		}
		if p.members[name], ok = below(s); !ok {
			return nil
		}
	}
	switch others := s.AdditionalProperties.(type) {
	case nil:
	case bool:
		p.closed = !others
	case *jsonschema.Schema:
		if p.others, ok = below(others); !ok {
			return nil
		}
	}
	elements := s.Items2020
	if s.Items != nil {
		if elements, ok = s.Items.(*jsonschema.Schema); !ok || s.Items2020 != nil {
			return nil
		}
	}
	if p.elements, ok = below(elements); !ok {
		return nil
	}
	return p
}

// takes tells whether v, which keyderive.Parse made, plainly fits.
func (p *plainSchema) takes(v any) bool {
	if p == nil {
		return true
	}
	if len(p.types) > 0 && !slices.ContainsFunc(p.types, func(t string) bool { return plainlyOf(v, t) }) {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range p.required {
			if _, ok := v[name]; !ok {
				return false
			}
		}
		for name, x := range v {
			m, named := p.members[name]
			if !named {
				if m = p.others; p.closed {
					return false
				}
			}
			if !m.takes(x) {
				return false
			}
		}
		return true
	case []any:
		for _, x := range v {
			if !p.elements.takes(x) {
				return false
			}
		}
		return true
	}
	if n, ok := v.(json.Number); ok && p.between.hold(n) {
		return true
	}
	return p.scalar == nil || p.scalar.Validate(v) == nil
}

func boundsOf(s *jsonschema.Schema) *bounds {
	b := &bounds{math.Inf(-1), math.Inf(1)}
	for _, r := range []*big.Rat{s.Minimum, s.ExclusiveMinimum} {
		if r != nil {
			f, _ := r.Float64() // one of the two next to it
			b.low = max(b.low, math.Nextafter(f, math.Inf(1)))
		}
	}
	for _, r := range []*big.Rat{s.Maximum, s.ExclusiveMaximum} {
		if r != nil {
			f, _ := r.Float64()
			b.high = min(b.high, math.Nextafter(f, math.Inf(-1)))
		}
	}
	return b
}

// hold tells whether n surely lies within the bounds.
func (b *bounds) hold(n json.Number) bool {
	if b == nil {
		return false
	}
	f, err := strconv.ParseFloat(string(n), 64)
	return err == nil && b.low < f && f < b.high
}

// plainlyOf tells whether v is plainly of a JSON Schema type.
func plainlyOf(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case json.Number:
		return t == "number" || t == "integer" && digits(string(v))
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	}
	return false
}

func digits(s string) bool {
	if s != "" && s[0] == '-' {
		s = s[1:]
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
