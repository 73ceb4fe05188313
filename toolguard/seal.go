package toolguard

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Seal keeps the secret arguments of calls out of the ledger: what they were is sealed (AES-256-GCM), and what tells them
// apart is an HMAC. Make one with [NewSeal], always from the same key for the same ledger: under another key a retry would
// look like something new. It is safe for concurrent use.
type Seal struct {
	box  cipher.AEAD
	mac  []byte
	id   string // tells keys apart, and nothing of them
	lost error

	mu     sync.Mutex
	recent []*registry.Redactor // of the latest calls that had secrets, the oldest at next
	next   int
}

// SealKeySize is how many bytes a seal's key has.
const SealKeySize = 32

// NewSeal returns the seal of a key of SealKeySize random bytes.
func NewSeal(key []byte) (*Seal, error) {
	if len(key) != SealKeySize {
		return nil, fmt.Errorf("a seal's key has %d bytes, not %d", SealKeySize, len(key))
	}
	derive := func(use string) []byte {
		k, _ := hkdf.Expand(sha256.New, key, "toolguard "+use, SealKeySize) // fails only for long keys
		return k
	}
	block, err := aes.NewCipher(derive("seal"))
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	s := &Seal{mac: derive("veil")}
	if s.box, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	s.id = s.sum("id", nil)
	return s, nil
}

// LostSeal returns a seal without a key, where the key is lost or cannot be read: tools with secret arguments are
// registered and refuse their calls, but for those that the record alone answers.
func LostSeal(why error) *Seal { return &Seal{lost: why} }

// maxRecent is how many calls' secrets are hidden in log lines.
const maxRecent = 256

// remember makes the secrets of a call hidden in log lines from now on.
func (s *Seal) remember(r *registry.Redactor) {
	if s == nil || r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.recent {
		if old.Same(r) {
			return
		}
	}
	if len(s.recent) < maxRecent {
		s.recent = append(s.recent, r)
		return
	}
	s.recent[s.next] = r
	s.next = (s.next + 1) % maxRecent
}

// Redact returns a text without the secrets of the latest 256 calls that had other ones than the calls before. A text
// that comes from elsewhere than a call's answer goes through it, such as what a server writes to its stderr.
func (s *Seal) Redact(text string) string {
	if s == nil {
		return text
	}
	s.mu.Lock()
	recent := slices.Clone(s.recent)
	s.mu.Unlock()
	for _, r := range recent {
		text = r.Text(text)
	}
	return text
}

// sum is the hex HMAC of data for one use.
func (s *Seal) sum(use string, data []byte) string {
	m := hmac.New(sha256.New, s.mac)
	m.Write(append([]byte(use), 0))
	m.Write(data)
	return hex.EncodeToString(m.Sum(nil))
}

const sealedHash = "hmac-sha256:"

// veil stands for a secret value in identities.
func (s *Seal) veil(canonical []byte) string { return sealedHash + s.sum("value", canonical) }

// hash is [keyderive.Hash] for arguments with secrets, which a plain hash would let be guessed.
func (s *Seal) hash(arguments []byte) string { return sealedHash + s.sum("arguments", arguments) }

// blind stands for every secret value where there is no key.
func blind([]byte) string { return registry.Hidden }

// What Body.Sealed holds: a format, the length of the sealed arguments, these, and the sealed result if there is one.
const sealFormat = 1

func (s *Seal) seal(key string, arguments, result json.RawMessage) []byte {
	box := s.box.Seal(nil, nil, arguments, sealedFor("arguments", key))
	b := append(binary.AppendUvarint([]byte{sealFormat}, uint64(len(box))), box...)
	if result != nil {
		b = s.box.Seal(b, nil, result, sealedFor("result", key))
	}
	return b
}

func sealedFor(what, key string) []byte { return []byte(what + " " + key) }

// cut takes a sealed body apart.
func cut(sealed []byte) (arguments, result []byte, ok bool) {
	if len(sealed) == 0 || sealed[0] != sealFormat {
		return nil, nil, false
	}
	n, used := binary.Uvarint(sealed[1:])
	if rest := sealed[1+max(used, 0):]; used > 0 && n <= uint64(len(rest)) {
		return rest[:n], rest[n:], true
	}
	return nil, nil, false
}

