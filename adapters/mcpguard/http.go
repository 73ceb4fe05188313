package mcpguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/keyderive"
)

// HTTPOptions are the limits of [Gateway.ServeHTTP] and [Gateway.HTTPHandler]. The zero value is good.
type HTTPOptions struct {
	Body        int64         // the longest message, in bytes; 0: 32 MiB
	Requests    int           // how many are worked on at a time; 0: 512
	Streams     int           // how many streams for news may be open; 0: 256
	Sessions    int           // how many sessions of the handshake eras there may be; 0: 1024
	Connections int           // 0: 1024
	SessionIdle time.Duration // after so long without a message a session ends; 0: 30 min
	HeaderTime  time.Duration // how long the header of a request may take; 0: 10 s
	BodyTime    time.Duration // how long its body may take; 0: 30 s
	WriteTime   time.Duration // how long a client may take to read a part of a message; 0: 30 s
	Others      http.Handler  // takes requests for other paths, once their Host and Origin are found good; nil: there are none
	Heartbeat   time.Duration // how often something is written on a stream, to find out whether its client is there; 0: 30 s
}

const (
	maxHeader  = 64 << 10
	smallBody  = 64 << 10 // bytes of a body that always has room
	maxLarge   = 8        // how many larger ones are kept at a time
	idleTime   = 2 * time.Minute
	retryAfter = "1" // seconds
)

// front is one HTTP endpoint of a gateway.
type front struct {
	gateway *Gateway
	options HTTPOptions
	log     *slog.Logger
	large   chan struct{} // a token for each large body
	begun   atomic.Uint64 // replies whose writing has begun
	ending  chan struct{} // closed when nothing more is taken on

	mu       sync.Mutex
	draining bool
	open     map[*exchange]bool
	requests int
	streams  int
	idle     chan struct{} // closed when nothing is open, while draining
	sessions map[string]*httpSession
}

// HTTPHandler serves many clients with streamable HTTP at /mcp, in the stateless protocol and those with a handshake,
// and says at /healthz and /readyz how it does. It takes only requests that name a loopback host and come from no
// other origin. [Gateway.ServeHTTP] serves it with limits on connections and time, and ends well; in a server of one's
// own it cannot be proven that a stateless client has received a result, which is then replayed to whoever calls again.
func (g *Gateway) HTTPHandler(o *HTTPOptions) http.Handler { return g.newFront(o) }

func (g *Gateway) newFront(o *HTTPOptions) *front {
	f := &front{
		gateway: g, log: g.log, large: make(chan struct{}, maxLarge), ending: make(chan struct{}),
		open: map[*exchange]bool{}, sessions: map[string]*httpSession{},
	}
	if o != nil {
		f.options = *o
	}
	f.options.Body = cmp.Or(f.options.Body, maxMessage)
	f.options.Requests = cmp.Or(f.options.Requests, 512)
	f.options.Streams = cmp.Or(f.options.Streams, 256)
	f.options.Sessions = cmp.Or(f.options.Sessions, 1024)
	f.options.Connections = cmp.Or(f.options.Connections, 1024)
	f.options.SessionIdle = cmp.Or(f.options.SessionIdle, 30*time.Minute)
	f.options.HeaderTime = cmp.Or(f.options.HeaderTime, 10*time.Second)
	f.options.BodyTime = cmp.Or(f.options.BodyTime, 30*time.Second)
	f.options.WriteTime = cmp.Or(f.options.WriteTime, 30*time.Second)
	f.options.Heartbeat = cmp.Or(f.options.Heartbeat, 30*time.Second)
	return f
}

// ServeHTTP serves [Gateway.HTTPHandler] on l, which it closes, until ctx ends. Requests that are open then are
// finished and answered within the gateway's shutdown limit. Only a loopback address is served.
func (g *Gateway) ServeHTTP(ctx context.Context, l net.Listener, o *HTTPOptions) error {
	if err := CheckLoopback(l.Addr().String()); err != nil {
		_ = l.Close()
		return err
	}
	f := g.newFront(o)
	defer f.endSessions()
	s := &http.Server{
		Handler: f, ReadHeaderTimeout: f.options.HeaderTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnContext: withLink, ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(&linkListener{Listener: l, front: f}) }()
	var err error
	select {
	case err = <-ended:
		err = fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
		_ = l.Close()
	}
	f.drain(g.options.Shutdown)
	rest, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.Shutdown(rest) != nil { // somebody is in the middle of a request
		_ = s.Close()
	}
	return err
}

// ServeHTTP takes one request.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := newPost(f, w, r)
	p.hurry()
	if status, what := refused(r); status != 0 {
		p.refuse(status, nil, mcp.INVALID_REQUEST, what)
		return
	}
	switch r.URL.Path {
	case "/healthz":
		p.say(http.StatusOK, "ok")
	case "/readyz":
		if err := f.ready(r.Context()); err != nil {
			p.say(http.StatusServiceUnavailable, err.Error())
			return
		}
		p.say(http.StatusOK, "ready")
	case "/mcp":
		p.mcp()
	default:
		p.others()
	}
}

// others takes a request for a path that is not ours.
func (p *post) others() {
	if p.front.options.Others == nil {
		p.say(http.StatusNotFound, "there is nothing here; MCP is at /mcp")
		return
	}
	leave, why := p.front.admit(false)
	if leave == nil {
		p.say(http.StatusServiceUnavailable, why)
		return
	}
	defer leave()
	p.link.replies()
	_ = p.control.SetWriteDeadline(time.Now().Add(p.front.options.WriteTime))
	p.front.options.Others.ServeHTTP(p.w, p.r)
}

// ready says why calls would not be served.
func (f *front) ready(ctx context.Context) error {
	f.mu.Lock()
	draining := f.draining
	f.mu.Unlock()
	if draining {
		return errors.New("shutting down")
	}
	if _, err := f.gateway.guard.Recent(ctx, keyderive.Facts{Tenant: "default", Workflow: "default"}, 1); err != nil {
		return errors.New("the ledger cannot be read")
	}
	return nil
}

// admit takes a request on, or says why not. leave must be called when it is done.
func (f *front) admit(stream bool) (leave func(), why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, limit := &f.requests, f.options.Requests
	if stream {
		n, limit = &f.streams, f.options.Streams
	}
	switch {
	case f.draining:
		return nil, "the server is shutting down; nothing was done about this request"
	case *n >= limit:
		return nil, fmt.Sprintf("busy: %d requests of this kind are open; nothing was done about this one", limit)
	}
	*n++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		*n--
		f.settle()
	}, ""
}

// settle tells who waits for the end that nothing is open any more. The lock is held.
func (f *front) settle() {
	if f.draining && f.requests+f.streams == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// drain takes on nothing more and waits until the open requests are answered, for limit at most.
func (f *front) drain(limit time.Duration) {
	idle := make(chan struct{})
	f.mu.Lock()
	f.draining, f.idle = true, idle
	close(f.ending)
	for x := range f.open {
		if x.method == string(mcp.MethodSubscriptionsListen) { // would never end by itself
			x.cancel()
		}
	}
	f.settle()
	f.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return
	case <-timer.C:
	}
	f.mu.Lock()
	for x := range f.open {
		x.cancel()
	}
	f.mu.Unlock()
	timer.Reset(time.Second) // for the guard to say how things stand
	select {
	case <-idle:
	case <-timer.C:
	}
}
