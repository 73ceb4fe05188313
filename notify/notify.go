// Package notify tells people's systems what waits for a person, by Standard Webhooks. The ledger's audit is the queue: each
// endpoint has a cursor in it, kept as a document of the store, so that nothing is lost when a process dies. An endpoint may
// be told of one event twice, under the same webhook-id, and is told of them in order.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"toolguard.dev/toolguard"
)

// Endpoint is where notifications go.
type Endpoint struct {
	URL    string
	Secret Secret
	On     []string // of Topics
}

// Options of [Start]. Times that are 0 are the defaults.
type Options struct {
	Process string                    // the name of this process; required
	Alive   func(process string) bool // whether another process lives: only one of several delivers; nil: none does
	Owner   func(tool string) string  // who answers for a tool ("server/tool"), "" if that is not known; nil: it is not
	Link    func(key string) string   // where a person sees an operation; nil: nowhere
	Version string                    // of this program, for the header User-Agent
	Log     *slog.Logger              // nil: slog.Default

	Timeout time.Duration // of one request; 0: 15 s
	Poll    time.Duration // how often the audit is read; 0: 1 s
	Backoff time.Duration // after the first failure, doubled with each, up to MaxBackoff; 0: 1 s
	GiveUp  time.Duration // an event older than this is given up, once its endpoint fails; 0: 24 h
}

const (
	maxBackoff  = 5 * time.Minute
	maxAfter    = time.Hour // that a Retry-After is heeded
	maxResponse = 4 << 10   // bytes of an answer that are read, so that the connection can be used again
	pageSize    = 256       // events read at a time
	saveAfter   = 4096      // events that were passed over since the cursor was stored
)

// Notifier delivers, until it is closed. Make one with [Start].
type Notifier struct {
	store   toolguard.Store
	options Options
	client  *http.Client
	log     *slog.Logger
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Start begins to deliver what happens from now on, and what an earlier process had not delivered. An endpoint that the
// ledger does not know is told of nothing that was before.
func Start(ctx context.Context, store toolguard.Store, endpoints []Endpoint, o Options) (*Notifier, error) {
	o.Timeout, o.Poll = cmp.Or(o.Timeout, 15*time.Second), cmp.Or(o.Poll, time.Second)
	o.Backoff, o.GiveUp = cmp.Or(o.Backoff, time.Second), cmp.Or(o.GiveUp, 24*time.Hour)
	n := &Notifier{store: store, options: o, log: cmp.Or(o.Log, slog.Default())}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 16 << 10
	transport.MaxConnsPerHost = 4
	n.client = &http.Client{
		Transport: transport, Timeout: o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var lines []*line
	for _, e := range endpoints {
		l := &line{Notifier: n, endpoint: e, host: hostOf(e.URL), name: documentOf(e.URL)}
		if err := l.begin(ctx); err != nil {
			return nil, fmt.Errorf("notify %s: %w", l.host, err)
		}
		lines = append(lines, l)
	}
	alive, stop := context.WithCancel(context.Background())
	n.stop = stop
	for _, l := range lines {
		n.running.Go(func() { l.run(alive) })
	}
	return n, nil
}

// Close stops delivering; what is left is delivered by the next process. A request on its way has two seconds to end.
func (n *Notifier) Close() {
	n.stop()
	n.running.Wait()
	n.client.CloseIdleConnections()
}

// hostOf is all of an address that is logged: the rest may be a secret.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Host
	}
	return "?"
}

func documentOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return "notify/" + hex.EncodeToString(sum[:16])
}

// answer is what became of one request.
type answer struct {
	good  bool
	gone  bool          // the endpoint wants nothing more
	after time.Duration // not before
	why   string
}

// post sends a message once.
func (n *Notifier) post(ctx context.Context, e *Endpoint, ev *toolguard.Event) answer {
	now := time.Now()
	body, err := n.write(ctx, ev, now)
	if err != nil {
		return answer{why: err.Error()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return answer{why: "the address is none"}
	}
	id := idOf(ev)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "toolguard/"+cmp.Or(n.options.Version, "devel"))
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Webhook-Signature", e.Secret.sign(id, now, body))
	resp, err := n.client.Do(r)
	if err != nil {
		return answer{why: reason(err)}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponse)
	a := answer{good: resp.StatusCode/100 == 2, gone: resp.StatusCode == http.StatusGone, why: "HTTP " + strconv.Itoa(resp.StatusCode)}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		a.after = min(time.Duration(s)*time.Second, maxAfter)
	}
	return a
}

// reason is an error without the address.
func reason(err error) string {
	if u, ok := err.(*url.Error); ok {
		if u.Timeout() {
			return "no answer in time"
		}
		return u.Err.Error()
	}
	return err.Error()
}
