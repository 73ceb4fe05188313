package toolguard

import (
	"context"
	"time"
)

// Store keeps operations, their bodies, the audit and a few documents. It knows no status: it compares
// revisions, keeps order and tells its own writes from others'. [toolguard.dev/toolguard/storetest] is its
// conformance suite. All methods are safe for concurrent use. Every returned value is the caller's to keep and change.
//
// An intent is named by the key that its first occurrence has, so that this one needs no index to be found: no operation
// of another intent has that key, and none of another tenant has that intent.
type Store interface {
	// Commit applies w whole and durably before it returns nil, or not at all.
	//
	// It refuses with ErrConflict when w.Operation's revision is not the stored one (0: there must be none), or
	// when another operation of w.Fence was written after the sequence w.FenceSince; it may do so too when it
	// cannot tell, because w.FenceSince lies before it was opened. A write whose Token is the stored one is its own
	// write, come again because its acknowledgement was lost: Commit returns nil and changes nothing, but sets Rev
	// and Dispatched. (Writes without an operation are recognised for ten minutes.) On success it sets Rev, Token
	// and, with w.Dispatch, Dispatched on w.Operation, and on each of w.Events what [Event.Link] and Seq hold; it
	// links them in the order given, each with a sequence of its own, at most the write's Rev.
	//
	// With w.Lazy the write is only queued, nothing is set on w, and Commit returns nil at once: the write becomes
	// durable, and visible, with the next durable write, after at most LazyDelay, and at Close, in the order in
	// which writes came; an error or conflict is dropped silently.
	//
	// ErrStoreFull means that nothing was written because space is short; a later try may succeed. ErrTooLarge, and an
	// error that names what could not be read, mean that nothing was written either. ErrStoreAway means that the outcome
	// of this write is not known, and may not be decided yet; later writes may go through. After any other failure the
	// outcome of this write is not known, and the store refuses every later write with ErrStoreBroken until it was
	// opened anew; reads go on.
	// The context bounds only the wait to be taken up: a write once begun is finished.
	Commit(ctx context.Context, w *Write) error

	// Operations returns the operations that q selects, in q's order, and the store's sequence as of which they
	// were read (every write up to it is in them).
	Operations(ctx context.Context, q Query) (Page, error)

	// Body returns the body of an operation. ErrNotFound: never stored, or expired.
	Body(ctx context.Context, key string) (Body, error)

	// Events returns up to limit audit events (0: all) with a sequence above after, in order, of all tenants.
	Events(ctx context.Context, after uint64, limit int) ([]Event, error)

	// History returns up to limit audit events (0: all) of an operation with a sequence above after, in order.
	History(ctx context.Context, key string, after uint64, limit int) ([]Event, error)

	// Document returns a named document and its revision. ErrNotFound: there is none.
	Document(ctx context.Context, name string) (data []byte, rev uint64, err error)

	// Close makes queued writes durable and gives the store up.
	Close() error
}

// LazyDelay is the longest that a lazy write stays queued.
const LazyDelay = time.Second

// Write is one atomic change.
type Write struct {
	Token string // unique to this write, at most 64 bytes

	Operation *Operation // nil: the write carries only events or a document
	Open      bool       // list the operation among the open ones; false: take it off
	Holding   bool       // with Open: it may hold other calls back
	Due       bool       // with Open: something may have to be done about it without a call
	Queue     string     // the queue of what waits for a person that it stands in from now on; "" for none
	Dispatch  bool       // a dispatch starts: stamp Dispatched and list the operation first in each of Lanes
	Lanes     []string   // names of sequences of dispatches
	Call      string     // index the operation under this identity of a call; "" for none
	CallUntil time.Time  // until then; zero: for ever

	Fence      string // what only one writer at a time may decide about; "" for none
	FenceSince uint64 // the sequence as of which that was decided

	Body      *Body     // replaces the operation's body; nil leaves it
	BodyUntil time.Time // with Body: when it expires; zero: never

	Events []Event

	Document    string // name of a document to write; "" for none
	Data        []byte
	DocumentRev uint64 // must be the stored document's revision (0: there must be none), else ErrConflict

	Lazy bool
}

// Query selects operations: exactly one of Key, Intent, Lane, Call, Open, Queue and All is set.
type Query struct {
	Tenant string // only this tenant's; "" only where an operator asks

	Key    string // the one with that key
	Intent string // of that intent, latest occurrence first
	Lane   string // dispatched in that lane at a sequence above After, latest first; a store may forget all but the latest 16 of a lane
	Call   string // last indexed under that identity of a call
	Open   bool   // listed as open, in no order; narrowed by the members below
	Queue  string // standing in that queue, latest created first
	All    bool   // every one, latest created first

	After    uint64 // with Lane
	Workflow string // with Open: only of this workflow and action …
	Action   string
	Subject  string // … of this subject, if not ""
	Holding  bool   // … and only those that may hold others back
	Due      bool   // … and only those about which something may have to be done

	Before uint64 // with All and Queue: only those created at a sequence below it (a Page's Next); 0: from the latest
	Limit  int    // at most so many; 0: no limit, with All and Queue 100
}

// Page is the answer to a Query.
type Page struct {
	Operations []*Operation
	Seq        uint64 // as of which it was read
	Next       uint64 // with All and Queue: Before of the next page; 0: no more
	Count      int    // with Queue: how many of the tenant's stand in it, whatever Before and Limit; counted up to CountLimit
}

// CountLimit is how far a queue is counted.
const CountLimit = 100_000
