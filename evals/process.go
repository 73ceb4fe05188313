package evals

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// Process has runs played on real processes, in real time: the arms with toolguard get the program mcp-server as a child,
// which reaches the downstream over MCP on HTTP, and which is killed by SIGKILL at the faults that say so.
type Process struct {
	Program string   // path of mcp-server
	Front   []string // command of a process that does what [Front] does with two arguments
	Server  []string // command of an MCP server on stdio that is the downstream; none: there is one of our own

	offered map[string]json.RawMessage // by name: the tools of Server
	starts  chan struct{}              // room for a process that starts, so that those at work are not held up
}

// pace is how much faster than in its own time a run is played on real processes: all times are that much shorter, and some more
// that would only be waited for.
const (
	pace    = 20
	longest = 1500 * time.Millisecond // of an agent's waits
	unsaid  = 6 * time.Second         // the time-out of a tool that nobody declared one for
)

// day is how long a downstream knows a key there, where it is to forget it.
const day = 5 * time.Second

// Behind reports whether a server of the user's stands behind the guard.
func (o *Process) Behind() bool { return o != nil && len(o.Server) > 0 }

// offers asks the server for its tools.
func (o *Process) offers(ctx context.Context) error {
	c, err := startChild(ctx, o.Server)
	if err != nil {
		return err
	}
	defer c.kill()
	o.offered = map[string]json.RawMessage{}
	for cursor := ""; ; {
		params := map[string]string{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		answer, err := c.call(ctx, "tools/list", params)
		if err != nil {
			return fmt.Errorf("%s does not list its tools: %w", o.Server[0], err)
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(answer.Result, &page); err != nil {
			return fmt.Errorf("%s lists its tools in a form that cannot be read: %w", o.Server[0], err)
		}
		for _, text := range page.Tools {
			var t struct {
				Name string `json:"name"`
			}
			if json.Unmarshal(text, &t) == nil && t.Name != "" {
				o.offered[t.Name] = text
			}
		}
		if cursor = page.Next; cursor == "" || len(o.offered) > maxEntries {
			return nil
		}
	}
}

// fits reports whether the server has every tool that a run writes with.
func (o *Process) fits(p *Plan) bool {
	if !o.Behind() {
		return true
	}
	for i := range p.Steps {
		if o.offered[p.Steps[i].call.Tool] == nil {
			return false
		}
	}
	return true
}

// start starts a command that speaks MCP on stdio.
func (o *Process) start(ctx context.Context, command []string) (*child, error) {
	o.starts <- struct{}{}
	defer func() { <-o.starts }()
	return startChild(ctx, command)
}

// behind starts the server for one run, as the real downstream of a World.
func (o *Process) behind(ctx context.Context, w *World, a *Arm, p *Policy) (end func(), err error) {
	if !o.Behind() {
		return func() {}, nil
	}
	s := &server{ctx: ctx, process: o}
	if a.key != noKey {
		s.policy = p
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	w.Real, w.Lose = s.call, s.kill
	return s.kill, nil
}

// server is the user's own, in a process that may be lost.
type server struct {
	ctx     context.Context
	process *Process
	policy  *Policy // says where keys go that no guard puts in their place

	mu  sync.Mutex
	now *child // nil: it is to be started
}

func (s *server) start() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		s.now, err = s.process.start(s.ctx, s.process.Server)
	}
	return err
}

func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.kill()
		s.now = nil
	}
}

// call calls one of its tools.
func (s *server) call(tool string, d *registry.Dispatch) (registry.Answer, error) {
	if err := s.start(); err != nil {
		return registry.Answer{}, err
	}
	s.mu.Lock()
	c := s.now
	s.mu.Unlock()
	if c == nil {
		return registry.Answer{}, errGone
	}
	params := map[string]any{"name": tool, "arguments": d.Arguments}
	meta := map[string]json.RawMessage{}
	if d.Meta != nil {
		_ = json.Unmarshal(d.Meta, &meta)
	}
	delete(meta, tag)
	if s.policy != nil && d.Key != "" {
		place := s.policy.Of("", tool).Policy.DownstreamKey
		args, err := keyderive.Parse(d.Arguments)
		if at, bad := keyderive.ParsePointer(place.Argument); place.Argument != "" && bad == nil && err == nil {
			if args, err = keyderive.Set(args, at, d.Key); err == nil {
				params["arguments"] = json.RawMessage(keyderive.AppendCanonical(nil, args))
			}
		}
		if place.Meta != "" {
			meta[place.Meta] = keyderive.AppendCanonical(nil, d.Key)
		}
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	ctx, cancel := context.WithTimeout(s.ctx, startTime)
	defer cancel()
	return c.call(ctx, "tools/call", params)
}
