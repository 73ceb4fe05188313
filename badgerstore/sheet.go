package badgerstore

import "encoding/binary"

// sheet lists the operations that one group opened: one entry for all of them. It goes once none of them is open any
// more; where few are left, they move to a newer sheet, so that opening a ledger reads little more than what is open.
// Only the committer looks at it.
//
//	for each operation: key | listing
type sheet struct {
	key  []byte // in Badger
	size int    // how many operations stand on it
	open map[string]struct{}
}

const (
	sheetFull   = 256 << 10
	sheetMoves  = 64 << 10 // bytes that one group moves at most
	sheetSparse = 4        // one in so many is left
)

func sheetKey(seq uint64, n int) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{prefixSheet}, seq), byte(n))
}

// relist notes that c's operation stands on a sheet, or no longer does. It returns the listing that is in force.
func (g *group) relist(c *change, old *listing) *listing {
	l := c.listing
	switch {
	case l == nil && old == nil:
		return nil
	case l != nil && old != nil && old.same(l):
		if l.holding == old.holding && l.due == old.due {
			return old
		}
		l.sheet = old.sheet
	case old != nil && old.sheet != nil: // one without a sheet was opened in this group
		delete(old.sheet.open, old.key)
		if g.left == nil {
			g.left = map[*sheet]struct{}{}
		}
		g.left[old.sheet] = struct{}{}
	}
	set(&g.listings, c.key, l)
	return l
}

// writeSheets puts what g opened on a sheet, and takes away the sheets on which g left nothing, or little.
func (k *committer) writeSheets(g *group) {
	moved := 0
	for s := range g.left {
		if len(s.open) > 0 && (len(s.open)*sheetSparse > s.size || moved > sheetMoves || !k.empty(g, s, &moved)) {
			continue
		}
		g.entries = append(g.entries, entry{key: s.key, gone: true})
	}
	var s *sheet
	n, text := 0, g.borrow()
	for key, l := range g.listings {
		if l == nil || l.sheet != nil {
			continue
		}
		if s == nil {
			s = &sheet{key: sheetKey(g.seq, n), open: map[string]struct{}{}}
		}
		l.sheet = s
		s.open[key] = struct{}{}
		s.size++
		if text = appendListing(appendName(text, key), l); len(text) > sheetFull {
			g.put(s.key, g.lend(text))
			s, text = nil, nil
			n++
		}
	}
	if s != nil {
		g.put(s.key, g.lend(text))
	}
}

// empty has what is left on a sheet written on g's, unless some of it cannot be read.
func (k *committer) empty(g *group, s *sheet, moved *int) bool {
	heads := make(map[string]head, len(s.open))
	for key := range s.open {
		h, err := k.head(key)
		if err != nil || h.listing == nil {
			return false
		}
		heads[key] = h
	}
	for key, h := range heads {
		l := *h.listing
		l.sheet = nil
		h.listing = &l
		*moved += len(key) + l.size()
		set(&g.heads, key, h)
		set(&g.listings, key, &l)
	}
	clear(s.open)
	return true
}

// scanSheet calls f with the listings of a sheet.
func scanSheet(b []byte, f func(*listing) error) error {
	for s := (scanner{rest: b}); len(s.rest) > 0; {
		l := scanListing(&s)
		if s.bad {
			return errDamaged
		}
		if err := f(l); err != nil {
			return err
		}
	}
	return nil
}
