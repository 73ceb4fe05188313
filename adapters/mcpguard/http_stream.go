package mcpguard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/registry"
)

// post is one HTTP request and what is written back: one JSON text, or a stream of events that ends with it.
type post struct {
	front    *front
	w        http.ResponseWriter
	r        *http.Request
	control  *http.ResponseController
	link     *link        // nil if the connection is not known
	session  *httpSession // nil in the stateless protocol
	modern   bool
	exchange *exchange
	told     chan []byte                    // events that are to be written before the reply
	news     <-chan mcp.JSONRPCNotification // what a stateless client listens to
	events   bool                           // the stream of events has begun
}

func newPost(f *front, w http.ResponseWriter, r *http.Request) *post {
	return &post{front: f, w: w, r: r, control: http.NewResponseController(w), link: linkOf(r.Context()), told: make(chan []byte, 256)}
}

// notify tells the client something before the reply, unless it does not keep up with reading.
func (p *post) notify(method string, params json.RawMessage) {
	select {
	case p.told <- requestLine("", method, params):
	default:
		p.front.log.Warn("the client does not read; a message to it was dropped")
	}
}

// await waits for the reply to a request, and tells the client what comes before it.
func (p *post) await(x *exchange, s *session, done <-chan reply) reply {
	beat := time.NewTicker(p.front.options.Heartbeat)
	defer beat.Stop()
	var err error
	for {
		select {
		case line := <-p.told:
			err = p.event(line)
		case n := <-p.news:
			err = p.pass(s, n)
		case <-beat.C:
			if p.events {
				err = p.chunk([]byte(":\n\n"))
			}
		case r := <-done:
			p.rest(s)
			return r
		}
		if err != nil { // the client is gone
			x.cancel()
		}
	}
}

// rest writes what was to be told before the reply and is not yet.
func (p *post) rest(s *session) {
	for {
		var err error
		select {
		case line := <-p.told:
			err = p.event(line)
		case n := <-p.news:
			err = p.pass(s, n)
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// pass writes what mcp-go wants to tell the client.
func (p *post) pass(s *session, n mcp.JSONRPCNotification) error {
	s.tag(&n)
	return p.event(append(encode(n), '\n'))
}

// stream writes what a session is told until ctx ends, or the server does.
func (p *post) stream(ctx context.Context, s *session) {
	beat := time.NewTicker(p.front.options.Heartbeat)
	defer beat.Stop()
	err := p.chunk([]byte(":\n\n")) // the client sees that the stream is open
	for err == nil {
		select {
		case n := <-s.notifications:
			err = p.pass(s, n)
		case <-beat.C:
			err = p.chunk([]byte(":\n\n"))
		case <-ctx.Done():
			return
		case <-p.front.ending:
			return
		}
	}
}

// event writes one message on the stream, which it begins if need be. The message is one line, with its end.
func (p *post) event(line []byte) error {
	b := make([]byte, 0, len(line)+32)
	b = append(b, "event: message\ndata: "...)
	b = append(b, line...)
	return p.chunk(append(b, '\n'))
}

func (p *post) chunk(b []byte) error {
	if !p.events {
		p.events = true
		h := p.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache, no-transform")
		h.Set("X-Accel-Buffering", "no")
		p.w.WriteHeader(http.StatusOK)
	}
	return p.write(b)
}

// write writes, and returns when the network has taken all of it. The client has its time for each part anew.
func (p *post) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), 1<<20)
		if err := p.control.SetWriteDeadline(time.Now().Add(p.front.options.WriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := p.w.Write(b[:n]); err != nil {
			return err
		}
		if err := p.control.Flush(); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// reply writes the reply, in the form that the response has taken.
func (p *post) reply(status int, line []byte) error {
	if p.events {
		return p.event(line)
	}
	return p.whole(status, "application/json", bytes.TrimSuffix(line, []byte("\n")))
}

func (p *post) whole(status int, kind string, b []byte) error {
	h := p.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("X-Content-Type-Options", "nosniff")
	p.w.WriteHeader(status)
	return p.write(b)
}

// end ends a response in which there is nothing more to say.
func (p *post) end() {
	p.link.replies()
	if !p.events {
		_ = p.chunk([]byte(":\n\n"))
	}
}

// say answers with a line of text.
func (p *post) say(status int, text string) {
	p.link.replies()
	_ = p.whole(status, "text/plain; charset=utf-8", []byte(text+"\n"))
}

// refuse answers with a JSON-RPC error that nothing was done for.
func (p *post) refuse(status int, id json.RawMessage, code int, what string) {
	p.problem(status, id, &registry.ProtocolError{Code: code, Message: what})
}

func (p *post) problem(status int, id json.RawMessage, problem *registry.ProtocolError) {
	if idKey(id) == "" {
		id = json.RawMessage("null")
	}
	p.link.replies()
	_ = p.reply(status, replyLine(id, reply{problem: problem}))
}

// busy answers a request that was not taken on.
func (p *post) busy(id json.RawMessage, why string) {
	p.w.Header().Set("Retry-After", retryAfter)
	p.refuse(http.StatusServiceUnavailable, id, codeBusy, why)
}

var (
	errLong = errors.New("the message is too long")
	errSlow = errors.New("the message did not come in whole, or not in time")
	errFull = errors.New("busy: too many large messages are worked on; nothing was done about this one")
)

// hurry bounds the time in which the rest of the request must come, also where nobody reads it but net/http, at the
// end; wait takes that back once there is no rest.
func (p *post) hurry() { _ = p.control.SetReadDeadline(time.Now().Add(p.front.options.BodyTime)) }
func (p *post) wait()  { _ = p.control.SetReadDeadline(time.Time{}) }

// body reads the message. The room that a large one takes is given back by release.
func (p *post) body() (body []byte, release func(), err error) {
	limit := p.front.options.Body
	if p.r.ContentLength > limit {
		return nil, nil, errLong
	}
	body, err = io.ReadAll(io.LimitReader(p.r.Body, min(smallBody, limit)+1))
	release = func() {}
	if err == nil && int64(len(body)) > min(smallBody, limit) {
		if int64(len(body)) > limit {
			return nil, nil, errLong
		}
		select {
		case p.front.large <- struct{}{}:
			release = func() { <-p.front.large }
		default:
			return nil, nil, errFull
		}
		all := bytes.NewBuffer(make([]byte, 0, max(p.r.ContentLength, 4*smallBody)))
		all.Write(body)
		_, err = all.ReadFrom(io.LimitReader(p.r.Body, limit+1-int64(len(body))))
		body = all.Bytes()
		if err == nil && int64(len(body)) > limit {
			err = errLong
		}
	}
	if err == nil {
		p.wait()
	}
	if err == nil && len(bytes.TrimSpace(body)) > 0 {
		return bytes.TrimSpace(body), release, nil
	}
	release()
	switch {
	case err == nil:
		return []byte("?"), func() {}, nil // no message: not JSON either
	case errors.Is(err, errLong):
		return nil, nil, errLong
	}
	return nil, nil, errSlow
}

// tooMuch answers where the message was not read to its end: nothing can follow it on this connection.
func (p *post) tooMuch(err error) {
	p.w.Header().Set("Connection", "close")
	switch {
	case errors.Is(err, errLong):
		p.refuse(http.StatusRequestEntityTooLarge, nil, mcp.PARSE_ERROR, err.Error())
	case errors.Is(err, errFull):
		p.busy(nil, err.Error())
	default:
		p.refuse(http.StatusRequestTimeout, nil, mcp.PARSE_ERROR, err.Error())
	}
}
