package mcpguard

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/server"
)

// proofs are the results that went out on each line and wait for proof of their delivery.
type proofs struct {
	mu      sync.Mutex
	waiting map[any][]func()
}

// maxLines bounds the lines that are remembered. Beyond it all is forgotten: what is not known to be delivered counts
// as undelivered.
const maxLines = 4096

// lineOf names what a call came in on, by which whoever calls there again has shown to have what went out before: its
// session, or, where the protocol knows none and all sessions have the name "", its connection, by the address that
// net/http makes anew for each. nil: that is not known.
func lineOf(ctx context.Context) any {
	session := server.ClientSessionFromContext(ctx)
	if session == nil {
		return nil
	}
	if id := session.SessionID(); id != "" {
		return id
	}
	switch at := ctx.Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return at
	case *net.UnixAddr:
		return at
	}
	return nil
}

func (p *proofs) expect(line any, delivered func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil || len(p.waiting) >= maxLines {
		p.waiting = map[any][]func(){}
	}
	if list := p.waiting[line]; len(list) < maxOpen {
		p.waiting[line] = append(list, delivered)
	}
}

func (p *proofs) prove(line any) {
	p.mu.Lock()
	list := p.waiting[line]
	delete(p.waiting, line)
	p.mu.Unlock()
	for _, delivered := range list {
		delivered()
	}
}
