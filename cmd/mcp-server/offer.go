package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
)

// askTime is how long a server may take to start and to name its tools; the first start may fetch it from the net.
const askTime = 2 * time.Minute

// patience is how long nothing more must come from a child that failed, for its words to be taken as complete.
const patience = 200 * time.Millisecond

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

// reached is how a server is started, or where it is.
func reached(s config.Server) mcpguard.Server {
	if s.URL != "" {
		return mcpguard.Server{Name: s.Name, URL: s.URL, Header: s.Header}
	}
	return mcpguard.Server{Name: s.Name, Command: s.Command, Args: s.Args, Env: entryEnvironment(os.Environ(), s.Env), Dir: s.Dir}
}

// requests are what the configuration's own HTTP requests offer, by their servers.
func requests(cfg *config.Config) []offer {
	var offers []offer
	for _, name := range cfg.HTTPServers() {
		o := offer{server: name, info: mcpguard.ServerInfo{Name: "HTTP requests"}}
		for _, e := range cfg.HTTPTools {
			if e.Server == name {
				o.tools = append(o.tools, found{Tool: e.Tool, description: e.Description})
			}
		}
		offers = append(offers, o)
	}
	return offers
}

// ask starts or connects to every server that is not disabled, asks for its tools, and ends it.
func ask(ctx context.Context, servers []config.Server) []offer {
	var offers []offer
	var at []mcpguard.Server
	for _, s := range servers {
		if !s.Disabled {
			offers = append(offers, offer{server: s.Name})
			at = append(at, reached(s))
		}
	}
	var all sync.WaitGroup
	for i := range offers {
		all.Go(func() {
			offers[i].err = offers[i].ask(ctx, at[i], askTime)
		})
	}
	all.Wait()
	return offers
}

// ask fills in what a server offers; an error has what the server wrote about it.
func (o *offer) ask(ctx context.Context, at mcpguard.Server, limit time.Duration) error {
	wrote := newTail()
	err := o.list(ctx, at, limit, slog.New(stderrOnly{to: wrote}))
	if err == nil {
		return nil
	}
	wrote.quiet(patience)
	if words := telling(wrote.String()); words != "" {
		return fmt.Errorf("%w (it wrote: %s)", err, words)
	}
	return err
}

func (o *offer) list(ctx context.Context, at mcpguard.Server, limit time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	verb := "started"
	if at.URL != "" {
		verb = "reached"
	}
	u, err := mcpguard.StartUpstream(at, &mcpguard.UpstreamOptions{Log: log, Version: version()})
	if err != nil {
		return err
	}
	defer u.Close()
	if err := u.Ready(ctx); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cannot be %s: it did not answer the handshake within %s", verb, seconds(time.Since(began)))
	} else if err != nil {
		return fmt.Errorf("cannot be %s: %w", verb, err)
	}
	o.info = u.Info()
	list, err := u.Tools(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("does not name its tools: it did not answer within %s", seconds(time.Since(began)))
	}
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

// seconds writes a time span as people do who wait for it: 60 s.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}
