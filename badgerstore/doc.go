// Package badgerstore keeps a toolguard ledger in one folder, on Badger.
//
// One process at a time holds a ledger. Writes of all its goroutines meet in one committer, which compares
// revisions, links the audit and puts a whole group of writes into one synced transaction. Reads never wait for it:
// they see the ledger as of the last group that is on disk.
//
// The folder holds:
//
//	LOCK.toolguard  held with flock(2) by the process that has the ledger open; names it
//	FORMAT          the format of everything else
//	LEDGER          the ledger's identity and settings that may not change any more
//	badger/         the data
package badgerstore
