package registry

import "github.com/santhosh-tekuri/jsonschema/v5"

// Validating takes as many steps as there are ways through the schema, and a small schema may have 2^40: two
// references each to the next of forty definitions, or a recursive one twice below an allOf. Such a schema is
// found at Compile, and each validation under it is counted first.

const (
	maxWays  = 10_000    // through a schema that is not recursive: no counting
	maxVisit = 1_000_000 // visits of a subschema to a value, in one validation
	maxInto  = 10_000    // visits inside one another
)

// below calls f with every schema that s applies: to the same value, or to a part of it.
func below(s *jsonschema.Schema, f func(next *jsonschema.Schema)) {
	inPlace(s, f)
	for _, next := range s.Properties {
		f(next)
	}
	for _, next := range s.PatternProperties {
		f(next)
	}
	for _, next := range elements(s) {
		f(next)
	}
	each(f, s.PropertyNames, s.UnevaluatedProperties)
	if more, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		f(more)
	}
}

func elements(s *jsonschema.Schema) []*jsonschema.Schema {
	out := append([]*jsonschema.Schema(nil), s.PrefixItems...)
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		out = append(out, items)
	case []*jsonschema.Schema:
		out = append(out, items...)
	}
	if more, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
		out = append(out, more)
	}
	each(func(next *jsonschema.Schema) { out = append(out, next) }, s.Items2020, s.Contains, s.UnevaluatedItems)
	return out
}

// inPlace calls f with every schema that s applies to the same value.
func inPlace(s *jsonschema.Schema, f func(next *jsonschema.Schema)) {
	each(f, s.Ref, s.RecursiveRef, s.DynamicRef, s.Not, s.If, s.Then, s.Else)
	each(f, s.AllOf...)
	each(f, s.AnyOf...)
	each(f, s.OneOf...)
	for _, next := range s.DependentSchemas {
		f(next)
	}
	for _, next := range s.Dependencies {
		if next, ok := next.(*jsonschema.Schema); ok {
			f(next)
		}
	}
}

func each(f func(*jsonschema.Schema), list ...*jsonschema.Schema) {
	for _, s := range list {
		if s != nil {
			f(s)
		}
	}
}

// elaborate tells whether a schema is recursive or has very many ways through it. It also takes out contentSchema,
// which some drafts would assert.
func elaborate(root *jsonschema.Schema) bool {
	const begun = -1
	ways := make(map[*jsonschema.Schema]int)
	recursive := false
	var count func(s *jsonschema.Schema) int
	count = func(s *jsonschema.Schema) int {
		if n, ok := ways[s]; ok {
			recursive = recursive || n == begun
			return max(n, 0)
		}
		ways[s] = begun
		if s.ContentSchema != nil {
			s.ContentSchema = nil
		}
		n := 1
		below(s, func(next *jsonschema.Schema) { n = min(n+count(next), maxWays) })
		ways[s] = n
		return n
	}
	return count(root) >= maxWays || recursive
}

// affordable tells whether validating v takes at most maxVisit visits, counting every alternative.
func affordable(root *jsonschema.Schema, v any) bool {
	left, into := maxVisit, 0
	var visit func(s *jsonschema.Schema, v any)
	visit = func(s *jsonschema.Schema, v any) {
		if left--; left < 0 || into == maxInto {
			left = -1
			return
		}
		into++
		defer func() { into-- }()
		inPlace(s, func(next *jsonschema.Schema) { visit(next, v) })
		switch v := v.(type) {
		case map[string]any:
			visitMembers(s, v, visit)
		case []any:
			for _, next := range elements(s) {
				for _, x := range v {
					visit(next, x)
				}
			}
		}
	}
	visit(root, v)
	return left >= 0
}

func visitMembers(s *jsonschema.Schema, v map[string]any, visit func(*jsonschema.Schema, any)) {
	more, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for name, x := range v {
		if next, ok := s.Properties[name]; ok {
			visit(next, x)
		} else {
			each(func(next *jsonschema.Schema) { visit(next, x) }, more)
		}
		for pattern, next := range s.PatternProperties {
			if pattern.MatchString(name) {
				visit(next, x)
			}
		}
		each(func(next *jsonschema.Schema) { visit(next, name) }, s.PropertyNames)
		each(func(next *jsonschema.Schema) { visit(next, x) }, s.UnevaluatedProperties)
	}
}
