package mcpguard

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
)

// expectProgress puts a token of our own in the place of the caller's progressToken, because two callers may use the
// same one. forget must be called when the caller has its answer.
func (g *Gateway) expectProgress(c *conn, meta json.RawMessage) (own json.RawMessage, forget func()) {
	o, err := parseObject(meta)
	token := o.get("progressToken")
	if err != nil || idKey(token) == "" || c == nil {
		return meta, func() {}
	}
	g.mu.Lock()
	g.calls++
	name := g.prefix + strconv.FormatUint(g.calls, 10)
	g.callers[name] = caller{c, token}
	g.mu.Unlock()
	return o.with("progressToken", quote(name)).raw(), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.callers, name)
	}
}

// progress passes an upstream's progress notification on to the caller that it is for.
func (g *Gateway) progress(params json.RawMessage) {
	o, err := parseObject(params)
	if err != nil {
		return
	}
	g.mu.Lock()
	to, ok := g.callers[o.text("progressToken")]
	g.mu.Unlock()
	if ok {
		to.conn.notify(string(mcp.MethodNotificationProgress), o.with("progressToken", to.token).raw())
	}
}

// message passes an upstream's log message on to every client that wants its level.
func (g *Gateway) message(params json.RawMessage) {
	o, err := parseObject(params)
	if err != nil {
		return
	}
	level := mcp.LoggingLevel(o.text("level"))
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.clients {
		if c.allowsLog(level) {
			c.notify(string(mcp.MethodNotificationMessage), params)
		}
	}
}

// levelChanged asks the upstreams for the lowest level that any client wants.
func (g *Gateway) levelChanged(ctx context.Context) {
	lowest := mcp.LoggingLevel("")
	g.mu.Lock()
	for c := range g.clients {
		level := c.session.GetLogLevel()
		if level != "" && (lowest == "" || !level.ShouldSendTo(lowest)) {
			lowest = level
		}
	}
	g.mu.Unlock()
	if lowest == "" {
		return
	}
	for _, s := range g.sources {
		go s.setLogLevel(ctx, string(lowest))
	}
}
