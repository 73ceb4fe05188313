package registry

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
)

// readVerbs begin the names of tools that are presumed to only read.
var readVerbs = []string{"get", "list", "search", "read", "find", "describe"}

// writeVerbs, as a later word of such a name, take the presumption away: find_and_replace, get_or_create_user.
var writeVerbs = []string{"create", "delete", "insert", "modify", "remove", "replace", "send", "update", "upsert", "write"}

// PresumedEffect tells what calling a tool does to the world where the operator has not said so, and where that
// comes from: "annotated" or "presumed".
//
// Of the MCP annotations, readOnlyHint true means [Read], idempotentHint true (and readOnlyHint not true) means
// [Idempotent], and readOnlyHint false means [Write]; destructiveHint says nothing, and hints that are no booleans
// count as absent. Otherwise names that begin with get, list, search, read, find or describe as a word (get_x,
// get-x, getX) are presumed to read, unless a later word is a verb of writing. All else is [Write].
func PresumedEffect(name string, annotations json.RawMessage) (effect Effect, source string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(annotations, &members) != nil {
		members = nil
	}
	readOnly, idempotent := string(members["readOnlyHint"]), string(members["idempotentHint"])
	switch {
	case readOnly == "true":
		return Read, "annotated"
	case idempotent == "true":
		return Idempotent, "annotated"
	case readOnly == "false":
		return Write, "annotated"
	}
	words := nameWords(name)
	writes := func(word string) bool { return slices.Contains(writeVerbs, word) }
	if len(words) > 1 && slices.Contains(readVerbs, words[0]) && !slices.ContainsFunc(words[1:], writes) {
		return Read, "presumed"
	}
	return Write, "presumed"
}

// SetEffect says where the effect of a tool comes from that no server annotates: one that is there was declared, else
// the name tells.
func (t *Tool) SetEffect() {
	if t.Effect == "" {
		t.Effect, t.EffectSource = PresumedEffect(t.Name, nil)
	} else if t.EffectSource == "" {
		t.EffectSource = "declared"
	}
}

// nameWords splits a tool's name at "_", "-" and before capitals, in lower case.
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
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' || r == '-' })
}

// strictness orders the effects.
var strictness = map[Effect]int{Read: 1, Idempotent: 2, Write: 3, Deny: 4}

// Stricter returns the stricter of two effects: deny, then write, then idempotent, then read. "" yields to any.
func (e Effect) Stricter(o Effect) Effect {
	if strictness[o] > strictness[e] {
		return o
	}
	return e
}
