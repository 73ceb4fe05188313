package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"toolguard.dev/keyderive"
)

const (
	schemaURL   = "urn:input-schema"
	maxSentence = 300 // bytes of what is said about one fault
)

var errReference = errors.New("references to other documents are not followed")

// compileSchema makes the validator. Where the downstream key goes, it takes anything.
func (e *Entry) compileSchema() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the compiler gave up on it: %s", sentence(fmt.Sprint(r)))
		}
	}()
	root := any(e.schema.root)
	if path := tokens(e.Policy.DownstreamKey.Argument); path != nil {
		root = e.schema.allowAny(root, path)
	}
	c := jsonschema.NewCompiler()
	var refused string
	c.LoadURL = func(u string) (io.ReadCloser, error) {
		refused = u
		return nil, errReference
	}
	for name := range jsonschema.Formats { // older drafts assert them; we never do
		c.Formats[name] = func(any) bool { return true }
	}
	for name := range jsonschema.Decoders {
		c.Decoders[name] = func(s string) ([]byte, error) { return []byte(s), nil }
	}
	for name := range jsonschema.MediaTypes {
		c.MediaTypes[name] = func([]byte) error { return nil }
	}
	if err := c.AddResource(schemaURL, bytes.NewReader(keyderive.AppendCanonical(nil, root))); err != nil {
		return fmt.Errorf("%s", sentence(err.Error()))
	}
	s, err := c.Compile(schemaURL)
	switch {
	case errors.Is(err, errReference):
		return fmt.Errorf("it refers to %s, and %w", sentence(refused), errReference)
	case err != nil:
		return fmt.Errorf("%s", compileFault(err))
	}
	e.validator = s
	e.plain = plainOf(s)
	e.elaborate = elaborate(s)
	return nil
}

// allowAny returns schema v with anything allowed at path, as far as properties lead there.
func (d document) allowAny(v any, path []string) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	if _, ok := m["$ref"].(string); ok && len(d.at(m)) > 1 {
		// A reference is unrolled, or the place would be opened for all that refer to it.
		merged := map[string]any{}
		for _, part := range slices.Backward(d.at(m)) {
			for k, x := range part {
				if k != "$ref" {
					merged[k] = x
				}
			}
		}
		for _, k := range []string{"$defs", "definitions"} {
			if x, ok := m[k]; ok {
				merged[k] = x
			}
		}
		m = merged
	}
	properties, _ := m["properties"].(map[string]any)
	below, ok := properties[path[0]]
	if !ok && len(path) > 1 {
		return v
	}
	if len(path) == 1 {
		below = true
	} else {
		below = d.allowAny(below, path[1:])
	}
	return with(m, "properties", with(properties, path[0], below))
}

// with returns m with one member set.
func with(m map[string]any, name string, v any) map[string]any {
	out := make(map[string]any, len(m)+1)
	for k, x := range m {
		out[k] = x
	}
	out[name] = v
	return out
}

// compileFault says why the compiler refused a schema.
func compileFault(err error) string {
	var schemaErr *jsonschema.SchemaError
	if errors.As(err, &schemaErr) && schemaErr.Err != nil {
		err = schemaErr.Err
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return sentence(err.Error())
	}
	leaf := worst(invalid)
	at := pointerText(leaf.InstanceLocation)
	if strings.HasSuffix(leaf.KeywordLocation, "/format") && strings.Contains(leaf.Message, "regex") {
		return sentence("the pattern at " + at + " is none that this program can compile (look-ahead and back-references are not supported)")
	}
	return sentence("at " + at + ": " + leaf.Message)
}

// Validate checks arguments, which keyderive.Parse made, against the input schema. The downstream key argument is
// not asked for, and what a caller writes there is not looked at. The error wraps [ErrArguments] and names the
// worst fault and where it is, in one sentence.
func (e *Entry) Validate(args any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: they cannot be checked against the schema: %s", ErrArguments, sentence(e.Redactor(args).Text(fmt.Sprint(r))))
		}
	}()
	if _, ok := args.(map[string]any); !ok {
		return fmt.Errorf("%w: they must be an object, not %s", ErrArguments, kindOf(args))
	}
	if err := keyderive.CheckNumbers(args); err != nil {
		return fmt.Errorf("%w: %w", ErrArguments, err)
	}
	if e.keyArgument != nil {
		if args, err = put(args, e.keyArgument, "key"); err != nil {
			return fmt.Errorf("%w: %w", ErrArguments, err)
		}
	}
	if e.plain != nil && e.plain.takes(args) {
		return nil
	}
	if e.elaborate && !affordable(e.validator, args) {
		return fmt.Errorf("%w: checking them against this schema would take too long", ErrArguments)
	}
	fault := ""
	switch err := e.validator.Validate(args).(type) {
	case nil:
		return nil
	case *jsonschema.ValidationError:
		fault = e.fault(err)
	default:
		fault = err.Error()
	}
	return fmt.Errorf("%w: %s", ErrArguments, sentence(e.Redactor(args).Text(fault)))
}

// worst picks the fault to report: one that no alternative could have avoided, then the one deepest in the value,
// for there the alternative that was meant went wrong; then by keyword and place, so that it is always the same.
func worst(err *jsonschema.ValidationError) *jsonschema.ValidationError {
	var best *jsonschema.ValidationError
	var walk func(v *jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		if len(v.Causes) == 0 && (best == nil || compareFaults(v, best) < 0) {
			best = v
		}
		for _, cause := range v.Causes {
			walk(cause)
		}
	}
	walk(err)
	return best
}

