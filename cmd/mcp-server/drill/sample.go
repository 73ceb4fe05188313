package drill

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

const (
	maxDepth = 12   // of a made-up value
	maxMade  = 2000 // parts of one
	maxItems = 50   // elements of one array in it
)

// errNoSample says that no arguments could be made up that the schema takes.
var errNoSample = errors.New("no sample arguments could be made up that its input schema takes")

// maker makes values up from a JSON Schema. It only guesses: what it makes is checked by the real validator.
type maker struct {
	root   any
	turn   int // other turns give other values
	whole  bool
	wanted map[string]bool // names of members that are made although they need not be there
	parts  int
}

// sample makes arguments for a tool: with the members that are required, with those that the policy names, and on other
// turns with other values. fits says which arguments will do.
func sample(e *registry.Entry, turn int, fits func(args any) bool) (json.RawMessage, error) {
	root, err := schemaOf(e.InputSchema)
	if err != nil {
		return nil, err
	}
	err = errNoSample
	for _, whole := range []bool{false, true} {
		m := &maker{root: root, turn: turn, whole: whole, wanted: named(&e.Policy)}
		v, ok := m.make(root, "", 0).(map[string]any)
		if !ok {
			continue
		}
		if k := e.Policy.DownstreamKey.Argument; k != "" {
			delete(v, strings.TrimPrefix(k, "/")) // the guard fills it in
		}
		args, fault := checked(e, v)
		if fault == nil && fits(args) {
			return keyderive.AppendCanonical(nil, args), nil
		}
		if fault != nil {
			err = fmt.Errorf("%w: %w", errNoSample, fault)
		}
	}
	return nil, err
}

func schemaOf(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return map[string]any{"type": "object"}, nil
	}
	return keyderive.Parse(raw)
}

// checked brings a made-up value into the form in which arguments arrive, and validates it.
func checked(e *registry.Entry, v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	args, err := keyderive.Parse(text)
	if err != nil {
		return nil, err
	}
	return args, e.Validate(args)
}

// named are the first names of all members that a policy speaks of.
func named(p *registry.Policy) map[string]bool {
	out := map[string]bool{}
	pointers := slices.Concat(p.OncePer, p.MayDiffer, p.Entity, slices.Collect(maps.Keys(p.Normalize)))
	for _, pointer := range pointers {
		for _, token := range strings.Split(pointer, "/") {
			out[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)] = true
		}
	}
	return out
}

// make returns a value for a schema; nil where none is known.
func (m *maker) make(schema any, name string, depth int) any {
	m.parts++
	if depth > maxDepth || m.parts > maxMade {
		return nil
	}
	s, ok := schema.(map[string]any)
	if !ok {
		return m.text(nil, name)
	}
	s = m.resolved(s, depth)
	if c, ok := s["const"]; ok {
		return c
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[m.turn%len(list)]
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 && s["properties"] == nil {
			return m.make(m.choice(list), name, depth+1)
		}
	}
	kind := kindOf(s)
	if depth == 0 {
		kind = "object" // arguments are nothing else
	}
	switch kind {
	case "object":
		return m.object(s, depth)
	case "array":
		return m.array(s, name, depth)
	case "integer", "number":
		return m.number(s)
	case "boolean":
		return m.turn%2 == 1
	case "null":
		return nil
	}
	return m.text(s, name)
}

// choice is the first alternative that is not null.
func (m *maker) choice(list []any) any {
	for _, x := range list {
		if s, ok := x.(map[string]any); !ok || s["type"] != "null" {
			return x
		}
	}
	return list[0]
}

