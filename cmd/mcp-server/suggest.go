package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// suggestion is what a tool's name and schema hint at: JSON Pointers to its arguments.
type suggestion struct {
	entity   string   // what it changes
	changes  bool     // its name says that it changes a thing
	target   string   // what it acts on, once
	reworded []string // what a model rewords
	key      string   // where it takes an idempotency key
}

// Words of tools' names. What acts once on one thing may be suggested to be done once per thing; what changes a thing
// again and again, never.
var (
	onceVerbs   = []string{"pay", "charge", "refund", "transfer", "cancel", "approve", "ship", "dispatch", "void", "capture", "settle", "reimburse", "payout"}
	changeVerbs = []string{"update", "edit", "comment", "set", "append", "patch", "modify", "change", "move", "rename", "replace", "write", "reply", "note", "toggle", "insert", "put"}
	pathNames   = []string{"path", "file_path", "filepath", "filename", "file"}
	loose       = []string{"memo", "note", "notes", "comment", "description", "reason", "message"}
	identifier  = regexp.MustCompile(`(^id|_id|Id|ID|_number|Number|_ref|reference)$`)
	keyNames    = []string{"idempotencykey", "idempotenttoken", "clienttoken", "idempotencytoken"}
)

// suggest reads the hints.
func suggest(t found) suggestion {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(t.InputSchema, &schema) != nil {
		return suggestion{}
	}
	words := nameWords(t.Name)
	has := func(list []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(list, w) })
	}
	var s suggestion
	s.changes = has(changeVerbs)
	once := has(onceVerbs) && !s.changes
	targets := 0
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if !plainName.MatchString(name) { // would need quoting: not worth a guess
			continue
		}
		required := slices.Contains(schema.Required, name)
		squeezed := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
		switch {
		case slices.Contains(keyNames, squeezed):
			s.key = "/" + name
		case required && s.entity == "" && slices.Contains(pathNames, name):
			s.entity = "/" + name
		case once && required && identifier.MatchString(name):
			s.target = "/" + name
			targets++
		case once && slices.Contains(loose, name):
			s.reworded = append(s.reworded, "/"+name)
		}
	}
	if targets != 1 { // none, or it is not clear which
		s.target, s.reworded = "", nil
	}
	return s
}

// nameWords splits a tool's name into words, in lower case.
func nameWords(name string) []string {
	var b strings.Builder
	var last rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(last) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
		last = r
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
