package oncehttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"toolguard.dev/registry"
)

// NotSentError says why no byte of a request left. It wraps [registry.ErrNotSent] and the cause.
type NotSentError struct {
	Cause       error
	Unreachable bool // there was no connection, or it was closed before a byte was written
}

// Error returns the text.
func (e *NotSentError) Error() string { return registry.ErrNotSent.Error() + ": " + e.Cause.Error() }

// Unwrap returns what it wraps.
func (e *NotSentError) Unwrap() []error { return []error{registry.ErrNotSent, e.Cause} }

// Request is one HTTP request. Sending and Sent may be nil.
type Request struct {
	Method  string
	URL     string
	Header  http.Header
	Body    []byte       // nil: none
	Sending func() error // called right before the first byte leaves; an error keeps it from leaving
	Sent    func()       // called once the last byte has left
}

// HTTP returns the request as net/http has it, with a body that it cannot have twice. No address is in the error.
func (r *Request) HTTP(ctx context.Context) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, r.Method, r.URL, nil)
	if err != nil {
		return nil, errors.New("the address cannot be used")
	}
	if r.Body != nil {
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body)) // without GetBody
	}
	if r.Header != nil {
		q.Header = r.Header.Clone()
	}
	return q, nil
}

// Send makes a request with a client of [NewClient] and returns the response, whatever its status. An error is what
// Sending returned, or a [*NotSentError], if no byte of the request left and none will; any other leaves open whether
// it arrived. The request must have begun to leave when before ends; ctx
// ends the exchange. Where a connection that was used before turns out to be closed before the first byte, another is
// taken. No address, which may hold a secret, is in the errors. The response's body must be closed.
func Send(ctx, before context.Context, c *http.Client, r *Request) (*http.Response, error) {
	for again := false; ; again = true {
		d := &departure{sending: r.Sending, sent: r.Sent}
		open, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(before, func() {
			if why := context.Cause(before); d.refuse(why) {
				cancel(why)
			}
		})
		q, err := r.HTTP(d.trace(open))
		if err != nil {
			stop()
			cancel(nil)
			return nil, &NotSentError{Cause: err}
		}
		response, err := c.Do(q)
		stop()
		if err == nil {
			response.Body = &body{response.Body, cancel}
			return response, nil
		}
		cancel(nil)
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		why, reused := d.state()
		switch {
		case !d.refuse(err):
			return nil, err
		case errors.Is(why, errRefused):
			return nil, errors.Unwrap(why)
		case why != nil:
			return nil, &NotSentError{Cause: why}
		case ctx.Err() != nil:
			return nil, &NotSentError{Cause: context.Cause(ctx)}
		case reused && !again:
			c.CloseIdleConnections()
			continue
		}
		return nil, &NotSentError{err, true}
	}
}

// body is a response's body; with it ends the exchange.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
