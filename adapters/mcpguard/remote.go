package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/oncehttp"
)

// Times of a connection over HTTP.
const (
	postTime    = 10 * time.Second // for what nobody waits for
	sessionTime = 10 * time.Second // how long a request waits for a new session in the place of a lost one
	freshTime   = 5 * time.Second  // a session that was heard of so lately is there
	lateTime    = 5 * time.Minute  // how long an answer is waited for after an attempt's deadline
	byeTime     = 2 * time.Second  // to end a session
)

// errSessionLost: the server does not know the session any more, and had not been sent the request, or it was a read.
var errSessionLost = errors.New("the MCP server has lost the session")

// remote speaks JSON-RPC with an MCP server over streamable HTTP, for the life of one session or, with a server that
// keeps none, until it cannot be reached.
//
// Every message is one POST that is sent once: redirects are not followed, and nothing is sent again by net/http, for
// its body cannot be had a second time. A stream that ends before the answer is not resumed.
type remote struct {
	inbox
	server *Server
	client *http.Client
	ids    *atomic.Int64
	life   context.Context // of everything but the requests that are open when the session is lost
	end    context.Context // of those too
	outbox chan []byte     // what nobody waits for; see inbox.send
	gone   chan struct{}   // closed when the session is lost

	losing sync.Once
	lost   error // why; read it after gone

	mu      sync.Mutex
	session string // as the server named it; "" where it keeps none
	version string // of the protocol, once it is agreed on
	heard   time.Time
}

// runRemote is one session with a server over HTTP. It returns when that is lost, with the reason.
func (u *Upstream) runRemote(ctx context.Context) error {
	life, stop := context.WithCancel(ctx)
	defer stop()
	r := newRemote(life, ctx, &u.server, u.server.called(), u.log, &u.ids, u.options.Notify)
	defer r.close()
	shaking, done := context.WithTimeout(life, handshakeTime)
	defer done()
	info, err := u.handshake(shaking, r, true)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	defer u.up(life, r, info)()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.gone:
		return r.lost
	}
}

func newRemote(life, end context.Context, s *Server, name string, log *slog.Logger, ids *atomic.Int64, notify func(string, json.RawMessage)) *remote {
	r := &remote{
		server: s, ids: ids, life: life, end: end, outbox: make(chan []byte, 256), gone: make(chan struct{}),
		client: oncehttp.NewClient(maxHeader),
	}
	r.inbox = inbox{name: name, log: log, notify: notify, send: r.post, pending: map[string]chan answer{}}
	go r.postAll()
	return r
}

// close ends the session. Requests that are open are waited for still, unless the server was closed.
func (r *remote) close() {
	r.lose(errors.New("closed"))
	r.client.CloseIdleConnections()
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	if session == "" || r.end.Err() == nil { // none, or the server does not know it any more
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(r.end), byeTime)
	defer done()
	if response, err := r.do(ctx, http.MethodDelete, nil, nil); err == nil {
		_ = response.Body.Close()
	}
	r.client.CloseIdleConnections()
}

// lose says that the session is lost, or the server cannot be reached.
func (r *remote) lose(why error) {
	r.losing.Do(func() {
		r.lost = why
		close(r.gone)
	})
}

// agreed is [wire.agreed].
func (r *remote) agreed(ctx context.Context, version string) error {
	r.mu.Lock()
	r.version = version
	r.mu.Unlock()
	if version >= modernVersion {
		return nil
	}
	response, err := r.do(ctx, http.MethodPost, initialized(), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("it answered with HTTP %s", response.Status)
	}
	go r.listen()
	return nil
}

// do makes one HTTP request of which it need not be known whether it left, and returns the response, whatever its
// status. No address is in its errors, because that may hold a secret.
func (r *remote) do(ctx context.Context, method string, body []byte, more http.Header) (*http.Response, error) {
	q, err := r.request(method, body, more).HTTP(ctx)
	if err != nil {
		return nil, err
	}
	response, err := r.client.Do(q)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err != nil {
		return nil, err
	}
	r.hears()
	return response, nil
}

