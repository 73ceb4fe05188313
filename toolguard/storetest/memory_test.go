package storetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"toolguard.dev/toolguard"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Opener {
		m := NewMemory()
		first := true
		return func(*testing.T) toolguard.Store {
			if !first {
				m = m.Reopen()
			}
			first = false
			return m
		}
	})
}

func TestMemoryWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, Store: NewMemory()}
		b.put(&toolguard.Write{Operation: operation("acme", "k"), Lazy: true})
		time.Sleep(toolguard.LazyDelay - time.Nanosecond)
		if b.get("k") != nil {
			t.Fatal("visible too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if b.get("k") == nil {
			t.Fatal("not visible")
		}
	})
}

func TestMemoryFailLeavesNothing(t *testing.T) {
	m := NewMemory()
	full := true
	m.Fail = func(*toolguard.Write) error {
		if full {
			return toolguard.ErrStoreFull
		}
		return nil
	}
	b := &bench{T: t, Store: m}
	b.refuses(&toolguard.Write{Operation: operation("acme", "k")}, toolguard.ErrStoreFull)
	if b.get("k") != nil {
		t.Fatal("stored")
	}
	full = false
	b.store(operation("acme", "k"))
}

func TestMemoryLosesAnAcknowledgement(t *testing.T) {
	m := NewMemory()
	lose := true
	m.LoseAck = func(w *toolguard.Write) bool { return lose }
	b := &bench{T: t, Store: m}
	b.refuses(&toolguard.Write{Token: "lost", Operation: operation("acme", "k")}, toolguard.ErrStoreBroken)
	b.refuses(&toolguard.Write{Operation: operation("acme", "k2")}, toolguard.ErrStoreBroken)
	if b.get("k") == nil {
		t.Fatal("not applied, or not readable")
	}
	lose, b.Store = false, m.Reopen()
	again := operation("acme", "k")
	b.put(&toolguard.Write{Token: "lost", Operation: again})
	if again.Rev == 0 {
		t.Fatal("not stamped")
	}
}

func TestMemoryDiesLikeAProcess(t *testing.T) {
	m := NewMemory()
	b := &bench{T: t, Store: m}
	b.store(operation("acme", "k1"))
	b.put(&toolguard.Write{Operation: operation("acme", "k2"), Lazy: true})
	copied := m.Snapshot()
	b.store(operation("acme", "k3"))
	b.put(&toolguard.Write{Operation: operation("acme", "k4"), Lazy: true})
	again := m.Reopen()
	if err := m.Commit(context.Background(), &toolguard.Write{Operation: operation("acme", "k5")}); !errors.Is(err, toolguard.ErrStoreClosed) {
		t.Fatalf("a dead store answers: %v", err)
	}
	b.Store = copied
	b.wants(toolguard.Query{All: true, Limit: 10}, "k1")
	b.Store = again
	b.wants(toolguard.Query{All: true, Limit: 10}, "k3", "k2", "k1")
}
