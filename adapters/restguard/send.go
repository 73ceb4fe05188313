package restguard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"toolguard.dev/keyderive"
	"toolguard.dev/oncehttp"
	"toolguard.dev/registry"
)

const (
	maxHeader   = 64 << 10
	maxResponse = 4 << 20         // bytes of a response's body
	lateTime    = 5 * time.Minute // how long an answer is waited for after an attempt's deadline
)

// client is shared by all tools, and with it the connections.
var client = sync.OnceValue(func() *http.Client { return oncehttp.NewClient(maxHeader) })

// send sends the request of an attempt, or of a read, and returns the answer. A read is given up when ctx ends; anything
// else is waited for longer, because a late answer is evidence.
func (p *request) send(ctx context.Context, d *registry.Dispatch, q *oncehttp.Request) (registry.Answer, error) {
	q.Sending, q.Sent = d.Sending, d.Sent
	open, before := ctx, ctx
	if deadline, ok := ctx.Deadline(); ok && d.Operation != "" {
		// The news that nothing was sent is to come in time.
		limit, done := context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, time.Second)))
		defer done()
		late, end := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(lateTime))
		defer end()
		open, before = late, limit
	}
	response, err := oncehttp.Send(open, before, client(), q)
	if err != nil {
		return registry.Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return registry.Answer{}, fmt.Errorf("the answer broke off after HTTP %d: %w", response.StatusCode, err)
	case len(body) > maxResponse:
		return registry.Answer{}, fmt.Errorf("the answer, HTTP %d, has more than %d bytes", response.StatusCode, maxResponse)
	}
	for _, secret := range p.secrets { // some pages show the request
		body = bytes.ReplaceAll(body, []byte(secret), []byte("…"))
	}
	return answer(response, body)
}

// answer tells a response as an MCP server would tell a result.
func answer(response *http.Response, body []byte) (registry.Answer, error) {
	var texts []string
	code := response.StatusCode
	if code >= 300 {
		says := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)))
		if code < 400 {
			says += ", a redirect, which is not followed"
		}
		texts = append(texts, says)
	}
	var structured json.RawMessage
	if body = bytes.TrimSpace(body); len(body) > 0 {
		if _, err := keyderive.Parse(body); err == nil && body[0] == '{' {
			structured = body
		}
		texts = append(texts, text(response, body))
	}
	a, err := registry.NewAnswer(structured, code >= 300, texts...)
	a.Status = code
	return a, err
}

// text is a body as text; what is none is named.
func text(response *http.Response, body []byte) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.Header.Get("Content-Encoding") != "" || !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0 {
		return fmt.Sprintf("[%s, %d bytes, not shown]", strings.TrimSpace(kind+" "+response.Header.Get("Content-Encoding")), len(body))
	}
	return string(body)
}