func compareFaults(a, b *jsonschema.ValidationError) int {
	return cmp.Or(
		cmp.Compare(alternatives(a), alternatives(b)),
		-cmp.Compare(strings.Count(a.InstanceLocation, "/"), strings.Count(b.InstanceLocation, "/")),
		cmp.Compare(keywordRank(a), keywordRank(b)),
		cmp.Compare(a.InstanceLocation, b.InstanceLocation),
		cmp.Compare(a.KeywordLocation, b.KeywordLocation),
	)
}

// alternatives is 1 for a fault below an anyOf or oneOf.
func alternatives(v *jsonschema.ValidationError) int {
	if strings.Contains(v.KeywordLocation, "/anyOf/") || strings.Contains(v.KeywordLocation, "/oneOf/") {
		return 1
	}
	return 0
}

func keywordRank(v *jsonschema.ValidationError) int {
	if i := slices.Index([]string{"required", "additionalProperties", "type"}, keyword(v)); i >= 0 {
		return i
	}
	return 3
}

func keyword(v *jsonschema.ValidationError) string {
	return v.KeywordLocation[strings.LastIndexByte(v.KeywordLocation, '/')+1:]
}

// fault says what is wrong with arguments.
func (e *Entry) fault(err *jsonschema.ValidationError) string {
	leaf := worst(err)
	at := pointerText(leaf.InstanceLocation)
	text := ""
	switch keyword(leaf) {
	case "type":
		expected, got, _ := strings.Cut(strings.TrimPrefix(leaf.Message, "expected "), ", but got ")
		text = at + " must be of type " + strings.Join(typesAt(err, leaf, expected), " or ") + ", not " + got
	case "required":
		text = at + " lacks " + strings.TrimPrefix(leaf.Message, "missing properties: ")
	case "additionalProperties":
		text = at + " has " + strings.TrimSuffix(strings.TrimPrefix(leaf.Message, "additionalProperties "), " not allowed") +
			", which the tool does not take"
	case "enum", "const":
		text = at + " must be " + e.allowed(leaf)
	default:
		text = at + ": " + leaf.Message
	}
	return text
}

// typesAt collects what the alternatives of a type fault would take at the same place.
func typesAt(err, leaf *jsonschema.ValidationError, first string) []string {
	types := []string{first}
	if alternatives(leaf) == 0 {
		return types
	}
	var walk func(v *jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		if len(v.Causes) == 0 && v.InstanceLocation == leaf.InstanceLocation && keyword(v) == "type" {
			expected, _, _ := strings.Cut(strings.TrimPrefix(v.Message, "expected "), ", but got ")
			if !slices.Contains(types, expected) {
				types = append(types, expected)
			}
		}
		for _, cause := range v.Causes {
			walk(cause)
		}
	}
	walk(err)
	slices.Sort(types)
	return types
}

// allowed lists what an enum or const takes, read from the schema: the validator's own text is no plain one.
func (e *Entry) allowed(leaf *jsonschema.ValidationError) string {
	_, fragment, _ := strings.Cut(leaf.AbsoluteKeywordLocation, "#")
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return "one of the listed values"
	}
	p, err := keyderive.ParsePointer(fragment)
	if err != nil {
		return "one of the listed values"
	}
	v, ok := p.Lookup(e.schema.root)
	list, isList := v.([]any)
	switch {
	case !ok:
		return "one of the listed values"
	case !isList || keyword(leaf) == "const":
		list = []any{v}
	}
	var b strings.Builder
	if len(list) > 1 {
		b.WriteString("one of ")
	}
	for i, x := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() > maxSentence {
			break
		}
		b.Write(keyderive.AppendCanonical(nil, x))
	}
	return b.String()
}

// pointerText is a place as the validator names it, as a JSON Pointer in words.
func pointerText(location string) string {
	if location == "" {
		return "the top level"
	}
	if plain, err := url.PathUnescape(location); err == nil {
		location = plain
	}
	return location
}

// sentence makes one line of a text, cut to what is worth reading, without the validator's jargon.
func sentence(text string) string {
	text = strings.NewReplacer(schemaURL+"#", "#", schemaURL, "the schema", "jsonschema: ", "", "jsonschema", "schema").Replace(text)
	return oneLine(text, maxSentence)
}

// oneLine returns at most so many bytes of a text, as valid UTF-8, with each run of white space and control
// characters as one space.
func oneLine(text string, limit int) string {
	if tidy(text) {
		return strings.TrimRight(text[:min(len(text), limit)], " ")
	}
	var b strings.Builder
	b.Grow(min(len(text), limit))
	space := false
	for _, r := range text {
		if r <= ' ' || r >= 0x7f && r <= 0xa0 || r == '\u2028' || r == '\u2029' {
			space = true
			continue
		}
		gap := 0
		if space && b.Len() > 0 {
			gap = 1
		}
		if b.Len()+gap+utf8.RuneLen(r) > limit {
			break
		}
		if gap > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}

// tidy tells whether a text is one line of printable ASCII already, with single spaces between words.
func tidy(text string) bool {
	space := true
	for i := range len(text) {
		c := text[i]
		if c < ' ' || c > '~' || c == ' ' && space {
			return false
		}
		space = c == ' '
	}
	return true
}

// kindOf names the JSON type of v.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "a number"
}
