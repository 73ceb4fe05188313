package mcpguard

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// GatewayOptions are the options of [OpenGateway]. The zero value is good.
type GatewayOptions struct {
	// Describe says what calling a tool does, where that comes from, and how its calls are guarded. An error keeps
	// the tool from being offered. nil: what the annotations and the name say, with an empty policy.
	Describe func(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error)

	Tools           []*toolguard.Tool   // offered as well: registered with the guard already, of servers that are no upstreams
	Sources         Sources             // where runtime facts come from
	Env             func(string) string // reads the environment; nil: os.Getenv
	Version         string              // ours, as told to clients and upstreams
	NoOperationTool bool                // do not offer toolguard_operation
	StartTime       time.Duration       // how long OpenGateway waits for the upstreams; 0: 30 s
	Shutdown        time.Duration       // how long open calls are waited for at the end; 0: 10 s
	Log             *slog.Logger        // nil: slog.Default
}

// Gateway offers the tools of one or several MCP servers, guarded. The names of tools are those of their server if
// there is one, and server__tool if there are several. It is safe for concurrent use.
type Gateway struct {
	guard    *toolguard.Guard
	options  GatewayOptions
	door     *door
	log      *slog.Logger
	server   *server.MCPServer
	identity json.RawMessage // what modern results name as their server
	sources  []*source
	prefix   string // of progress tokens, unlike any that a client has
	cancel   context.CancelFunc
	running  sync.WaitGroup

	offering sync.Mutex // held while what is offered changes
	claims   claims     // under offering

	mu       sync.Mutex
	offers   map[string]*offer // by the name that clients see
	problems map[*source][]Problem
	clients  map[*conn]bool
	levels   map[*session]bool // that may have set a log level
	callers  map[string]caller // by the progress token sent upstream
	calls    uint64

	subscribed subscriptions
}

// Problem says why a tool is not offered, or, where Tool is "", why a server's tools are not known.
type Problem struct {
	Server, Tool string
	Err          error
}

// source is one upstream of the gateway.
type source struct {
	*Upstream
	relist chan struct{} // one token: the tool list may have changed
	listed chan struct{} // closed after the first try
	once   sync.Once

	calling calling
}

// caller is a client that wants to hear of a call's progress.
type caller struct {
	teller teller
	token  json.RawMessage // its own
}

// OpenGateway starts the upstreams and registers their tools with the guard. It waits until each has listed its
// tools or failed to, at most GatewayOptions.StartTime; one that comes up later is offered then. The guard stays the
// caller's to close, after [Gateway.Close].
func OpenGateway(ctx context.Context, guard *toolguard.Guard, upstreams []Server, o *GatewayOptions) (*Gateway, error) {
	g := &Gateway{
		guard: guard, prefix: "toolguard-" + rand.Text() + "-", offers: map[string]*offer{}, problems: map[*source][]Problem{},
		clients: map[*conn]bool{}, levels: map[*session]bool{}, callers: map[string]caller{}, subscribed: subscriptions{},
	}
	if o != nil {
		g.options = *o
	}
	g.options.Shutdown = cmp.Or(g.options.Shutdown, 10*time.Second)
	g.options.StartTime = cmp.Or(g.options.StartTime, 30*time.Second)
	g.options.Version = cmp.Or(g.options.Version, "0")
	if g.options.Env == nil {
		g.options.Env = os.Getenv
	}
	if g.options.Describe == nil {
		g.options.Describe = presume
	}
	g.log = cmp.Or(g.options.Log, slog.Default())
	if err := g.options.Sources.Check(); err != nil {
		return nil, err
	}
	if err := checkNames(upstreams, g.severalServers(upstreams)); err != nil {
		return nil, err
	}
	g.door = newDoor(guard, g.options.Sources, g.options.Env)
	g.identity = encode(mcp.Implementation{Name: "toolguard", Version: g.options.Version})
	g.server = g.newServer()

	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.cancel = cancel
	for _, c := range upstreams {
		s, err := g.start(c)
		if err != nil {
			_ = g.Close()
			return nil, err
		}
		g.sources = append(g.sources, s)
	}
	if !g.options.NoOperationTool {
		g.offerOperationTool()
	}
	several := g.severalServers(upstreams)
	if err := g.offerRegistered(several); err != nil {
		_ = g.Close()
		return nil, err
	}
	for _, s := range g.sources {
		g.running.Go(func() { g.follow(run, s, several) })
	}
	starting, done := context.WithTimeout(ctx, g.options.StartTime)
	defer done()
	for _, s := range g.sources {
		select {
		case <-s.listed:
		case <-starting.Done():
		}
	}
	if ctx.Err() != nil {
		_ = g.Close()
		return nil, ctx.Err()
	}
	return g, nil
}

// presume describes a tool that nobody described.
func presume(_, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
	effect, from := registry.PresumedEffect(tool, annotations)
	return effect, from, registry.Policy{}, nil
}

func checkNames(upstreams []Server, several bool) error {
	seen := map[string]bool{}
	for _, c := range upstreams {
		if c.Name == "" && several {
			return errors.New("one of several MCP servers has no name")
		}
		if seen[c.Name] {
			return fmt.Errorf("two MCP servers are named %q", c.Name)
		}
		seen[c.Name] = true
	}
	return nil
}

