package mcpguard

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// expectProgress puts a token of our own in the place of the caller's progressToken, because two callers may use the
// same one. forget must be called when the caller has its answer.
func (g *Gateway) expectProgress(t teller, meta json.RawMessage) (own json.RawMessage, forget func()) {
	o, err := parseObject(meta)
	token := o.get("progressToken")
	if err != nil || idKey(token) == "" || t == nil {
		return meta, func() {}
	}
	g.mu.Lock()
	g.calls++
	name := g.prefix + strconv.FormatUint(g.calls, 10)
	g.callers[name] = caller{t, token}
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
		to.teller.notify(string(mcp.MethodNotificationProgress), o.with("progressToken", to.token).raw())
	}
}

// calling are the calls that a server works on.
type calling struct {
	mu    sync.Mutex
	calls int
	by    map[*exchange]int // whose request made them; not all were made for one
}

// enter notes a call made for x, which may be nil; leave must be called at its end.
func (c *calling) enter(x *exchange) (leave func()) {
	c.count(x, 1)
	return func() { c.count(x, -1) }
}

func (c *calling) count(x *exchange, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls += n
	if x == nil {
		return
	}
	if c.by == nil {
		c.by = map[*exchange]int{}
	}
	if c.by[x] += n; c.by[x] == 0 {
		delete(c.by, x)
	}
}

// only is the request that everything is done for just now, nil if there is no such one.
func (c *calling) only() *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x, n := range c.by {
		if n == c.calls {
			return x
		}
	}
	return nil
}

// message passes an upstream's log message on to every client on a pipe that wants its level. A client over HTTP,
// which may not know of the others, gets it only if it can be about nothing but its own call.
func (g *Gateway) message(from *source, params json.RawMessage) {
	o, err := parseObject(params)
	if err != nil {
		return
	}
	level := mcp.LoggingLevel(o.text("level"))
	if x := from.calling.only(); x != nil {
		if p, ok := x.teller.(*post); ok && p.allowsLog(level) {
			p.notify(string(mcp.MethodNotificationMessage), params)
		}
	}
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
	for s := range g.levels {
		level := s.GetLogLevel()
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
