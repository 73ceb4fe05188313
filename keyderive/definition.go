package keyderive

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Definition is how the calls of one tool are told apart. It is kept with what
// was made under it, so that later changes of policy or schema do not turn a
// retry into something new; JSON gives it back as it was.
type Definition struct {
	// Version is the version of the key material: [KeyVersion].
	Version int `json:"v"`
	// Declared is true if the operator has said what identifies an operation,
	// even if that is no argument at all. Facts and Target need it.
	Declared bool `json:"declared,omitempty"`
	// Facts are the names of the facts in the key, beside tenant and workflow,
	// which are always in it.
	Facts []string `json:"facts,omitempty"`
	// Target are the pointers to the arguments in the key.
	Target []string `json:"target,omitempty"`
	// MayDiffer are the pointers to arguments that play no part.
	MayDiffer []string `json:"may_differ,omitempty"`
	// KeyArgument is the pointer to the argument in which the key is sent
	// downstream, "" for none. What a caller writes there plays no part.
	KeyArgument string `json:"key_argument,omitempty"`
	// Secret are the patterns (see [ParseSecrets]) of arguments that are never
	// shown: they count by what a [Veil] makes of them, and are not in Target.
	Secret []string `json:"secret,omitempty"`
	// Normalize is applied to the arguments first.
	Normalize Normalize `json:"normalize,omitempty"`
	// Defaults are the arguments that count as absent.
	Defaults Defaults `json:"defaults"`
}

// ID returns the [Digest] of the definition's canonical JSON. Definitions that
// list the same pointers in another order have another ID, but the same keys.
func (d Definition) ID() string {
	m := map[string]any{
		"v":        json.Number(strconv.Itoa(d.Version)),
		"defaults": d.Defaults.document(),
	}
	if d.Declared {
		m["declared"] = true
	}
	for name, list := range map[string][]string{"facts": d.Facts, "target": d.Target, "may_differ": d.MayDiffer, "secret": d.Secret} {
		if len(list) > 0 {
			m[name] = texts(list)
		}
	}
	if d.KeyArgument != "" {
		m["key_argument"] = d.KeyArgument
	}
	if len(d.Normalize) > 0 {
		m["normalize"] = d.Normalize.document()
	}
	return Digest(AppendCanonical(nil, m))
}

// Deriver derives identities under one [Definition]. It does not change and
// may be used from any number of goroutines.
type Deriver struct {
	id          string
	declared    bool
	facts       factSet
	target      []targetArgument // in canonical order of the pointers, once each
	keyArgument *cuts
	immaterial  *cuts // target and may_differ
	rules       []rule
	defaults    Defaults
	secret      Secrets
	veil        Veil
}

// targetArgument is an argument in the key.
type targetArgument struct {
	pointer Pointer
	member  string // its name as a member of "target", with the colon
}

// Compile checks a definition and reads its pointers once. An error wraps
// [ErrPointer], [ErrNormalize] or [ErrDefinition]; the root is no pointer to an
// argument.
func (d Definition) Compile() (*Deriver, error) {
	if d.Version != KeyVersion {
		return nil, fmt.Errorf("%w: key version %d, known is %d", ErrDefinition, d.Version, KeyVersion)
	}
	if !d.Declared && len(d.Facts)+len(d.Target) > 0 {
		return nil, fmt.Errorf("%w: facts or target without declared", ErrDefinition)
	}
	out := &Deriver{id: d.ID(), declared: d.Declared, facts: factTenant | factWorkflow, defaults: d.Defaults}
	for _, name := range d.Facts {
		bit, ok := factBit(name)
		if !ok {
			return nil, fmt.Errorf("%w: %q is no fact that may be in a key", ErrDefinition, name)
		}
		out.facts |= bit
	}
	target, err := parsePointers(d.Target)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	mayDiffer, err := parsePointers(d.MayDiffer)
	if err != nil {
		return nil, fmt.Errorf("may_differ: %w", err)
	}
	if d.KeyArgument != "" {
		p, err := ParsePointer(d.KeyArgument)
		if err != nil {
			return nil, fmt.Errorf("key_argument: %w", err)
		}
		out.keyArgument = cutsOf([]Pointer{p})
	}
	if out.rules, err = d.Normalize.compile(); err != nil {
		return nil, err
	}
	if out.secret, err = d.secrets(); err != nil {
		return nil, err
	}
	out.immaterial = cutsOf(slices.Concat(target, mayDiffer))
	out.target = targetArguments(target)
	return out, nil
}

func targetArguments(pointers []Pointer) []targetArgument {
	slices.SortFunc(pointers, func(a, b Pointer) int { return compareUTF16(a.text, b.text) })
	pointers = slices.CompactFunc(pointers, func(a, b Pointer) bool { return a.text == b.text })
	out := make([]targetArgument, len(pointers))
	for i, p := range pointers {
		out[i] = targetArgument{pointer: p, member: string(appendString(nil, p.text)) + ":"}
	}
	return out
}
