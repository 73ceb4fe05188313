package mcpguard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"toolguard.dev/registry"
)

// peer speaks JSON-RPC with one child process over its pipes, for that process's life.
//
// It knows whether a request left: bytes are counted in the one place that writes them.
type peer struct {
	name   string
	log    *slog.Logger
	in     *os.File // the child's stdin
	out    *os.File // the child's stdout
	ids    *atomic.Int64
	notify func(method string, params json.RawMessage) // must not block

	queue  chan *outgoing // unbuffered: what was not taken up was not sent
	urgent chan []byte    // what the reader sends; never waited for
	broken chan struct{}  // closed when stdin takes nothing more
	dead   chan struct{}  // closed when the last answer was read

	mu      sync.Mutex
	pending map[string]chan answer
}

// request is one request to an upstream.
type request struct {
	method  string
	params  json.RawMessage
	meta    json.RawMessage // the caller's request _meta, for what an era needs from it
	read    bool            // may be given up: when the context ends it is cancelled upstream and not waited for
	sending func() error    // called right before the first byte; may be nil
}

// outgoing is a line on its way to the child.
type outgoing struct {
	ctx     context.Context
	line    []byte
	sending func() error
	sent    chan error // buffered; gets exactly one value once the line was taken up
}

// answer is what came back for a request.
type answer struct {
	result json.RawMessage
	err    *registry.ProtocolError
	broken error // it could not be read
}

func newPeer(name string, log *slog.Logger, in, out *os.File, ids *atomic.Int64, notify func(string, json.RawMessage)) *peer {
	p := &peer{
		name: name, log: log, in: in, out: out, ids: ids, notify: notify,
		queue: make(chan *outgoing), urgent: make(chan []byte, 256),
		broken: make(chan struct{}), dead: make(chan struct{}),
		pending: map[string]chan answer{},
	}
	go p.write()
	go p.read()
	return p
}

// call sends one request and waits for its answer.
//
// An error wraps [registry.ErrNotSent] if no byte of the request left. Any other error leaves open what happened.
// When ctx ends a read is given up; anything else is waited for until the child is gone, because a late answer is
// evidence.
func (p *peer) call(ctx context.Context, r *request) (json.RawMessage, *registry.ProtocolError, error) {
	id := strconv.FormatInt(p.ids.Add(1), 10)
	answers := make(chan answer, 1)
	p.mu.Lock()
	p.pending[id] = answers
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.pending, id)
		p.mu.Unlock()
	}()

	before, done := beforeSending(ctx)
	defer done()
	o := &outgoing{ctx: before, line: requestLine(id, r.method, r.params), sending: r.sending, sent: make(chan error, 1)}
	if before.Err() != nil {
		return nil, nil, p.notSent(context.Cause(before))
	}
	select {
	case p.queue <- o:
	case <-before.Done():
		return nil, nil, p.notSent(context.Cause(before))
	case <-p.broken:
		return nil, nil, p.notSent(errors.New("it is not running"))
	}

	var givenUp <-chan struct{}
	if r.read {
		givenUp = ctx.Done()
	}
	select {
	case err := <-o.sent:
		if err != nil {
			return nil, nil, err
		}
	case <-givenUp:
		return nil, nil, p.giveUp(ctx, id)
	}
	select {
	case a := <-answers:
		return a.result, a.err, a.broken
	case <-givenUp:
		return nil, nil, p.giveUp(ctx, id)
	case <-p.dead:
	}
	select {
	case a := <-answers:
		return a.result, a.err, a.broken
	default:
		return nil, nil, fmt.Errorf("%s went away before it answered", p.name)
	}
}

// beforeSending bounds the wait for the first byte to leave: it ends a little before ctx's deadline, so that the news
// that nothing was sent comes in time.
func beforeSending(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, time.Second)))
}

