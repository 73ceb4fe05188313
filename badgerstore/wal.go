package badgerstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dgraph-io/ristretto/v2/z"
)

// A log of a memory table, as Badger 4 writes it: 20 bytes, records, zeros. A record:
//
//	meta 1 | user meta 1 | uvarint: length of the key, of the value, expiry | key, which ends in ^sequence 8 | value | CRC-32C 4
//
// The records of a transaction carry one sequence; another kind of record, with the sequence in digits, closes it.
// When Badger meets a bad record it takes it for the end of the log and cuts off what follows. Each transaction is
// synced before the next is begun, so that after a crash at most one of them, the last, can be torn: records of two
// behind a bad one are damage.
const (
	walHead = 20

	walDelete  = 1 << 0
	walTxn     = 1 << 6
	walFin     = 1 << 7
	walMaxKey  = 1 << 16
	walVersion = 8
)

var (
	walFinKey = []byte("!badger!txn")
	walSum    = crc32.MakeTable(crc32.Castagnoli)
	prefixes  = []byte{prefixRecord, prefixIntent, prefixRepeat, prefixLane, prefixCall, prefixBody, prefixBundle, prefixDocument, prefixSheet, prefixQueue, prefixHistory, prefixJournal, prefixChain, prefixToken, prefixSequence}
)

// removeEmptyLogs removes logs, of memory tables and of values, that are there and were never written, as a loss of power
// can leave them: Badger makes an error of them.
func removeEmptyLogs(data string) error {
	for _, suffix := range []string{logSuffix, valueSuffix} {
		logs, err := fs.Glob(os.DirFS(data), "*"+suffix)
		if err != nil {
			return err
		}
		for _, name := range logs {
			path := filepath.Join(data, name)
			info, err := os.Stat(path)
			if err == nil && info.Size() == 0 {
				err = os.Remove(path)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// walRecord is what matters of a record.
type walRecord struct {
	fin  bool
	seq  uint64
	size int
}

// readRecord reads the record that b begins with, if it begins with one.
func readRecord(b []byte) (r walRecord, ok bool) {
	if len(b) < 2 || b[0]&(walTxn|walFin) == 0 || b[0]&^(walDelete|walTxn|walFin) != 0 {
		return r, false
	}
	s := scanner{rest: b[2:]}
	klen, vlen := s.uvarint(), s.uvarint()
	s.uvarint()
	if klen <= walVersion || klen > walMaxKey || vlen > math.MaxUint32 {
		return r, false
	}
	key, value := s.take(klen), s.take(vlen)
	if s.bad {
		return r, false
	}
	name := key[:len(key)-walVersion]
	r = walRecord{fin: b[0]&walFin != 0, seq: math.MaxUint64 - binary.BigEndian.Uint64(key[len(name):]), size: len(b) - len(s.rest) + crc32.Size}
	if r.fin != bytes.Equal(name, walFinKey) || !r.fin && bytes.IndexByte(prefixes, name[0]) < 0 {
		return r, false
	}
	if r.fin {
		if n, err := strconv.ParseUint(string(value), 10, 64); err != nil || n != r.seq {
			return r, false
		}
	}
	sum := s.take(crc32.Size)
	return r, !s.bad && crc32.Checksum(b[:r.size-crc32.Size], walSum) == binary.BigEndian.Uint32(sum)
}

// scanLog returns the sequence of the last whole transaction of a log, 0 if it has none, or says where it is damaged.
func scanLog(path string) (last uint64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if info.Size() <= walHead {
		return 0, nil
	}
	file, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close(-1)
	b := file.Data
	last, end := wholeTransactions(b)
	if first, second := loose(b[end:], last); second != 0 {
		return 0, fmt.Errorf("what was written at sequence %d cannot be read, at byte %d, and more follows it", first, end)
	}
	return last, nil
}

// wholeTransactions returns the sequence of the last of the transactions that a log begins with, and where that ends.
func wholeTransactions(b []byte) (last uint64, end int) {
	end = walHead
	var open uint64
	for at := end; ; {
		r, ok := readRecord(b[at:])
		if !ok || open != 0 && r.seq != open || open == 0 && r.fin {
			return last, end
		}
		open = r.seq
		at += r.size
		if r.fin {
			last, end, open = r.seq, at, 0
		}
	}
}

// loose looks for records, wherever they begin, and returns the sequences of the first two transactions they are of.
func loose(b []byte, last uint64) (first, second uint64) {
	for at := 0; at < len(b); {
		if b[at] == 0 {
			at += zeros(b[at:])
			continue
		}
		r, ok := readRecord(b[at:])
		if !ok || r.seq <= last {
			at++
			continue
		}
		switch {
		case first == 0:
			first = r.seq
		case r.seq != first:
			return first, r.seq
		}
		at += r.size
	}
	return first, 0
}

// zeros returns how many zeros b begins with.
func zeros(b []byte) int {
	n := 0
	for n+8 <= len(b) && binary.NativeEndian.Uint64(b[n:]) == 0 {
		n += 8
	}
	for n < len(b) && b[n] == 0 {
		n++
	}
	return n
}
