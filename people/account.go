package people

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"toolguard.dev/toolguard"
)

// Role is what a person may do. Each role may do what those before it may.
type Role string

const (
	Viewer   Role = "viewer"   // looks
	Reviewer Role = "reviewer" // also decides approvals
	Operator Role = "operator" // also resolves operations and orders repeats
)

// Roles are all roles, in their order.
var Roles = []Role{Viewer, Reviewer, Operator}

// ErrUnknown: no token was given, or nobody has it.
var ErrUnknown = errors.New("a reviewer's token is needed")

// Member is a person who proves by a token who they are.
type Member struct {
	Name    string
	Token   string // SHA-256 of the token, in hex
	Roles   []Role
	Tenants []string // whose operations exist for them; none: all
}

// Book is who may see and decide. It is safe for concurrent use and does not change.
type Book struct {
	members []Member
	sums    [][]byte
	local   string
}

// NewBook makes a book. Without members everything is allowed to the local user, under that name, and every record of a
// decision says that it is weak.
func NewBook(members []Member, local string) (*Book, error) {
	b := &Book{members: slices.Clone(members), local: local}
	for _, m := range members {
		sum, err := hex.DecodeString(m.Token)
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("reviewer %s: the token's SHA-256 is %d hex digits", m.Name, 2*sha256.Size)
		}
		b.sums = append(b.sums, sum)
	}
	return b, nil
}

// Open reports whether no token is needed: everybody is the local user.
func (b *Book) Open() bool { return len(b.members) == 0 }

// Identify returns the account of whoever has a token. It compares with every member in constant time. The error is
// ErrUnknown.
func (b *Book) Identify(token string) (Account, error) {
	if b.Open() {
		return Account{Person: toolguard.Person{Name: b.local}, role: Operator}, nil
	}
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range b.sums {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], b.sums[i]), i, found)
	}
	if found < 0 || token == "" {
		return Account{}, ErrUnknown
	}
	m := b.members[found]
	a := Account{Person: toolguard.Person{Name: m.Name, Proven: true, Tenants: slices.Clone(m.Tenants)}, role: Viewer}
	for _, r := range m.Roles {
		if slices.Index(Roles, r) > slices.Index(Roles, a.role) {
			a.role = r
		}
	}
	return a, nil
}

// Account is a person who was identified.
type Account struct {
	toolguard.Person
	role Role // the highest of theirs
}

// Role is the highest role of the person.
func (a Account) Role() Role { return a.role }

// May reports whether the person has a role, or one above it.
func (a Account) May(r Role) bool { return slices.Index(Roles, a.role) >= slices.Index(Roles, r) }

// needs says why the person may not do what takes a role; nil: they may.
func (a Account) needs(r Role, what string) error {
	if a.May(r) {
		return nil
	}
	return fmt.Errorf("%s may not %s, which takes the role %s: %w", a.Name, what, r, toolguard.ErrForbidden)
}

// NewToken makes a token of 130 random bits and its SHA-256 in hex, which is all that may be kept of it.
func NewToken() (token, sum string) {
	token = "tg_" + rand.Text()
	of := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(of[:])
}
