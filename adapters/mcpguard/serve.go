package mcpguard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// maxOpen is how many requests of one connection may be open at a time.
const maxOpen = 1000

// conn is one client on a pair of pipes.
//
// It knows when a result was delivered: the whole reply was written without error, and a message came in that was sent
// after its last byte had been handed over, as far as that can be told; in doubt it was not.
type conn struct {
	gateway *Gateway
	session *session
	log     *slog.Logger
	out     chan outbound
	broken  chan struct{} // closed when nothing can be written any more
	in      *arrivals

	mu       sync.Mutex
	open     map[string]*exchange // by id, until the reply is written
	writing  *exchange            // whose reply is being written, or nil
	proofs   []*exchange          // written, not yet known to be delivered
	draining bool                 // no more requests are taken on
	idle     chan struct{}        // closed when open is empty, while draining
}

// teller tells the client of a request something before the reply. It never waits.
type teller interface {
	notify(method string, params json.RawMessage)
}

// exchange is one request and what becomes of it.
type exchange struct {
	id     json.RawMessage
	method string
	params object // of a tools/call, or of what is passed on, as they came
	cancel context.CancelFunc
	teller teller      // hears of its progress
	header http.Header // of the HTTP request, or nil

	reply     *reply // of a tools/call that reached its tool
	delivered func() // to be called on proof of delivery
	modern    bool
	logLevel  mcp.LoggingLevel
	index     uint64        // its number among the replies whose last byte was handed over
	out       chan struct{} // closed when its reply is out

	cancelled bool // under conn.mu: by its client
	proven    bool // under conn.mu: a message came in while its last byte was written
}

// outbound is a line on its way to the client.
type outbound struct {
	line     []byte
	exchange *exchange     // whose reply it is, or nil
	flushed  chan struct{} // closed once everything before it was written, or nil
}

// ServeStdio serves one client until in ends or ctx does. Requests that are open then are finished and answered
// within the gateway's shutdown limit. The error is nil unless reading or writing failed.
//
// A later message of the client is proof that it has the replies before. Where in is an [os.File] or another
// [syscall.Conn], without a buffer of its own, a message that already waited when a reply was written is told from a
// later one; with any other reader it is taken for one that waited unless the reader waited for it.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	c := &conn{
		gateway: g, session: g.newSession(256), log: g.log, in: newArrivals(in),
		out: make(chan outbound, 1024), broken: make(chan struct{}), open: map[string]*exchange{},
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := g.server.RegisterSession(base, c.session); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	defer g.server.UnregisterSession(base, c.session.SessionID())
	g.join(c)
	defer g.leave(c)
	base = g.server.WithContext(base, c.session)

	wrote := make(chan error, 1)
	go func() { wrote <- c.write(base, out) }()
	go c.pump(base)
	ended := make(chan error, 1)
	go func() { ended <- c.read(base, in) }()

	select {
	case err := <-wrote:
		return err
	case <-ctx.Done():
		c.drain(g.options.Shutdown)
		return nil
	case err := <-ended:
		c.drain(g.options.Shutdown)
		return err
	}
}

// read takes messages until there are no more. It never waits for one to be handled.
func (c *conn) read(ctx context.Context, in io.Reader) error {
	lines := newLineReader(in, maxMessage)
	lines.arrivals = c.in
	var id idFinder
	lines.skipped = id.write
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, errTooLong):
			c.fail(id.asks(), mcp.PARSE_ERROR, fmt.Sprintf("the message is longer than %d bytes", maxMessage))
			id = idFinder{}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading from the client: %w", err)
		default:
			c.message(ctx, bytes.TrimSpace(line), lines.stamp)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// message takes one message. stamp is how many replies had begun, at least, before it was sent.
func (c *conn) message(ctx context.Context, line []byte, stamp uint64) {
	if len(line) == 0 {
		return
	}
	o, id, problem := parseMessage(line)
	if problem != nil {
		c.fail(id, problem.Code, problem.Message)
		return
	}
	id = o.get("id")
	method := o.text("method")
	cancelled := cancelledBy(o)
	writing := c.prove(stamp, cancelled)
	switch {
	case o.text("jsonrpc") != "2.0":
		c.fail(id, mcp.INVALID_REQUEST, `the member jsonrpc must be "2.0"`)
	case method == "":
		// An answer: nothing is ever asked of the client.
	case id == nil:
		c.notification(ctx, cancelled, line)
	case idKey(id) == "":
		c.fail(nil, mcp.INVALID_REQUEST, "an id must be a string or a number")
	default:
		c.request(ctx, id, method, o, line, writing)
	}
}

// parseMessage splits a message that is not empty, or says why it is none, and to which request, if that can be told.
func parseMessage(line []byte) (object, json.RawMessage, *registry.ProtocolError) {
	o, err := parseObject(line)
	switch {
	case line[0] == '[':
		return nil, nil, &registry.ProtocolError{Code: mcp.INVALID_REQUEST, Message: "batches are not supported"}
	case errors.Is(err, errTooDeep):
		return nil, idOf(line), &registry.ProtocolError{Code: mcp.INVALID_REQUEST, Message: "invalid message: " + err.Error()}
	case err != nil && !json.Valid(line):
		return nil, nil, &registry.ProtocolError{Code: mcp.PARSE_ERROR, Message: "not valid JSON"}
	case err != nil:
		return nil, nil, &registry.ProtocolError{Code: mcp.INVALID_REQUEST, Message: "invalid message: " + err.Error()}
	}
	return o, nil, nil
}

// cancelledBy is the request that a message cancels, as idKey spells it; "" for any other message.
func cancelledBy(o object) string {
	if o.text("method") != string(mcp.MethodNotificationCancelled) {
		return ""
	}
	params, _ := parseObject(o.get("params"))
	return idKey(params.get("requestId"))
}

