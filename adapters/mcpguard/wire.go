package mcpguard

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/registry"
)

// wire carries requests to one run of an MCP server, and its answers back: the pipes of a child, or HTTP. It is safe
// for concurrent use.
type wire interface {
	// call sends one request and waits for its answer.
	//
	// An error wraps [registry.ErrNotSent] if no byte of the request left. Any other error leaves open what happened.
	// When ctx ends a read is given up; anything else is waited for as long as an answer may come, because a late
	// answer is evidence.
	call(ctx context.Context, r *request) (registry.Answer, error)
	// agreed is told which protocol version the handshake agreed on, before anything else is called.
	agreed(ctx context.Context, version string) error
}

// request is one request to an upstream.
type request struct {
	method  string
	params  json.RawMessage
	meta    json.RawMessage // the caller's request _meta, for what an era needs from it
	header  http.Header     // beside the usual ones, over HTTP
	tool    *mcp.Tool       // that is called, for the headers that its schema asks for; may be nil
	read    bool            // may be given up: when the context ends it is cancelled upstream and not waited for
	sending func() error    // called right before the first byte; may be nil
	sent    func()          // called after the last one; may be nil
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

// initialized says that the handshake is done.
func initialized() []byte { return bytesOfLine("notifications/initialized") }

// cancelling says that nobody waits for a request any more.
func cancelling(id string) []byte {
	return object{
		{"jsonrpc", json.RawMessage(`"2.0"`)},
		{"method", json.RawMessage(`"notifications/cancelled"`)},
		{"params", object{{"requestId", json.RawMessage(id)}, {"reason", json.RawMessage(`"the caller gave up"`)}}.raw()},
	}.raw()
}

// bytesOfLine is a notification without parameters, without its line end.
func bytesOfLine(method string) []byte {
	line := requestLine("", method, nil)
	return line[:len(line)-1]
}
