package mcpguard

import (
	"crypto/rand"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// session is one client's connection as mcp-go sees it. The same session serves both protocol eras.
type session struct {
	id            string
	gateway       *Gateway // where it subscribes to resources
	notifications chan mcp.JSONRPCNotification

	mu           sync.Mutex
	initialized  bool
	version      string // negotiated in the handshake; "" where there was none
	client       mcp.Implementation
	capabilities mcp.ClientCapabilities
	level        mcp.LoggingLevel
	filter       mcp.SubscriptionFilter
	listening    any // id of the open subscriptions/listen request
}

var (
	_ server.SessionWithLogging            = (*session)(nil)
	_ server.SessionWithClientInfo         = (*session)(nil)
	_ server.SessionWithSubscriptionFilter = (*session)(nil)
	_ server.SessionWithProtocolVersion    = (*session)(nil)

	_ server.SessionWithResourceSubscriptionsErr = (*session)(nil)
)

// newSession makes a session under an id that nobody can guess, which keeps so many notifications until they are sent.
func (g *Gateway) newSession(notifications int) *session {
	return &session{gateway: g, id: rand.Text(), notifications: make(chan mcp.JSONRPCNotification, notifications)}
}

func (s *session) SessionID() string { return s.id }

func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.notifications }

func (s *session) Initialize() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initialized = true
}

func (s *session) Initialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialized
}

func (s *session) SetProtocolVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

func (s *session) ProtocolVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *session) SetClientInfo(c mcp.Implementation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = c
}

func (s *session) GetClientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

func (s *session) SetClientCapabilities(c mcp.ClientCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capabilities = c
}

func (s *session) GetClientCapabilities() mcp.ClientCapabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capabilities
}

func (s *session) SetLogLevel(level mcp.LoggingLevel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
}

// GetLogLevel is "" until the client has set one: it then gets what the upstreams send by themselves.
func (s *session) GetLogLevel() mcp.LoggingLevel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

func (s *session) SetSubscriptionFilter(f mcp.SubscriptionFilter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filter = f
	if f.IsEmpty() {
		s.listening = nil
	}
}

// SubscriptionFilter is what the client wants to hear. Without a handshake it has to ask for everything.
func (s *session) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filter, s.version == "" || !s.filter.IsEmpty()
}

// tag marks a notification with the stream that it belongs to. The acknowledgement of a stream, which comes first,
// says which one that is.
func (s *session) tag(n *mcp.JSONRPCNotification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Method == mcp.MethodNotificationSubscriptionsAcknowledged {
		s.listening = n.Params.Meta[mcp.MetaKeySubscriptionID]
		return
	}
	if s.listening == nil || !slices.Contains(subscribable, n.Method) {
		return
	}
	n.Params.Meta = map[string]any{mcp.MetaKeySubscriptionID: s.listening}
}

// subscribable are the notifications that belong to a stream.
var subscribable = []string{mcp.MethodNotificationToolsListChanged, mcp.MethodNotificationPromptsListChanged,
	mcp.MethodNotificationResourcesListChanged, mcp.MethodNotificationResourceUpdated}

// allows reports whether the client, which has made the handshake, wants log messages of a level.
func (s *session) allows(level mcp.LoggingLevel) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialized && s.version != "" && (s.level == "" || level.ShouldSendTo(s.level))
}
