package mcpguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/oncehttp"
	"toolguard.dev/registry"
)

// codeHTTP is the JSON-RPC code of an answer that HTTP gave in the place of the server.
const codeHTTP = -32000

// call is [wire.call]. What is no read is waited for until lateTime after the deadline of ctx.
func (r *remote) call(ctx context.Context, q *request) (registry.Answer, error) {
	before, done := beforeSending(ctx)
	defer done()
	if ctx.Err() != nil {
		return registry.Answer{}, r.notSent(context.Cause(ctx))
	}
	if err := r.probe(before, q); err != nil {
		return registry.Answer{}, err
	}
	return r.exchange(ctx, before, q)
}

// probe finds out whether a session of which nothing was heard lately is still there, before anything is sent in it
// that must not be sent twice: where it is lost, nothing has been sent.
func (r *remote) probe(ctx context.Context, q *request) error {
	r.mu.Lock()
	old := r.session != "" && time.Since(r.heard) > freshTime
	r.mu.Unlock()
	if q.read || !old {
		return nil
	}
	asking, done := context.WithTimeout(ctx, sessionTime) // one that works on something else may not answer
	defer done()
	_, err := r.exchange(asking, asking, &request{method: "ping", read: true})
	switch {
	case errors.Is(err, errSessionLost), errors.Is(err, registry.ErrNotSent) && asking.Err() == nil, ctx.Err() != nil:
		return r.notSent(err)
	case err != nil: // other connections may be as dead as that one
		r.client.CloseIdleConnections()
	}
	return nil
}

// exchange sends one request and waits for its answer. It must have begun to leave when before ends.
func (r *remote) exchange(ctx, before context.Context, q *request) (registry.Answer, error) {
	id := strconv.FormatInt(r.ids.Add(1), 10)
	answers, forget := r.expect(id)
	defer forget()
	open, cancel := r.open(ctx, q)
	defer cancel(nil)
	response, err := r.depart(open, before, id, q)
	if errors.Is(err, registry.ErrNotSent) {
		return registry.Answer{}, err
	}
	if err != nil {
		return registry.Answer{}, r.broke(ctx, q, id, fmt.Errorf("%s did not answer: %w", r.name, err))
	}
	defer response.Body.Close()
	if q.method == string(mcp.MethodInitialize) && response.StatusCode < 300 {
		r.mu.Lock()
		r.session = response.Header.Get(headerSession)
		r.mu.Unlock()
	}
	a, err := r.answerOf(response, id, answers)
	if err != nil {
		return registry.Answer{}, r.broke(ctx, q, id, err)
	}
	if r.inSession() && sessionGone(a) {
		r.lose(errSessionLost)
		if q.read {
			return registry.Answer{}, errSessionLost
		}
	}
	return a, nil
}

// sessionGone reports whether a server says that it does not know the session. It is to say so with 404; many say it
// with 400 and a word. Either may come while a call is worked on, and is no proof that the call had no effect.
func sessionGone(a registry.Answer) bool {
	switch {
	case a.Error == nil:
		return false
	case a.Status == http.StatusBadRequest:
		return strings.Contains(strings.ToLower(a.Error.Message), "session")
	}
	return a.Status == http.StatusNotFound
}

// depart sends a request and returns the response. An error wraps [registry.ErrNotSent] if no byte of it left, and none
// will.
func (r *remote) depart(open, before context.Context, id string, q *request) (*http.Response, error) {
	request := r.request(http.MethodPost, requestLine(id, q.method, q.params), r.headers(q))
	request.Sending, request.Sent = q.sending, q.sent
	response, err := oncehttp.Send(open, before, r.client, request)
	if e, ok := errors.AsType[*oncehttp.NotSentError](err); ok {
		if e.Unreachable {
			r.lose(fmt.Errorf("it cannot be reached: %w", e.Cause))
		}
		return nil, r.notSent(e.Cause)
	}
	if err == nil {
		r.hears()
	}
	return response, err
}

// open is the context of the HTTP request: a read ends with its caller, anything else is waited for longer.
func (r *remote) open(ctx context.Context, q *request) (context.Context, context.CancelCauseFunc) {
	base := ctx
	if !q.read {
		base = context.WithoutCancel(ctx)
	}
	open, cancel := context.WithCancelCause(base)
	stops := []func() bool{context.AfterFunc(r.end, func() { cancel(errors.New("closed")) })}
	if deadline, ok := ctx.Deadline(); ok && !q.read {
		late := time.AfterFunc(time.Until(deadline)+lateTime, func() { cancel(errors.New("no answer, long after the time for it")) })
		stops = append(stops, late.Stop)
	}
	return open, func(why error) {
		for _, stop := range stops {
			stop()
		}
		cancel(why)
	}
}

// headers are those that one request has beside the usual ones.
func (r *remote) headers(q *request) http.Header {
	h := http.Header{}
	maps.Copy(h, q.header)
	r.mu.Lock()
	version := r.version
	r.mu.Unlock()
	if q.method == "server/discover" {
		version = modernVersion
		h.Set(mcp.HeaderProtocolVersion, version)
	}
	for name, value := range mcp.StandardHeaders(version, mcp.MCPMethod(q.method), q.params) {
		h.Set(name, value)
	}
	if q.tool != nil && version >= modernVersion {
		for name, value := range mcp.GenerateParamHeaders(q.tool, q.params) {
			h.Set(name, value)
		}
	}
	return h
}

