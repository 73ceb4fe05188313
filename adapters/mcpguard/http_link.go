package mcpguard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// link is one TCP connection. It knows when the first byte of the latest request came in, as the number of replies
// whose writing had begun by then on the whole endpoint.
type link struct {
	net.Conn
	front    *front
	receipts receipts // of the stateless protocol, whose clients have nothing else in common
	once     sync.Once
	release  func()

	mu    sync.Mutex
	bytes int    // read in all
	mark  int    // bytes, when the latest reply began
	fresh bool   // nothing came in since then
	stamp uint64 // when something did
	lost  func() // takes back that the latest reply was written, or nil
}

type linkKey struct{}

func withLink(ctx context.Context, c net.Conn) context.Context {
	l, _ := c.(*link)
	return context.WithValue(ctx, linkKey{}, l)
}

// linkOf is the connection of a request, nil if it is not known.
func linkOf(ctx context.Context) *link {
	l, _ := ctx.Value(linkKey{}).(*link)
	return l
}

// Read reads, and notes when. A connection that is reset may have lost what the network took of us.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		l.mu.Lock()
		lost := l.lost
		l.mu.Unlock()
		if lost != nil {
			lost()
		}
	}
	if n > 0 {
		l.mu.Lock()
		if l.fresh {
			l.stamp, l.fresh = l.front.begun.Load(), false
		}
		l.bytes += n
		l.mu.Unlock()
	}
	return n, err
}

// Close closes the connection.
func (l *link) Close() error {
	l.once.Do(l.release)
	return l.Conn.Close()
}

// replies notes that a reply begins: what is read from now on is the next request.
func (l *link) replies() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark, l.fresh = l.bytes, true
}

// wrote notes that a reply was written.
func (l *link) wrote(lost func()) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = lost
}

// arrived is how many replies had begun when the first byte of a request of this size, or a larger one, came in; 0 if
// it came in before the reply to the request before it began.
func (l *link) arrived(size int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fresh || l.bytes-l.mark < size {
		return 0
	}
	return l.stamp
}

// sizeOf is how many bytes a request took on its connection, written as everybody writes it: one space after each
// colon. For one that is written shorter it is too much, and so proves nothing.
func sizeOf(r *http.Request, body []byte) int {
	n := len(r.Method+" "+r.RequestURI+" "+r.Proto+"\r\nHost: "+r.Host+"\r\n\r\n") + len(body)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// linkListener makes links. Beyond the limit a connection is closed at once: those that are served keep their room.
type linkListener struct {
	net.Listener
	front *front
	open  atomic.Int64
}

const busyAnswer = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: " + retryAfter + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

// Accept waits for the next connection.
func (l *linkListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= int64(l.front.options.Connections) {
			return &link{Conn: c, front: l.front, fresh: true, release: func() { l.open.Add(-1) }}, nil
		}
		l.open.Add(-1)
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write([]byte(busyAnswer))
		_ = c.Close()
	}
}

// receipts are the replies in one session, or on one connection, whose delivery is to be proven.
type receipts struct {
	mu   sync.Mutex
	list []*receipt
}

// receipt is one of them. It is proven by a message that came in after its writing had begun, if it was written without
// error.
type receipt struct {
	id        string
	index     uint64 // among the replies whose writing has begun
	delivered func()
	out       chan struct{} // closed when it is out, or known not to be
	written   bool
	proven    bool
}

// begin notes that the writing of a reply begins.
func (r *receipts) begin(id string, index uint64, delivered func()) *receipt {
	p := &receipt{id: id, index: index, delivered: delivered, out: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) >= maxOpen {
		r.list = r.list[1:]
	}
	r.list = append(r.list, p)
	return p
}

// end notes that the reply is out, or could not be written.
func (r *receipts) end(p *receipt, written bool) {
	r.mu.Lock()
	p.written = written
	if !written || p.proven {
		r.drop(p)
	}
	delivered := written && p.proven
	r.mu.Unlock()
	if delivered {
		p.delivered()
	}
	close(p.out)
}

// lost notes that a reply did not arrive, after all.
func (r *receipts) lost(p *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(p)
}

// drop forgets a reply. The lock is held.
func (r *receipts) drop(p *receipt) {
	for i, q := range r.list {
		if p == q {
			r.list = append(r.list[:i], r.list[i+1:]...)
			return
		}
	}
}

// prove takes a message as proof of what had begun when it came in, but for the reply to a request that it cancels.
// A reply that is not quite out yet is waited for, a moment at most: that its client has it should be on record before
// the message is looked at.
func (r *receipts) prove(stamp uint64, cancelled string) {
	var now, soon, rest []*receipt
	r.mu.Lock()
	for _, p := range r.list {
		switch {
		case cancelled != "" && p.id == cancelled:
		case p.index > stamp:
			rest = append(rest, p)
		case p.written:
			now = append(now, p)
		default:
			p.proven = true
			soon = append(soon, p)
			rest = append(rest, p)
		}
	}
	r.list = rest
	r.mu.Unlock()
	for _, p := range now {
		p.delivered()
	}
	if len(soon) == 0 {
		return
	}
	moment := time.NewTimer(100 * time.Millisecond)
	defer moment.Stop()
	for _, p := range soon {
		select {
		case <-p.out:
		case <-moment.C:
			return
		}
	}
}
