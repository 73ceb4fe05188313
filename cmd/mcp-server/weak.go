package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// contextWarnings names what is not read, and, where stdio is served, the facts that cannot come over it.
func contextWarnings(cfg *config.Config, stdio bool) []string {
	var out []string
	for _, s := range cfg.Servers {
		if s.EnvFile != "" && !s.Disabled {
			out = append(out, fmt.Sprintf("%s:%d: mcpServers.%s.envFile: is not read; put what the server needs under env", cfg.File, s.Line, s.Name))
		}
	}
	for name, source := range cfg.Context.Facts {
		if stdio && source.Header != "" {
			out = append(out, fmt.Sprintf("%s:%d: context.%s: comes from %s, and over stdio no call has one: every guarded call is blocked", cfg.File, cfg.Context.Lines[name], name, source))
		}
	}
	slices.Sort(out)
	return out
}

// blocking are the facts without which, once they are declared, no guarded call is sent.
var blocking = []string{"tenant", "workflow", "source_event", "request", "run", "step"}

// contextWeak says what depends on clients and on the environment, and which places in _meta are doubtful.
func contextWeak(cfg *config.Config) []string {
	doubts := cfg.Doubts()
	for name, source := range cfg.Context.Facts {
		if slices.Contains(blocking, name) && (source.Meta != "" || source.Env != "") {
			who := "the client gives " + name + " in " + source.String()
			if source.Env != "" {
				who = source.String() + " is set where the server runs"
			}
			doubts = append(doubts, config.Fault{File: cfg.File, Line: cfg.Context.Lines[name], Path: "context." + name, What: "guarded calls are not sent unless " + who})
		}
	}
	slices.SortFunc(doubts, func(a, b config.Fault) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.What, b.What)) })
	var out []string
	for _, d := range doubts {
		out = append(out, d.String())
	}
	return out
}

// sealing says how secret arguments are kept, and what that does not protect against.
var sealing = []string{
	"Secret arguments are never written in clear to the ledger, the audit, logs or errors. They are kept only sealed (AES-256-GCM), with the key in " + keyFile + " (mode 0600) in the ledger's folder, and hidden wherever the tool's answer repeats them.",
	"A lost key file cannot be made again: tools with secrets are not called without it. Keep a copy, but not with the copies of the ledger.",
	"Sealing does not protect against whoever can read the ledger's folder as this user, or has a backup that holds both the ledger and the key; against the server that is called, which gets the secret and may keep or log it; against whoever can read this program's memory; and not against the model and its client, whose own transcript has what they sent, and the tool's own answer.",
	"It hides a secret of fewer than 4 characters only in its own place, one of fewer than 8 only where it stands as a word of its own, and no secret that the tool repeats in a form of its own, such as encrypted, reversed or spelled out. What a person types into a note or a result is recorded as it is, and so is what was recorded before the secret was declared.",
}

// shownName is how clients see a tool.
func shownName(t registry.Tool, servers int) string {
	if servers > 1 {
		return t.Server + "__" + t.Name
	}
	return t.Name
}

// takenName is what every client takes for the name of a tool.
var takenName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// nameWarnings names the servers because of which clients see tools under names that some of them refuse.
func nameWarnings(cfg *config.Config, offers []offer) []string {
	var out []string
	for _, o := range offers {
		var odd []string
		for _, t := range o.tools {
			if name := shownName(t.Tool, len(offers)); len(offers) > 1 && !takenName.MatchString(name) {
				odd = append(odd, name)
			}
		}
		if len(odd) == 0 {
			continue
		}
		line, path := cfg.Place(o.server)
		text := strings.Join(odd[:min(3, len(odd))], ", ")
		if len(odd) > 3 {
			text += fmt.Sprintf(" and %d more", len(odd)-3)
		}
		out = append(out, config.Fault{File: cfg.File, Line: line, Path: path,
			What: "clients would see " + text + "; many take only letters, digits, _ and -, at most 64 of them: give the server another name"}.String())
	}
	return out
}
