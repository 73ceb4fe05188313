package sharedstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"

	"toolguard.dev/codec"
	"toolguard.dev/toolguard"
)

// serve answers one connection's requests until it ends, or the owner does.
func (o *owner) serve(c net.Conn) {
	defer o.dismiss(c)
	r := bufio.NewReaderSize(c, 64<<10)
	if err := o.greet(c, r); err != nil {
		o.log.Debug("a connection was refused", "error", err)
		return
	}
	p := &peer{owner: o, frames: make(chan []byte, queueLength), broken: make(chan struct{})}
	stop := make(chan struct{})
	go func() {
		defer close(p.broken)
		writeFrames(c, p.frames, stop)
		c.Close()
	}()
	p.read(r)
	p.handling.Wait()
	close(stop)
	<-p.broken
}

// peer is one connection, at the owner's end.
type peer struct {
	*owner
	frames   chan []byte
	broken   chan struct{} // closed when nothing is written any more
	handling sync.WaitGroup
}

type request struct {
	id   uint64
	kind byte
	body string
}

// read takes requests in. Writes without an answer are done in their place, before what comes behind them begins. The
// goroutines that do the rest stay: growing a new stack for each request costs as much as decoding it.
func (p *peer) read(r *bufio.Reader) {
	requests := make(chan request)
	defer close(requests)
	for workers := 0; ; {
		id, kind, body, err := readFrame(r, maxRequest)
		if err != nil {
			return
		}
		q := request{id, kind, body}
		if kind == kindLazy {
			p.lazy(q)
			continue
		}
		select {
		case requests <- q:
			continue
		default:
		}
		if workers == perConnection {
			requests <- q
			continue
		}
		workers++
		p.handling.Go(func() {
			p.answer(q)
			for q := range requests {
				p.answer(q)
			}
		})
	}
}

func (p *peer) lazy(q request) {
	w := new(toolguard.Write)
	if codec.Decode(q.body, w) == nil {
		w.Lazy = true
		_ = p.Commit(context.Background(), w) // dropped silently, as a lazy write may be
	}
}

func (p *peer) answer(q request) {
	p.slots <- struct{}{}
	defer func() { <-p.slots }()
	frame, err := p.do(newFrame(q.id, kindDone, 512), q)
	switch {
	case errors.Is(err, toolguard.ErrStoreClosed):
		return // the connection ends, and the request goes to the next owner
	case err == nil && len(frame) > maxResponse:
		err = errors.New("the answer is too large to be sent: ask for less at a time")
	}
	if err != nil {
		frame = errorFrame(q.id, err)
	} else {
		seal(frame)
	}
	select {
	case p.frames <- frame:
	case <-p.broken:
	}
}

// do does what a request asks for and appends the answer. A request once taken in is finished, whatever becomes of the peer.
func (p *peer) do(b []byte, r request) ([]byte, error) {
	ctx := context.Background()
	switch r.kind {
	case kindCommit:
		w := new(toolguard.Write)
		if err := codec.Decode(r.body, w); err != nil {
			return nil, err
		}
		w.Lazy = false
		if err := p.Commit(ctx, w); err != nil {
			return nil, err
		}
		return codec.Append(b, stampsOf(w))
	case kindFlush:
		if err := p.Commit(ctx, &toolguard.Write{}); err != nil { // takes the lazy ones before it along
			return nil, err
		}
		return codec.Append(b, &struct{}{})
	case kindOperations:
		var q toolguard.Query
		if err := codec.Decode(r.body, &q); err != nil {
			return nil, err
		}
		page, err := p.Operations(ctx, q)
		if err != nil {
			return nil, err
		}
		return codec.Append(b, &page)
	case kindEvents:
		var q eventsOf
		if err := codec.Decode(r.body, &q); err != nil {
			return nil, err
		}
		events, err := q.from(ctx, p)
		if err != nil {
			return nil, err
		}
		return codec.Append(b, &events)
	}
	var name string
	if err := codec.Decode(r.body, &name); err != nil {
		return nil, err
	}
	switch r.kind {
	case kindBody:
		found, err := p.Body(ctx, name)
		if err != nil {
			return nil, err
		}
		return codec.Append(b, &found)
	case kindDocument:
		var d documentOf
		var err error
		if d.Data, d.Rev, err = p.Document(ctx, name); err != nil {
			return nil, err
		}
		return codec.Append(b, &d)
	}
	return nil, codec.ErrDamaged
}

// stampsOf is what a write got from the store.
func stampsOf(w *toolguard.Write) *stamps {
	s := &stamps{}
	if op := w.Operation; op != nil {
		s.Rev, s.Dispatched, s.Token = op.Rev, op.Dispatched, op.Token
	}
	for i := range w.Events {
		e := &w.Events[i]
		s.Events = append(s.Events, linked{e.Chain, e.ChainSeq, e.Prev, e.Hash, e.Seq})
	}
	return s
}
