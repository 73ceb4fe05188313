// Package storetest holds the conformance suite of [toolguard.Store] and the plainest store that passes it.
//
// A store's own test is a few lines:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Opener {
//			dir := t.TempDir()
//			return func(t *testing.T) toolguard.Store {
//				s, err := mystore.Open(dir)
//				if err != nil {
//					t.Fatal(err)
//				}
//				return s
//			}
//		})
//	}
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// Opener opens the store of one place. Called again, after the store was closed, it opens the same place anew.
type Opener func(t *testing.T) toolguard.Store

// Run checks that a store keeps the contract of [toolguard.Store]. Each call of place returns the opener of a new and
// empty place.
func Run(t *testing.T, place func(t *testing.T) Opener) {
	for _, tests := range []map[string]func(*bench){writeTests, lazyTests, auditTests, queryTests, keepTests} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				b := &bench{T: t, open: place(t)}
				b.Store = b.open(t)
				t.Cleanup(func() { b.Store.Close() })
				test(b)
			})
		}
	}
}

// bench is one test at its store.
type bench struct {
	*testing.T
	toolguard.Store
	open   Opener
	tokens int
}

func (b *bench) reopen() {
	b.Helper()
	if err := b.Store.Close(); err != nil {
		b.Fatalf("close: %v", err)
	}
	b.Store = b.open(b.T)
}

// operation returns a new operation of a tenant with every member set that a store might lose.
func operation(tenant, key string) *toolguard.Operation {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	return &toolguard.Operation{
		Key: key, Intent: "intent of " + key, Material: json.RawMessage(`{"n":9007199254740993,"s":"<a&b>","v":1}`), Occurrence: 1,
		Action: "books/pay", Effect: registry.Write,
		Facts:      keyderive.Facts{Tenant: tenant, Workflow: "monthly", SourceEvent: "mail-7", Run: "run-3", CallID: "call_0"},
		Definition: "definition", Subject: "subject of " + key, Entity: "entity", Digest: "sha256:digest", Frozen: "frozen", Policy: "policy",
		Status: toolguard.StatusDispatching, Waited: true, Sent: 1, Generation: 1, Budget: 3, FirstSent: now, Created: now,
		Attempts: []toolguard.Attempt{{N: 1, Owner: "p1", CallID: "call_0", Started: now, Deadline: now.Add(time.Minute), Frozen: "frozen",
			SentKey: key, State: toolguard.AttemptOpen, Says: "\u2028 <said> \"so\""}},
		Allowed: &toolguard.Decision{Verdict: "repeat", By: "dana", At: now},
	}
}

func (b *bench) token() string {
	b.tokens++
	return fmt.Sprintf("token %d", b.tokens)
}

// put commits w, with a token if it has none, and must succeed.
func (b *bench) put(w *toolguard.Write) {
	b.Helper()
	if w.Token == "" {
		w.Token = b.token()
	}
	if err := b.Commit(context.Background(), w); err != nil {
		b.Fatalf("commit: %v", err)
	}
}

// store commits a plain write of op.
func (b *bench) store(op *toolguard.Operation) {
	b.Helper()
	b.put(&toolguard.Write{Operation: op})
}

func (b *bench) refuses(w *toolguard.Write, want error) {
	b.Helper()
	if w.Token == "" {
		w.Token = b.token()
	}
	if err := b.Commit(context.Background(), w); !errors.Is(err, want) {
		b.Fatalf("commit: got %v, want %v", err, want)
	}
}

func (b *bench) query(q toolguard.Query) toolguard.Page {
	b.Helper()
	page, err := b.Operations(context.Background(), q)
	if err != nil {
		b.Fatalf("%+v: %v", q, err)
	}
	return page
}

// get returns the stored operation, or nil.
func (b *bench) get(key string) *toolguard.Operation {
	b.Helper()
	ops := b.query(toolguard.Query{Key: key}).Operations
	if len(ops) == 0 {
		return nil
	}
	return ops[0]
}

func (b *bench) wants(q toolguard.Query, keys ...string) {
	b.Helper()
	got := keysOf(b.query(q).Operations)
	if q.Open { // in no order
		got, keys = sorted(got), sorted(keys)
	}
	if fmt.Sprint(got) != fmt.Sprint(keys) {
		b.Fatalf("%+v: got %v, want %v", q, got, keys)
	}
}

// eventually waits for what a store may do in its own time.
func (b *bench) eventually(what string, is func() bool) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !is(); <-tick.C {
		if time.Now().After(deadline) {
			b.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (b *bench) events(after uint64, limit int) []toolguard.Event {
	b.Helper()
	events, err := b.Events(context.Background(), after, limit)
	if err != nil {
		b.Fatalf("events: %v", err)
	}
	return events
}

func (b *bench) history(key string, after uint64, limit int) []toolguard.Event {
	b.Helper()
	events, err := b.History(context.Background(), key, after, limit)
	if err != nil {
		b.Fatalf("history: %v", err)
	}
	return events
}

// sameText compares what two values say.
func (b *bench) sameText(got, want any) {
	b.Helper()
	if g, w := text(b.T, got), text(b.T, want); g != w {
		b.Fatalf("got  %s\nwant %s", g, w)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	s, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(s)
}
