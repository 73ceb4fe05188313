package mcpguard

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/toolguard"
)

// Render is render, as indented text.
func Render(r *toolguard.Result, output, widened bool) (string, error) {
	got := render(r, shape{output, widened})
	text := got.result
	if got.problem != nil {
		text = object{{"error", encode(got.problem)}}.raw()
	}
	var b bytes.Buffer
	err := json.Indent(&b, text, "", "  ")
	return b.String() + "\n", err
}

// Split is parseObject and raw.
func Split(text []byte) ([]byte, error) {
	o, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	for _, m := range o {
		parseArray(m.value)
	}
	return o.raw(), nil
}

// Lines reads all lines with a limit; "!" stands for one that was too long, followed by the id found in it.
func Lines(text string, limit, chunk int) []string {
	var id idFinder
	l := newLineReader(&chunks{text, chunk}, limit)
	l.skipped = id.write
	var out []string
	for {
		line, err := l.next()
		switch err {
		case nil:
			out = append(out, string(line))
		case errTooLong:
			id.close()
			out = append(out, "!"+id.answers())
			id = idFinder{}
		default:
			return out
		}
	}
}

// Arrivals is arrivals.
type Arrivals struct{ *arrivals }

func NewArrivals(in io.Reader) Arrivals { return Arrivals{newArrivals(in)} }

// Begin counts a reply.
func (a Arrivals) Begin() uint64 { return a.begin() }

// Read reads once between two messages, and tells how many replies had begun before what it read was sent.
func (a Arrivals) Read() (string, uint64, error) {
	buf := make([]byte, 100)
	n, earlier, err := a.read(buf)
	return string(buf[:n]), earlier, err
}

// Idle tells whether the reader waits.
func (a Arrivals) Idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.idle
}

// chunks is a reader that gives a text in small parts.
type chunks struct {
	text string
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size)], c.text)
	c.text = c.text[n:]
	return n, nil
}

// Old makes a session over HTTP look as if nothing was heard of it for long.
func Old(u *Upstream) {
	u.mu.Lock()
	r := u.wire.(*remote)
	u.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = time.Time{}
}

// Write sends a request that is no read.
func Write(ctx context.Context, u *Upstream, method string, sending func() error) error {
	_, err := u.call(ctx, &request{method: method, sending: sending})
	return err
}

// Traced is a request's _meta with the trace context of its headers.
var Traced = traced

// TypedRequest is an attempt as a handler of mcp-go's types gets it.
var TypedRequest = typedRequest

// TypedAnswer is typedAnswer.
func TypedAnswer(r *toolguard.Result, output, widened bool) (*mcp.CallToolResult, error) {
	return typedAnswer(r, shape{output, widened})
}

// TypedReply is a result in mcp-go's types.
func TypedReply(result string) (*mcp.CallToolResult, error) {
	return typedReply(reply{result: json.RawMessage(result)})
}
