package mcpguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrClash is wrapped by the problem of a tool that would be offered under the same name as another server's tool.
// Neither is offered: a call would go to the one that happened to be listed first.
var ErrClash = errors.New("two tools of one name")

// claims are the upstreams' own names of the tools they list, by the name that clients would see.
type claims map[string]map[*source]string

// shows is the name under which a tool of the upstream is offered.
func (s *source) shows(name string, several bool) string {
	if several {
		return s.Name() + "__" + name
	}
	return name
}

// claim notes which names the tools of an upstream want. Where another upstream's tool has one of them, that tool is
// no more offered; where another's may have one now, that upstream is listed anew. g.offering is held.
func (g *Gateway) claim(s *source, list []json.RawMessage, several bool) {
	wanted := map[string]string{}
	for _, raw := range list {
		if o, err := parseObject(raw); err == nil && o.text("name") != "" {
			wanted[s.shows(o.text("name"), several)] = o.text("name")
		}
	}
	touched := map[*source]bool{}
	for shown, by := range g.claims {
		if _, had := by[s]; !had || wanted[shown] != "" {
			continue
		}
		delete(by, s)
		for other := range by {
			touched[other] = true
		}
		if len(by) == 0 {
			delete(g.claims, shown)
		}
	}
	if g.claims == nil {
		g.claims = claims{}
	}
	for shown, name := range wanted {
		by := g.claims[shown]
		if by == nil {
			by = map[*source]string{}
			g.claims[shown] = by
		}
		if _, has := by[s]; !has {
			for other := range by {
				touched[other] = true
			}
		}
		by[s] = name
	}
	for other := range touched {
		g.yield(other)
		other.stale()
	}
}

// clash says which tools want one name, if there are several.
func (c claims) clash(shown string) error {
	by := c[shown]
	if len(by) < 2 {
		return nil
	}
	var actions []string
	for s, name := range by {
		actions = append(actions, s.Name()+"/"+name)
	}
	slices.Sort(actions)
	return fmt.Errorf("%w: %s would be offered as %s; give one of the servers another name", ErrClash, strings.Join(actions, " and "), shown)
}

// yield takes back the offers of an upstream whose names others claim as well, and says so.
func (g *Gateway) yield(s *source) {
	g.mu.Lock()
	problems := slices.Clone(g.problems[s])
	g.mu.Unlock()
	problems = slices.DeleteFunc(problems, func(p Problem) bool { return errors.Is(p.Err, ErrClash) })
	keep := map[string]bool{}
	for shown, by := range g.claims {
		name, has := by[s]
		if !has {
			continue
		}
		err := g.claims.clash(shown)
		if keep[shown] = err == nil; err != nil {
			problems = append(problems, Problem{s.Name(), name, err})
		}
	}
	g.withdraw(s, keep)
	g.note(s, problems)
}

// stale says that the upstream's tool list, or what may be offered of it, may have changed.
func (s *source) stale() {
	select {
	case s.relist <- struct{}{}:
	default:
	}
}