// bare is the body without its result.
func (b *Body) bare() *Body {
	out := &Body{Arguments: b.Arguments}
	if _, result, ok := cut(b.Sealed); ok {
		out.Sealed = b.Sealed[:len(b.Sealed)-len(result)]
	}
	return out
}

// open returns the body as it was before it was sealed. The error wraps ErrSealed.
func (s *Seal) open(key string, b Body) (Body, error) {
	if len(b.Sealed) == 0 {
		return b, nil
	}
	switch {
	case s == nil:
		return Body{}, fmt.Errorf("operation %s: there is no key: %w", key, ErrSealed)
	case s.lost != nil:
		return Body{}, fmt.Errorf("operation %s: %w: %w", key, ErrSealed, s.lost)
	}
	arguments, result, ok := cut(b.Sealed)
	out := Body{Result: b.Result}
	var err error
	if out.Arguments, err = s.box.Open(nil, nil, arguments, sealedFor("arguments", key)); ok && err == nil && len(result) > 0 {
		out.Result, err = s.box.Open(nil, nil, result, sealedFor("result", key))
	}
	if !ok || err != nil {
		return Body{}, fmt.Errorf("operation %s: it was sealed with another key, or was changed: %w", key, ErrSealed)
	}
	return out, nil
}

// bodyOf is the body of an operation of t to keep: with its secrets sealed, and hidden in what is shown.
func (g *Guard) bodyOf(t *Tool, key string, arguments, result json.RawMessage) *Body {
	if len(t.Policy.Secret) == 0 {
		return &Body{Arguments: arguments, Result: result}
	}
	b := &Body{Sealed: g.seal.seal(key, arguments, result)}
	if args, err := keyderive.Parse(arguments); err == nil { // as it did before
		hide := t.Redactor(args)
		b.Arguments, b.Result = hide.Arguments(args), hide.JSON(result)
	}
	return b
}

// hider returns what hides the secrets of an attempt; nil where its tool has none.
func (g *Guard) hider(t *Tool, arguments json.RawMessage) *registry.Redactor {
	if t == nil || len(t.Policy.Secret) == 0 {
		return nil
	}
	args, _ := keyderive.Parse(arguments)
	hide := t.Redactor(args)
	g.seal.remember(hide)
	return hide
}

// hash is the hash of all bytes of a call's arguments.
func (g *Guard) hash(t *Tool, arguments []byte) string {
	if len(t.Policy.Secret) > 0 {
		return g.seal.hash(arguments)
	}
	return keyderive.Hash(arguments)
}

// rehash is the hash of arguments as an earlier one was made.
func (g *Guard) rehash(earlier string, arguments []byte) string {
	if strings.HasPrefix(earlier, sealedHash) {
		return g.seal.hash(arguments) // there is a key, or they would not have been unsealed
	}
	return keyderive.Hash(arguments)
}

// body reads an operation's body, unsealed.
func (g *Guard) body(ctx context.Context, key string) (Body, error) {
	body, err := g.store.Body(ctx, key)
	if err != nil {
		return body, err
	}
	return g.seal.open(key, body)
}

// shows tells whether a call's facts have a secret in them, and hides it there.
func shows(hide *registry.Redactor, f *keyderive.Facts) (found bool) {
	for _, fact := range []*string{
		&f.Tenant, &f.Workflow, &f.SourceEvent, &f.Request, &f.Run, &f.Step,
		&f.Session, &f.Actor, &f.CallID, &f.WorkflowVersion, &f.Client,
	} {
		if hide.Shows(*fact) {
			*fact, found = hide.Text(*fact), true
		}
	}
	return found
}

// recall reads the result of an operation as a call may see it again: whole where the call carries the same secrets, else
// without them.
func (g *Guard) recall(v *visit, op *Operation) (json.RawMessage, error) {
	body, err := g.store.Body(v.lasting, op.Key)
	if err != nil || len(body.Sealed) == 0 {
		return body.Result, err
	}
	whole, err := g.seal.open(op.Key, body)
	if err != nil {
		return nil, err
	}
	args, err := keyderive.Parse(whole.Arguments)
	if err == nil && v.Tool.Redactor(args).Same(v.hide) {
		return whole.Result, nil
	}
	return body.Result, err
}

