package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"toolguard.dev/toolguard"
)

// Desk is a ledger as one person sees it: what belongs to other tenants does not exist.
type Desk struct {
	Store toolguard.Store
	Account
}

const (
	// MaxPage is how many records a page may have.
	MaxPage = 500

	batch   = 250
	maxScan = 2000 // records looked at for a page: what is found by then is one, with a cursor behind it
)

// Filter narrows a list of operations; empty members do not.
type Filter struct {
	Status string // a status
	Tool   string // SERVER/TOOL, or TOOL
	Tenant string
	Event  string // source event
	Run    string
	Search string // the beginning of a key, or what any fact, the tool or the downstream id contains, whatever its case
	Queue  string // only what stands in this queue: toolguard.QueueApproval or QueueOutcome
	Before uint64 // cursor: a Page's Next; 0: from the latest
	Limit  int    // 1 to MaxPage
}

func (f *Filter) takes(op *toolguard.Operation) bool {
	is := func(want, have string) bool { return want == "" || want == have }
	return is(f.Status, string(op.Status)) && is(f.Tenant, op.Facts.Tenant) && is(f.Event, op.Facts.SourceEvent) && is(f.Run, op.Facts.Run) &&
		(is(f.Tool, op.Action) || strings.HasSuffix(op.Action, "/"+f.Tool)) && (f.Search == "" || f.found(op))
}

func (f *Filter) found(op *toolguard.Operation) bool {
	search := strings.ToLower(f.Search)
	if strings.HasPrefix(op.Key, search) {
		return true
	}
	return slices.ContainsFunc([]string{op.Action, op.DownstreamID, op.Facts.SourceEvent, op.Facts.Run, op.Facts.Step, op.Facts.Request, op.Facts.Session, op.Facts.Actor, op.Facts.Workflow, op.Facts.Tenant},
		func(s string) bool { return strings.Contains(strings.ToLower(s), search) })
}

// Page is a part of a list, latest created first. It may have fewer records than were asked for, even none, and more
// behind it.
type Page struct {
	Operations []*toolguard.Operation
	Next       uint64 // cursor of the next part; 0: there is none
	Count      int    // with Filter.Queue: how many stand in it, whatever the filter says else
}

// Operations lists operations.
func (d *Desk) Operations(ctx context.Context, f Filter) (Page, error) {
	return d.list(ctx, f, f.takes)
}

// list pages through operations and keeps those that are wanted.
func (d *Desk) list(ctx context.Context, f Filter, wanted func(*toolguard.Operation) bool) (Page, error) {
	var out Page
	if f.Tenant != "" && !d.Sees(f.Tenant) {
		return out, nil
	}
	q := toolguard.Query{All: f.Queue == "", Queue: f.Queue, Tenant: f.Tenant, Before: f.Before}
	if len(d.Tenants) == 1 {
		q.Tenant = d.Tenants[0]
	}
	f.Limit = min(max(f.Limit, 1), MaxPage)
	for scanned := 0; ; {
		q.Limit = batch
		page, err := d.Store.Operations(ctx, q)
		if err != nil {
			return out, err
		}
		if scanned == 0 {
			if out.Count, err = d.count(ctx, q, page.Count); err != nil {
				return out, err
			}
		}
		for i, op := range page.Operations {
			if !d.Sees(op.Facts.Tenant) || !wanted(op) {
				continue
			}
			if out.Operations = append(out.Operations, op); len(out.Operations) == f.Limit && (i+1 < len(page.Operations) || page.Next != 0) {
				q.Limit = i + 1 // for the cursor behind this one
				part, err := d.Store.Operations(ctx, q)
				out.Next = part.Next
				return out, err
			}
		}
		scanned += len(page.Operations)
		if out.Next = page.Next; out.Next == 0 || scanned >= maxScan {
			return out, nil
		}
		q.Before = page.Next
	}
}

// count is how many stand in a queue for the person.
func (d *Desk) count(ctx context.Context, q toolguard.Query, counted int) (int, error) {
	if q.Queue == "" || q.Tenant != "" || len(d.Tenants) == 0 {
		return counted, nil
	}
	n := 0
	for _, tenant := range d.Tenants {
		page, err := d.Store.Operations(ctx, toolguard.Query{Queue: q.Queue, Tenant: tenant, Limit: 1})
		if err != nil {
			return 0, err
		}
		n += page.Count
	}
	return n, nil
}

// countedOne is up to how many requests for approval are looked at one by one, so that those that have expired are not
// counted.
const countedOne = 500

