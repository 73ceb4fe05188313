package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"toolguard.dev/keyderive"
)

// Entry is a tool that was found fit to be called. Make one with [Compile]; it does not change.
type Entry struct {
	Tool

	Definition keyderive.Definition // what counts as the same call
	Deriver    *keyderive.Deriver   // the definition, compiled
	PolicyHash string               // digest over policy, effect, schemas and version: the workflow version of approvals
	HasOutput  bool                 // the tool declared an output schema

	schema       document
	validator    *jsonschema.Schema
	plain        *plainSchema // nil: only the validator knows
	elaborate    bool         // validating may take exponentially long: count first
	keyArgument  []string
	mayDiffer    []keyderive.Pointer // and the downstream key argument
	entity       []keyderive.Pointer
	secrets      keyderive.Secrets
	listedInput  json.RawMessage
	listedOutput json.RawMessage
	widened      bool
}

// wordsOfKey are the facts that once_per may name; tenant and workflow are in every key anyway.
var wordsOfKey = []string{"source_event", "request", "run", "step", "tenant", "workflow"}

// wordsNotOfKey are the facts that it may not, and why.
var wordsNotOfKey = map[string]string{
	"session":          "a chat session is recorded but is no identity, because the same work may go on in another one",
	"actor":            "who asks is recorded but is no identity, because the same work asked for twice is still the same",
	"call_id":          "a call id is recorded but is no identity, because a repeated call has another one",
	"workflow_version": "a version is recorded but is no identity, because a deployment would make every retry something new",
}

// Compile checks a tool and makes it ready to be called. The error wraps [ErrSchema] if its input schema cannot be
// used, [ErrPolicy] if its policy is wrong or names what the schema does not have, and says so in one sentence.
func Compile(t Tool) (*Entry, error) {
	e := &Entry{Tool: t}
	e.action = e.Server + "/" + e.Name
	e.InputSchema, e.OutputSchema = bytes.Clone(t.InputSchema), bytes.Clone(t.OutputSchema)
	if e.Server == "" || e.Name == "" {
		return nil, fmt.Errorf("%w: a tool needs a server and a name, not %q", ErrPolicy, e.Action())
	}
	if e.Effect == "" {
		e.Effect, e.EffectSource = Write, "presumed"
	}
	if strictness[e.Effect] == 0 {
		return nil, e.policyError("there is no effect %q", e.Effect)
	}
	var err error
	if e.schema, err = parseSchema(t.InputSchema); err != nil {
		return nil, e.schemaError(err)
	}
	if err := e.checkPolicy(); err != nil {
		return nil, err
	}
	if err := e.compileSchema(); err != nil {
		return nil, e.schemaError(err)
	}
	if err := e.define(); err != nil {
		return nil, e.policyError("%w", err)
	}
	e.PolicyHash = e.hash()
	e.listedInput = listedInput(e.InputSchema, e.keyArgument)
	e.HasOutput = isObject(e.OutputSchema)
	if e.HasOutput {
		e.listedOutput, e.widened = listedOutput(e.OutputSchema)
	}
	return e, nil
}

func (e *Entry) schemaError(err error) error {
	return fmt.Errorf("%w: the input schema of %s cannot be used: %w", ErrSchema, e.Action(), err)
}

func (e *Entry) policyError(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", ErrPolicy, e.Action(), fmt.Errorf(format, args...))
}

// checkPolicy checks what the policy says by itself and against the schema.
func (e *Entry) checkPolicy() error {
	p := &e.Policy
	var named []struct{ where, pointer string }
	name := func(where string, pointers ...string) {
		for _, s := range pointers {
			named = append(named, struct{ where, pointer string }{where, s})
		}
	}
	for _, word := range p.OncePer {
		if strings.HasPrefix(word, "/") {
			name("once_per", word)
		} else if why, ok := wordsNotOfKey[word]; ok {
			return e.policyError("once_per cannot have %q: %s", word, why)
		} else if !slices.Contains(wordsOfKey, word) {
			return e.policyError("once_per has %q, which is neither a pointer (/name) nor one of %s", word,
				strings.Join(wordsOfKey[:4], ", "))
		}
	}
	name("may_differ", p.MayDiffer...)
	name("entity", p.Entity...)
	name("normalize", slices.Sorted(maps.Keys(p.Normalize))...)
	name("secret", p.Secret...)
	key := p.DownstreamKey
	if key.Argument != "" {
		name("downstream_key.argument", key.Argument)
	}
	for _, n := range named {
		if _, err := keyderive.ParsePointer(n.pointer); err != nil || n.pointer == "" {
			return e.policyError("%s has %q, which is no JSON Pointer to an argument", n.where, n.pointer)
		}
		if e.schema.lacks(n.pointer, n.where == "normalize" || n.where == "secret") {
			return e.policyError("%s names %s, which the tool's input schema does not have", n.where, n.pointer)
		}
	}
	if slices.Contains(p.OncePer, key.Argument) && key.Argument != "" {
		return e.policyError("once_per names %s, which is the argument for the downstream key", key.Argument)
	}
	if err := e.checkSecrets(); err != nil {
		return err
	}
	if some := countNonEmpty(key.Argument, key.Meta, key.Header); some > 1 {
		return e.policyError("downstream_key takes one of argument, meta and header")
	}
	if err := p.Normalize.Validate(); err != nil {
		return e.policyError("normalize: %w", err)
	}
	if !slices.Contains([]ErrorMode{"", ErrorWords, ErrorStatus, ErrorRefused, ErrorUnknown}, p.Errors) {
		return e.policyError("errors has %q, which is none of words, status, refused, unknown", p.Errors)
	}
	if err := e.checkLookups(); err != nil {
		return err
	}
	return e.checkExpressions()
}

