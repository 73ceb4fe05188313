package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	maxSubscriptions = 1000 // of one client
	subscribeTime    = 10 * time.Second
)

// subscriptions are the resources whose changes clients want to hear of.
type subscriptions map[string]map[*session]bool

// SubscribeToResourceErr is called by mcp-go, for a client of either era.
func (s *session) SubscribeToResourceErr(uri string) error {
	if s.gateway == nil {
		return errors.New("there is nothing to subscribe to")
	}
	return s.gateway.subscribe(s, uri)
}

// SubscribeToResource is [session.SubscribeToResourceErr] for nobody to hear of the error.
func (s *session) SubscribeToResource(uri string) { _ = s.SubscribeToResourceErr(uri) }

// UnsubscribeFromResource is called by mcp-go.
func (s *session) UnsubscribeFromResource(uri string) {
	if s.gateway != nil {
		s.gateway.unsubscribe(s, uri)
	}
}

// SubscribedResources are the URIs that the client has subscribed to.
func (s *session) SubscribedResources() []string {
	if s.gateway == nil {
		return nil
	}
	s.gateway.mu.Lock()
	defer s.gateway.mu.Unlock()
	return s.gateway.subscribed.of(s)
}

// IsSubscribedToResource reports whether the client has subscribed to a resource.
func (s *session) IsSubscribedToResource(uri string) bool {
	return slices.Contains(s.SubscribedResources(), uri)
}

func (all subscriptions) of(s *session) []string {
	var list []string
	for uri, by := range all {
		if by[s] {
			list = append(list, uri)
		}
	}
	return list
}

// subscribe has the upstreams tell of changes of a resource, if they do not yet.
func (g *Gateway) subscribe(s *session, uri string) error {
	g.mu.Lock()
	full := len(g.subscribed.of(s)) >= maxSubscriptions || len(uri) > maxURI
	first := len(g.subscribed[uri]) == 0
	if !full {
		if first {
			g.subscribed[uri] = map[*session]bool{}
		}
		g.subscribed[uri][s] = true
	}
	g.mu.Unlock()
	if full {
		return fmt.Errorf("at most %d resources can be subscribed to, each of at most %d bytes", maxSubscriptions, maxURI)
	}
	if !first {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), subscribeTime)
	defer done()
	sources, others, err := g.keepers(ctx, uri)
	if len(sources) == 0 {
		sources = others
	}
	if err == nil && len(sources) == 0 {
		err = errors.New("no server has resources")
	}
	for _, source := range sources {
		err = errors.Join(err, source.subscribe(ctx, uri))
	}
	if err != nil {
		g.unsubscribe(s, uri)
	}
	return err
}

// unsubscribe ends that, when no client wants it any more.
func (g *Gateway) unsubscribe(s *session, uri string) {
	g.mu.Lock()
	by := g.subscribed[uri]
	had := by[s]
	delete(by, s)
	last := had && len(by) == 0
	if last {
		delete(g.subscribed, uri)
	}
	g.mu.Unlock()
	if !last {
		return
	}
	for _, source := range g.sources {
		source.unsubscribe(uri)
	}
}

// updated tells the clients that have subscribed to a resource that it changed.
func (g *Gateway) updated(params json.RawMessage) {
	o, err := parseObject(params)
	if err != nil {
		return
	}
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method = mcp.MethodNotificationResourceUpdated
	n.Params.AdditionalFields = map[string]any{}
	for _, m := range o {
		if m.name != "_meta" {
			n.Params.AdditionalFields[m.name] = m.value
		}
	}
	g.mu.Lock()
	sessions := slices.Collect(maps.Keys(g.subscribed[o.text("uri")]))
	g.mu.Unlock()
	for _, s := range sessions {
		select {
		case s.notifications <- n:
		default:
			g.log.Warn("a client does not take its notifications; one was dropped")
		}
	}
}

// subscribe asks the server to tell of changes of a resource, now and after every restart.
func (u *Upstream) subscribe(ctx context.Context, uri string) error {
	u.mu.Lock()
	_, known := u.follows[uri]
	u.follows[uri] = true
	w, info := u.wire, u.info
	u.mu.Unlock()
	if known || w == nil {
		return nil
	}
	if info.modern() {
		u.refollow()
		return nil
	}
	err := u.follow(ctx, w, uri)
	if err != nil {
		u.mu.Lock()
		delete(u.follows, uri)
		u.mu.Unlock()
	}
	return err
}

// follow subscribes to one resource of a server of the handshake eras.
func (u *Upstream) follow(ctx context.Context, w wire, uri string) error {
	a, err := w.call(ctx, &request{method: string(mcp.MethodResourcesSubscribe), params: object{{"uri", quote(uri)}}.raw(), read: true})
	if err == nil && a.Error != nil {
		err = errors.New(a.Error.Message)
	}
	return err
}

// followAll subscribes anew to what was subscribed to in an earlier run.
func (u *Upstream) followAll(ctx context.Context, w wire) {
	for _, uri := range u.following() {
		if err := u.follow(ctx, w, uri); err != nil && ctx.Err() == nil {
			u.log.Warn("a resource could not be subscribed to again", "err", err)
		}
	}
}

func (u *Upstream) unsubscribe(uri string) {
	u.mu.Lock()
	known := u.follows[uri]
	delete(u.follows, uri)
	w, info := u.wire, u.info
	u.mu.Unlock()
	switch {
	case !known || w == nil:
	case info.modern():
		u.refollow()
	default:
		go func() {
			ctx, done := context.WithTimeout(context.Background(), subscribeTime)
			defer done()
			_, _ = w.call(ctx, &request{method: string(mcp.MethodResourcesUnsubscribe), params: object{{"uri", quote(uri)}}.raw(), read: true})
		}()
	}
}

// following are the resources that are subscribed to, in order.
func (u *Upstream) following() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.follows))
}

// refollow has the stream of a stateless server opened anew, with what is subscribed to now.
func (u *Upstream) refollow() {
	select {
	case u.refollowing <- struct{}{}:
	default:
	}
}
