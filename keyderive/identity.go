package keyderive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
)

// Class says how an identity came about, and with it how long it lasts.
type Class int

// The classes, in falling order of what is known.
const (
	ClassDeclared Class = 1 // the operator declared it
	ClassFacts    Class = 2 // not declared: a source event, run or step, and all arguments
	ClassTurn     Class = 3 // not declared: at most a request, and all arguments
)

// Strict is true if an operation, once done, stays done for every later call
// with its identity.
func (c Class) Strict() bool { return c == ClassDeclared || c == ClassFacts }

// Identity is what makes a call the same as another. It does not change.
type Identity struct {
	Definition     string // ID of the definition that it was derived under
	Class          Class
	Payload        any    // arguments without the key argument, normalised, without defaults, with secrets veiled
	Material       any    // Payload without target and may_differ
	MaterialDigest string // Digest of Material
	// Intent names one thing to be done, whatever the occurrence: it is the
	// key of the first.
	Intent string
	// Subject is the hex SHA-256 of the canonical object of tenant, workflow,
	// action and target, the target as in the key material: what is acted on,
	// whatever the event, request, run or step.
	Subject string

	first    []byte // the canonical key material of the first occurrence
	from, to int    // where in it the occurrence is
}

// buffers are for texts that nobody keeps.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// Derive computes the identity of a call of action ("server/tool") with args,
// which [Parse] made.
//
// The arguments are taken without the key argument, then normalised; from that
// come the target values, and, without defaults, payload and material. The
// scope holds tenant and workflow, and the declared facts; where nothing is
// declared, those of source event, run and step that are known, and only if
// none is, the request.
//
// An error wraps [ErrFactMissing] and names a fact of the scope (or the action)
// that is empty or not UTF-8, or wraps [ErrTargetMissing] and names the pointer
// of a target value that is absent, null or "". 0, false, and any array and
// object are values. It wraps [ErrDefinition] where the definition has secrets
// and the deriver no [Veil].
func (d *Deriver) Derive(action string, f Facts, args any) (Identity, error) {
	if action == "" {
		return Identity{}, fmt.Errorf("%w: action is not known", ErrFactMissing)
	}
	scope, class := d.scope(&f)
	id := Identity{Definition: d.id, Class: class}

	if d.keyArgument != nil {
		args = d.keyArgument.remove(args)
	}
	args = normalized(d.rules, args)
	id.Payload = d.defaults.Drop(args)
	if len(d.secret) > 0 {
		if d.veil == nil {
			return Identity{}, fmt.Errorf("%w: secret without a veil", ErrDefinition)
		}
		id.Payload = d.secret.Replace(id.Payload, func(x any) any { return d.veil(AppendCanonical(nil, x)) })
	}
	id.Material = d.immaterial.remove(id.Payload)

	scratch := buffers.Get().(*[]byte)
	defer buffers.Put(scratch)
	buf := AppendCanonical((*scratch)[:0], id.Material)
	id.MaterialDigest = Digest(buf)
	*scratch = buf

	buf = append(buf[:0], `{"action":`...)
	buf = appendString(buf, action)
	id.from = len(buf)
	buf = append(buf, `,"occurrence":1`...)
	id.to = len(buf)
	buf = append(buf, `,"scope":`...)
	buf, err := f.appendScope(buf, scope)
	if err != nil {
		return Identity{}, err
	}
	target := len(buf)
	buf = append(buf, `,"target":`...)
	if buf, err = d.appendTarget(buf, args, id.MaterialDigest); err != nil {
		return Identity{}, err
	}
	targetEnd := len(buf)
	buf = append(buf, `,"v":1}`...)
	id.first = bytes.Clone(buf)
	id.Intent = KeyOf(id.first)

	buf = append(buf[:id.from], id.first[target:targetEnd]...)
	buf = append(buf, `,"tenant":`...)
	buf = appendString(buf, f.Tenant)
	buf = append(buf, `,"workflow":`...)
	buf = appendString(buf, f.Workflow)
	id.Subject = Hash(append(buf, '}'))
	return id, nil
}

// scope returns the facts that belong in the key.
func (d *Deriver) scope(f *Facts) (factSet, Class) {
	if d.declared {
		return d.facts, ClassDeclared
	}
	if known := f.known(factSourceEvent | factRun | factStep); known != 0 {
		return d.facts | known, ClassFacts
	}
	return d.facts | f.known(factRequest), ClassTurn
}

// appendTarget appends the "target" of the key material.
func (d *Deriver) appendTarget(dst []byte, args any, materialDigest string) ([]byte, error) {
	dst = append(dst, '{')
	if !d.declared {
		dst = append(dst, `"":`...)
		dst = appendString(dst, materialDigest)
	}
	for i := range d.target {
		t := &d.target[i]
		v, ok := t.pointer.Lookup(args)
		if !ok || v == nil || v == "" {
			return nil, fmt.Errorf("%w: %s", ErrTargetMissing, t.pointer.text)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, t.member...)
		dst = AppendCanonical(dst, v)
	}
	return append(dst, '}'), nil
}

// Key returns the operation key of an occurrence, counted from 1, and the
// canonical key material that it was made from:
//
//	{"action":…,"occurrence":n,"scope":{…},"target":{…},"v":1}
//
// An occurrence below 1 counts as 1. The material must not be changed.
func (id Identity) Key(occurrence int) (key string, material []byte) {
	if occurrence <= 1 {
		return id.Intent, id.first
	}
	material = id.occurrence(occurrence)
	return KeyOf(material), material
}

// occurrence is the canonical key material of an occurrence.
func (id *Identity) occurrence(n int) []byte {
	material := append(make([]byte, 0, len(id.first)+20), id.first[:id.from]...)
	material = append(material, `,"occurrence":`...)
	material = strconv.AppendInt(material, int64(n), 10)
	return append(material, id.first[id.to:]...)
}

// KeyOf returns the key of canonical key material: a UUIDv8 as in RFC 9562,
// appendix B.2, but without a namespace: the first 128 bits of the SHA-256,
// with the version and variant bits set.
func KeyOf(material []byte) string {
	sum := sha256.Sum256(material)
	sum[6] = sum[6]&0x0F | 0x80
	sum[8] = sum[8]&0x3F | 0x80
	var out [36]byte
	hex.Encode(out[0:8], sum[0:4])
	hex.Encode(out[9:13], sum[4:6])
	hex.Encode(out[14:18], sum[6:8])
	hex.Encode(out[19:23], sum[8:10])
	hex.Encode(out[24:36], sum[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// Generation returns the key to send downstream for generation g of a key: the
// key itself up to 1, then the key of {"v":1,"key":KEY,"generation":g}, for
// downstreams that would replay their refusal of an earlier one.
func Generation(key string, g int) string {
	if g <= 1 {
		return key
	}
	material := strconv.AppendInt([]byte(`{"generation":`), int64(g), 10)
	material = append(material, `,"key":`...)
	material = appendString(material, key)
	return KeyOf(append(material, `,"v":1}`...))
}
