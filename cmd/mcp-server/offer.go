package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// askTime is how long a server may take to start and to name its tools; the first start may fetch it from the net.
const askTime = 2 * time.Minute

// offer is what one server was found to offer.
type offer struct {
	server string
	info   mcpguard.ServerInfo
	tools  []found
	err    error
}

// found is one tool as its server listed it.
type found struct {
	registry.Tool
	description string
	annotations json.RawMessage
}

// commandOf is how a server is started.
func commandOf(s config.Server) mcpguard.Command {
	return mcpguard.Command{Name: s.Name, Command: s.Command, Args: s.Args, Env: entryEnvironment(os.Environ(), s.Env), Dir: s.Dir}
}

// ask starts every server that is not disabled, asks for its tools, and ends it.
func ask(ctx context.Context, servers []config.Server) []offer {
	var offers []offer
	var commands []mcpguard.Command
	for _, s := range servers {
		if !s.Disabled {
			offers = append(offers, offer{server: s.Name})
			commands = append(commands, commandOf(s))
		}
	}
	var all sync.WaitGroup
	for i := range offers {
		all.Go(func() {
			said := &tail{}
			err := offers[i].ask(ctx, commands[i], slog.New(stderrOnly{to: said}))
			if words := lastWords(said.String()); err != nil && words != "" {
				err = fmt.Errorf("%w (it wrote: %s)", err, words)
			}
			offers[i].err = err
		})
	}
	all.Wait()
	return offers
}

func (o *offer) ask(ctx context.Context, c mcpguard.Command, log *slog.Logger) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer within %s", askTime))
	defer cancel()
	u, err := mcpguard.StartUpstream(c, &mcpguard.UpstreamOptions{Log: log, Version: version()})
	if err != nil {
		return err
	}
	defer u.Close()
	if err := u.Ready(ctx); err != nil {
		return fmt.Errorf("cannot be started: %w", err)
	}
	o.info = u.Info()
	list, err := u.Tools(ctx)
	if err != nil {
		return fmt.Errorf("does not name its tools: %w", err)
	}
	for _, text := range list {
		t, err := readTool(o.server, text)
		if err != nil {
			return fmt.Errorf("lists a tool that cannot be read: %w", err)
		}
		t.Version = o.info.Name + " " + o.info.Version
		o.tools = append(o.tools, t)
	}
	return nil
}

// readTool reads one tool of a tools/list.
func readTool(server string, text json.RawMessage) (found, error) {
	var t struct {
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
		Annotations  json.RawMessage `json:"annotations"`
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return found{}, err
	}
	if t.Name == "" {
		return found{}, errors.New("it has no name")
	}
	return found{
		Tool:        registry.Tool{Server: server, Name: t.Name, InputSchema: t.InputSchema, OutputSchema: t.OutputSchema},
		description: t.Description, annotations: t.Annotations,
	}, nil
}