// checkSecrets says which secret is in a place where its value would be recorded as it is, or where it cannot count.
func (e *Entry) checkSecrets() error {
	p := &e.Policy
	key := p.DownstreamKey.Argument
	for _, secret := range p.Secret {
		for _, where := range []struct {
			name     string
			pointers []string
		}{{"once_per", p.OncePer}, {"entity", p.Entity}} {
			for _, pointer := range where.pointers {
				if strings.HasPrefix(pointer, "/") && keyderive.Overlap(secret, pointer) {
					return e.policyError("secret names %s, but %s names %s: what identifies a call is recorded as it is", secret, where.name, pointer)
				}
			}
		}
		if key != "" && keyderive.Overlap(secret, key) {
			return e.policyError("secret names %s, but the downstream key goes to %s, and a key is no secret", secret, key)
		}
		for _, pointer := range p.MayDiffer {
			if keyderive.Within(pointer, secret) && !keyderive.Within(secret, pointer) {
				return e.policyError("may_differ names %s, which is a part of the secret %s: a secret counts as a whole", pointer, secret)
			}
		}
	}
	return nil
}

func (e *Entry) checkExpressions() error {
	p := &e.Policy
	if x := p.ReadsWhen; x != nil && (x.kind != KindArguments || !x.boolean) {
		return e.policyError("reads_when must be a condition over the arguments, not %s", x.source)
	}
	for _, x := range slices.Concat(p.NotApplied, p.Unknown) {
		if x == nil || !x.boolean {
			return e.policyError("classify has what is no condition: %s", x)
		}
	}
	if x := p.DownstreamID; x != nil && !x.textual {
		return e.policyError("downstream_id must give a text or a number, which %s does not", x.source)
	}
	return nil
}

func countNonEmpty(list ...string) int {
	n := 0
	for _, s := range list {
		if s != "" {
			n++
		}
	}
	return n
}

// define makes the identity definition, and reads the policy's pointers once.
func (e *Entry) define() error {
	p := &e.Policy
	d := keyderive.Definition{
		Version:     keyderive.KeyVersion,
		Declared:    p.OncePer != nil,
		MayDiffer:   p.MayDiffer,
		KeyArgument: p.DownstreamKey.Argument,
		Secret:      p.Secret,
		Normalize:   p.Normalize,
		Defaults:    keyderive.SchemaDefaults(e.schema.root),
	}
	for _, word := range p.OncePer {
		switch {
		case word[0] == '/':
			d.Target = append(d.Target, word)
		case word != "tenant" && word != "workflow":
			d.Facts = append(d.Facts, word)
		}
	}
	var err error
	if e.Deriver, err = d.Compile(); err != nil {
		return err
	}
	e.Definition = d
	e.keyArgument = tokens(d.KeyArgument)
	e.entity = pointers(p.Entity)
	e.mayDiffer = pointers(p.MayDiffer)
	e.secrets, _ = keyderive.ParseSecrets(p.Secret) // which checkPolicy has taken
	if d.KeyArgument != "" {
		e.mayDiffer = append(e.mayDiffer, pointers([]string{d.KeyArgument})...)
	}
	return nil
}

// pointers reads pointers that checkPolicy has taken.
func pointers(texts []string) []keyderive.Pointer {
	out := make([]keyderive.Pointer, 0, len(texts))
	for _, s := range texts {
		if p, err := keyderive.ParsePointer(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// hash is the digest over all that a reviewer relied on: change any of it, and an approval no longer fits.
func (e *Entry) hash() string {
	text, err := json.Marshal(struct {
		Policy  Policy
		Effect  Effect
		Input   any
		Output  string
		Version string
	}{e.Policy, e.Effect, e.schema.root, string(e.OutputSchema), e.Version})
	if err != nil { // strings, numbers and maps: cannot be
		text = fmt.Appendf(nil, "%q", err)
	}
	if canonical, err := keyderive.Canonical(text); err == nil {
		text = canonical
	}
	return keyderive.Digest(text)
}
