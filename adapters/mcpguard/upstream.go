package mcpguard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolguard.dev/registry"
)

// Server says how one MCP server is reached: it is started, to speak on stdio, or it is at a URL, with streamable HTTP.
type Server struct {
	Name string // in keys and policies; "": the name it gives itself

	Command string   // the program, looked up in the PATH of Env if it has no slash
	Args    []string // its arguments
	Env     []string // its whole environment, as "NAME=value"
	Dir     string   // its working folder; "": ours

	URL    string      // http or https, in the place of a command
	Header http.Header // sent with every request to the URL, and shown nowhere; see [CheckHeader]
}

// called names the server for log lines, before it has named itself.
func (s *Server) called() string { return cmp.Or(s.Name, s.Command, hostOf(s.URL)) }

// UpstreamOptions are the options of [StartUpstream]. The zero value is good.
type UpstreamOptions struct {
	Log     *slog.Logger // nil: slog.Default
	Version string       // ours, as told to the server
	// Notify is given the server's notifications, in order. It must not block.
	Notify func(method string, params json.RawMessage)
	// Up is called whenever the server was started and has answered the handshake. It must not block.
	Up func()
}

// ServerInfo is what an MCP server says about itself.
type ServerInfo struct {
	Name         string
	Title        string
	Version      string
	Instructions string
	Protocol     string          // the protocol version that is spoken with it
	Capabilities json.RawMessage // as it sent them
}

// How a server is started or connected to again: after firstBackoff, doubling up to lastBackoff, forgotten once it was
// well for healthy. One that does not answer the handshake within handshakeTime is given up and tried again as well.
const (
	firstBackoff  = 200 * time.Millisecond
	lastBackoff   = 10 * time.Second
	healthy       = 30 * time.Second
	handshakeTime = time.Minute
)

// Upstream is one MCP server: a child process, which is started again when it dies, or one that is reached over HTTP,
// to which the connection is made again when it is lost. Its methods are safe for concurrent use.
type Upstream struct {
	server  Server
	options UpstreamOptions
	log     *slog.Logger
	ids     atomic.Int64
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	wire     wire // nil while it is down
	info     ServerInfo
	name     string
	level    string          // log level to ask for, "" for none
	lastErr  error           // why it is down
	attempts int             // how often it was tried to start it
	changed  chan struct{}   // closed, and made anew, when any of these changes
	follows  map[string]bool // URIs of the resources that are subscribed to

	refollowing chan struct{} // one token: follows has changed, for a stateless server to be told
}

// StartUpstream starts an MCP server, or connects to it, and keeps that up until Close. It does not wait for it: see
// [Upstream.Ready].
func StartUpstream(s Server, o *UpstreamOptions) (*Upstream, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("server %q: %w", s.Name, err)
	}
	u := &Upstream{server: s.canonical(), name: s.Name, done: make(chan struct{}), changed: make(chan struct{}),
		follows: map[string]bool{}, refollowing: make(chan struct{}, 1)}
	if o != nil {
		u.options = *o
	}
	if u.options.Notify == nil {
		u.options.Notify = func(string, json.RawMessage) {}
	}
	if u.options.Up == nil {
		u.options.Up = func() {}
	}
	u.log = cmp.Or(u.options.Log, slog.Default()).With("server", s.called())
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	go u.supervise(ctx)
	return u, nil
}

// Close ends the server: the stdin of a child is closed, two seconds later it is asked to end, and then it is killed,
// with everything that it started; over HTTP, the session is ended, and open calls get no answer any more.
func (u *Upstream) Close() error {
	u.cancel()
	<-u.done
	return nil
}

// Name is the server's name in keys: the one given, else the one it gave itself in its first handshake.
func (u *Upstream) Name() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.name
}

// Info is what the server said about itself in its latest handshake.
func (u *Upstream) Info() ServerInfo {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.info
}