// resolved follows references within the schema and puts what allOf says into one.
func (m *maker) resolved(s map[string]any, depth int) map[string]any {
	out := map[string]any{}
	merge := func(from map[string]any) {
		for k, v := range from {
			a, isMap := v.(map[string]any)
			b, had := out[k].(map[string]any)
			if x, ok := v.([]any); ok && k == "required" {
				y, _ := out[k].([]any)
				out[k] = slices.Concat(y, x)
				continue
			}
			if k == "properties" && isMap && had {
				both := maps.Clone(b)
				maps.Copy(both, a)
				out[k] = both
				continue
			}
			if out[k] == nil {
				out[k] = v
			}
		}
	}
	ref, _ := s["$ref"].(string)
	merge(s)
	for range maxDepth {
		pointer, err := keyderive.ParsePointer(strings.TrimPrefix(ref, "#"))
		if ref == "" || err != nil {
			break
		}
		v, _ := pointer.Lookup(m.root)
		next, ok := v.(map[string]any)
		if !ok {
			break
		}
		merge(next)
		ref, _ = next["$ref"].(string)
	}
	if all, ok := s["allOf"].([]any); ok && depth < maxDepth {
		for _, x := range all {
			if part, ok := x.(map[string]any); ok {
				merge(m.resolved(part, depth+1))
			}
		}
	}
	if one, ok := s["anyOf"].([]any); ok && s["properties"] != nil && len(one) > 0 { // members of which some are required
		if part, ok := one[0].(map[string]any); ok && part["properties"] == nil {
			merge(part)
		}
	}
	return out
}

// kindOf is the type that a value for s will have.
func kindOf(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, x := range t {
			if x != "null" {
				kind, _ := x.(string)
				return kind
			}
		}
	}
	switch {
	case s["properties"] != nil || s["required"] != nil:
		return "object"
	case s["items"] != nil || s["prefixItems"] != nil:
		return "array"
	case s["minimum"] != nil || s["maximum"] != nil || s["multipleOf"] != nil:
		return "number"
	}
	return "string"
}

func (m *maker) object(s map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if m.whole || m.wanted[name] || slices.Contains(required, any(name)) {
			out[name] = m.make(properties[name], name, depth+1)
		}
	}
	for _, x := range required {
		if name, ok := x.(string); ok && properties[name] == nil {
			out[name] = m.make(s["additionalProperties"], name, depth+1)
		}
	}
	return out
}

func (m *maker) array(s map[string]any, name string, depth int) any {
	out := []any{}
	prefix, _ := s["prefixItems"].([]any)
	for _, x := range prefix {
		out = append(out, m.make(x, name, depth+1))
	}
	least, ok := whole(s["minItems"])
	if !ok && (depth <= 1 || m.whole) {
		least = 1
	}
	if most, ok := whole(s["maxItems"]); ok {
		least = min(least, most)
	}
	turn := m.turn
	for i := len(out); i < min(least, maxItems); i++ {
		out = append(out, m.make(s["items"], name, depth+1))
		m.turn++ // elements may have to be unique
	}
	m.turn = turn
	return out
}

func whole(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return int(i), err == nil && i >= 0
}

// number makes the smallest number that a schema takes, from 1 on where it takes that, and on other turns the next ones.
func (m *maker) number(s map[string]any) any {
	get := func(key string) *big.Rat {
		if n, ok := s[key].(json.Number); ok && len(n) < 40 {
			if r, ok := new(big.Rat).SetString(n.String()); ok {
				return r
			}
		}
		return nil
	}
	one := big.NewRat(1, 1)
	step := one
	if r := get("multipleOf"); r != nil && r.Sign() > 0 {
		step = r
	}
	low, high := get("minimum"), get("maximum")
	if from, to := cmp.Or(get("exclusiveMinimum"), low), cmp.Or(get("exclusiveMaximum"), high); from != nil && to != nil && kindOf(s) == "number" && s["multipleOf"] == nil {
		if part := new(big.Rat).Mul(new(big.Rat).Sub(to, from), big.NewRat(1, 8)); part.Sign() > 0 && part.Cmp(step) < 0 {
			step = part // a narrow range
		}
	}
	if r := get("exclusiveMinimum"); r != nil && (low == nil || r.Cmp(low) >= 0) {
		low = new(big.Rat).Add(r, step)
	}
	if r := get("exclusiveMaximum"); r != nil && (high == nil || r.Cmp(high) <= 0) {
		high = new(big.Rat).Sub(r, step)
	}
	start := one
	if low != nil && low.Cmp(one) > 0 || high != nil && high.Cmp(one) < 0 {
		if start = low; start == nil {
			start = new(big.Rat).Sub(high, new(big.Rat).Mul(step, big.NewRat(8, 1)))
		}
	}
	if step.Sign() > 0 { // onto the steps
		n := new(big.Rat).Quo(start, step)
		up := new(big.Int).Add(new(big.Int).Quo(n.Num(), n.Denom()), big.NewInt(1))
		if !n.IsInt() && s["multipleOf"] != nil {
			start = new(big.Rat).Mul(new(big.Rat).SetInt(up), step)
		}
	}
	v := new(big.Rat).Add(start, new(big.Rat).Mul(step, big.NewRat(int64(m.turn), 1)))
	if high != nil && v.Cmp(high) > 0 {
		v = start
	}
	if v.IsInt() {
		return json.Number(v.Num().String())
	}
	return json.Number(strings.TrimRight(v.FloatString(12), "0"))
}

