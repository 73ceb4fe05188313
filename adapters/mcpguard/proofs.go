package mcpguard

import (
	"sync"
)

// proofs are the results of each session that wait for proof of their delivery.
type proofs struct {
	mu      sync.Mutex
	waiting map[string][]func()
}

// maxSessions bounds the sessions that are remembered. Beyond it all is forgotten: what is not known to be delivered
// counts as undelivered.
const maxSessions = 4096

func (p *proofs) expect(session string, delivered func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil || len(p.waiting) >= maxSessions {
		p.waiting = map[string][]func(){}
	}
	if list := p.waiting[session]; len(list) < maxOpen {
		p.waiting[session] = append(list, delivered)
	}
}

func (p *proofs) prove(session string) {
	p.mu.Lock()
	list := p.waiting[session]
	delete(p.waiting, session)
	p.mu.Unlock()
	for _, delivered := range list {
		delivered()
	}
}