// sealDocument names the document that tells with which key a ledger's secrets are sealed.
const sealDocument = "seal"

// sealRecord is that document.
type sealRecord struct {
	Key string `json:"key"` // Seal.id
}

// Sealed reports whether secrets in a store were ever sealed: then a new key is no way to read them, and must not be made.
func Sealed(ctx context.Context, store Store) (bool, error) {
	_, _, err := store.Document(ctx, sealDocument)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// bind makes sure that the seal's key is the ledger's, or makes it that where the ledger has none.
func (s *Seal) bind(ctx context.Context, store Store) error {
	if s.lost != nil {
		return fmt.Errorf("%w: %w", ErrSealed, s.lost)
	}
	for {
		data, _, err := store.Document(ctx, sealDocument)
		var r sealRecord
		switch {
		case err == nil:
			if json.Unmarshal(data, &r) != nil || r.Key != s.id {
				return fmt.Errorf("%w: the key is not the one that this ledger was begun with", ErrSealed)
			}
			return nil
		case !errors.Is(err, ErrNotFound):
			return err
		}
		data, _ = json.Marshal(sealRecord{s.id}) // a string: cannot fail
		if err = store.Commit(ctx, &Write{Token: newToken(), Document: sealDocument, Data: data}); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// veil gives a tool's derivers what they need for secrets. A tool whose seal is lost is locked, with the reason.
func (g *Guard) veil(ctx context.Context, t *Tool) error {
	secret := t.Deriver.Secret()
	for _, d := range t.earlier {
		secret = secret || d.Secret()
	}
	t.deriver = t.Deriver
	if !secret {
		return nil
	}
	if g.seal == nil {
		return fmt.Errorf("it has secret arguments, and the guard has no Seal to keep them with: %w", ErrSealed)
	}
	with := g.seal.veil
	switch err := g.seal.bind(ctx, g.store); {
	case errors.Is(err, ErrSealed):
		t.locked, with = err, blind
		t.Notes = append(t.Notes, fmt.Sprintf("%s is not called, because its secret arguments cannot be kept: %s. Put the right key back; what is on record as done is still answered.", t.Action(), strings.TrimPrefix(err.Error(), ErrSealed.Error()+": ")))
	case err != nil:
		return err
	}
	t.deriver = t.Deriver.WithVeil(with)
	for i, d := range t.earlier {
		t.earlier[i] = d.WithVeil(with)
	}
	return nil
}

// locked answers a call of a tool whose seal is lost: with what was done, as far as that can be told without the key, else
// not at all.
func (g *Guard) locked(v *visit) *Result {
	if v.id.Class == keyderive.ClassDeclared {
		page, err := g.operations(v.lasting, Query{Tenant: v.Facts.Tenant, Intent: v.id.Intent, Limit: 1})
		if err == nil && len(page.Operations) > 0 {
			op := page.Operations[0]
			s := situation{now: time.Now(), repeat: v.Tool.Policy.RepeatAfter}
			if op.Status == StatusSucceeded && !s.over(op) {
				return g.done(v, op)
			}
		}
	}
	return g.refuse(v, ReasonStoreUnavailable, "the key that keeps its secret arguments is missing, or is not the ledger's")
}

// done answers a call of a locked tool from the record of its operation, without the result.
func (g *Guard) done(v *visit, op *Operation) *Result {
	verdict := g.verdict(v, op, Replayed, ReasonBodyNotStored)
	tell := told{op: op}
	if body, err := g.store.Body(v.lasting, op.Key); err == nil {
		hidden, err := keyderive.Parse(body.Arguments)
		was, err2 := v.Tool.deriver.Derive(op.Action, op.Facts, hidden)
		if err == nil && err2 == nil && was.MaterialDigest != v.id.MaterialDigest {
			verdict.Outcome, verdict.Reason = Blocked, ReasonArgumentsChanged
			verdict.Differs = keyderive.Differ(was.Payload, v.id.Payload, 16)
		}
	}
	g.event(v, verdict)
	return g.result(verdict, registry.Answer{}, text(v.Tool.Name, verdict, tell), nil)
}