// start starts one upstream.
func (g *Gateway) start(c Server) (*source, error) {
	s := &source{relist: make(chan struct{}, 1), listed: make(chan struct{})}
	u, err := StartUpstream(c, &UpstreamOptions{
		Log: g.log, Version: g.options.Version, Up: s.stale,
		Notify: func(method string, params json.RawMessage) {
			switch method {
			case mcp.MethodNotificationToolsListChanged:
				s.stale()
			case string(mcp.MethodNotificationProgress):
				g.progress(params)
			case string(mcp.MethodNotificationMessage):
				g.message(s, params)
			case mcp.MethodNotificationResourcesListChanged, mcp.MethodNotificationPromptsListChanged:
				g.server.SendNotificationToAllClients(method, nil)
			case mcp.MethodNotificationResourceUpdated:
				g.updated(params)
			}
		},
	})
	s.Upstream = u
	return s, err
}

// Close ends the upstreams. Calls that are open get no answer from them any more; let ServeStdio and ServeHTTP end first.
func (g *Gateway) Close() error {
	g.cancel()
	var wg sync.WaitGroup
	for _, s := range g.sources {
		wg.Go(func() { _ = s.Close() })
	}
	wg.Wait()
	g.running.Wait()
	return nil
}

// MCPServer is the mcp-go server behind the gateway, for transports other than [Gateway.ServeStdio] and
// [Gateway.ServeHTTP]. Through those, tools and results lose what mcp-go's types have no place for, delivery is proven
// only by a later call in the same session, and resources, prompts and completions are not passed on.
func (g *Gateway) MCPServer() *server.MCPServer { return g.server }

// Upstreams are the gateway's upstreams, in the order in which they were given.
func (g *Gateway) Upstreams() []*Upstream {
	list := make([]*Upstream, len(g.sources))
	for i, s := range g.sources {
		list[i] = s.Upstream
	}
	return list
}

// Problems says what is not offered, and why.
func (g *Gateway) Problems() []Problem {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Problem
	for _, s := range g.sources {
		list = append(list, g.problems[s]...)
	}
	return list
}

// Tools are the tools that are offered, in the order of their actions.
func (g *Gateway) Tools() []*toolguard.Tool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*toolguard.Tool
	for _, o := range g.offers {
		if o.tool != nil {
			list = append(list, o.tool)
		}
	}
	slices.SortFunc(list, func(a, b *toolguard.Tool) int { return strings.Compare(a.Action(), b.Action()) })
	return list
}

// newServer makes the mcp-go server, which does the handshakes, the listing and the looking up of tools.
func (g *Gateway) newServer() *server.MCPServer {
	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(_ context.Context, _ any, _ *mcp.InitializeRequest, r *mcp.InitializeResult) {
		r.Instructions = g.instructions()
		g.announced(&r.Capabilities)
	})
	hooks.AddAfterDiscover(func(_ context.Context, _ any, _ *mcp.DiscoverRequest, r *mcp.DiscoverResult) {
		r.Instructions = g.instructions()
		g.announced(&r.Capabilities)
	})
	hooks.AddAfterSetLevel(func(ctx context.Context, _ any, _ *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
		g.levelChanged(context.WithoutCancel(ctx))
	})
	return server.NewMCPServer("toolguard", g.options.Version,
		server.WithToolCapabilities(true), server.WithResourceCapabilities(true, true), server.WithPromptCapabilities(true),
		server.WithCompletions(), server.WithLogging(), server.WithHooks(hooks))
}

// ours tells the model how to read our answers.
const ours = `Calls of these tools go through toolguard, which sees to it that nothing is done twice. ` +
	`An answer that begins with ALREADY DONE is the recorded result of an earlier, identical call: it was done then, nothing was sent now, and nothing more is needed. ` +
	`STILL RUNNING, NOT DONE YET and OUTCOME NOT KNOWN YET mean that the call is under way or waits for somebody: do not send it in another form, report how things stand. ` +
	`NOT SENT and NOT DONE mean that this call did nothing, and say why. OUTCOME UNKNOWN means that a person has to find out. ` +
	`All of this is kept across restarts.`

// instructions are those of the upstreams, and ours.
func (g *Gateway) instructions() string {
	var parts []string
	for _, s := range g.sources {
		text := s.Info().Instructions
		if text != "" && len(g.sources) > 1 {
			text = "# " + s.Name() + "\n" + text
		}
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(append(parts, ours), "\n\n")
}

// join and leave keep the clients that news go to.
func (g *Gateway) join(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients[c] = true
	g.levels[c.session] = true
}

func (g *Gateway) leave(c *conn) {
	g.mu.Lock()
	delete(g.clients, c)
	g.mu.Unlock()
	g.left(c.session)
}

// left takes a session out of those that may have set a log level, or subscribed to something.
func (g *Gateway) left(s *session) {
	g.mu.Lock()
	delete(g.levels, s)
	followed := g.subscribed.of(s)
	g.mu.Unlock()
	for _, uri := range followed {
		g.unsubscribe(s, uri)
	}
	g.levelChanged(context.Background())
}
