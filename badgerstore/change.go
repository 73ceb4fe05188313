package badgerstore

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

const (
	// MaxWrite is how many bytes one write may take on disk, in all.
	MaxWrite = MaxBody + 512<<10

	maxValue = valueThreshold - 1 // of a value in one piece; an operation, or a write's events, may have half of that
	maxName  = 4 << 10
	maxToken = 64

	laneBytes  = 2 << 10 // more than a lane of usual keys takes
	chainBytes = 512
	linkBytes  = 96 // what the journal adds to an event
	entryBytes = 64 // what Badger adds to each key and value

	tokenLife = 10 * time.Minute // of writes without an operation
)

// change is a write on its way to the disk. Whatever needs no order is done in the caller's goroutine: what is left
// to the committer is to compare, to number and to link.
type change struct {
	token string
	lazy  bool
	size  int

	key        string // of the operation; "" for none
	rev        uint64 // that it must have
	tenant     string
	intent     string
	occurrence int
	operation  operation
	listing    *listing
	queue      string
	dispatch   bool
	lanes      []string
	call       string
	callUntil  time.Time
	body       *blob
	inline     []byte // the body, where the record itself keeps it
	bundled    []byte // the body, where a bundle is to hold it, until expires
	expires    uint64

	fence string
	since uint64

	events []event

	document    string
	data        *blob
	documentRev uint64

	done     sync.WaitGroup // for what follows
	err      error
	replayed bool // it was stored already
	older    int  // parts of the document it replaces
	head     head // of the operation
}

// newChange encodes w and refuses what can never be stored.
func newChange(w *toolguard.Write) (*change, error) {
	c := &change{token: w.Token, lazy: w.Lazy, fence: w.Fence, since: w.FenceSince}
	c.done.Add(1)
	if len(w.Token) > maxToken {
		return nil, tooLarge("the token", len(w.Token), maxToken)
	}
	if err := checkNames(w); err != nil {
		return nil, err
	}
	if w.Operation != nil {
		if err := c.setOperation(w); err != nil {
			return nil, err
		}
	} else if w.Body != nil {
		return nil, fmt.Errorf("ledger: a body without an operation")
	}
	if w.Document != "" {
		if len(w.Data) > MaxBody {
			return nil, tooLarge("the document", len(w.Data), MaxBody)
		}
		c.document, c.documentRev, c.data = w.Document, w.DocumentRev, newBlob(pack(w.Data))
		c.size += c.data.size() + maxParts*(entryBytes+len(c.document))
	}
	if err := c.setEvents(w.Events); err != nil {
		return nil, err
	}
	if c.size > MaxWrite {
		return nil, tooLarge("the write", c.size, MaxWrite)
	}
	return c, nil
}

func (c *change) setOperation(w *toolguard.Write) error {
	op := w.Operation
	if op.Key == "" {
		return fmt.Errorf("ledger: an operation without a key")
	}
	c.key, c.rev, c.tenant = op.Key, op.Rev, op.Facts.Tenant
	c.intent, c.occurrence, c.queue = op.Intent, op.Occurrence, w.Queue
	c.dispatch, c.lanes, c.call, c.callUntil = w.Dispatch, w.Lanes, w.Call, w.CallUntil
	if !w.Dispatch {
		c.lanes = nil
	} else if c.lazy {
		c.lanes = slices.Clone(w.Lanes)
	}
	if w.Open {
		c.listing = &listing{key: op.Key, tenant: op.Facts.Tenant, workflow: op.Facts.Workflow, action: op.Action, subject: op.Subject, holding: w.Holding, due: w.Due}
	}
	for _, l := range c.lanes {
		c.size += laneBytes + laneLength*len(op.Key) + len(l)
	}
	if w.Body != nil {
		if n := bodySize(w.Body); n > MaxBody {
			return tooLarge("the body", n, MaxBody)
		}
		body := encodeBody(w.Body, w.BodyUntil)
		switch {
		case w.BodyUntil.IsZero() && len(body) <= maxInline:
			c.inline = body
		case !w.BodyUntil.IsZero() && len(body) <= maxBundled:
			c.bundled, c.expires = body, expiry(w.BodyUntil)
			c.size += len(body)
		default:
			c.body = newBlob(body)
			c.body.expires = expiry(w.BodyUntil)
			c.size += c.body.size() + maxParts*(entryBytes+len(op.Key))
		}
	}
	var size int
	var err error
	if c.operation, size, err = encodeOperation(op, len(c.inline)); err != nil {
		return err
	}
	if size > maxValue/2 {
		return tooLarge("the operation", size, maxValue/2)
	}
	c.size += len(c.operation.text) + recordHead + maxInline + 8*(entryBytes+len(op.Key)+len(c.tenant)) + 4*len(op.Intent) + len(op.Subject) + len(op.Action) + len(op.Facts.Workflow) + len(c.call) + 3*len(w.Queue)
	return nil
}

func (c *change) setEvents(events []toolguard.Event) error {
	if len(events) == 0 {
		return nil
	}
	c.events = make([]event, len(events))
	size := 0
	for i := range events {
		p, err := events[i].Prepare()
		if err != nil {
			return err
		}
		c.events[i].PreparedEvent = p
		if size += p.Size() + linkBytes; size > maxValue/2 {
			return tooLarge("the events", size, maxValue/2)
		}
		c.size += chainBytes + len(p.Tenant) + entryBytes + len(p.Key)
	}
	c.size += size + entryBytes
	return nil
}

// stamp tells the caller what became of its write.
func (c *change) stamp(w *toolguard.Write) {
	if w.Operation != nil {
		w.Operation.Rev, w.Operation.Dispatched, w.Operation.Token = c.head.rev, c.head.dispatched, c.token
	}
	if !c.replayed {
		for i := range c.events {
			e, to := &c.events[i], &w.Events[i]
			to.Chain, to.ChainSeq, to.Prev, to.Hash, to.Seq = e.Tenant, e.place, e.prev, e.hash, e.seq
		}
	}
}

func checkNames(w *toolguard.Write) error {
	var room [16]string
	names := append(append(room[:0], w.Call, w.Fence, w.Document, w.Queue), w.Lanes...)
	if op := w.Operation; op != nil {
		names = append(names, op.Key, op.Intent, op.Facts.Tenant, op.Facts.Workflow, op.Action, op.Subject)
	}
	for i := range w.Events {
		names = append(names, w.Events[i].Tenant, w.Events[i].Key)
	}
	for _, n := range names {
		if len(n) > maxName {
			return tooLarge("a name", len(n), maxName)
		}
	}
	return nil
}

func tooLarge(what string, size, limit int) error {
	return fmt.Errorf("%w: %s has %d bytes, %d are allowed", toolguard.ErrTooLarge, what, size, limit)
}
