package mcpguard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolguard.dev/registry"
)

// The protocol versions that are spoken with upstreams: the last one with a handshake, and the stateless one.
const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// discoverTime is how long a server over HTTP may take to say whether it speaks the stateless protocol.
const discoverTime = 5 * time.Second

// eraPrefix begins the _meta members that belong to one hop of the protocol.
const eraPrefix = "io.modelcontextprotocol/"

// Limits of one server's lists.
const (
	maxTools = 10_000
	maxPages = 64
)

// handshake agrees on a protocol version with a server. The stateless one is tried first where a session would be
// something to lose: over HTTP.
func (u *Upstream) handshake(ctx context.Context, w wire, statelessFirst bool) (ServerInfo, error) {
	info, err := u.agree(ctx, w, statelessFirst)
	if err != nil {
		return ServerInfo{}, err
	}
	if u.Name() == "" && info.Name == "" {
		return ServerInfo{}, errors.New("the server has no name: give it one")
	}
	return info, nil
}

func (u *Upstream) agree(ctx context.Context, w wire, statelessFirst bool) (ServerInfo, error) {
	if statelessFirst {
		asking, done := context.WithTimeout(ctx, discoverTime) // one that does not know the question may never answer
		info, err := u.discover(asking, w)
		done()
		if err == nil || errors.Is(err, registry.ErrNotSent) {
			return info, err
		}
	}
	info, problem, err := u.initialize(ctx, w)
	switch {
	case err != nil:
		return ServerInfo{}, err
	case problem == nil:
		return info, nil
	case statelessFirst:
		return ServerInfo{}, fmt.Errorf("initialize was refused: %s", problem.Message)
	}
	// It may be one that knows no handshake any more.
	if info, err = u.discover(ctx, w); err != nil {
		return ServerInfo{}, fmt.Errorf("initialize was refused: %s (and %w)", problem.Message, err)
	}
	return info, nil
}

func (u *Upstream) clientInfo() json.RawMessage {
	return encode(map[string]string{"name": "toolguard", "version": cmp.Or(u.options.Version, "0")})
}

// initialize is the handshake of the versions up to 2025-11-25.
func (u *Upstream) initialize(ctx context.Context, w wire) (ServerInfo, *registry.ProtocolError, error) {
	params := object{
		{"protocolVersion", quote(legacyVersion)},
		{"capabilities", json.RawMessage(`{}`)},
		{"clientInfo", u.clientInfo()},
	}
	a, err := w.call(ctx, &request{method: "initialize", params: params.raw(), read: true})
	if err != nil || a.Error != nil {
		return ServerInfo{}, a.Error, err
	}
	o, err := parseObject(a.Result)
	if err != nil {
		return ServerInfo{}, nil, fmt.Errorf("initialize: %w", err)
	}
	version := o.text("protocolVersion")
	if version == "" || version >= modernVersion {
		return ServerInfo{}, &registry.ProtocolError{Message: fmt.Sprintf("it answered with protocol version %q", version)}, nil
	}
	if err := w.agreed(ctx, version); err != nil {
		return ServerInfo{}, nil, fmt.Errorf("notifications/initialized: %w", err)
	}
	info := serverInfo(o, o.get("serverInfo"))
	info.Protocol = version
	u.mu.Lock()
	level := u.level
	u.mu.Unlock()
	if info.logs() {
		u.askLogLevel(ctx, w, level)
	}
	return info, nil, nil
}

// discover finds out about a server that speaks the stateless protocol.
func (u *Upstream) discover(ctx context.Context, w wire) (ServerInfo, error) {
	r := &request{method: "server/discover", read: true}
	var err error
	if r.params, err = u.modernParams(modernVersion, "", r); err != nil {
		return ServerInfo{}, err
	}
	a, err := w.call(ctx, r)
	if err != nil {
		return ServerInfo{}, fmt.Errorf("server/discover: %w", err)
	}
	if a.Error != nil {
		return ServerInfo{}, fmt.Errorf("server/discover was refused: %s", a.Error.Message)
	}
	o, err := parseObject(a.Result)
	if err != nil {
		return ServerInfo{}, fmt.Errorf("server/discover: %w", err)
	}
	var versions []string
	_ = json.Unmarshal(o.get("supportedVersions"), &versions)
	if !slices.Contains(versions, modernVersion) {
		return ServerInfo{}, fmt.Errorf("server/discover: it speaks %v, not %s", versions, modernVersion)
	}
	meta, _ := parseObject(o.get("_meta"))
	info := serverInfo(o, meta.get(eraPrefix+"serverInfo"))
	info.Protocol = modernVersion
	return info, w.agreed(ctx, modernVersion)
}

