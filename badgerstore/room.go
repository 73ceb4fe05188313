package badgerstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// room knows whether the disk has space for what Badger may do next. Badger writes through memory maps, so a disk
// that fills up under it kills the process; it must never be let near that.
type room struct {
	dir      string
	minFree  uint64
	memTable uint64
	db       *badger.DB // nil until the ledger is open

	moving  uint64    // bytes that compactions may need beside what they replace
	checked time.Time // when that was found out
	left    uint64    // bytes that were free then
	plenty  time.Time // when there was last plenty of space
}

const (
	plenty      = 8 << 30               // of free space: nothing that Badger does by itself needs more
	plentyFor   = 50 * time.Millisecond // no disk fills up by so much within this
	roomRefresh = time.Second
)

func newRoom(dir string, minFree uint64, memTable int64) *room {
	if minFree == 0 {
		minFree = DefaultMinFree
	}
	return &room{dir: dir, minFree: minFree, memTable: uint64(memTable)}
}

func (r *room) watch(db *badger.DB) { r.db = db }

// short reports whether the next group has to be refused. Only the committer calls it.
func (r *room) short() bool {
	if time.Since(r.plenty) < plentyFor {
		return false
	}
	free, err := freeBytes(r.dir)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // then it is not space that is missing, and the commit says so
	}
	if free > r.minFree && free-r.minFree > plenty {
		r.plenty = time.Now()
		return false
	}
	// A fast disk fills up by tables in a second, and merges free what they replaced.
	if time.Since(r.checked) > roomRefresh || max(free, r.left)-min(free, r.left) > r.memTable/2 {
		r.moving, r.checked, r.left = r.compaction(), time.Now(), free
	}
	return free < r.minFree+r.tables()+r.moving
}

// canOpen refuses a disk on which Badger could not even read its logs again and flush them.
func (r *room) canOpen() error {
	free, err := freeBytes(r.dir)
	if err == nil && free < r.tables() {
		err = fmt.Errorf("%w: opening it needs %d bytes, %d are free", toolguard.ErrStoreFull, r.tables(), free)
	}
	if err != nil {
		return fmt.Errorf("ledger %s: %w", r.dir, err)
	}
	return nil
}

// canFlush reports whether Badger can close: it makes tables of its memory tables then, and merges some.
func (r *room) canFlush() bool {
	free, err := freeBytes(r.dir)
	return err == nil && free >= memTables*r.memTable+r.compaction()
}

// tables is what the memory tables take on disk, the one being filled and those waiting to be flushed: once as a
// log, once as a table.
func (r *room) tables() uint64 { return 2*r.memTable + memTables*r.memTable }

// compaction estimates what compactions can write before they delete: all of level 0, with the memory tables that come
// there before it begins (those that wait, and the one being made a table), and the level below it; and at the same time
// one table with all those it overlaps in the next level.
func (r *room) compaction() uint64 {
	first, base := (memTables+1)*r.memTable, uint64(0)
	for _, l := range r.db.Levels() {
		switch {
		case l.Level == 0:
			first += uint64(l.Size)
		case l.Size > 0 && base == 0:
			base = uint64(l.Size)
		}
	}
	levels := map[int][]badger.TableInfo{}
	for _, t := range r.db.Tables() {
		levels[t.Level] = append(levels[t.Level], t)
	}
	largest := uint64(0)
	for level, upper := range levels {
		if level > 0 {
			largest = max(largest, largestMerge(upper, levels[level+1]))
		}
	}
	return first + base + largest
}

// largestMerge is the size of the table, with those it overlaps in the next level, for which it is the largest. The tables of
// either level overlap none of their own.
func largestMerge(upper, lower []badger.TableInfo) (largest uint64) {
	byKey := func(a, b badger.TableInfo) int { return bytes.Compare(a.Left, b.Left) }
	slices.SortFunc(upper, byKey)
	slices.SortFunc(lower, byKey)
	first := 0 // of lower that ends behind where a table begins
	for _, t := range upper {
		for first < len(lower) && bytes.Compare(lower[first].Right, t.Left) < 0 {
			first++
		}
		size := uint64(t.OnDiskSize)
		for i := first; i < len(lower) && bytes.Compare(lower[i].Left, t.Right) <= 0; i++ {
			size += uint64(lower[i].OnDiskSize)
		}
		largest = max(largest, size)
	}
	return largest
}
