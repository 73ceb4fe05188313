package toolguard

import "errors"

// Conditions a caller may test for with errors.Is.
var (
	// ErrConflict: somebody else wrote first; read again and decide again.
	ErrConflict = errors.New("changed by another writer")
	// ErrNotFound: there is no such operation, body or document.
	ErrNotFound = errors.New("not found")
	// ErrStoreFull: too little space is left to record anything; nothing was written.
	ErrStoreFull = errors.New("the ledger has too little space left")
	// ErrStoreBroken: an earlier write failed, so no write is taken until the store was opened anew.
	ErrStoreBroken = errors.New("the ledger had a write error and must be opened anew")
	// ErrStoreAway: whoever holds the ledger did not answer in time. Whether a write was made is not known; later ones
	// may go through.
	ErrStoreAway = errors.New("the ledger does not answer")
	// ErrStoreClosed: the store was given up.
	ErrStoreClosed = errors.New("the ledger is closed")
	// ErrClosed: the guard was closed and starts no attempt any more.
	ErrClosed = errors.New("the guard is closing")
	// ErrTooLarge: a write is larger than the store takes; nothing was written.
	ErrTooLarge = errors.New("too large for the ledger")
	// ErrFormat: the ledger was written by another format than this program knows.
	ErrFormat = errors.New("ledger format")
	// ErrDamaged: the ledger, or its audit, is less than it was, or cannot be read.
	ErrDamaged = errors.New("the ledger is damaged")
	// ErrSealed: secrets cannot be kept or read, because their key is missing or another one.
	ErrSealed = errors.New("secrets are sealed")
	// ErrTransition: the operation's status does not allow this.
	ErrTransition = errors.New("not possible in this status")
	// ErrForbidden: this person may not decide this.
	ErrForbidden = errors.New("not allowed")
	// ErrTooEarly: an attempt may still be on its way; only a forced decision goes through.
	ErrTooEarly = errors.New("too early")
)
