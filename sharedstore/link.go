package sharedstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

// errLost: the connection to the owner ended before the answer came.
var errLost = errors.New("the connection to the process that holds the ledger ended")

// link is a connection to the owner.
type link struct {
	conn   net.Conn
	frames chan []byte
	ended  chan struct{} // closed when the connection has ended

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer // nil once it has ended
}

type answer struct {
	kind byte
	body string
}

// dial connects to the owner and makes sure that the two understand each other.
func dial(ctx context.Context, dir, process string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	c, err := connect(ctx, dir)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	r := bufio.NewReaderSize(c, 64<<10)
	err = writeHello(c, hello{Protocol: protocol, Types: types, Process: process})
	var h hello
	if err == nil {
		h, err = readHello(r)
	}
	if err == nil {
		err = h.fits()
	}
	if err == nil && h.Refused != "" {
		err = errors.New(h.Refused)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	l := &link{conn: c, frames: make(chan []byte, queueLength), ended: make(chan struct{}), waiting: map[uint64]chan answer{}}
	go func() {
		writeFrames(c, l.frames, l.ended)
		c.Close() // and the reader ends
	}()
	go l.read(r)
	return l, nil
}

func (l *link) gone() <-chan struct{} { return l.ended }

// close ends the connection once what was sent is written.
func (l *link) close() error {
	l.end()
	return nil
}

func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting != nil {
		l.waiting = nil
		close(l.ended)
	}
}

func (l *link) read(r *bufio.Reader) {
	defer l.end()
	for {
		id, kind, body, err := readFrame(r, maxResponse)
		if err != nil {
			return
		}
		l.mu.Lock()
		to := l.waiting[id]
		delete(l.waiting, id)
		l.mu.Unlock()
		if to != nil {
			to <- answer{kind, body}
		}
	}
}

// ask sends a request and reads the answer into what out points to. Of its errors only errLost says that the owner may
// not have had it.
func (l *link) ask(ctx context.Context, kind byte, in, out any) error {
	to := make(chan answer, 1)
	l.mu.Lock()
	l.last++
	id := l.last
	if l.waiting == nil {
		l.mu.Unlock()
		return errLost
	}
	l.waiting[id] = to
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, id)
		l.mu.Unlock()
	}()

	frame, err := encode(newFrame(id, kind, roomOf(kind)), in)
	if err != nil {
		return err
	}
	if len(frame) > maxRequest {
		return fmt.Errorf("%w: a request of %d bytes", toolguard.ErrTooLarge, len(frame))
	}
	select {
	case l.frames <- seal(frame):
	case <-l.ended:
		return errLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case a := <-to:
		return a.read(out)
	case <-l.ended:
		select {
		case a := <-to:
			return a.read(out)
		default:
			return errLost
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// roomOf is what most requests of a kind take.
func roomOf(kind byte) int {
	if kind == kindCommit {
		return 4 << 10
	}
	return 128
}

func (a answer) read(out any) error {
	if a.kind == kindError {
		return readError(a.body)
	}
	return decode(a.body, out)
}

// lazy sends a write that gets no answer. To an owner that has not taken anything for lazyWait it is not sent.
func (l *link) lazy(frame []byte) {
	select {
	case l.frames <- frame:
		return
	default:
	}
	wait := time.NewTimer(lazyWait)
	defer wait.Stop()
	select {
	case l.frames <- frame:
	case <-l.ended:
	case <-wait.C:
	}
}

const lazyWait = 100 * time.Millisecond

// commit sends a write and stamps it.
func (l *link) commit(ctx context.Context, w *toolguard.Write) error {
	var s stamps
	if err := l.ask(ctx, kindCommit, w, &s); err != nil {
		return err
	}
	if w.Operation != nil {
		w.Operation.Rev, w.Operation.Dispatched, w.Operation.Token = s.Rev, s.Dispatched, s.Token
	}
	for i := range min(len(w.Events), len(s.Events)) {
		e, n := &w.Events[i], &s.Events[i]
		e.Chain, e.ChainSeq, e.Prev, e.Hash, e.Seq = n.Chain, n.ChainSeq, n.Prev, n.Hash, n.Seq
	}
	return nil
}

func (l *link) operations(ctx context.Context, q toolguard.Query) (p toolguard.Page, err error) {
	err = l.ask(ctx, kindOperations, &q, &p)
	return p, err
}

func (l *link) body(ctx context.Context, key string) (b toolguard.Body, err error) {
	err = l.ask(ctx, kindBody, &key, &b)
	return b, err
}

func (l *link) events(ctx context.Context, after uint64, limit int) (es []toolguard.Event, err error) {
	err = l.ask(ctx, kindEvents, &eventsOf{after, limit}, &es)
	return es, err
}

func (l *link) document(ctx context.Context, name string) (d documentOf, err error) {
	err = l.ask(ctx, kindDocument, &name, &d)
	return d, err
}

func (l *link) flush(ctx context.Context) error {
	var nothing struct{}
	return l.ask(ctx, kindFlush, &nothing, &nothing)
}
