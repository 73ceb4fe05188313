package mcpguard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// httpSession is one client of the handshake eras.
type httpSession struct {
	*session
	receipts receipts

	mu     sync.Mutex
	open   map[string]*exchange // by id, until the reply is written
	stream context.CancelFunc   // ends the open GET stream, or nil
	busy   int                  // requests and streams that are open
	used   time.Time
}

// sessionNews is how many notifications wait for a client that listens to none.
const sessionNews = 16

var errSessions = errors.New("busy: there are too many sessions; end some, or wait until they have ended by themselves")

// addSession keeps a session that has shaken hands.
func (f *front) addSession(s *session) (*httpSession, error) {
	made := &httpSession{session: s, open: map[string]*exchange{}, used: time.Now()}
	var over []*httpSession
	f.mu.Lock()
	if len(f.sessions) >= f.options.Sessions {
		for _, old := range f.sessions {
			if old.expired(f.options.SessionIdle) {
				over = append(over, old)
			}
		}
	}
	full := len(f.sessions)-len(over) >= f.options.Sessions || f.draining
	if !full {
		f.sessions[s.id] = made
	}
	f.mu.Unlock()
	for _, old := range over {
		f.endSession(old)
	}
	if full {
		return nil, errSessions
	}
	g := f.gateway
	if err := g.server.RegisterSession(context.Background(), s); err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.levels[s] = true
	g.mu.Unlock()
	return made, nil
}

// findSession is the session with an id, nil if there is none. leave must be called when the request is done.
func (f *front) findSession(id string) (s *httpSession, leave func()) {
	f.mu.Lock()
	s = f.sessions[id]
	f.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	if s.expired(f.options.SessionIdle) {
		f.endSession(s)
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	s.used = time.Now()
	return s, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
		s.used = time.Now()
	}
}

func (s *httpSession) expired(idle time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy == 0 && time.Since(s.used) >= idle
}

// endSession forgets a session. Its open calls go on, and are answered.
func (f *front) endSession(s *httpSession) {
	f.mu.Lock()
	delete(f.sessions, s.id)
	f.mu.Unlock()
	f.gateway.server.UnregisterSession(context.Background(), s.id)
	f.gateway.left(s.session)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream()
	}
}

func (f *front) endSessions() {
	f.mu.Lock()
	var all []*httpSession
	for _, s := range f.sessions {
		all = append(all, s)
	}
	f.mu.Unlock()
	for _, s := range all {
		f.endSession(s)
	}
}

// enter notes an open request, unless there is one with its id.
func (s *httpSession) enter(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := idKey(x.id)
	if s.open[key] != nil {
		return false
	}
	s.open[key] = x
	return true
}

func (s *httpSession) exit(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, idKey(x.id))
}

// cancel ends a request of the session: nobody waits for it any more.
func (s *httpSession) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.open[id]; x != nil {
		x.cancelled = true
		x.cancel()
	}
}

func (s *httpSession) isCancelled(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.cancelled
}

// listen makes a GET stream the one that the session's news go to, in the place of an earlier one. stop must be called
// at its end.
func (s *httpSession) listen(ctx context.Context) (stream context.Context, stop func()) {
	stream, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream()
	}
	s.stream = cancel
	return stream, cancel
}

// allowsLog reports whether the client wants a log message of a level that is about its request.
func (p *post) allowsLog(level mcp.LoggingLevel) bool {
	if p.session != nil {
		return p.session.allows(level)
	}
	x := p.exchange
	return x != nil && x.logLevel != "" && level.ShouldSendTo(x.logLevel)
}
