package badgerstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"toolguard.dev/toolguard"
)

// mark is how far a ledger had come when that was last noted beside Badger. What Badger has may be more, as a mark is
// written at most once every markEvery, but never less: less is damage, and Badger would not tell.
type mark struct {
	seq      uint64
	manifest int64  // bytes of Badger's list of tables
	chains   int    // of the audit
	events   uint64 // in all of them
	ends     string // hex: the hashes at their ends, XORed
}

const (
	markEvery = time.Second

	// manifestRewritten is a size below which the list of tables has only ever grown: Badger writes it anew once ten
	// thousand tables are gone from it.
	manifestRewritten = 64 << 10
)

// setChains fills in what a mark says of the audit whose chains end so.
func (m *mark) setChains(ends map[string]chain) {
	var all [32]byte
	m.chains, m.events = len(ends), 0
	for _, end := range ends {
		m.events += end.seq
		hash, _ := hex.DecodeString(end.hash)
		for i := range min(len(hash), len(all)) {
			all[i] ^= hash[i]
		}
	}
	m.ends = hex.EncodeToString(all[:])
}

func (m *mark) text() string {
	return fmt.Sprintf("mark %d %d %d %d %s\n", m.seq, m.manifest, m.chains, m.events, m.ends)
}

func parseMark(line string) (*mark, error) {
	m := &mark{}
	_, err := fmt.Sscanf(line, "mark %d %d %d %d %s\n", &m.seq, &m.manifest, &m.chains, &m.events, &m.ends)
	return m, err
}

// sumLine closes the text of the file LEDGER, so that a changed bit shows.
func sumLine(text string) string {
	return fmt.Sprintf("sum %08x\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// fits says what is missing from a ledger that has come to seq and whose chains end so; "": nothing.
func (m *mark) fits(seq uint64, ends map[string]chain) string {
	now := mark{}
	now.setChains(ends)
	switch {
	case seq < m.seq:
		return fmt.Sprintf("it ends at sequence %d and had come to %d", seq, m.seq)
	case now.chains < m.chains || now.events < m.events:
		return fmt.Sprintf("its audit has %d events in %d chains and had %d in %d", now.events, now.chains, m.events, m.chains)
	case seq == m.seq && now.ends != m.ends:
		return "its audit does not end as it did"
	}
	return ""
}

// marker notes how far the ledger has come: a while after each write, and at the end.
type marker struct {
	home   *home
	ledger *ledger
	log    *slog.Logger

	mu    sync.Mutex // held to note what was written
	seq   uint64
	ends  map[string]chain
	armed bool
	timer *time.Timer

	file  sync.Mutex // held to write the file
	ended bool
}

func newMarker(h *home, l *ledger, log *slog.Logger, seq uint64, ends map[string]chain) *marker {
	return &marker{home: h, ledger: l, log: log, seq: seq, ends: maps.Clone(ends)}
}

// wrote takes note of a group that is on disk.
func (k *marker) wrote(g *group) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seq = g.seq
	for i := range g.entries {
		if e := &g.entries[i]; e.key[0] == prefixChain {
			k.ends[string(e.key[1:])], _ = decodeChain(e.value)
		}
	}
	if k.armed {
		return
	}
	k.armed = true
	if k.timer == nil {
		k.timer = time.AfterFunc(markEvery, k.later)
	} else {
		k.timer.Reset(markEvery)
	}
}

// later writes the mark in passing. One that cannot be written, on a full disk, leaves an older one in force.
func (k *marker) later() {
	k.file.Lock()
	defer k.file.Unlock()
	if k.ended {
		return
	}
	if err := k.write(); err != nil {
		k.log.Debug("ledger: how far it has come was not noted", "error", err)
	}
}

// end has the mark written no more; nothing may be written to the ledger any more.
func (k *marker) end() {
	k.file.Lock()
	defer k.file.Unlock()
	k.ended = true
}

// write notes how far the ledger has come, unless its folder is another one by now. The file is held, or nobody else's.
func (k *marker) write() error {
	k.mu.Lock()
	k.armed = false
	m := &mark{seq: k.seq}
	m.setChains(k.ends)
	k.mu.Unlock()
	if err := k.home.changed(); err != nil {
		return err
	}
	var err error
	if m.manifest, err = durable(filepath.Join(k.home.dir, dataFolder, badger.ManifestFilename)); err != nil {
		return err
	}
	if k.ledger.mark != nil && *k.ledger.mark == *m {
		return nil
	}
	l := *k.ledger
	l.mark = m
	if err := l.write(k.home.dir); err != nil {
		return err
	}
	k.ledger = &l
	return nil
}

// Ends returns the ends of the audit's chains as of some moment after every write that was acknowledged; see
// [toolguard.Ended].
func (s *Store) Ends(ctx context.Context) (ends map[string]toolguard.ChainEnd, err error) {
	err = s.read(ctx, nil, func(*reading, []string) error {
		s.marker.mu.Lock()
		defer s.marker.mu.Unlock()
		ends = make(map[string]toolguard.ChainEnd, len(s.marker.ends))
		for name, end := range s.marker.ends {
			ends[name] = toolguard.ChainEnd{Events: end.seq, Hash: end.hash}
		}
		return nil
	})
	return ends, err
}

// durable returns how many bytes of a file are on disk whatever happens.
func durable(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Sync()
}

// readMark reads the rest of the file LEDGER, behind what every ledger has; a ledger may have no mark yet.
func (l *ledger) readMark(text string) error {
	head, sum, found := cutLast(text, "sum ")
	if !found {
		return nil
	}
	if sumLine(head) != sum {
		return fmt.Errorf("its sum is wrong")
	}
	_, line, found := cutLast(head, "mark ")
	if !found {
		return nil
	}
	var err error
	l.mark, err = parseMark(line)
	return err
}

// cutLast cuts the last line off, if it begins so.
func cutLast(text, begin string) (head, line string, ok bool) {
	at := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n") + 1
	return text[:at], text[at:], strings.HasPrefix(text[at:], begin)
}
