package mcpguard

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/registry"
)

const headerSession = "Mcp-Session-Id"

// mcp takes a request to the MCP endpoint.
func (p *post) mcp() {
	modern := mcp.IsModernProtocol(p.r.Header.Get(mcp.HeaderProtocolVersion))
	switch p.r.Method {
	case http.MethodPost:
		p.post()
		return
	case http.MethodGet:
		if !modern {
			p.get()
			return
		}
	case http.MethodDelete:
		if !modern {
			p.delete()
			return
		}
	}
	allow := "GET, POST, DELETE"
	if modern {
		allow = "POST"
	}
	p.w.Header().Set("Allow", allow)
	p.refuse(http.StatusMethodNotAllowed, nil, mcp.INVALID_REQUEST, p.r.Method+" is not supported here")
}

// post takes one message.
func (p *post) post() {
	f := p.front
	stamp := f.begun.Load()
	if status, what := badPost(p.r.Header); status != 0 {
		p.refuse(status, nil, mcp.INVALID_REQUEST, what)
		return
	}
	leave, why := f.admit(false)
	if leave == nil {
		p.busy(nil, why)
		return
	}
	defer func() { leave() }()
	body, release, problem := p.body()
	if problem != nil {
		p.tooMuch(problem)
		return
	}
	defer release()
	if p.link != nil {
		stamp = p.link.arrived(sizeOf(p.r, body))
		p.link.receipts.prove(stamp, "")
	}
	o, id, bad := parseMessage(body)
	if bad != nil {
		p.refuse(http.StatusBadRequest, id, bad.Code, bad.Message)
		return
	}
	id = o.get("id")
	method := o.text("method")
	switch {
	case o.text("jsonrpc") != "2.0":
		p.refuse(http.StatusBadRequest, id, mcp.INVALID_REQUEST, `the member jsonrpc must be "2.0"`)
		return
	case id != nil && idKey(id) == "":
		p.refuse(http.StatusBadRequest, nil, mcp.INVALID_REQUEST, "an id must be a string or a number")
		return
	}
	era := eraOf(p.r.Header, o)
	if status, fault := era.fault(); fault != nil {
		p.problem(status, id, fault)
		return
	}
	p.modern = era.modern
	if !p.modern && method != string(mcp.MethodInitialize) {
		s, done := p.findSession(id)
		if s == nil {
			return
		}
		defer done()
		p.session = s
		s.receipts.prove(stamp, cancelledBy(o))
	}
	if method == "" || id == nil {
		p.tell(o, body)
		return
	}
	x := &exchange{id: id, method: method, teller: p, header: p.r.Header}
	line, err := x.take(o, body)
	if err != nil {
		p.problem(statusOf(p.modern, mcp.INVALID_PARAMS), id, &registry.ProtocolError{Code: mcp.INVALID_PARAMS, Message: err.Error()})
		return
	}
	if fault := f.headerFault(p.r.Header, era, method, o.get("params")); fault != nil {
		p.problem(http.StatusBadRequest, id, fault)
		return
	}
	if p.modern && method == string(mcp.MethodSubscriptionsListen) {
		leaveStream, why := f.admit(true)
		if leaveStream == nil {
			p.busy(id, why)
			return
		}
		leave()
		leave = leaveStream
	}
	p.request(x, line)
}

// findSession is the session that the request names, or nil after it was refused.
func (p *post) findSession(id json.RawMessage) (*httpSession, func()) {
	name := p.r.Header.Get(headerSession)
	if name == "" {
		p.refuse(http.StatusBadRequest, id, mcp.INVALID_REQUEST, "the "+headerSession+" header is missing; initialize begins a session")
		return nil, nil
	}
	s, leave := p.front.findSession(name)
	if s == nil {
		p.refuse(http.StatusNotFound, id, mcp.INVALID_REQUEST, "there is no such session; initialize begins a new one")
	}
	return s, leave
}

// tell takes a message that wants no answer. Nothing is ever asked of the client, so an answer of its is for nobody. A
// stateless client cancels a request by ending its stream.
func (p *post) tell(o object, line []byte) {
	switch cancelled := cancelledBy(o); {
	case o.text("method") == "" && p.modern:
		p.refuse(http.StatusBadRequest, o.get("id"), mcp.INVALID_REQUEST, "there is nothing to answer in this protocol version")
		return
	case o.text("method") == "" || p.session == nil:
	case cancelled != "":
		p.session.cancel(cancelled)
	default:
		p.front.gateway.server.HandleMessage(p.front.gateway.server.WithContext(p.r.Context(), p.session.session), line)
	}
	p.link.replies()
	p.w.WriteHeader(http.StatusAccepted)
}