// notification takes a message that wants no answer.
func (c *conn) notification(ctx context.Context, cancelled string, line []byte) {
	if cancelled == "" {
		c.gateway.server.HandleMessage(ctx, line)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.open[cancelled]; x != nil {
		x.cancelled = true
		x.cancel()
	}
}

// request starts to work on a request, unless there is too much to do already. It came in while writing, if not nil,
// was written.
func (c *conn) request(ctx context.Context, id json.RawMessage, method string, o object, line []byte, writing *exchange) {
	x := &exchange{id: id, method: method, teller: c, out: make(chan struct{})}
	line, err := x.take(o, line)
	if err != nil {
		c.fail(id, mcp.INVALID_PARAMS, err.Error())
		return
	}
	key := idKey(id)
	c.mu.Lock()
	_, taken := c.open[key]
	full, draining := len(c.open) >= maxOpen, c.draining
	if !taken && !full && !draining {
		ctx, x.cancel = context.WithCancel(ctx)
		c.open[key] = x
	}
	c.mu.Unlock()
	switch {
	case taken:
		c.fail(id, mcp.INVALID_REQUEST, "a request with this id is still open")
	case full:
		c.fail(id, codeBusy, fmt.Sprintf("busy: %d requests are open on this connection; nothing was done about this one", maxOpen))
	case draining:
		c.fail(id, codeBusy, "the server is shutting down; nothing was done about this request")
	default:
		go func() {
			if writing != nil {
				// Its client has had the reply, most likely; that is to be on record before the request is looked at.
				c.wait(writing.out, 100*time.Millisecond)
			}
			c.handle(context.WithValue(ctx, exchangeKey{}, x), x, line)
		}()
	}
}

// take keeps the parameters of a tools/call, and of what is passed on, and returns the message as mcp-go gets it: the
// arguments go to the guard, or the parameters to a server, as they came; mcp-go needs to know only which tool is meant.
func (x *exchange) take(o object, line []byte) ([]byte, error) {
	passed, isPassed := relays[x.method]
	if x.method != string(mcp.MethodToolsCall) && !isPassed {
		return line, nil
	}
	var err error
	if params := o.get("params"); params != nil || !isPassed {
		if x.params, err = parseObject(params); err != nil {
			return nil, fmt.Errorf("params: %w", err)
		}
	}
	if err = checkMeta(x.params.get("_meta")); err != nil {
		return nil, err
	}
	if isPassed {
		framed := x.params.without(func(name string) bool { return name != "_meta" })
		return o.with("method", quote(string(passed.frame))).with("params", framed.raw()).raw(), nil
	}
	meta, _ := parseObject(x.params.get("_meta"))
	x.logLevel = mcp.LoggingLevel(meta.text(mcp.MetaKeyLogLevel))
	known := x.params.without(func(name string) bool { return name != "name" && name != "_meta" })
	return o.with("params", known.raw()).raw(), nil
}

// codeBusy is the JSON-RPC code of a request that was not taken on.
const codeBusy = -32000

type exchangeKey struct{}

// handle answers one request.
func (c *conn) handle(ctx context.Context, x *exchange, line []byte) {
	defer x.cancel()
	r := c.gateway.answer(ctx, x, line)
	c.mu.Lock()
	if x.cancelled { // nobody waits for it
		c.close(x)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	select {
	case c.out <- outbound{line: replyLine(x.id, r), exchange: x}:
	case <-c.broken:
	}
}

// answer has mcp-go handle the request, and puts the raw results in the place of those it made.
func (g *Gateway) answer(ctx context.Context, x *exchange, line []byte) (r reply) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("a request failed", "method", x.method, "panic", p)
			r = reply{problem: &registry.ProtocolError{Code: mcp.INTERNAL_ERROR, Message: "internal error"}}
		}
	}()
	response := g.server.HandleMessage(ctx, line)
	if x.reply != nil {
		if x.modern && x.reply.result != nil {
			x.reply.result = modernResult(x.reply.result, g.identity)
		}
		return *x.reply
	}
	switch m := response.(type) {
	case mcp.JSONRPCResponse:
		if _, passed := relays[x.method]; passed {
			return g.pass(ctx, x, encode(m.Result))
		}
		return reply{result: g.rawResult(m.Result)}
	case mcp.JSONRPCError:
		return reply{problem: &registry.ProtocolError{Code: m.Error.Code, Message: m.Error.Message, Data: errorData(m.Error.Data)}}
	}
	return reply{problem: &registry.ProtocolError{Code: mcp.INVALID_REQUEST, Message: "not a request"}}
}

func errorData(data any) json.RawMessage {
	if data == nil {
		return nil
	}
	return encode(data)
}

// replyLine is a reply as the line that is written.
func replyLine(id json.RawMessage, r reply) []byte {
	o := object{{"jsonrpc", json.RawMessage(`"2.0"`)}, {"id", id}}
	if r.problem != nil {
		o = append(o, member{"error", encode(r.problem)})
	} else {
		o = append(o, member{"result", r.result})
	}
	line := []byte(o.raw())
	if bytes.ContainsAny(line, "\r\n") {
		var b bytes.Buffer
		if json.Compact(&b, line) == nil {
			line = b.Bytes()
		}
	}
	return append(line, '\n')
}

// idKey is one spelling for each id; "" for what is no id.
func idKey(id json.RawMessage) string {
	if len(id) == 0 {
		return ""
	}
	if id[0] == '"' {
		var s string
		if json.Unmarshal(id, &s) != nil {
			return ""
		}
		return "s" + s
	}
	n, err := keyderive.Number(string(id))
	if err != nil {
		return ""
	}
	return "n" + string(n)
}
