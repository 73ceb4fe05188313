package mcpguard

import (
	"encoding/json"
	"fmt"
	"slices"

	"toolguard.dev/registry"
)

// lookups returns a policy's lookups with the way to their tools, which are the server's own and only read.
func (g *Gateway) lookups(s *source, lookups []registry.Lookup, list []json.RawMessage) ([]registry.Lookup, error) {
	lookups = slices.Clone(lookups)
	for i := range lookups {
		l := &lookups[i]
		if l.Tool == "" { // it asks in a way of its own
			continue
		}
		raw := listedAs(l.Tool, list)
		if raw == nil {
			return nil, fmt.Errorf("%w: lookup %d names the tool %s, which the server %s does not have", registry.ErrPolicy, i+1, l.Tool, s.Name())
		}
		effect, _, _, err := g.options.Describe(s.Name(), l.Tool, raw.get("annotations"))
		if err != nil {
			return nil, err
		}
		if effect != registry.Read {
			return nil, fmt.Errorf("%w: lookup %d names the tool %s, which is no read but %q: if it only reads, declare its effect", registry.ErrPolicy, i+1, l.Tool, effect)
		}
		l.Handler = s.handler(l.Tool, raw.raw(), registry.DownstreamKey{})
	}
	return lookups, nil
}

// listedAs finds a tool among those that a server listed; nil if it is not there.
func listedAs(name string, list []json.RawMessage) object {
	for _, raw := range list {
		if o, err := parseObject(raw); err == nil && o.text("name") == name {
			return o
		}
	}
	return nil
}
