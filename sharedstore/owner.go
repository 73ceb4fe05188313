package sharedstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

const (
	maxConnections = 512
	perConnection  = 256  // requests of one connection at a time; more wait in its socket
	altogether     = 2048 // requests of all

	lookAround = 500 * time.Millisecond // how often the owner looks after its socket and for dead processes
	debounce   = 50 * time.Millisecond  // from the end of a connection until its process is looked at
)

// owner has the store open and serves it on the socket.
type owner struct {
	toolguard.Store
	dir, name string
	log       *slog.Logger
	slots     chan struct{}
	stirred   chan struct{} // a connection ended

	mu       sync.Mutex
	listener net.Listener // nil once it is closed
	conns    map[net.Conn]struct{}
	served   sync.WaitGroup
}

// own takes the store over and listens, if no other process has it.
func (s *Store) own() (*owner, error) {
	store, err := s.o.OpenOwner()
	if err != nil {
		return nil, err
	}
	o := &owner{
		Store: store, dir: s.dir, name: s.name, log: s.o.Log,
		slots: make(chan struct{}, altogether), stirred: make(chan struct{}, 1), conns: map[net.Conn]struct{}{},
	}
	if !shared {
		return o, nil
	}
	if err := o.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("the socket of %s: %w", s.dir, err), store.Close())
	}
	return o, nil
}

// gone never comes: an owner stays one until it closes.
func (o *owner) gone() <-chan struct{} { return nil }

// listen binds the socket, anew where there was one.
func (o *owner) listen() error {
	l, err := listen(o.dir)
	if err != nil {
		return err
	}
	o.mu.Lock()
	if o.listener != nil {
		o.listener.Close()
	}
	o.listener = l
	o.mu.Unlock()
	o.served.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // too many open files, say
				o.log.Warn("a connection could not be accepted", "error", err)
				time.Sleep(debounce)
				continue
			}
			if o.admit(c) {
				o.served.Go(func() { o.serve(c) })
			}
		}
	})
	return nil
}

// admit counts a connection in, unless the owner closes.
func (o *owner) admit(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listener == nil {
		c.Close()
		return false
	}
	o.conns[c] = struct{}{}
	return true
}

func (o *owner) dismiss(c net.Conn) {
	o.mu.Lock()
	delete(o.conns, c)
	o.mu.Unlock()
	c.Close()
	select {
	case o.stirred <- struct{}{}:
	default:
	}
}

// present reports whether others can find the socket.
func (o *owner) present() bool {
	path, err := address(o.dir)
	if err != nil {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// look does what an owner has to look after, until ctx ends: it binds the socket anew if somebody removed it, and calls
// died when it finds that processes have died, again until that went well.
func (o *owner) look(ctx context.Context, died func(context.Context) error) {
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for {
		if shared && !o.present() {
			if err := o.listen(); err != nil {
				o.log.Error("the socket is gone and cannot be made anew", "folder", o.dir, "error", err)
			}
		}
		o.bury(ctx, died)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-o.stirred:
			select {
			case <-ctx.Done():
				return
			case <-time.After(debounce): // a process that dies closes its files one after the other
			}
		}
	}
}

func (o *owner) bury(ctx context.Context, died func(context.Context) error) {
	names, err := dead(o.dir)
	if err != nil || len(names) == 0 {
		return
	}
	if err := died(ctx); err != nil {
		if ctx.Err() == nil {
			o.log.Error("what dead processes left could not be settled, and is tried again", "error", err)
		}
		return
	}
	for _, name := range names {
		if err := strike(o.dir, name); err != nil {
			o.log.Warn("the file of a dead process could not be removed", "error", err)
		}
	}
}

// close lets no more requests in, answers those that are, and closes the store.
func (o *owner) close() error {
	o.mu.Lock()
	if l := o.listener; l != nil {
		if path, err := address(o.dir); err == nil {
			os.Remove(path) // the lock is held still
		}
		l.Close()
	}
	o.listener = nil
	for c := range o.conns {
		c.SetReadDeadline(time.Unix(1, 0))
	}
	o.mu.Unlock()
	o.served.Wait()
	return o.Store.Close()
}

// greet shakes hands with a peer and says why not where it refuses it.
func (o *owner) greet(c net.Conn, r *bufio.Reader) error {
	if err := checkPeer(c); err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	stop := time.AfterFunc(helloTimeout, func() { c.Close() })
	defer stop.Stop()
	h, err := readHello(r)
	if err != nil {
		return err
	}
	mine := hello{Protocol: protocol, Types: types, Process: o.name}
	o.mu.Lock()
	many := len(o.conns) > maxConnections
	o.mu.Unlock()
	if many {
		mine.Refused = fmt.Sprintf("the process that holds the ledger has %d connections already", maxConnections)
	}
	if err := writeHello(c, mine); err != nil {
		return err
	}
	if many {
		return errors.New(mine.Refused)
	}
	return h.fits()
}