func (r *remote) notSent(why error) error {
	return fmt.Errorf("%w: %s: %w", registry.ErrNotSent, r.name, why)
}

// broke is what a request gets that was sent and not answered. The caller of a read has given up; it is cancelled.
func (r *remote) broke(ctx context.Context, q *request, id string, err error) error {
	if !q.read || ctx.Err() == nil {
		return err
	}
	r.mu.Lock()
	version := r.version
	r.mu.Unlock()
	if version != "" && version < modernVersion { // else the end of the stream is the cancelling
		r.post(cancelling(id))
	}
	return context.Cause(ctx)
}

// answerOf reads the answer to a request from the response.
func (r *remote) answerOf(response *http.Response, id string, answers <-chan answer) (registry.Answer, error) {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	good := response.StatusCode < 300
	switch {
	case good && kind == "text/event-stream":
		err := r.events(response, func() bool { return len(answers) > 0 })
		select {
		case a := <-answers:
			a.Status = response.StatusCode
			return a.Answer, a.broken
		default:
			return registry.Answer{}, fmt.Errorf("the stream of %s ended before the answer: %w", r.name, err)
		}
	case good && kind != "application/json":
		return registry.Answer{}, fmt.Errorf("%s answered with HTTP %d and content of the type %s, which cannot be read",
			r.name, response.StatusCode, clip([]byte(strconv.Quote(kind)), 100))
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMessage+1))
	switch {
	case err != nil && good:
		return registry.Answer{}, fmt.Errorf("the answer of %s broke off: %w", r.name, err)
	case len(body) > maxMessage:
		return registry.Answer{}, fmt.Errorf("%s answered with more than %d bytes", r.name, maxMessage)
	}
	if a, err := r.ownAnswer(body, id); err == nil {
		a.Status = response.StatusCode
		return a.Answer, a.broken
	} else if good {
		return registry.Answer{}, fmt.Errorf("%s answered with something that cannot be read: %w", r.name, err)
	}
	return registry.Answer{Error: r.httpError(response, body), Status: response.StatusCode}, nil
}

// ownAnswer reads a body that is the JSON-RPC answer to the request with that id. An error that names no request is
// about the one that it was sent for.
func (r *remote) ownAnswer(body []byte, id string) (answer, error) {
	o, err := parseObject(bytes.ToValidUTF8(body, []byte("\uFFFD")))
	switch {
	case err != nil:
		return answer{}, err
	case o.text("jsonrpc") != "2.0":
		return answer{}, errors.New("not JSON-RPC 2.0")
	case o.get("method") != nil:
		return answer{}, errors.New("a request in the place of an answer")
	}
	named := o.get("id")
	about := string(named) == id || (named == nil || string(named) == "null") && o.get("result") == nil
	if !about {
		return answer{}, fmt.Errorf("the id is %s, not %s", clip(named, 40), id)
	}
	return r.decode(o), nil
}

// httpError is the answer of a server that did not get so far as to answer, or of what stands in front of it.
func (r *remote) httpError(response *http.Response, body []byte) *registry.ProtocolError {
	what := fmt.Sprintf("%s answered with HTTP %d %s", r.name, response.StatusCode, http.StatusText(response.StatusCode))
	switch code := response.StatusCode; {
	case code >= 300 && code < 400:
		what += ", a redirect, which is not followed: put the address that it leads to under url"
	case code == http.StatusUnauthorized:
		what += ": it wants to know who calls; put what it wants under headers"
	}
	text := string(bytes.ToValidUTF8(body[:min(len(body), 16<<10)], nil))
	for _, values := range r.server.Header { // a page that shows the request
		for _, v := range values {
			if len(v) > 3 {
				text = strings.ReplaceAll(text, v, "…")
			}
		}
	}
	text = clip([]byte(strings.Join(strings.Fields(text), " ")), 300)
	if text != "" && response.StatusCode >= 400 {
		what += ": " + text
	}
	return &registry.ProtocolError{Code: codeHTTP, Message: what}
}

// events reads a stream of messages until it ends, or enough says so.
func (r *remote) events(response *http.Response, enough func() bool) error {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode >= 300 || kind != "text/event-stream" {
		return fmt.Errorf("HTTP %d, no stream", response.StatusCode)
	}
	lines := newLineReader(response.Body, maxMessage)
	var data []byte
	event := ""
	for {
		line, err := lines.next()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.heard = time.Now()
		r.mu.Unlock()
		if len(line) == 0 {
			if len(data) > 0 && (event == "" || event == "message") {
				r.message(data)
				if enough != nil && enough() {
					return nil
				}
			}
			data, event = nil, ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			event = clip(value, 20)
		case "data":
			if len(data)+len(value) > maxMessage {
				return errTooLong
			}
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
}
