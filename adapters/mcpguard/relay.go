package mcpguard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolguard.dev/registry"
)

// maxURI is the longest URI that is looked for or subscribed to, in bytes.
const maxURI = 8 << 10

// relayTime is how long a server may take to answer what is only passed on to it.
const relayTime = time.Minute

// relay is a method that is passed on to the upstreams, unguarded: by the protocol it only reads.
type relay struct {
	// frame is the method as which mcp-go sees the request: it checks what belongs to the protocol, and makes the
	// members that a result of the caller's era must have.
	frame      mcp.MCPMethod
	capability string
	list       string // of a list: the member that it is in
	answer     func(*Gateway, context.Context, *exchange) (reply, error)
}

var relays map[string]relay

func init() { // the functions refer to the table
	relays = map[string]relay{
		string(mcp.MethodResourcesList):          {mcp.MethodResourcesList, "resources", "resources", (*Gateway).relayList},
		string(mcp.MethodResourcesTemplatesList): {mcp.MethodResourcesTemplatesList, "resources", "resourceTemplates", (*Gateway).relayList},
		string(mcp.MethodResourcesRead):          {mcp.MethodResourcesList, "resources", "", (*Gateway).relayRead},
		string(mcp.MethodPromptsList):            {mcp.MethodPromptsList, "prompts", "prompts", (*Gateway).relayList},
		string(mcp.MethodPromptsGet):             {mcp.MethodPromptsList, "prompts", "", (*Gateway).relayPrompt},
		string(mcp.MethodCompletionComplete):     {mcp.MethodPromptsList, "completions", "", (*Gateway).relayCompletion},
	}
}

// pass answers a request that mcp-go took for its frame, which it answered with framed.
func (g *Gateway) pass(ctx context.Context, x *exchange, framed json.RawMessage) reply {
	ctx, done := context.WithTimeout(ctx, relayTime)
	defer done()
	r, err := relays[x.method].answer(g, ctx, x)
	if err != nil {
		return reply{problem: &registry.ProtocolError{Code: mcp.INTERNAL_ERROR, Message: err.Error()}}
	}
	meta, _ := parseObject(x.params.get("_meta"))
	if r.problem != nil || !mcp.IsModernProtocol(meta.text(mcp.MetaKeyProtocolVersion)) {
		return r
	}
	r.result = modernResult(r.result, g.identity)
	if x.method == string(mcp.MethodPromptsGet) || x.method == string(mcp.MethodCompletionComplete) {
		return r
	}
	o, _ := parseObject(r.result)
	frame, _ := parseObject(framed)
	for _, hint := range []string{"ttlMs", "cacheScope"} {
		if v := frame.get(hint); v != nil && o.get(hint) == nil {
			o = o.with(hint, v)
		}
	}
	return reply{result: o.raw()}
}

// ask sends a client's request to one upstream, with these parameters.
func (g *Gateway) ask(ctx context.Context, s *source, x *exchange, params object) (reply, error) {
	meta, forget := g.expectProgress(x.teller, x.params.get("_meta"))
	defer forget()
	defer s.calling.enter(x)()
	params = params.without(func(name string) bool { return name == "_meta" })
	if own, err := parseObject(meta); err == nil {
		if own = own.without(ofOneHop); len(own) > 0 {
			params = params.with("_meta", own.raw())
		}
	}
	a, err := s.call(ctx, &request{method: x.method, params: params.raw(), meta: x.params.get("_meta"), read: true})
	if err != nil {
		return reply{}, fmt.Errorf("%s: %w", s.Name(), err)
	}
	if a.Error == nil {
		if _, err := parseObject(a.Result); err != nil {
			return reply{}, fmt.Errorf("%s answered with a result that cannot be read: %w", s.Name(), err)
		}
	}
	return reply{a.Result, a.Error}, nil
}

// having are the upstreams that offer a capability, in the order in which they were given.
func (g *Gateway) having(capability string) []*source {
	var list []*source
	for _, s := range g.sources {
		if s.Info().offers(capability) {
			list = append(list, s)
		}
	}
	return list
}