// listen keeps the stream open on which a stateless server tells of changes, until ctx ends. What changed while it was
// not open is found by looking again.
func (u *Upstream) listen(ctx context.Context, w wire, info ServerInfo) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		began := time.Now()
		again, err := u.listenOnce(ctx, w, info)
		if refusal := (*refusedError)(nil); errors.As(err, &refusal) { // it will not do better next time
			u.log.Debug("no news from this MCP server", "err", err)
			select {
			case <-u.refollowing:
				again = true
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		if again {
			backoff = firstBackoff
			continue
		}
		if time.Since(began) >= healthy {
			backoff = firstBackoff
		}
		u.log.Debug("the stream of news ended; it is opened again", "err", err, "in", backoff)
		select {
		case <-time.After(backoff):
			u.options.Up()
		case <-u.refollowing:
		case <-ctx.Done():
			return
		}
	}
}

// listenOnce opens the stream and returns when it ends. again: at once, because something else is to be heard.
func (u *Upstream) listenOnce(ctx context.Context, w wire, info ServerInfo) (again bool, err error) {
	wanted := object{}
	for _, list := range []string{"tools", "prompts", "resources"} {
		if info.tells(list) {
			wanted = append(wanted, member{list + "ListChanged", json.RawMessage("true")})
		}
	}
	if uris := u.following(); len(uris) > 0 {
		wanted = append(wanted, member{"resourceSubscriptions", encode(uris)})
	}
	if len(wanted) == 0 {
		select {
		case <-u.refollowing:
		case <-ctx.Done():
		}
		return true, nil
	}
	r := &request{method: "subscriptions/listen", params: object{{"notifications", wanted.raw()}}.raw(), read: true}
	if r.params, err = u.modernParams(modernVersion, "", r); err != nil {
		return false, err
	}
	open, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() {
		a, err := w.call(open, r) // answered when the stream ends
		if err == nil && a.Error != nil {
			err = &refusedError{a.Error.Message}
		}
		ended <- err
	}()
	select {
	case <-u.refollowing:
		end()
		<-ended
		return true, nil
	case err := <-ended:
		return false, err
	}
}

// refusedError is a server's refusal of a request.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

// modernParams adds to a request what the stateless protocol wants in every one.
func (u *Upstream) modernParams(version, level string, r *request) (json.RawMessage, error) {
	params := object{}
	if r.params != nil {
		var err error
		if params, err = parseObject(r.params); err != nil {
			return nil, err
		}
	}
	capabilities := json.RawMessage(`{}`)
	if caller, err := parseObject(r.meta); err == nil {
		// What the caller can answer itself, it is asked through us.
		if c := caller.get(eraPrefix + "clientCapabilities"); c != nil {
			capabilities = c
		}
		level = cmp.Or(caller.text(eraPrefix+"logLevel"), level)
	}
	meta, _ := parseObject(params.get("_meta"))
	meta = meta.with(eraPrefix+"protocolVersion", quote(version)).
		with(eraPrefix+"clientInfo", u.clientInfo()).
		with(eraPrefix+"clientCapabilities", capabilities)
	if level != "" {
		meta = meta.with(eraPrefix+"logLevel", quote(level))
	}
	return params.with("_meta", meta.raw()).raw(), nil
}

func serverInfo(o object, server json.RawMessage) ServerInfo {
	s, _ := parseObject(server)
	return ServerInfo{
		Name: s.text("name"), Title: s.text("title"), Version: s.text("version"),
		Instructions: o.text("instructions"), Capabilities: o.get("capabilities"),
	}
}

// Tools asks for the server's tools, all pages, each as the object that the server sent.
func (u *Upstream) Tools(ctx context.Context) ([]json.RawMessage, error) {
	return u.list(ctx, "tools/list", "tools")
}

// list asks for all pages of a list, which is in a member of the results.
func (u *Upstream) list(ctx context.Context, method, in string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	seen := map[string]bool{}
	cursor := ""
	for range maxPages {
		params := object{}
		if cursor != "" {
			params = object{{"cursor", quote(cursor)}}
		}
		result, problem, err := u.Call(ctx, method, params.raw())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		if problem != nil {
			return nil, fmt.Errorf("%s was refused: %s", method, problem.Message)
		}
		page, err := parseObject(result)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		all = append(all, parseArray(page.get(in))...)
		if len(all) > maxTools {
			return nil, fmt.Errorf("%s: more than %d", method, maxTools)
		}
		cursor = page.text("nextCursor")
		if cursor == "" {
			return all, nil
		}
		if seen[cursor] {
			return nil, fmt.Errorf("%s: the pages go round in a circle", method)
		}
		seen[cursor] = true
	}
	return nil, fmt.Errorf("%s: more than %d pages", method, maxPages)
}

// fingerprint stands for a command line, which may hold secrets.
func fingerprint(words []string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// ofOneHop reports whether a member of a request's _meta is for us or the protocol, and not handed on.
func ofOneHop(name string) bool {
	return strings.HasPrefix(name, eraPrefix) || strings.HasPrefix(name, "dev.toolguard/")
}
