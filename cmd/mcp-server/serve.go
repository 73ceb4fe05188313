package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/people"
	"toolguard.dev/registry"
	"toolguard.dev/telemetry"
	"toolguard.dev/toolguard"
)

func (p *program) serveCommand() *cobra.Command {
	var at endpoint
	var sample bool
	c := &cobra.Command{
		Use: "serve", Short: "Serve the guarded tools over MCP on stdio and HTTP", Args: noArguments,
		Long: "serve starts or connects to the configured MCP servers and offers their tools, guarded, on stdio, and with --http (or http.listen\n" +
			"in the configuration) also to many clients over streamable HTTP, at /mcp, with the console for people at / and their API at\n" +
			"/api/v1. An MCP client starts it by itself. It ends on the end of stdin, SIGINT and SIGTERM, after it has finished and\n" +
			"recorded what is in flight, for at most the configured shutdown time.",
		RunE: func(c *cobra.Command, _ []string) error {
			if at.flag != "" {
				if err := mcpguard.CheckLoopback(at.flag); err != nil {
					return usage{fmt.Errorf("--http: %w", err)}
				}
			}
			if sample {
				if err := refuse(c, "serve --sample, which guards the built-in office", "config"); err != nil {
					return err
				}
				return p.serveSample(c.Context(), at)
			}
			cfg, err := p.load()
			if err != nil {
				return err
			}
			ledger, err := p.ledgerOf(cfg.File, cfg.Ledger)
			if err != nil {
				return err
			}
			at.configured = cfg.Listen
			return p.serve(c.Context(), service{cfg, serversOf(cfg), ledger, at})
		},
	}
	c.Flags().BoolVar(&sample, "sample", false, "guard the built-in sample office instead of a configuration's servers")
	c.Flags().StringVar(&at.flag, "http", "", "also serve HTTP on this loopback `address`, such as 127.0.0.1:7420")
	c.Flags().BoolVar(&at.noStdio, "no-stdio", false, "serve HTTP only")
	return c
}

