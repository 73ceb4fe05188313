package badgerstore

import (
	"testing"

	"github.com/dgraph-io/badger/v4"
)

func TestLargestMerge(t *testing.T) {
	table := func(left, right string, size uint32) badger.TableInfo {
		return badger.TableInfo{Left: []byte(left), Right: []byte(right), OnDiskSize: size}
	}
	lower := []badger.TableInfo{table("q", "s", 400), table("a", "c", 100), table("d", "f", 200), table("f1", "k", 300)}
	for _, c := range []struct {
		name  string
		upper []badger.TableInfo
		want  uint64
	}{
		{"none", nil, 0},
		{"between two", []badger.TableInfo{table("l", "p", 7)}, 7},
		{"within one", []badger.TableInfo{table("a1", "b", 7)}, 107},
		{"up to the first key of one", []badger.TableInfo{table("l", "q", 7)}, 407},
		{"from the last key of one", []badger.TableInfo{table("k", "l", 7)}, 307},
		{"over three", []badger.TableInfo{table("b", "g", 7)}, 607},
		{"over all", []badger.TableInfo{table("a", "z", 7)}, 1007},
		{"the largest of several, in any order", []badger.TableInfo{table("r", "z", 5), table("a", "b", 9), table("e", "g", 7)}, 507},
	} {
		if got := largestMerge(c.upper, lower); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := largestMerge([]badger.TableInfo{table("a", "z", 7)}, nil); got != 7 {
		t.Errorf("above nothing: %d, want 7", got)
	}
}
