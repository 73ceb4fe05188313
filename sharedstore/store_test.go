package sharedstore_test

import (
	"testing"

	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

// owners are the places where the process may be that owns the store.
var owners = map[string]func(t *testing.T, dir string){
	"owner in this process":    func(t *testing.T, dir string) { open(t, dir) },
	"owner in another process": func(t *testing.T, dir string) { holder(t, dir) },
	"owner itself":             func(*testing.T, string) {},
}

func clientOf(own func(t *testing.T, dir string)) func(t *testing.T) storetest.Opener {
	return func(t *testing.T) storetest.Opener {
		dir := t.TempDir()
		own(t, dir)
		return func(t *testing.T) toolguard.Store { return open(t, dir) }
	}
}

func TestStore(t *testing.T) {
	for name, own := range owners {
		t.Run(name, func(t *testing.T) { storetest.Run(t, clientOf(own)) })
	}
}

func TestLaws(t *testing.T) {
	for name, own := range owners {
		t.Run(name, func(t *testing.T) { storetest.Laws(t, clientOf(own)) })
	}
}
