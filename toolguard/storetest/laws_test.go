package storetest

import (
	"testing"

	"toolguard.dev/toolguard"
)

func TestLaws(t *testing.T) {
	Laws(t, func(*testing.T) Opener {
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
