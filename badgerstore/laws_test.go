package badgerstore_test

import (
	"testing"

	"toolguard.dev/badgerstore"
	"toolguard.dev/toolguard"
	"toolguard.dev/toolguard/storetest"
)

func TestLaws(t *testing.T) {
	storetest.Laws(t, func(t *testing.T) storetest.Opener {
		dir := t.TempDir()
		return func(t *testing.T) toolguard.Store {
			s, err := badgerstore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}
