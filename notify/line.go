package notify

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"toolguard.dev/toolguard"
)

// line is one endpoint and its place in the audit. Lines do not wait for each other.
type line struct {
	*Notifier
	endpoint Endpoint
	host     string
	name     string // of the document that keeps the cursor

	cursor   cursor
	rev      uint64 // of the document as this process knows it
	passed   uint64 // the cursor as it was stored
	failures int    // since it last worked
	since    time.Time
}

// cursor is what the ledger keeps of an endpoint.
type cursor struct {
	Owner string `json:"owner,omitempty"` // the process that delivers; nobody else does while it lives
	After uint64 `json:"after"`           // the last event that is dealt with
}

// errNotOurs: another process delivers.
var errNotOurs = errors.New("another process delivers")

// begin makes the cursor of an endpoint that the ledger does not know, at the end of the audit.
func (l *line) begin(ctx context.Context) error {
	_, _, err := l.store.Document(ctx, l.name)
	if !errors.Is(err, toolguard.ErrNotFound) {
		return err
	}
	page, err := l.store.Operations(ctx, toolguard.Query{All: true, Limit: 1})
	if err != nil {
		return err
	}
	l.cursor = cursor{After: page.Seq}
	if err = l.save(ctx); errors.Is(err, errNotOurs) {
		return nil // another process was quicker
	}
	return err
}

// run delivers while this process is the one to do so.
func (l *line) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.claim(ctx)
		if err == nil {
			err = l.follow(ctx)
		}
		if errors.Is(err, toolguard.ErrStoreClosed) || errors.Is(err, errGone) {
			return
		}
		if err != nil && !errors.Is(err, errNotOurs) && ctx.Err() == nil {
			l.log.Warn("notifications wait until the ledger can be read", "endpoint", l.host, "error", err)
		}
		pause(ctx, l.options.Poll)
	}
}

// claim makes this process the one that delivers, unless another one that lives is.
func (l *line) claim(ctx context.Context) error {
	data, rev, err := l.store.Document(ctx, l.name)
	if err != nil {
		return err
	}
	var c cursor
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if c.Owner != "" && c.Owner != l.options.Process && l.options.Alive != nil && l.options.Alive(c.Owner) {
		return errNotOurs
	}
	l.cursor, l.rev = c, rev
	l.cursor.Owner = l.options.Process
	if c.Owner == l.options.Process {
		l.passed = c.After
		return nil
	}
	return l.save(ctx)
}

// save stores the cursor, with events that tell what became of it.
func (l *line) save(ctx context.Context, events ...toolguard.Event) error {
	data, err := json.Marshal(l.cursor)
	if err != nil {
		return err
	}
	w := &toolguard.Write{Token: rand.Text(), Document: l.name, Data: data, DocumentRev: l.rev, Events: events}
	err = l.store.Commit(ctx, w)
	if errors.Is(err, toolguard.ErrConflict) {
		return errNotOurs
	}
	if err != nil {
		return err
	}
	_, l.rev, err = l.store.Document(ctx, l.name)
	l.passed = l.cursor.After
	return err
}

// release lets another process go on, with all that was passed over.
func (l *line) release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.cursor.Owner = ""
	_ = l.save(ctx) // else it goes on when this process is found dead
}

// follow reads the audit and delivers what the endpoint wants, until ctx ends or the cursor is another's.
func (l *line) follow(ctx context.Context) error {
	defer l.release()
	for {
		page, err := l.store.Events(ctx, l.cursor.After, pageSize)
		if err != nil {
			return err
		}
		for i := range page {
			e := &page[i]
			if l.endpoint.wants(e) {
				if err := l.deliver(ctx, e); err != nil {
					return err
				}
			}
			l.cursor.After = e.Seq
			if l.cursor.After-l.passed > saveAfter {
				if err := l.save(ctx); err != nil {
					return err
				}
			}
		}
		if len(page) == 0 && !pause(ctx, l.options.Poll) {
			return ctx.Err()
		}
	}
}

// errGone: the endpoint has said that it wants nothing more.
var errGone = errors.New("the endpoint is gone")

// deliver tells the endpoint of one event, again and again until it has taken it, or it is given up.
func (l *line) deliver(ctx context.Context, e *toolguard.Event) error {
	for {
		if l.failures > 0 && time.Since(e.Time) > l.options.GiveUp {
			return l.giveUp(ctx, e)
		}
		sending, done := graceful(ctx)
		a := l.post(sending, &l.endpoint, e)
		done()
		switch {
		case a.good:
			if l.failures > 0 {
				l.log.Info("notifications arrive again", "endpoint", l.host, "failed", l.failures, "for", time.Since(l.since).Round(time.Second).String())
			}
			l.failures = 0
			l.cursor.After = e.Seq
			return l.save(context.WithoutCancel(ctx))
		case ctx.Err() != nil:
			return ctx.Err()
		case a.gone:
			l.log.Error("the endpoint says that it is gone (410): this process notifies it no more; take it out of the configuration", "endpoint", l.host)
			return errGone
		}
		if l.failures++; l.failures == 1 {
			l.since = time.Now()
			l.log.Warn("a notification was not taken; it is sent again until it is older than "+l.options.GiveUp.String(), "endpoint", l.host, "why", a.why, "id", idOf(e))
		}
		wait := min(l.options.Backoff<<min(l.failures-1, 16), maxBackoff)
		if !pause(ctx, max(wait, a.after)) {
			return ctx.Err()
		}
	}
}

// grace is how long a request on its way is waited for when the process is told to end.
const grace = 2 * time.Second

// graceful returns a context that ends a little after ctx.
func graceful(ctx context.Context) (context.Context, func()) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return later, func() { stop(); cancel() }
}

// giveUp records that an endpoint was never told of an event.
func (l *line) giveUp(ctx context.Context, e *toolguard.Event) error {
	l.log.Error("a notification was given up", "endpoint", l.host, "id", idOf(e), "key", e.Key, "event", string(e.Type))
	l.cursor.After = e.Seq
	return l.save(ctx, toolguard.Event{
		Type: toolguard.EventNotifyFailed, Time: time.Now().UTC(), Key: e.Key, Tool: e.Tool, Tenant: e.Tenant, Workflow: e.Workflow,
		Occurrence: e.Occurrence, Attempt: e.Attempt, Approval: e.Approval, SourceEvent: e.SourceEvent, Run: e.Run, Request: e.Request, Step: e.Step,
		Detail: map[string]any{"endpoint": l.host, "id": idOf(e), "event": string(e.Type)},
	})
}

// pause waits, and reports whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