// formats are values of the formats that schemas name, one per turn.
var formats = map[string][]string{
	"date":         {"2030-01-15", "2030-02-16", "2030-03-17"},
	"date-time":    {"2030-01-15T10:00:00Z", "2030-02-16T11:00:00Z", "2030-03-17T12:00:00Z"},
	"time":         {"10:00:00Z", "11:00:00Z", "12:00:00Z"},
	"duration":     {"PT1H", "PT2H", "PT3H"},
	"email":        {"drill@example.com", "rehearsal@example.com", "sample@example.com"},
	"hostname":     {"drill.example.com", "rehearsal.example.com", "sample.example.com"},
	"ipv4":         {"192.0.2.1", "192.0.2.2", "192.0.2.3"},
	"ipv6":         {"2001:db8::1", "2001:db8::2", "2001:db8::3"},
	"uri":          {"https://example.com/drill", "https://example.com/rehearsal", "https://example.com/sample"},
	"uuid":         {"6f1c1d1e-0d0b-4c53-9a52-2f2d2b7f9a01", "6f1c1d1e-0d0b-4c53-9a52-2f2d2b7f9a02", "6f1c1d1e-0d0b-4c53-9a52-2f2d2b7f9a03"},
	"json-pointer": {"/drill", "/rehearsal", "/sample"},
	"regex":        {"drill", "rehearsal", "sample"},
}

func init() {
	for as, format := range map[string]string{"idn-email": "email", "idn-hostname": "hostname", "uri-reference": "uri", "iri": "uri", "url": "uri"} {
		formats[as] = formats[format]
	}
}

// text makes a string: of the format, of the pattern, of a length that is taken.
func (m *maker) text(s map[string]any, name string) any {
	if format, ok := s["format"].(string); ok && len(formats[format]) > 0 {
		return formats[format][m.turn%len(formats[format])]
	}
	least, _ := whole(s["minLength"])
	most, bounded := whole(s["maxLength"])
	if pattern, ok := s["pattern"].(string); ok {
		if r, err := regexp.Compile(pattern); err == nil {
			for extra := range 12 {
				v := matching(pattern, m.turn, extra)
				if n := utf8.RuneCountInString(v); r.MatchString(v) && n >= least && (!bounded || n <= most) {
					return v
				}
			}
		}
	}
	v := fmt.Sprintf("drill-%d", m.turn+1)
	if name != "" {
		v = fmt.Sprintf("drill-%s-%d", name, m.turn+1)
	}
	if bounded && utf8.RuneCountInString(v) > most {
		v = v[max(0, len(v)-most):]
	}
	if n := least - utf8.RuneCountInString(v); n > 0 && n < 1<<16 {
		v += strings.Repeat("x", n)
	}
	return v
}

// MadeUp reports whether an argument looks like one that a model invents for each call, such as a request id of its own.
func MadeUp(pointer string) bool {
	name := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(pointer[strings.LastIndexByte(pointer, '/')+1:]))
	for _, word := range []string{"idempotencykey", "idempotencytoken", "clienttoken", "requestid", "clientrequestid", "nonce", "correlationid", "transactionid"} {
		if name == word {
			return true
		}
	}
	return false
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
