package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// nothing says why there is nothing to serve, if not one of the servers could be started. Where only some could not,
// the others are served, and those are started again.
func (p *program) nothing(gateway *mcpguard.Gateway, servers int) error {
	var reasons []string
	for _, problem := range gateway.Problems() {
		if problem.Tool == "" {
			reasons = append(reasons, fmt.Sprintf("the server %s cannot be started: %s", cmp.Or(problem.Server, p.unnamed), short(problem.Err.Error(), 300)))
		}
	}
	if len(reasons) < servers {
		return nil
	}
	return errors.New(strings.Join(reasons, "; "))
}

// misfits are the policies that do not fit the tools found, or that name a tool which there is not. Nothing is served
// then: a tool that is missing without anybody noticing is no better than one that is not guarded. What else fits no
// tool, and what cannot be told because a server is down, is logged.
func misfits(ctx context.Context, cfg *config.Config, gateway *mcpguard.Gateway, log *slog.Logger) error {
	faults, err := unfit(ctx, cfg, gateway)
	if err != nil {
		return err
	}
	var actions []string
	known := map[string]bool{}
	for _, t := range gateway.Tools() {
		actions = append(actions, t.Action())
		known[t.Server] = true
	}
	for _, problem := range gateway.Problems() {
		if problem.Tool != "" {
			actions = append(actions, problem.Server+"/"+problem.Tool)
			known[problem.Server] = true
		}
	}
	for _, s := range cfg.Servers {
		if !known[s.Name] && !s.Disabled && cfg.Names(s.Name) {
			log.Warn("the server does not run, so it was not checked that it has the tools which its policies name", "server", s.Name)
		}
	}
	for _, f := range cfg.Unused(actions, func(server string) bool { return !known[server] }) {
		if f.Exact {
			faults = append(faults, f.Fault)
		} else {
			log.Warn(f.Fault.String())
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b config.Fault) int { return cmp.Compare(a.Line, b.Line) })
	return faults
}

// unfit are the policies that were refused for a tool, with their places in the file.
func unfit(ctx context.Context, cfg *config.Config, gateway *mcpguard.Gateway) (faults config.Faults, err error) {
	for _, problem := range gateway.Problems() {
		if !errors.Is(problem.Err, registry.ErrPolicy) {
			continue
		}
		refused := usage{fmt.Errorf("%s/%s: %w", problem.Server, problem.Tool, problem.Err)}
		known := false
		for _, u := range gateway.Upstreams() {
			if u.Name() != problem.Server {
				continue
			}
			list, err := u.Tools(ctx)
			if err != nil {
				return nil, refused
			}
			var all []found
			for _, text := range list {
				if t, err := readTool(problem.Server, text); err == nil {
					all = append(all, t)
				}
			}
			for _, t := range all {
				if t.Name == problem.Tool {
					more := cfg.Faults(t.Tool, effectsOf(cfg, all))
					faults, known = append(faults, more...), known || len(more) > 0
				}
			}
		}
		if !known {
			return nil, refused
		}
	}
	return faults, nil
}

// effectsOf says what calling a server's tools does, by their names.
func effectsOf(cfg *config.Config, all []found) func(tool string) (registry.Effect, bool) {
	return func(tool string) (registry.Effect, bool) {
		for _, t := range all {
			if t.Name == tool {
				effect, _, _ := cfg.Resolve(t.Server, t.Name, t.annotations)
				return effect, true
			}
		}
		return "", false
	}
}
