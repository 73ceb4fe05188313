package mcpguard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/registry"
)

// fail answers with an error, without waiting.
func (c *conn) fail(id json.RawMessage, code int, message string) {
	if idKey(id) == "" {
		id = json.RawMessage("null")
	}
	c.offer(replyLine(id, reply{problem: &registry.ProtocolError{Code: code, Message: message}}))
}

// notify sends a notification, unless the client does not keep up with reading.
func (c *conn) notify(method string, params json.RawMessage) {
	c.offer(requestLine("", method, params))
}

func (c *conn) offer(line []byte) {
	select {
	case c.out <- outbound{line: line}:
	default:
		c.log.Warn("the client does not read; a message to it was dropped")
	}
}

// pump sends what mcp-go wants to tell the client.
func (c *conn) pump(ctx context.Context) {
	for {
		select {
		case n := <-c.session.notifications:
			c.session.tag(&n)
			c.offer(append(encode(n), '\n'))
		case <-ctx.Done():
			return
		}
	}
}

// write is the only place where something is written. It ends with the first error, or with ctx.
func (c *conn) write(ctx context.Context, out io.Writer) error {
	defer close(c.broken)
	for {
		select {
		case o := <-c.out:
			if o.flushed != nil {
				close(o.flushed)
				continue
			}
			if err := c.put(out, o); err != nil {
				c.mu.Lock()
				c.proofs, c.writing = nil, nil
				c.mu.Unlock()
				return fmt.Errorf("writing to the client: %w", err)
			}
			if o.exchange != nil {
				c.wrote(o.exchange)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// oneWrite is how long a line may be to go in one write. A longer one may take until the client has read most of it:
// what the client sends meanwhile was sent before it had the whole.
const oneWrite = 4 << 10

// put writes a line. A reply counts from its last byte on.
func (c *conn) put(out io.Writer, o outbound) error {
	line := o.line
	if x := o.exchange; x != nil {
		if n := len(line) - 1; n >= oneWrite {
			if _, err := out.Write(line[:n]); err != nil {
				return err
			}
			line = line[n:]
		}
		c.writes(x)
	}
	_, err := out.Write(line)
	return err
}

// writes notes that the last byte of a reply is written.
func (c *conn) writes(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.index = c.in.begin()
	c.writing = x
}

// wrote notes that a reply is out.
func (c *conn) wrote(x *exchange) {
	c.mu.Lock()
	c.writing = nil
	delivered := x.delivered != nil && x.proven && !x.cancelled
	if x.delivered != nil && !x.proven && !x.cancelled {
		c.proofs = append(c.proofs, x)
	}
	c.close(x)
	c.mu.Unlock()
	if delivered {
		x.delivered()
	}
	close(x.out)
}

// close forgets an open request. The lock is held.
func (c *conn) close(x *exchange) {
	delete(c.open, idKey(x.id))
	if len(c.open) == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// prove takes a message that came in as proof that the replies before it were received, if they were written without
// error. The cancelling of a request proves nothing about that request: its result is taken for lost. A reply that is
// still being written is returned; it is proven once it is out.
func (c *conn) prove(stamp uint64, cancelled string) (writing *exchange) {
	c.mu.Lock()
	var proven, rest []*exchange
	for _, x := range c.proofs {
		switch {
		case cancelled != "" && idKey(x.id) == cancelled:
		case x.index <= stamp:
			proven = append(proven, x)
		default:
			rest = append(rest, x)
		}
	}
	c.proofs = rest
	if x := c.writing; x != nil && x.index <= stamp && (cancelled == "" || idKey(x.id) != cancelled) {
		x.proven = true
		writing = x
	}
	c.mu.Unlock()
	for _, x := range proven {
		x.delivered()
	}
	return writing
}

// drain takes on nothing more and waits until the open requests are answered, for limit at most.
func (c *conn) drain(limit time.Duration) {
	idle := make(chan struct{})
	c.mu.Lock()
	c.draining = true
	if len(c.open) == 0 {
		close(idle)
	} else {
		c.idle = idle
	}
	for _, x := range c.open {
		if x.method == string(mcp.MethodSubscriptionsListen) { // would never end by itself
			x.cancel()
		}
	}
	c.mu.Unlock()
	if !c.wait(idle, limit) {
		c.mu.Lock()
		for _, x := range c.open {
			x.cancel()
		}
		c.mu.Unlock()
		c.wait(idle, time.Second) // for the guard to say how things stand
	}
	flushed := make(chan struct{})
	select {
	case c.out <- outbound{flushed: flushed}:
		c.wait(flushed, time.Second)
	default: // the client does not read
	}
}

// wait reports whether done was closed in time; a connection that is broken is not waited for.
func (c *conn) wait(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-c.broken:
		return true
	case <-timer.C:
		return false
	}
}

// allowsLog reports whether the client wants a log message of a level: by what it has set, or by what a request of
// the stateless protocol that is open asks for.
func (c *conn) allowsLog(level mcp.LoggingLevel) bool {
	if c.session.allows(level) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.open {
		if x.logLevel != "" && level.ShouldSendTo(x.logLevel) {
			return true
		}
	}
	return false
}
