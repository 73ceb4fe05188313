package badgerstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// memTableSize bounds one group of writes (15 % of it), the memory of the tables not yet flushed, and what is
	// read again after a crash.
	memTableSize = 32 << 20
	memTables    = 2

	// Badger merges level 0 into the next level when it has so many tables, each a full memory table, and makes writes
	// wait at twice as many. Keys of operations are random, so that a merge writes all of the next level anew: one of
	// larger levels writes a fifth fewer bytes in all than with Badger's defaults, 5 tables and 10 MB. But a merge needs
	// their size in free space.
	levelZeroTables = 8
	baseLevelSize   = 64 << 20

	valueThreshold = 1 << 20 // Badger's maximum: values below it stay out of its value log
)

func badgerOptions(dir string, memTable int64, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithSyncWrites(badgerSyncs).
		WithDetectConflicts(false). // the committer is the only writer and compares revisions itself
		WithNumVersionsToKeep(1).
		WithValueThreshold(valueThreshold).
		WithValueLogFileSize(2 * valueThreshold). // stays empty, but is mapped
		WithMemTableSize(memTable).
		WithNumMemtables(memTables).
		WithNumCompactors(2).
		WithNumLevelZeroTables(levelZeroTables).
		WithNumLevelZeroTablesStall(2 * levelZeroTables).
		WithBaseLevelSize(baseLevelSize).
		WithCompression(options.None). // values are packed already, and blocks need no cache: they are mapped
		WithBlockCacheSize(0).
		WithIndexCacheSize(0). // indexes are mapped, not copied
		WithChecksumVerificationMode(options.OnBlockRead).
		WithMetricsEnabled(false).
		WithLogger(badgerLog{log})
}

// badgerLog hands Badger's own lines on: what it reports in passing at debug level, the rest as warnings.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(f string, a ...any)   { l.print(slog.LevelWarn, f, a) }
func (l badgerLog) Warningf(f string, a ...any) { l.print(slog.LevelWarn, f, a) }
func (l badgerLog) Infof(f string, a ...any)    { l.print(slog.LevelDebug, f, a) }
func (l badgerLog) Debugf(f string, a ...any)   { l.print(slog.LevelDebug, f, a) }

func (l badgerLog) print(level slog.Level, format string, args []any) {
	if ctx := context.Background(); l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "badger: "+strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
