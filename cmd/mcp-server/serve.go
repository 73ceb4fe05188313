package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"toolguard.dev/adapters/mcpguard"
	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/registry"
	"toolguard.dev/toolguard"
)

func (p *program) serveCommand() *cobra.Command {
	var http string
	var noStdio, sample bool
	c := &cobra.Command{
		Use: "serve", Short: "Serve the guarded tools over MCP on stdio", Args: cobra.NoArgs,
		Long: "serve starts the configured MCP servers and offers their tools, guarded, on stdio. It ends on the end of stdin, SIGINT and\n" +
			"SIGTERM, after it has finished and recorded what is in flight, for at most the configured shutdown time.",
		RunE: func(c *cobra.Command, _ []string) error {
			if http != "" || noStdio {
				return usage{errors.New("serving over HTTP (--http, --no-stdio) is not supported yet by this version; serve speaks MCP on stdio")}
			}
			if sample {
				return p.serveSample(c.Context())
			}
			cfg, err := p.load()
			if err != nil {
				return err
			}
			ledger, err := p.ledgerOf(cfg.File, cfg.Ledger)
			if err != nil {
				return err
			}
			return p.serve(c.Context(), service{cfg, commandsOf(cfg), ledger})
		},
	}
	c.Flags().BoolVar(&sample, "sample", false, "guard the built-in sample office instead of a configuration's servers")
	c.Flags().StringVar(&http, "http", "", "also serve HTTP on this `address` (not supported yet)")
	c.Flags().BoolVar(&noStdio, "no-stdio", false, "serve HTTP only (not supported yet)")
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
			dir, err := os.Getwd()
			if err != nil {
				return err
			}
			ledger := p.data
			if ledger == "" {
				readable := name
				if readable == "" {
					readable = filepath.Base(args[0])
				}
				if ledger, err = p.stateFolder(readable, append([]string{dir}, args...)...); err != nil {
					return err
				}
			}
			command := mcpguard.Command{Name: name, Command: args[0], Args: args[1:], Env: wrappedEnvironment(os.Environ(), pass)}
			return p.serve(c.Context(), service{config.Presumed(), []mcpguard.Command{command}, ledger})
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
	commands []mcpguard.Command
	ledger   string
}

func commandsOf(cfg *config.Config) []mcpguard.Command {
	var commands []mcpguard.Command
	for _, s := range cfg.Servers {
		if !s.Disabled {
			commands = append(commands, commandOf(s))
		}
	}
	return commands
}

// serve opens the ledger, the guard and the gateway, serves one client on stdio, and closes them in turn.
func (p *program) serve(ctx context.Context, s service) (err error) {
	log := p.log()
	for _, w := range contextWarnings(s.config) {
		log.Warn(w)
	}
	store, err := p.openLedger(ctx, s.ledger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	guard, err := toolguard.Open(ctx, store, &toolguard.Options{Observe: s.config.Observe, Log: log, Process: store.Process(), Alive: store.Alive})
	if err != nil {
		return err
	}
	gateway, err := mcpguard.OpenGateway(ctx, guard, s.commands, &mcpguard.GatewayOptions{
		Describe:        describe(s.config),
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
	if err = nothing(gateway, len(s.commands)); err == nil {
		err = misfits(ctx, s.config, gateway)
	}
	end := &ending{in: p.stdin}
	context.AfterFunc(ctx, end.mark)
	if err == nil {
		warnUnused(s.config, gateway, log)
		err = gateway.ServeStdio(ctx, end, p.stdout)
	}
	// An attempt whose caller has gone still needs its server: the servers end once it is recorded, or time is up.
	waitFor(guard, s.config.Shutdown-end.since())
	err = errors.Join(err, gateway.Close())
	waitFor(guard, time.Second)
	return err
}

// waitFor closes the guard, which takes at most limit.
func waitFor(guard *toolguard.Guard, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), max(limit, 100*time.Millisecond))
	defer cancel()
	_ = guard.Close(ctx) // what it did not wait for is found at the next start
}

// ending reads from the client and knows when that ended.
type ending struct {
	in io.Reader
	at atomic.Int64
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.in.Read(b)
	if err != nil {
		e.mark()
	}
	return n, err
}

func (e *ending) mark() { e.at.CompareAndSwap(0, time.Now().UnixNano()) }

// since is how long ago it ended; nothing if it has not.
func (e *ending) since() time.Duration {
	if at := e.at.Load(); at != 0 {
		return time.Since(time.Unix(0, at))
	}
	return 0
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

// nothing says why there is nothing to serve, if not one of the servers could be started. Where only some could not,
// the others are served, and those are started again.
func nothing(gateway *mcpguard.Gateway, servers int) error {
	var reasons []string
	for _, problem := range gateway.Problems() {
		if problem.Tool == "" {
			reasons = append(reasons, fmt.Sprintf("the server %s cannot be started: %s", problem.Server, short(problem.Err.Error(), 300)))
		}
	}
	if len(reasons) < servers {
		return nil
	}
	return errors.New(strings.Join(reasons, "; "))
}

// misfits are the policies that do not fit the tools found. Nothing is served then: a tool that is missing without
// anybody noticing is no better than one that is not guarded.
func misfits(ctx context.Context, cfg *config.Config, gateway *mcpguard.Gateway) error {
	var faults config.Faults
	for _, problem := range gateway.Problems() {
		if !errors.Is(problem.Err, registry.ErrPolicy) {
			continue
		}
		for _, u := range gateway.Upstreams() {
			if u.Name() != problem.Server {
				continue
			}
			list, err := u.Tools(ctx)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", problem.Server, problem.Tool, problem.Err)
			}
			for _, text := range list {
				if t, err := readTool(problem.Server, text); err == nil && t.Name == problem.Tool {
					faults = append(faults, cfg.Faults(t.Tool)...)
				}
			}
		}
		if len(faults) == 0 {
			return usage{fmt.Errorf("%s/%s: %w", problem.Server, problem.Tool, problem.Err)}
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// warnUnused logs the rules that fit no tool.
func warnUnused(cfg *config.Config, gateway *mcpguard.Gateway, log *slog.Logger) {
	var actions []string
	missing := map[string]bool{}
	for _, t := range gateway.Tools() {
		actions = append(actions, t.Action())
	}
	for _, problem := range gateway.Problems() {
		if problem.Tool == "" {
			missing[problem.Server] = true
		}
		actions = append(actions, problem.Server+"/"+problem.Tool)
	}
	for _, f := range cfg.Unused(actions, func(server string) bool { return missing[server] }) {
		log.Warn(f.Fault.String())
	}
}