// Ready waits until the server runs and has answered the handshake. It gives up, with the reason, when ctx ends or
// the server could not be started at the first try.
func (u *Upstream) Ready(ctx context.Context) error {
	for {
		u.mu.Lock()
		up, tries, lastErr, changed := u.wire != nil, u.attempts, u.lastErr, u.changed
		u.mu.Unlock()
		if up {
			return nil
		}
		if tries > 0 && lastErr != nil {
			return lastErr
		}
		select {
		case <-changed:
		case <-u.done:
			return errors.New("closed")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Call sends one request and returns the raw result, or the server's JSON-RPC error. An error that wraps
// [registry.ErrNotSent] means that no byte left; any other, that it is not known what the server did. When ctx ends
// the request is cancelled and given up.
func (u *Upstream) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *registry.ProtocolError, error) {
	a, err := u.call(ctx, &request{method: method, params: params, read: true})
	return a.Result, a.Error, err
}

// call sends one request. Where the server turns out to have lost its session before the request was sent, or had any
// effect, it goes to the next session.
func (u *Upstream) call(ctx context.Context, r *request) (registry.Answer, error) {
	u.mu.Lock()
	w, changed := u.wire, u.changed
	u.mu.Unlock()
	a, err := u.callOn(ctx, w, r)
	if !errors.Is(err, errSessionLost) {
		return a, err
	}
	before, done := beforeSending(ctx)
	defer done()
	patient, stop := context.WithTimeout(before, sessionTime)
	defer stop()
	for {
		select {
		case <-changed:
		case <-patient.Done():
			return registry.Answer{}, err
		case <-u.done:
			return registry.Answer{}, err
		}
		u.mu.Lock()
		next := u.wire
		changed = u.changed
		u.mu.Unlock()
		if next != nil && next != w {
			return u.callOn(ctx, next, r)
		}
	}
}

// callOn sends one request on a wire, nil while the server is down.
func (u *Upstream) callOn(ctx context.Context, w wire, r *request) (registry.Answer, error) {
	u.mu.Lock()
	info, level, lastErr := u.info, u.level, u.lastErr
	u.mu.Unlock()
	if w == nil {
		if lastErr == nil {
			lastErr = errors.New("it has not started yet")
		}
		return registry.Answer{}, fmt.Errorf("%w: the MCP server %s is not running: %w", registry.ErrNotSent, u.Name(), lastErr)
	}
	if info.modern() {
		params, err := u.modernParams(info.Protocol, level, r)
		if err != nil {
			return registry.Answer{}, fmt.Errorf("%w: %w", registry.ErrNotSent, err)
		}
		c := *r
		c.params = params
		r = &c
	}
	return w.call(ctx, r)
}

// setLogLevel asks the server for log messages of a level, now and after every restart.
func (u *Upstream) setLogLevel(ctx context.Context, level string) {
	u.mu.Lock()
	u.level = level
	w, info := u.wire, u.info
	u.mu.Unlock()
	if w != nil && info.logs() && !info.modern() {
		u.askLogLevel(ctx, w, level)
	}
}

func (u *Upstream) askLogLevel(ctx context.Context, w wire, level string) {
	if level == "" {
		return
	}
	params := object{{"level", quote(level)}}.raw()
	a, err := w.call(ctx, &request{method: "logging/setLevel", params: params, read: true})
	if err == nil && a.Error != nil {
		err = errors.New(a.Error.Message)
	}
	if err != nil {
		u.log.Warn("the MCP server's log level could not be set", "err", err)
	}
}

// supervise starts or connects to the server, again and again, until ctx ends. It stays on one thread, because on Linux
// the children die with the thread that started them.
func (u *Upstream) supervise(ctx context.Context) {
	defer close(u.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	backoff := firstBackoff
	for {
		started := time.Now()
		run, again := u.runChild, "it is started again"
		if u.server.URL != "" {
			run, again = u.runRemote, "it is connected to again"
		}
		err := run(ctx)
		if ctx.Err() != nil {
			u.set(nil, ServerInfo{}, errors.New("closed"))
			return
		}
		u.set(nil, ServerInfo{}, err)
		if time.Since(started) >= healthy {
			backoff = firstBackoff
		}
		u.log.Warn("the MCP server is down; "+again, "err", err, "in", backoff)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			u.set(nil, ServerInfo{}, errors.New("closed"))
			return
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// runChild is one life of a child. It returns when the child and everything it started are gone, with the reason.
func (u *Upstream) runChild(ctx context.Context) error {
	child, err := startProcess(&u.server, u.log)
	if err != nil {
		return err
	}
	p := newPeer(cmp.Or(u.Name(), u.server.Command), u.log, child.in, child.out, &u.ids, u.options.Notify)
	defer func() {
		child.stop()
		select {
		case <-p.dead: // everything it had written was read
		case <-time.After(patience): // somebody else holds its stdout
			_ = child.out.Close()
			<-p.dead
		}
		_ = child.out.Close()
	}()

	shaking, done := context.WithTimeout(ctx, handshakeTime)
	defer done()
	go func() {
		select {
		case <-child.exited:
			done()
		case <-shaking.Done():
		}
	}()
	info, err := u.handshake(shaking, p, false)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		if child.endsSoon(p.dead) {
			return fmt.Errorf("before the handshake, %w", child.ended())
		}
		return err
	}
	defer u.up(ctx, p, info)()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-child.exited:
		return child.ended()
	case <-p.broken:
		return errors.New("it closed its stdin")
	case <-p.dead:
		return errors.New("it closed its stdout")
	}
}

// up records that the server can be called, and listens to it until down is called.
func (u *Upstream) up(ctx context.Context, w wire, info ServerInfo) (down func()) {
	u.set(w, info, nil)
	u.options.Up()
	ctx, down = context.WithCancel(ctx)
	if info.modern() {
		go u.listen(ctx, w, info)
	} else {
		go u.followAll(ctx, w)
	}
	return down
}

// set records that the server is up, or down and why.
func (u *Upstream) set(w wire, info ServerInfo, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wire, u.lastErr = w, err
	u.attempts++
	if w != nil {
		u.info = info
		u.name = cmp.Or(u.name, info.Name)
	}
	close(u.changed)
	u.changed = make(chan struct{})
}

func (i ServerInfo) modern() bool { return i.Protocol >= modernVersion }

// logs reports whether the server takes a log level.
func (i ServerInfo) logs() bool { return i.offers("logging") }

// offers reports whether the server has a capability.
func (i ServerInfo) offers(capability string) bool {
	o, err := parseObject(i.Capabilities)
	return err == nil && o.get(capability) != nil
}

// tells reports whether the server says when a list of its changes.
func (i ServerInfo) tells(capability string) bool {
	o, _ := parseObject(i.Capabilities)
	c, err := parseObject(o.get(capability))
	return err == nil && string(c.get("listChanged")) == "true"
}

// stands names what stands behind the server's tools. What a URL asks for beyond its path may be a secret that changes.
func (u *Upstream) stands() string {
	info := u.Info()
	reached := append([]string{u.server.Command}, u.server.Args...)
	if u.server.URL != "" {
		address, _, _ := strings.Cut(u.server.URL, "?")
		reached = []string{address}
	}
	return strings.TrimSpace(info.Name+" "+info.Version) + " " + fingerprint(reached)
}