// Waiting is how many operations stand in a queue and wait for a person.
func (d *Desk) Waiting(ctx context.Context, queue string) (int, error) {
	f, now, open := Filter{Queue: queue, Limit: 1}, time.Now(), 0
	if queue == toolguard.QueueApproval {
		f.Limit = countedOne
	}
	page, err := d.list(ctx, f, func(op *toolguard.Operation) bool {
		if queue == toolguard.QueueApproval && op.Approval.Stands(now) == toolguard.ApprovalOpen {
			open++
		}
		return true
	})
	if err != nil || queue != toolguard.QueueApproval || page.Count > countedOne {
		return page.Count, err
	}
	return open, nil
}

// Operation is the operation with a key. The error wraps toolguard.ErrNotFound.
func (d *Desk) Operation(ctx context.Context, key string) (*toolguard.Operation, error) {
	page, err := d.Store.Operations(ctx, toolguard.Query{Key: key})
	if err != nil {
		return nil, err
	}
	if len(page.Operations) == 0 || !d.Sees(page.Operations[0].Facts.Tenant) {
		return nil, fmt.Errorf("operation %.80s: %w", key, toolguard.ErrNotFound)
	}
	return page.Operations[0], nil
}

// Body is what an operation carried and got; an empty one where nothing is kept.
func (d *Desk) Body(ctx context.Context, key string) (toolguard.Body, error) {
	body, err := d.Store.Body(ctx, key)
	if errors.Is(err, toolguard.ErrNotFound) {
		return toolguard.Body{}, nil
	}
	return body, err
}

// Request is a request for approval with what it is about.
type Request struct {
	*toolguard.Approval
	Operation *toolguard.Operation
	Arguments json.RawMessage // exactly the frozen bytes, but for secrets; nil where they are not kept any more
}

// Requests lists the latest request of each operation that has one, where it stands in a state; "" for any.
func (d *Desk) Requests(ctx context.Context, state toolguard.ApprovalState, before uint64, limit int) (requests []Request, next uint64, err error) {
	now := time.Now()
	f := Filter{Before: before, Limit: limit}
	if state == toolguard.ApprovalOpen {
		f.Queue = toolguard.QueueApproval
	}
	page, err := d.list(ctx, f, func(op *toolguard.Operation) bool {
		return op.Approval != nil && (state == "" || op.Approval.Stands(now) == state)
	})
	if err != nil {
		return nil, 0, err
	}
	for _, op := range page.Operations {
		body, err := d.Body(ctx, op.Key)
		if err != nil {
			return nil, 0, err
		}
		a := *op.Approval
		a.State = a.Stands(now)
		requests = append(requests, Request{&a, op, body.Arguments})
	}
	return requests, page.Next, nil
}

// Decide says yes or no to a request for approval; see [toolguard.DecideApproval].
func (d *Desk) Decide(ctx context.Context, v toolguard.ApprovalVerdict) (*toolguard.Operation, error) {
	if err := d.needs(Reviewer, "decide approvals"); err != nil {
		return nil, err
	}
	v.By = d.Person
	return toolguard.DecideApproval(ctx, d.Store, v)
}

// Resolve says what became of an operation; see [toolguard.Resolve].
func (d *Desk) Resolve(ctx context.Context, r toolguard.Resolution) (*toolguard.Operation, error) {
	if err := d.needs(Operator, "resolve operations"); err != nil {
		return nil, err
	}
	r.By = d.Person
	return toolguard.Resolve(ctx, d.Store, r)
}

// Repeat orders an operation to be sent again, or allows its next occurrence; see [toolguard.Repeat].
func (d *Desk) Repeat(ctx context.Context, r toolguard.RepeatOrder) (*toolguard.Operation, error) {
	if err := d.needs(Operator, "have operations repeated"); err != nil {
		return nil, err
	}
	r.By = d.Person
	return toolguard.Repeat(ctx, d.Store, r)
}

// Events reads the audit, of the person's tenants, behind a place in its chains: with a sequence (the member seq) above
// after, of one chain or, with "", of each. The error is that of the store.
func (d *Desk) Events(ctx context.Context, chain string, after uint64) iter.Seq2[toolguard.Event, error] {
	return func(yield func(toolguard.Event, error) bool) {
		for at := after; ; { // an event's place in its chain is never above its place in the ledger
			page, err := d.Store.Events(ctx, at, 1000)
			if err != nil {
				yield(toolguard.Event{}, err)
				return
			}
			for _, e := range page {
				at = e.Seq
				if e.ChainSeq <= after || chain != "" && e.Chain != chain || !d.Sees(e.Tenant) {
					continue
				}
				if !yield(e, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}
