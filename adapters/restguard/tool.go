package restguard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolguard.dev/keyderive"
	"toolguard.dev/oncehttp"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

// New registers the tool that t describes with the guard; a call of it sends r. t needs Server, Name and what the
// operator says about it; an effect that it does not give is presumed from the name. The errors are those of [Compile]
// and [toolguard.Guard.Register].
func New(g *toolguard.Guard, t registry.Tool, r Request) (*toolguard.Tool, error) {
	entry, err := Compile(t, r)
	if err != nil {
		return nil, err
	}
	return g.Register(context.Background(), entry)
}

// Compile checks a tool and its request, and sets the tool's handler. Where the policy does not say how error answers
// are read, and needs no approval, the HTTP status says so. The error wraps [registry.ErrPolicy] where the policy or the
// request is wrong, or they do not fit each other or the schema, and [registry.ErrSchema].
func Compile(t registry.Tool, r Request) (*registry.Entry, error) {
	t.SetEffect()
	if t.Policy.Errors == "" && t.Policy.Approval == nil {
		t.Policy.Errors = registry.ErrorStatus
	}
	p, err := r.parse()
	if err == nil {
		err = p.carries(t.Policy.DownstreamKey, t.Effect)
	}
	if err != nil {
		return nil, unfit(t.Action(), err)
	}
	if t.Version == "" {
		t.Version = p.version()
	}
	header := t.Policy.DownstreamKey.Header
	t.Handler = func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		v := registry.Values{Key: d.Key, Facts: toolguard.FactsFrom(ctx)}
		var err error
		if v.Arguments, err = keyderive.Parse(d.Arguments); err != nil {
			return registry.Answer{}, fmt.Errorf("%w: the arguments cannot be read: %w", registry.ErrNotSent, err)
		}
		q, err := p.expand(v)
		if err != nil {
			return registry.Answer{}, fmt.Errorf("%w: %w", registry.ErrNotSent, err)
		}
		if header != "" && d.Key != "" {
			q.Header.Set(header, d.Key)
		}
		return p.send(ctx, d, q)
	}
	entry, err := registry.Compile(t)
	if err != nil {
		return nil, err
	}
	return entry, entry.CheckPlaceholders(p.names)
}

// unfit says that a request cannot be used, and names the policy once.
func unfit(what string, err error) error {
	return fmt.Errorf("%w: %s: %s", registry.ErrPolicy, what, strings.TrimPrefix(err.Error(), registry.ErrPolicy.Error()+": "))
}

// version names what an approval relies on, without what headers hold.
func (p *request) version() string {
	text, err := json.Marshal([]any{p.Method, p.URL, p.Query, slices.Sorted(maps.Keys(p.header)), p.json, p.Form, p.Text})
	if err != nil { // texts and values that were parsed: cannot be
		return ""
	}
	return keyderive.Digest(text)
}

// carries says why a key would not arrive, or where there is none.
func (p *request) carries(key registry.DownstreamKey, effect registry.Effect) error {
	if effect == registry.Read && slices.Contains(p.names, "key") {
		return fmt.Errorf("the request has {{key}}, but the tool only reads: there is no key")
	}
	if slices.Contains(p.names, "downstream_id") {
		return fmt.Errorf("the request has {{downstream_id}}, which is known only after it")
	}
	switch {
	case key.Meta != "":
		return fmt.Errorf("downstream_key names %s in _meta, which an HTTP request does not have; name a header or an argument", key.Meta)
	case key.Header != "":
		if p.header[canonical(key.Header)] != "" {
			return fmt.Errorf("downstream_key names the header %s, which the request sets too", key.Header)
		}
		return oncehttp.CheckHeader(key.Header)
	case key.Argument != "":
		name := "args." + strings.ReplaceAll(strings.TrimPrefix(key.Argument, "/"), "/", ".")
		if !slices.Contains(p.names, name) {
			return fmt.Errorf("downstream_key names the argument %s, but the request has no {{%s}}: the key would never arrive", key.Argument, name)
		}
	}
	return nil
}

// LookUp is a request that finds out what became of an attempt, for [registry.Policy].Lookups: Applied, Absent and
// Settle are the caller's to add. Besides the placeholders of a tool's request it may have {{downstream_id}}. The error
// wraps [registry.ErrPolicy].
func LookUp(r Request) (registry.Lookup, error) {
	p, err := r.parse()
	if err != nil {
		return registry.Lookup{}, unfit("lookup", err)
	}
	wanted, err := registry.ParseTemplate(p.wants())
	if err != nil {
		return registry.Lookup{}, err
	}
	return registry.Lookup{Arguments: wanted, Version: p.version(), Handler: func(ctx context.Context, d *registry.Dispatch) (registry.Answer, error) {
		q, err := p.expand(*d.Values)
		if err != nil {
			return registry.Answer{}, err
		}
		return p.send(ctx, d, q)
	}}, nil
}

// wants lists the request's placeholders: a lookup is not made where one of them has no value.
func (p *request) wants() json.RawMessage {
	list := []any{}
	for _, name := range p.names {
		list = append(list, "{{"+name+"}}")
	}
	return keyderive.AppendCanonical(nil, list)
}