// request is one HTTP request to the server.
func (r *remote) request(method string, body []byte, more http.Header) *oncehttp.Request {
	h := http.Header{"Accept": {"application/json, text/event-stream"}, "User-Agent": {"toolguard"}}
	if method == http.MethodGet {
		h.Set("Accept", "text/event-stream")
	}
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	maps.Copy(h, r.server.Header)
	r.mu.Lock()
	if r.version != "" {
		h.Set(mcp.HeaderProtocolVersion, r.version)
	}
	if r.session != "" {
		h.Set(headerSession, r.session)
	}
	r.mu.Unlock()
	maps.Copy(h, more)
	return &oncehttp.Request{Method: method, URL: r.server.URL, Header: h, Body: body}
}

// hears notes that the session is there.
func (r *remote) hears() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = time.Now()
}

// post queues a message that nobody waits for. If the server does not take them, it is dropped.
func (r *remote) post(message []byte) {
	select {
	case r.outbox <- message:
	default:
		r.log.Warn("the MCP server does not take messages; one to it was dropped")
	}
}

// postAll sends what is queued.
func (r *remote) postAll() {
	for {
		select {
		case message := <-r.outbox:
			ctx, done := context.WithTimeout(r.life, postTime)
			if response, err := r.do(ctx, http.MethodPost, message, nil); err == nil {
				_ = response.Body.Close()
			}
			done()
		case <-r.life.Done():
			return
		}
	}
}

// listen takes what a server of the handshake eras tells by itself, if it does: on the stream that a GET opens.
func (r *remote) listen() {
	opened := false
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		began := time.Now()
		response, err := r.do(r.life, http.MethodGet, nil, nil)
		if err == nil {
			err = r.events(response, nil)
			_ = response.Body.Close()
			code := response.StatusCode
			switch {
			case r.inSession() && (code == http.StatusNotFound || code == http.StatusBadRequest && opened):
				r.lose(errSessionLost)
				return
			case code >= 300 && code < 500: // 405: it tells nothing by itself
				return
			}
			opened = opened || code < 300
		} else if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
			r.lose(fmt.Errorf("it cannot be reached: %w", err))
			return
		}
		if time.Since(began) >= healthy {
			backoff = firstBackoff
		}
		r.log.Debug("the stream of news ended; it is opened again", "err", err, "in", backoff)
		select {
		case <-time.After(backoff):
		case <-r.gone:
			return
		case <-r.life.Done():
			return
		}
	}
}

func (r *remote) inSession() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session != ""
}

// canonical is the server with the names of its headers as they are looked up.
func (s Server) canonical() Server {
	h := http.Header{}
	for name, values := range s.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	s.Header = h
	return s
}

// check says why a server cannot be started or reached as it is described.
func (s *Server) check() error {
	switch {
	case s.Command == "" && s.URL == "":
		return errors.New("no command and no url")
	case s.Command != "" && s.URL != "":
		return errors.New("both a command and a url")
	case s.URL == "":
		return nil
	}
	if err := CheckURL(s.URL); err != nil {
		return err
	}
	for name, values := range s.Header {
		if err := CheckHeader(name); err != nil {
			return err
		}
		if slices.ContainsFunc(values, func(v string) bool { return strings.ContainsFunc(v, unicode.IsControl) }) {
			return fmt.Errorf("the value of the header %s cannot be sent", name)
		}
	}
	return nil
}

// CheckURL says why an MCP server cannot be reached at an address. The address itself, which may hold a secret, is not
// in the error.
func CheckURL(address string) error { return oncehttp.CheckURL(address) }

// CheckHeader says why a header cannot be set on requests to a server: its name is none, or the header belongs to the
// transport.
func CheckHeader(name string) error {
	if err := oncehttp.CheckHeader(name); err != nil {
		return err
	}
	canonical := http.CanonicalHeaderKey(name)
	if strings.HasPrefix(canonical, "Mcp-") || slices.Contains(ownHeaders, canonical) {
		return fmt.Errorf("the header %s belongs to the transport and cannot be set", canonical)
	}
	return nil
}

var ownHeaders = []string{"Accept", "Content-Encoding", "Content-Type", "Last-Event-Id"}

// hostOf is the host of an address, for log lines.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
