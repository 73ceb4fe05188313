package main

import (
	"os"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/evals"
	"toolguard.dev/keyderive"
	"toolguard.dev/registry"
)

// loadPolicy reads the policies of a toolguard.yaml, and which facts its context declares. Runs seldom say which server a
// tool is of: then the policy is that of the first server which has one for a tool of that name, else of the first server.
func loadPolicy(path string) (evals.Policy, func(*keyderive.Facts), error) {
	cfg, err := config.Load(path, os.LookupEnv)
	if err != nil {
		return nil, nil, err
	}
	policy := func(server, tool string) (registry.Effect, string, registry.Policy) {
		for _, s := range cfg.Servers {
			if s.Name == server {
				return cfg.Resolve(server, tool, nil)
			}
		}
		for _, s := range cfg.Servers {
			if effect, source, p := cfg.Resolve(s.Name, tool, nil); source == "declared" || p.OncePer != nil {
				return effect, source, p
			}
		}
		return cfg.Resolve(cfg.Servers[0].Name, tool, nil)
	}
	return policy, func(f *keyderive.Facts) { keep(f, cfg.Context.Facts) }, nil
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