// relayList lists what the upstreams list. With one upstream its pages are the client's; those of several come as one.
func (g *Gateway) relayList(ctx context.Context, x *exchange) (reply, error) {
	l := relays[x.method]
	sources := g.having(l.capability)
	if len(g.sources) == 1 && len(sources) == 1 {
		return g.ask(ctx, sources[0], x, x.params)
	}
	items, err := g.gather(ctx, sources, x.method)
	if err != nil {
		return reply{}, err
	}
	all := []json.RawMessage{}
	for _, item := range items {
		all = append(all, item.listed)
	}
	return reply{result: object{{l.list, array(all...)}}.raw()}, nil
}

// item is one resource, template or prompt of an upstream.
type item struct {
	source *source
	name   string          // its uri, its template, or its own name
	listed json.RawMessage // as clients see it
}

// gather lists what several upstreams list. A URI or template that two of them list is the first one's, in the order in
// which they were given; prompts have the name of their server in front. An upstream that does not answer is left out,
// unless none does.
func (g *Gateway) gather(ctx context.Context, sources []*source, method string) ([]item, error) {
	lists := make([][]json.RawMessage, len(sources))
	errs := make([]error, len(sources))
	done := make(chan int)
	for i, s := range sources {
		go func() {
			lists[i], errs[i] = s.list(ctx, method, relays[method].list)
			done <- i
		}()
	}
	for range sources {
		<-done
	}
	var items []item
	seen := map[string]bool{}
	failed := 0
	for i, s := range sources {
		if errs[i] != nil {
			failed++
			g.log.Warn("what an MCP server offers is not known", "server", s.Name(), "err", errs[i])
		}
		for _, raw := range lists[i] {
			o, err := parseObject(raw)
			if err != nil {
				continue
			}
			it := item{source: s, listed: raw}
			shown := ""
			switch method {
			case string(mcp.MethodPromptsList):
				it.name = o.text("name")
				shown = s.shows(it.name, len(g.sources) > 1)
				it.listed = o.with("name", quote(shown)).raw()
			case string(mcp.MethodResourcesTemplatesList):
				it.name = o.text("uriTemplate")
				shown = it.name
			default:
				it.name = o.text("uri")
				shown = it.name
			}
			if it.name == "" || seen[shown] {
				g.log.Debug("not listed: it has no name, or a server before it has one of that name", "server", s.Name(), "name", clip([]byte(shown), 200))
				continue
			}
			seen[shown] = true
			items = append(items, it)
		}
	}
	if failed > 0 && failed == len(sources) {
		return nil, errors.Join(errs...)
	}
	return items, nil
}

// relayRead reads a resource from the upstream that has it.
func (g *Gateway) relayRead(ctx context.Context, x *exchange) (reply, error) {
	uri := x.params.text("uri")
	if uri == "" {
		return reply{problem: &registry.ProtocolError{Code: mcp.INVALID_PARAMS, Message: "uri is missing"}}, nil
	}
	likely, others, err := g.keepers(ctx, uri)
	if err != nil {
		return reply{}, err
	}
	none := reply{problem: &registry.ProtocolError{Code: mcp.RESOURCE_NOT_FOUND, Message: "no server has this resource"}}
	for i, s := range slices.Concat(likely, others) {
		r, failed := g.ask(ctx, s, x, x.params)
		if failed == nil && r.problem == nil {
			return r, nil
		}
		if i == 0 { // what the likeliest says of it
			none, err = r, failed
		}
	}
	return none, err
}