// request works on one request and answers it.
func (p *post) request(x *exchange, line []byte) {
	f, g := p.front, p.front.gateway
	p.exchange = x
	var s *session
	switch {
	case p.session != nil:
		s = p.session.session
	case x.method == string(mcp.MethodSubscriptionsListen):
		s = g.newSession(sessionNews)
		if err := g.server.RegisterSession(p.r.Context(), s); err != nil {
			p.refuse(http.StatusInternalServerError, x.id, mcp.INTERNAL_ERROR, "internal error")
			return
		}
		defer g.server.UnregisterSession(context.WithoutCancel(p.r.Context()), s.id)
		p.news = s.notifications
	default:
		s = g.newSession(sessionNews)
	}
	ctx, cancel := context.WithCancel(g.server.WithContext(p.r.Context(), s))
	defer cancel()
	x.cancel = cancel
	if p.session != nil {
		if !p.session.enter(x) {
			p.refuse(http.StatusOK, x.id, mcp.INVALID_REQUEST, "a request with this id is still open")
			return
		}
		defer p.session.exit(x)
	}
	if !f.enter(x) {
		p.busy(x.id, "the server is shutting down; nothing was done about this request")
		return
	}
	defer f.exit(x)

	done := make(chan reply, 1)
	go func() { done <- g.answer(context.WithValue(ctx, exchangeKey{}, x), x, line) }()
	r := p.await(x, s, done)
	if !p.modern && x.method == string(mcp.MethodInitialize) && r.problem == nil {
		if _, err := f.addSession(s); err != nil {
			p.busy(x.id, err.Error())
			return
		}
		p.w.Header().Set(headerSession, s.id)
	}
	p.finish(x, r)
}

// enter notes an open request, unless the server ends.
func (f *front) enter(x *exchange) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return false
	}
	f.open[x] = true
	return true
}

func (f *front) exit(x *exchange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, x)
}

// finish answers a request.
func (p *post) finish(x *exchange, r reply) {
	if p.session != nil && p.session.isCancelled(x) { // nobody waits for it
		p.end()
		return
	}
	status := http.StatusOK
	if r.problem != nil {
		status = statusOf(p.modern, r.problem.Code)
	}
	line := replyLine(x.id, r)
	book := p.receipts()
	index := p.front.begun.Add(1)
	p.link.replies()
	if x.delivered == nil || book == nil {
		_ = p.reply(status, line)
		return
	}
	receipt := book.begin(idKey(x.id), index, x.delivered)
	p.link.wrote(func() { book.lost(receipt) })
	err := p.reply(status, line)
	gone := p.r.Context().Err()
	switch {
	case err != nil:
		p.front.log.Info("a result was not written; whoever calls again gets it", "err", err)
	case gone != nil: // as clients do that open a connection for each call
		p.front.log.Debug("the client ended its connection; whether a result arrived is not known", "err", gone)
	}
	book.end(receipt, err == nil && gone == nil)
}

// receipts is where proof of delivery comes in: the session, or else the connection.
func (p *post) receipts() *receipts {
	switch {
	case p.session != nil:
		return &p.session.receipts
	case p.link != nil:
		return &p.link.receipts
	}
	return nil
}

// get opens the stream on which a client of the handshake eras hears of changes.
func (p *post) get() {
	if p.r.ContentLength != 0 {
		p.refuse(http.StatusBadRequest, nil, mcp.INVALID_REQUEST, "a GET has no body")
		return
	}
	p.wait()
	if !accepts(p.r.Header, "text/event-stream") {
		p.refuse(http.StatusNotAcceptable, nil, mcp.INVALID_REQUEST, "the client must accept text/event-stream")
		return
	}
	if !p.knownVersion() {
		return
	}
	s, done := p.findSession(nil)
	if s == nil {
		return
	}
	defer done()
	leave, why := p.front.admit(true)
	if leave == nil {
		p.busy(nil, why)
		return
	}
	defer leave()
	ctx, stop := s.listen(p.r.Context())
	defer stop()
	p.stream(ctx, s.session)
}

// delete ends a session.
func (p *post) delete() {
	if !p.knownVersion() {
		return
	}
	s, done := p.findSession(nil)
	if s == nil {
		return
	}
	done()
	p.front.endSession(s)
	p.link.replies()
	p.w.WriteHeader(http.StatusNoContent)
}

// knownVersion refuses a request of a protocol version that nobody knows. The oldest clients name none.
func (p *post) knownVersion() bool {
	if v := p.r.Header.Get(mcp.HeaderProtocolVersion); v != "" && !mcp.IsValidProtocolVersion(v) {
		p.refuse(http.StatusBadRequest, nil, mcp.INVALID_REQUEST, "unsupported protocol version")
		return false
	}
	return true
}
