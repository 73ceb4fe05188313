package mcpguard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolguard.dev/registry"
)

// Command says how to start one MCP server on stdio.
type Command struct {
	Name    string   // the server's name in keys and policies; "": the name it gives itself
	Command string   // the program, looked up in the PATH of Env if it has no slash
	Args    []string // its arguments
	Env     []string // its whole environment, as "NAME=value"
	Dir     string   // its working folder; "": ours
}

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

// How a child is started again: after firstBackoff, doubling up to lastBackoff, forgotten once it was well for
// healthy. A child that does not answer the handshake within handshakeTime is started again as well.
const (
	firstBackoff  = 200 * time.Millisecond
	lastBackoff   = 10 * time.Second
	healthy       = 30 * time.Second
	handshakeTime = time.Minute
)

// Upstream is one MCP server as a child process. It is started again when it dies. Its methods are safe for
// concurrent use.
type Upstream struct {
	command Command
	options UpstreamOptions
	log     *slog.Logger
	ids     atomic.Int64
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	peer     *peer // nil while it is down
	info     ServerInfo
	name     string
	level    string        // log level to ask for, "" for none
	lastErr  error         // why it is down
	attempts int           // how often it was tried to start it
	changed  chan struct{} // closed, and made anew, when any of these changes
}

// StartUpstream starts an MCP server and keeps it running until Close. It does not wait for it: see [Upstream.Ready].
func StartUpstream(c Command, o *UpstreamOptions) (*Upstream, error) {
	if c.Command == "" {
		return nil, fmt.Errorf("server %q: no command", c.Name)
	}
	u := &Upstream{command: c, name: c.Name, done: make(chan struct{}), changed: make(chan struct{})}
	if o != nil {
		u.options = *o
	}
	if u.options.Notify == nil {
		u.options.Notify = func(string, json.RawMessage) {}
	}
	if u.options.Up == nil {
		u.options.Up = func() {}
	}
	u.log = cmp.Or(u.options.Log, slog.Default()).With("server", cmp.Or(c.Name, c.Command))
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	go u.supervise(ctx)
	return u, nil
}

// Close ends the server: its stdin is closed, two seconds later it is asked to end, and then it is killed, with
// everything that it started.
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
		up, tries, lastErr, changed := u.peer != nil, u.attempts, u.lastErr, u.changed
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
	return u.call(ctx, &request{method: method, params: params, read: true})
}

func (u *Upstream) call(ctx context.Context, r *request) (json.RawMessage, *registry.ProtocolError, error) {
	u.mu.Lock()
	p, info, level, lastErr := u.peer, u.info, u.level, u.lastErr
	u.mu.Unlock()
	if p == nil {
		if lastErr == nil {
			lastErr = errors.New("it has not started yet")
		}
		return nil, nil, fmt.Errorf("%w: the MCP server %s is not running: %w", registry.ErrNotSent, u.Name(), lastErr)
	}
	if info.modern() {
		params, err := u.modernParams(info.Protocol, level, r)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", registry.ErrNotSent, err)
		}
		c := *r
		c.params = params
		r = &c
	}
	return p.call(ctx, r)
}

// setLogLevel asks the server for log messages of a level, now and after every restart.
func (u *Upstream) setLogLevel(ctx context.Context, level string) {
	u.mu.Lock()
	u.level = level
	p, info := u.peer, u.info
	u.mu.Unlock()
	if p != nil && info.logs() && !info.modern() {
		u.askLogLevel(ctx, p, level)
	}
}

func (u *Upstream) askLogLevel(ctx context.Context, p *peer, level string) {
	if level == "" {
		return
	}
	params := object{{"level", quote(level)}}.raw()
	_, problem, err := p.call(ctx, &request{method: "logging/setLevel", params: params, read: true})
	if err == nil && problem != nil {
		err = errors.New(problem.Message)
	}
	if err != nil {
		u.log.Warn("the MCP server's log level could not be set", "err", err)
	}
}

// supervise starts the child and starts it again, until ctx ends. It stays on one thread, because on Linux the
// children die with the thread that started them.
func (u *Upstream) supervise(ctx context.Context) {
	defer close(u.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	backoff := firstBackoff
	for {
		started := time.Now()
		err := u.run(ctx)
		if ctx.Err() != nil {
			u.set(nil, ServerInfo{}, errors.New("closed"))
			return
		}
		u.set(nil, ServerInfo{}, err)
		if time.Since(started) >= healthy {
			backoff = firstBackoff
		}
		u.log.Warn("the MCP server is down; it is started again", "err", err, "in", backoff)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			u.set(nil, ServerInfo{}, errors.New("closed"))
			return
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// run is one life of the child. It returns when the child and everything it started are gone, with the reason.
func (u *Upstream) run(ctx context.Context) error {
	child, err := startProcess(&u.command, u.log)
	if err != nil {
		return err
	}
	p := newPeer(cmp.Or(u.Name(), u.command.Command), u.log, child.in, child.out, &u.ids, u.options.Notify)
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
	info, err := u.handshake(shaking, p)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		if child.endsSoon(p.dead) {
			return fmt.Errorf("before the handshake, %w", child.ended())
		}
		return err
	}
	u.set(p, info, nil)
	u.options.Up()
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

// set records that the child is up, or down and why.
func (u *Upstream) set(p *peer, info ServerInfo, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.peer, u.lastErr = p, err
	u.attempts++
	if p != nil {
		u.info = info
		u.name = cmp.Or(u.name, info.Name)
	}
	close(u.changed)
	u.changed = make(chan struct{})
}

func (i ServerInfo) modern() bool { return i.Protocol >= modernVersion }

// logs reports whether the server takes a log level.
func (i ServerInfo) logs() bool {
	o, err := parseObject(i.Capabilities)
	return err == nil && o.get("logging") != nil
}

// stands names what stands behind the server's tools.
func (u *Upstream) stands() string {
	info := u.Info()
	return strings.TrimSpace(info.Name+" "+info.Version) + " " + fingerprint(append([]string{u.command.Command}, u.command.Args...))
}
