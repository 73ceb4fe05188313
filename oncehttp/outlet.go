package oncehttp

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
)

// outlet is a connection to a server that knows when bytes leave, and for which request. It is the only place where
// they do.
type outlet struct {
	net.Conn

	mu  sync.Mutex
	now *departure // of the request that has the connection; nil during a TLS handshake
}

// Write writes what belongs to the current request, if that may leave still.
func (c *outlet) Write(b []byte) (int, error) {
	c.mu.Lock()
	d := c.now
	c.mu.Unlock()
	if d == nil {
		return c.Conn.Write(b)
	}
	if err := d.begin(c); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	d.wrote(n)
	return n, err
}

func (c *outlet) take(d *departure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = d
}

// departure is the leaving of one request: from the first byte on it may have arrived, and had its effect.
type departure struct {
	sending func() error // called right before the first byte; may be nil
	sent    func()       // called after the last one; may be nil

	mu      sync.Mutex
	reused  bool // the connection had carried another request
	on      *outlet
	out     bool // a byte was written on it, or is being written
	written int
	refusal error // why no byte may leave
}

// trace tells the connection that the request is about to be written on whose request it is.
func (d *departure) trace(ctx context.Context) context.Context {
	wrote := func(info httptrace.WroteRequestInfo) {
		if info.Err == nil && d.sent != nil {
			d.sent()
		}
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: wrote, GotConn: func(info httptrace.GotConnInfo) {
		d.mu.Lock()
		d.reused = info.Reused
		d.mu.Unlock()
		conn := info.Conn
		for {
			switch c := conn.(type) {
			case *outlet:
				c.take(d)
				return
			case interface{ NetConn() net.Conn }: // TLS
				conn = c.NetConn()
			default: // none of ours: whatever is written on it counts as gone
				_ = d.begin(nil)
				d.wrote(1)
				return
			}
		}
	}})
}

// errTwice: net/http is about to send a request a second time.
var errTwice = errors.New("the connection broke after the request had begun to leave")

// errRefused: who asked for the request does not want it to leave any more.
var errRefused = errors.New("refused")

type refused struct{ error }

func (e refused) Is(target error) bool { return target == errRefused }
func (e refused) Unwrap() error        { return e.error }

// begin is called before bytes are written on a connection; an error means that none may be.
func (d *departure) begin(c *outlet) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out && d.on != c {
		return errTwice
	}
	if d.out || d.refusal != nil {
		return d.refusal
	}
	d.on = c
	if d.sending != nil {
		if err := d.sending(); err != nil {
			d.refusal = refused{err}
			return d.refusal
		}
	}
	d.out = true
	return nil
}

// wrote counts what was written.
func (d *departure) wrote(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written += n
	d.out = d.written > 0
}

// refuse keeps the request from leaving, unless it has begun to, and reports whether it did.
func (d *departure) refuse(why error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out {
		return false
	}
	if d.refusal == nil {
		d.refusal = why
	}
	return true
}

// state is why no byte may leave any more, nil if that was not so decided, and whether the connection was a used one.
func (d *departure) state() (refusal error, reused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusal, d.reused
}