// giveUp tells the child that nobody waits for a request any more.
func (p *peer) giveUp(ctx context.Context, id string) error {
	p.send(object{
		{"jsonrpc", json.RawMessage(`"2.0"`)},
		{"method", json.RawMessage(`"notifications/cancelled"`)},
		{"params", object{{"requestId", json.RawMessage(id)}, {"reason", json.RawMessage(`"the caller gave up"`)}}.raw()},
	}.raw())
	return context.Cause(ctx)
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

// message takes one line from the child. It never blocks.
func (p *peer) message(line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	o, err := parseObject(line)
	if err == nil && o.text("jsonrpc") != "2.0" {
		err = errors.New("not JSON-RPC 2.0")
	}
	if err != nil {
		p.log.Warn("the MCP server wrote something to its stdout that is no message; skipped", "why", err, "line", clip(line, 200))
		if bytes.Contains(line, []byte(`"jsonrpc"`)) {
			var f idFinder
			f.write(line)
			p.answer(f.answers(), answer{broken: fmt.Errorf("%s answered with something that cannot be read: %w", p.name, err)}, true)
		}
		return
	}
	id, method := o.get("id"), o.text("method")
	switch {
	case method != "" && id != nil && string(id) != "null":
		p.serve(method, id)
	case method != "":
		p.notify(method, o.get("params"))
	default:
		p.answer(string(id), p.decode(o), false)
	}
}

// serve answers a request of the child: it may ask whether we are there, and nothing else.
func (p *peer) serve(method string, id json.RawMessage) {
	o := object{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"id", id}}
	if method == "ping" {
		p.send(o.with("result", json.RawMessage(`{}`)).raw())
		return
	}
	p.send(o.with("error", encode(registry.ProtocolError{Code: -32601, Message: "method not found: " + clip([]byte(method), 100)})).raw())
}

// answer hands an answer to whoever waits for it.
func (p *peer) answer(id string, a answer, guessed bool) {
	p.mu.Lock()
	waiting := p.pending[id]
	delete(p.pending, id)
	p.mu.Unlock()
	if waiting != nil {
		waiting <- a // buffered, and the id was just taken out
		return
	}
	if !guessed {
		p.log.Warn("the MCP server answered a request that is not open; dropped", "id", clip([]byte(id), 40))
	}
}

// decode reads an answer.
func (p *peer) decode(o object) answer {
	result, problem := o.get("result"), o.get("error")
	if problem == nil || string(problem) == "null" {
		if result == nil {
			return answer{broken: fmt.Errorf("%s answered with neither result nor error", p.name)}
		}
		return answer{result: result}
	}
	if result != nil && string(result) != "null" {
		return answer{broken: fmt.Errorf("%s answered with both a result and an error", p.name)}
	}
	var e registry.ProtocolError
	if problem[0] == '"' { // some servers say it in one string
		_ = json.Unmarshal(problem, &e.Message)
		e.Code = -32603
		return answer{err: &e}
	}
	if err := json.Unmarshal(problem, &e); err != nil {
		return answer{broken: fmt.Errorf("%s answered with an error that cannot be read: %w", p.name, err)}
	}
	return answer{err: &e}
}

// requestLine is one request as the line that is sent.
func requestLine(id, method string, params json.RawMessage) []byte {
	o := object{{"jsonrpc", json.RawMessage(`"2.0"`)}}
	if id != "" {
		o = append(o, member{"id", json.RawMessage(id)})
	}
	o = append(o, member{"method", quote(method)})
	if params != nil {
		o = append(o, member{"params", params})
	}
	line := []byte(o.raw())
	if bytes.ContainsAny(line, "\r\n") { // between members only: a string has none
		var b bytes.Buffer
		if json.Compact(&b, line) == nil {
			line = b.Bytes()
		}
	}
	return append(line, '\n')
}

// clip is text cut to at most n bytes, for a log line.
func clip(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	return string(bytes.ToValidUTF8(text[:n], nil)) + "…"
}
