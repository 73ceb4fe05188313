package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"toolguard.dev/registry"
)

// peer speaks JSON-RPC with one child process over its pipes, for that process's life.
//
// It knows whether a request left: bytes are counted in the one place that writes them.
type peer struct {
	inbox
	in  *os.File // the child's stdin
	out *os.File // the child's stdout
	ids *atomic.Int64

	queue  chan *outgoing // unbuffered: what was not taken up was not sent
	urgent chan []byte    // what the reader sends; never waited for
	broken chan struct{}  // closed when stdin takes nothing more
	dead   chan struct{}  // closed when the last answer was read
}

// outgoing is a line on its way to the child.
type outgoing struct {
	ctx     context.Context
	line    []byte
	sending func() error
	sent    chan error // buffered; gets exactly one value once the line was taken up
}

func newPeer(name string, log *slog.Logger, in, out *os.File, ids *atomic.Int64, notify func(string, json.RawMessage)) *peer {
	p := &peer{
		in: in, out: out, ids: ids, queue: make(chan *outgoing), urgent: make(chan []byte, 256),
		broken: make(chan struct{}), dead: make(chan struct{}),
	}
	p.inbox = inbox{name: name, log: log, notify: notify, send: p.send, pending: map[string]chan answer{}}
	go p.write()
	go p.read()
	return p
}

// call is [wire.call]. What is no read is waited for until the child is gone.
func (p *peer) call(ctx context.Context, r *request) (registry.Answer, error) {
	id := strconv.FormatInt(p.ids.Add(1), 10)
	answers, forget := p.expect(id)
	defer forget()

	before, done := beforeSending(ctx)
	defer done()
	o := &outgoing{ctx: before, line: requestLine(id, r.method, r.params), sending: r.sending, sent: make(chan error, 1)}
	if before.Err() != nil {
		return registry.Answer{}, p.notSent(context.Cause(before))
	}
	select {
	case p.queue <- o:
	case <-before.Done():
		return registry.Answer{}, p.notSent(context.Cause(before))
	case <-p.broken:
		return registry.Answer{}, p.notSent(errors.New("it is not running"))
	}

	var givenUp <-chan struct{}
	if r.read {
		givenUp = ctx.Done()
	}
	select {
	case err := <-o.sent:
		if err != nil {
			return registry.Answer{}, err
		}
		if r.sent != nil {
			r.sent()
		}
	case <-givenUp:
		return registry.Answer{}, p.giveUp(ctx, id)
	}
	select {
	case a := <-answers:
		return a.Answer, a.broken
	case <-givenUp:
		return registry.Answer{}, p.giveUp(ctx, id)
	case <-p.dead:
	}
	select {
	case a := <-answers:
		return a.Answer, a.broken
	default:
		return registry.Answer{}, fmt.Errorf("%s went away before it answered", p.name)
	}
}

// giveUp tells the child that nobody waits for a request any more.
func (p *peer) giveUp(ctx context.Context, id string) error {
	p.send(cancelling(id))
	return context.Cause(ctx)
}

// agreed is [wire.agreed].
func (p *peer) agreed(_ context.Context, version string) error {
	if version < modernVersion {
		p.send(initialized())
	}
	return nil
}

func (p *peer) notSent(why error) error {
	return fmt.Errorf("%w: %s: %w", registry.ErrNotSent, p.name, why)
}

// send queues a message that nobody waits for. If the child does not read, it is dropped.
func (p *peer) send(message []byte) {
	select {
	case p.urgent <- append(message, '\n'):
	default:
		p.log.Warn("the MCP server does not read its input; a message to it was dropped")
	}
}

// write is the only place where bytes leave for the child.
func (p *peer) write() {
	defer close(p.broken)
	for {
		select {
		case o := <-p.queue:
			if p.writeRequest(o) {
				return
			}
		case line := <-p.urgent:
			if _, err := p.writeLine(context.Background(), line); err != nil {
				return
			}
		case <-p.dead:
			return
		}
	}
}

// writeRequest writes one request and reports whether the pipe is broken since.
func (p *peer) writeRequest(o *outgoing) bool {
	if o.ctx.Err() != nil {
		o.sent <- p.notSent(context.Cause(o.ctx))
		return false
	}
	if o.sending != nil {
		if err := o.sending(); err != nil {
			o.sent <- err
			return false
		}
	}
	n, err := p.writeLine(o.ctx, o.line)
	switch {
	case err == nil:
		o.sent <- nil
		return false
	case n == 0:
		o.sent <- p.notSent(err)
	default:
		o.sent <- fmt.Errorf("%s went away while the request was written: %w", p.name, err)
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// writeLine writes a line and counts. When ctx ends before the first byte it gives up with os.ErrDeadlineExceeded;
// a line once begun is finished, however long the child takes, because half a line would spoil the pipe for all.
func (p *peer) writeLine(ctx context.Context, line []byte) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.in.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	n := 0
	for {
		m, err := p.in.Write(line[n:])
		n += m
		if n == len(line) {
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		// A deadline may also be the late one of an earlier line: clear it and look at this line's context.
		if err := p.in.SetWriteDeadline(time.Time{}); err != nil {
			return n, err
		}
		if n == 0 && ctx.Err() != nil {
			return 0, fmt.Errorf("it does not read its input: %w", os.ErrDeadlineExceeded)
		}
	}
}

// read takes the child's messages until its stdout ends.
func (p *peer) read() {
	defer close(p.dead)
	lines := newLineReader(p.out, maxMessage)
	var id idFinder
	lines.skipped = id.write
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, errTooLong):
			id.close()
			p.log.Warn("the MCP server sent a message that is too long", "limit", maxMessage)
			p.answer(id.answers(), answer{broken: fmt.Errorf("%s answered with more than %d bytes", p.name, maxMessage)}, true)
			id = idFinder{}
		case err != nil:
			return
		default:
			p.message(line)
		}
	}
}