// keepers are the upstreams that a resource may be read from, the likelier first. Likely is the one that lists it, and
// then there is no other; else those with a template that it fits. The others are all that have resources, for not
// everything that can be read is listed.
func (g *Gateway) keepers(ctx context.Context, uri string) (likely, others []*source, err error) {
	sources := g.having("resources")
	if len(sources) < 2 {
		return sources, nil, nil
	}
	resources, err := g.gather(ctx, sources, string(mcp.MethodResourcesList))
	if err != nil {
		return nil, nil, err
	}
	for _, it := range resources {
		if it.name == uri {
			return []*source{it.source}, nil, nil
		}
	}
	templates, _ := g.gather(ctx, sources, string(mcp.MethodResourcesTemplatesList)) // not every server knows templates
	for _, it := range templates {
		if !slices.Contains(likely, it.source) && fits(it.name, uri) {
			likely = append(likely, it.source)
		}
	}
	for _, s := range sources {
		if !slices.Contains(likely, s) {
			others = append(others, s)
		}
	}
	return likely, others, nil
}

// fits reports whether a URI is one that a template makes. Some templates make the library panic; nothing fits those.
func fits(template, uri string) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	var t mcp.URITemplate
	if len(template) > maxURI || json.Unmarshal(quote(template), &t) != nil || t.Template == nil {
		return false
	}
	return t.Template.Regexp().MatchString(uri)
}

// relayPrompt gets a prompt from the upstream that has it.
func (g *Gateway) relayPrompt(ctx context.Context, x *exchange) (reply, error) {
	s, name, err := g.prompt(ctx, x.params.text("name"))
	if err != nil || s == nil {
		return unknownPrompt, err
	}
	return g.ask(ctx, s, x, x.params.with("name", quote(name)))
}

var unknownPrompt = reply{problem: &registry.ProtocolError{Code: mcp.INVALID_PARAMS, Message: "no server has this prompt"}}

// prompt is the upstream that a prompt belongs to, and its own name there; nil if there is none.
func (g *Gateway) prompt(ctx context.Context, shown string) (*source, string, error) {
	sources := g.having("prompts")
	if len(g.sources) == 1 {
		if len(sources) == 0 {
			return nil, "", nil
		}
		return sources[0], shown, nil
	}
	named := slices.DeleteFunc(sources, func(s *source) bool { return !strings.HasPrefix(shown, s.Name()+"__") })
	if len(named) == 1 {
		return named[0], strings.TrimPrefix(shown, named[0].Name()+"__"), nil
	}
	items, err := g.gather(ctx, named, string(mcp.MethodPromptsList))
	for _, it := range items {
		if it.source.shows(it.name, true) == shown {
			return it.source, it.name, nil
		}
	}
	return nil, "", err
}

// relayCompletion completes an argument of a prompt or of a resource's template.
func (g *Gateway) relayCompletion(ctx context.Context, x *exchange) (reply, error) {
	ref, err := parseObject(x.params.get("ref"))
	if err != nil {
		return reply{problem: &registry.ProtocolError{Code: mcp.INVALID_PARAMS, Message: "ref is missing"}}, nil
	}
	params := x.params
	var s *source
	if name := ref.text("name"); ref.text("type") == "ref/prompt" {
		if s, name, err = g.prompt(ctx, name); err != nil || s == nil {
			return unknownPrompt, err
		}
		params = params.with("ref", ref.with("name", quote(name)).raw())
	} else if s, err = g.templated(ctx, ref.text("uri")); err != nil {
		return reply{}, err
	}
	if s == nil || !s.Info().offers("completions") {
		return reply{result: json.RawMessage(`{"completion":{"values":[]}}`)}, nil
	}
	return g.ask(ctx, s, x, params)
}

// templated is the upstream that has a template, or a resource; nil if there is none.
func (g *Gateway) templated(ctx context.Context, uri string) (*source, error) {
	sources := g.having("resources")
	if len(sources) == 1 {
		return sources[0], nil
	}
	templates, err := g.gather(ctx, sources, string(mcp.MethodResourcesTemplatesList))
	for _, it := range templates {
		if it.name == uri {
			return it.source, nil
		}
	}
	return nil, err
}

// announced takes out of our capabilities what no upstream has.
func (g *Gateway) announced(c *mcp.ServerCapabilities) {
	if len(g.having("resources")) == 0 {
		c.Resources = nil
	}
	if len(g.having("prompts")) == 0 {
		c.Prompts = nil
	}
	if len(g.having("completions")) == 0 {
		c.Completions = nil
	}
}
