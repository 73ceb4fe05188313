// Package keyderive tells which tool calls are the same.
//
// Start with [Deriver.Derive]: from a tool's [Definition] (compiled once), the
// runtime's [Facts] about a call and its arguments (read by [Parse]) it makes
// an [Identity], and [Identity.Key] makes the operation key of that identity's
// first, second, … occurrence:
//
//	args, err := keyderive.Parse(text)
//	id, err := deriver.Derive("billing/pay_invoice", facts, args)
//	key, material := id.Key(1)
//
// Everything rests on one canonical form of JSON: RFC 8785 (member order by
// UTF-16 units, ECMAScript layout), except that a number keeps its exact
// decimal value instead of being rounded to a double.
//
// The package must not know what a tool is, does or answers, nor that there is
// a store: text and facts go in, digests and keys come out. It reads no clock,
// environment or file, and holds no state. All functions may be called from
// any number of goroutines; no function changes a value that it was given, and
// values that it returns may share parts with those, so treat both as read-only.
package keyderive

import "errors"

// KeyVersion is the version of the key material that this package makes, its
// "v" member, and the only [Definition.Version] that compiles.
const KeyVersion = 1

// MaxDepth is how many arrays and objects may stand inside one another in a
// text that [Parse] reads.
const MaxDepth = 128

// The errors of this package. All are returned wrapped, with the offending
// byte offset, pointer or name in the text; test with errors.Is.
var (
	// ErrJSON: the text is not one strict JSON text.
	ErrJSON = errors.New("not strict JSON")
	// ErrNumberRange: a number's exponent lies beyond ±1000.
	ErrNumberRange = errors.New("number out of range")
	// ErrPointer: not a JSON Pointer (RFC 6901), or one that cannot be used here.
	ErrPointer = errors.New("bad JSON Pointer")
	// ErrNormalize: an unknown normalising step, or a bad pattern.
	ErrNormalize = errors.New("bad normaliser")
	// ErrDefinition: a definition of an unknown version, with a name that is
	// no fact, or that contradicts itself.
	ErrDefinition = errors.New("bad identity definition")
	// ErrFactMissing: a fact that belongs in the key is empty or not UTF-8.
	ErrFactMissing = errors.New("fact missing")
	// ErrTargetMissing: a target argument is absent, null or "".
	ErrTargetMissing = errors.New("target missing")
)
