package sharedstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"toolguard.dev/codec"
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
	waiting map[uint64]*waiter // nil once it has ended
}

// waiter waits for one answer. One look at all of them now and then costs less than a timer for each.
type waiter struct {
	answers chan answer // takes one
	until   time.Time
}

const overdueEvery = 50 * time.Millisecond

var waiters = sync.Pool{New: func() any { return &waiter{answers: make(chan answer, 1)} }}

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
	l := &link{conn: c, frames: make(chan []byte, queueLength), ended: make(chan struct{}), waiting: map[uint64]*waiter{}}
	go func() {
		writeFrames(c, l.frames, l.ended)
		c.Close() // and the reader ends
	}()
	go l.read(r)
	go l.watch()
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
		if w := l.take(id); w != nil {
			w.answers <- answer{kind, body}
		}
	}
}

// take returns who waits under a number, once.
func (l *link) take(id uint64) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waiting[id]
	delete(l.waiting, id)
	return w
}

// watch tells those who have waited too long.
func (l *link) watch() {
	tick := time.NewTicker(overdueEvery)
	defer tick.Stop()
	for {
		var now time.Time
		select {
		case now = <-tick.C:
		case <-l.ended:
			return
		}
		l.mu.Lock()
		for id, w := range l.waiting {
			if now.After(w.until) {
				delete(l.waiting, id)
				w.answers <- answer{kind: kindAway}
			}
		}
		l.mu.Unlock()
	}
}

// asking is what ask needs to know of a request.
type asking struct {
	ctx   context.Context // bounds the wait to be sent and, unless it is a write, for the answer
	until time.Time       // bounds all
	kind  byte
}

// ask sends a request and reads the answer into what out points to. errLost says that the connection ended before.
func (l *link) ask(q asking, in, out any) error {
	w := waiters.Get().(*waiter)
	w.until = q.until
	l.mu.Lock()
	l.last++
	id := l.last
	if l.waiting == nil {
		l.mu.Unlock()
		return errLost
	}
	l.waiting[id] = w
	l.mu.Unlock()

	frame, err := codec.Append(newFrame(id, q.kind, roomOf(q.kind)), in)
	if err == nil && len(frame) > maxRequest {
		err = fmt.Errorf("%w: a request of %d bytes", toolguard.ErrTooLarge, len(frame))
	}
	if err != nil {
		l.take(id)
		return err
	}
	done := q.ctx.Done()
	select {
	case l.frames <- seal(frame):
		if q.kind == kindCommit {
			done = nil // a write once begun is finished
		}
	case <-l.ended:
		return errLost
	case <-done:
		l.take(id)
		return q.ctx.Err()
	case a := <-w.answers:
		return a.read(out)
	}
	select {
	case a := <-w.answers:
		waiters.Put(w)
		return a.read(out)
	case <-l.ended:
		select {
		case a := <-w.answers:
			return a.read(out)
		default:
			return errLost
		}
	case <-done:
		l.take(id)
		return q.ctx.Err()
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
	switch a.kind {
	case kindError:
		return readError(a.body)
	case kindAway:
		return toolguard.ErrStoreAway
	}
	return codec.Decode(a.body, out)
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
func (l *link) commit(q asking, w *toolguard.Write) error {
	var s stamps
	q.kind = kindCommit
	if err := l.ask(q, w, &s); err != nil {
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
