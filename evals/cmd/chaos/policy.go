package main

import (
	"os"
	"slices"

	"github.com/goccy/go-yaml"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/evals"
	"toolguard.dev/keyderive"
)

// loadPolicy reads what a toolguard.yaml says of tools, and which facts its context declares. Runs seldom say which server a
// tool is of: then the policy is that of the first server which has a rule for a tool of that name, else of the first server.
func loadPolicy(path string) (*evals.Policy, error) {
	cfg, err := config.Load(path, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Tools    map[string]map[string]any `yaml:"tools"`
		Defaults map[string]any            `yaml:"defaults"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	p := &evals.Policy{Tools: file.Tools, Defaults: file.Defaults, Known: func(f *keyderive.Facts) { keep(f, cfg.Context.Facts) }}
	for _, s := range cfg.Servers {
		p.Servers = append(p.Servers, s.Name)
	}
	p.Servers = append(p.Servers, cfg.HTTPServers()...)
	p.Of = func(server, tool string) evals.Declared {
		resolve := func(server string) evals.Declared {
			effect, source, policy := cfg.Resolve(server, tool, nil)
			return evals.Declared{Server: server, Ruled: cfg.Ruled(server, tool), Effect: effect, Source: source, Policy: policy}
		}
		if slices.Contains(p.Servers, server) {
			return resolve(server)
		}
		for _, name := range p.Servers {
			if d := resolve(name); d.Ruled {
				return d
			}
		}
		return resolve(p.Servers[0])
	}
	return p, nil
}

// keep leaves of what the runtime knows the facts that are declared, with the values that the file itself gives.
func keep(f *keyderive.Facts, declared map[string]config.Source) {
	for name, value := range map[string]*string{
		"tenant": &f.Tenant, "workflow": &f.Workflow, "source_event": &f.SourceEvent, "request": &f.Request, "run": &f.Run, "step": &f.Step,
	} {
		source, ok := declared[name]
		switch {
		case !ok:
			*value = ""
		case source.Value != "":
			*value = source.Value
		}
	}
}