func (p *program) wrapCommand() *cobra.Command {
	var name string
	var pass []string
	c := &cobra.Command{
		Use: "wrap [--name NAME] -- CMD ARGS…", Short: "Guard one MCP server on stdio, without a configuration",
		Long: "wrap starts the MCP server CMD and offers its tools, guarded, on stdio. It needs no configuration: what a tool does is taken\n" +
			"from its annotations and its name. The server gets this program's environment without TOOLGUARD_* and the keys of the\n" +
			"programs that run agents (" + listed(hostSecrets) + ").",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("which server? write: mcp-server wrap -- CMD ARGS…")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := refuse(c, "wrap, which guards one server as it is; serve takes a configuration", "config"); err != nil {
				return err
			}
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			p.unnamed = cmp.Or(name, filepath.Base(args[0]))
			ledger := p.data
			if ledger == "" {
				if ledger, err = p.stateFolder(cmp.Or(name, wrappedName(args)), append([]string{dir}, args...)...); err != nil {
					return err
				}
			}
			command := mcpguard.Server{Name: name, Command: args[0], Args: args[1:], Env: wrappedEnvironment(os.Environ(), pass)}
			return p.serve(c.Context(), service{config.Presumed(), []mcpguard.Server{command}, ledger, endpoint{}})
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVar(&name, "name", "", "the server's `name` in keys (else the one it gives itself)")
	c.Flags().StringArrayVar(&pass, "pass", nil, "hand on this environment `variable` all the same")
	return c
}

// service is what serve and wrap serve.
type service struct {
	config   *config.Config
	servers  []mcpguard.Server
	ledger   string
	endpoint endpoint
}

func serversOf(cfg *config.Config) []mcpguard.Server {
	var servers []mcpguard.Server
	for _, s := range cfg.Servers {
		if !s.Disabled {
			servers = append(servers, reached(s))
		}
	}
	return servers
}

// serve opens the ledger, the guard and the gateway, serves clients, and closes them in turn.
func (p *program) serve(ctx context.Context, s service) (err error) {
	log := p.log()
	listener, err := s.endpoint.listen(log)
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	for _, w := range contextWarnings(s.config, !s.endpoint.noStdio) {
		log.Warn(w)
	}
	if s.config.Observe {
		log.Warn("mode: observe: every call is sent, also one that was done before; what would have been held back is only recorded")
	}
	store, undo, err := p.openLedger(ctx, s.ledger)
	if err != nil {
		return err
	}
	serving, beside := false, []string(nil)
	defer func() {
		unused := undo != nil && !serving && isEmpty(store)
		err = errors.Join(err, store.Close())
		if unused {
			err = errors.Join(err, undo(beside...))
		}
	}()
	seal, made, err := sealOf(ctx, store, s.ledger, s.config.Secrets())
	if made {
		beside = append(beside, keyFile)
		log.Info("new key for secrets; keep a copy of it apart from those of the ledger", "file", filepath.Join(s.ledger, keyFile))
	}
	if err != nil {
		return err
	}
	if seal != nil {
		log = slog.New(seal.Handler(log.Handler()))
	}
	members := membersOf(s.config.Reviewers)
	if err := people.Remember(ctx, store, members); err != nil {
		return err
	}
	notifier, err := notifying(ctx, store, s.config, listener, log)
	if err != nil {
		return err
	}
	defer notifier.Close()
	tracing, err := p.tracing(ctx, log)
	if err != nil {
		return err
	}
	defer closeTracing(tracing)
	metrics := telemetry.NewMetrics(version())
	ledger := toolguard.Store(store)
	if listener != nil {
		ledger = metrics.Store(store)
	}
	guard, err := toolguard.Open(ctx, ledger, &toolguard.Options{Observe: s.config.Observe, Log: log, Process: store.Process(), Alive: store.Alive, Seal: seal, Watch: tracing.Watch()})
	if err != nil {
		return err
	}
	own, err := register(ctx, guard, s.config, log)
	if err != nil {
		return err
	}
	gateway, err := mcpguard.OpenGateway(ctx, guard, s.servers, &mcpguard.GatewayOptions{
		Describe:        describe(s.config),
		Tools:           own,
		Sources:         sourcesOf(s.config.Context),
		Version:         version(),
		NoOperationTool: !s.config.OperationTool,
		Shutdown:        s.config.Shutdown,
		Log:             log,
	})
	if err != nil {
		if ctx.Err() != nil { // told to end before it had begun
			err = nil
		}
		return err
	}
	if err = p.nothing(gateway, len(s.servers)+len(own)); err == nil {
		err = clashes(s.config, gateway)
	}
	if err == nil {
		err = misfits(ctx, s.config, gateway, log)
	}
	var desk http.Handler
	if err == nil {
		desk, err = forPeople(ledger, members, s.config, gateway, metrics, log)
	}
	end := &ending{in: p.stdin, ended: make(chan struct{})}
	context.AfterFunc(ctx, end.mark)
	if err == nil {
		if serving = true; undo != nil {
			log.Info("new ledger", "folder", s.ledger)
		}
		if !s.endpoint.noStdio && isTerminal(p.stdin) {
			log.Info("ready for an MCP client on stdin and stdout; a client starts this command by itself, and end of file (Ctrl-D) ends it")
		}
		err = p.clients(ctx, gateway, listener, desk, !s.endpoint.noStdio, end)
	}
	// An attempt whose caller has gone still needs its server: the servers end once it is recorded, or time is up.
	waitFor(guard, s.config.Shutdown-end.since())
	err = errors.Join(err, gateway.Close())
	waitFor(guard, time.Second)
	return err
}

// register makes the configuration's own HTTP requests known to the guard.
func register(ctx context.Context, guard *toolguard.Guard, cfg *config.Config, log *slog.Logger) (tools []*toolguard.Tool, err error) {
	for _, e := range cfg.HTTPTools {
		t, err := guard.Register(ctx, e)
		if err != nil {
			return nil, err
		}
		for _, note := range t.Notes {
			log.Warn(note, "server", t.Server, "tool", t.Name)
		}
		tools = append(tools, t)
	}
	return tools, nil
}

// clashes are the names that tools of several servers would have in common.
func clashes(cfg *config.Config, gateway *mcpguard.Gateway) error {
	var faults config.Faults
	told := map[string]bool{}
	for _, problem := range gateway.Problems() {
		what := problem.Err.Error()
		if !errors.Is(problem.Err, mcpguard.ErrClash) || told[what] {
			continue
		}
		told[what] = true
		for _, s := range cfg.Servers {
			if s.Name == problem.Server {
				faults = append(faults, config.Fault{File: cfg.File, Line: s.Line, Path: "mcpServers." + s.Name, What: what})
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return faults
}

// waitFor closes the guard, which takes at most limit.
func waitFor(guard *toolguard.Guard, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), max(limit, 100*time.Millisecond))
	defer cancel()
	_ = guard.Close(ctx) // what it did not wait for is found at the next start
}

func describe(c *config.Config) func(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
	return func(server, tool string, annotations json.RawMessage) (registry.Effect, string, registry.Policy, error) {
		effect, source, policy := c.Resolve(server, tool, annotations)
		return effect, source, policy, nil
	}
}

func sourcesOf(c config.Context) mcpguard.Sources {
	out := mcpguard.Sources{Preset: c.Preset, Facts: map[string]mcpguard.FactSource{}}
	for name := range c.Lines {
		out.Facts[name] = mcpguard.FactSource{Stdio: mcpguard.Source(c.Facts[name]), HTTP: mcpguard.Source(c.HTTP[name])}
	}
	return out
}
