package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/api"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/console"
	"toolguard.dev/people"
	"toolguard.dev/registry"
	"toolguard.dev/telemetry"
	"toolguard.dev/toolguard"
)

// forPeople serves people and their programs beside MCP: the console at / and the API.
func forPeople(store toolguard.Store, members []people.Member, cfg *config.Config, gateway *mcpguard.Gateway, metrics *telemetry.Metrics, log *slog.Logger) (http.Handler, error) {
	book, err := people.NewBook(members, whoami())
	if err != nil {
		return nil, err
	}
	pages, err := console.Handler(store, book, &console.Options{Tools: func() []console.Tool { return toolsInWords(cfg, gateway) }, Observe: cfg.Observe, Log: log})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(api.Prefix+"/", api.Handler(store, book, log))
	mux.Handle("GET /metrics", metrics.Handler(store))
	mux.Handle("/", pages)
	return mux, nil
}

// toolsInWords are the tools that are served, with what check says of each.
func toolsInWords(cfg *config.Config, gateway *mcpguard.Gateway) []console.Tool {
	var out []console.Tool
	for _, t := range gateway.Tools() {
		f := examine(t.Entry, cfg.Context)
		shown := console.Tool{Action: t.Action(), Effect: fmt.Sprintf("%s, %s", t.Effective, f.Source), Owner: t.Policy.Owner,
			Writes: t.Effective == registry.Write || t.Effective == registry.Idempotent}
		say := func(about, says string) {
			if says != "" {
				shown.Words = append(shown.Words, console.Word{About: about, Says: says})
			}
		}
		say("the same call", f.SameCall)
		for _, a := range []struct {
			about string
			answer
		}{{"a stable key on every attempt?", f.StableKey}, {"does the downstream reject repeats?", f.RejectsRepeats}, {"a record of each retry?", f.Recorded}} {
			if a.Answer != "" {
				say(a.about, a.Answer+": "+a.Why)
			}
		}
		if a := t.Policy.Approval; a != nil {
			when := "every call"
			if a.When != nil {
				when = "calls for which " + a.When.String() + " holds"
			}
			if len(a.Reviewers) > 0 {
				when += ", by " + listed(a.Reviewers)
			}
			say("a person must approve", when)
		}
		var looks []string
		for _, l := range t.Policy.Lookups {
			looks = append(looks, l.Tool)
		}
		say("when the outcome is unknown, it is looked up with", strings.Join(looks, ", then "))
		say("weak", strings.Join(f.Weak, "; "))
		say("changed since it was first seen", strings.Join(t.Notes, " "))
		out = append(out, shown)
	}
	return out
}
