package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolguard.dev/cmd/mcp-server/config"
)

func (p *program) initCommand() *cobra.Command {
	var from, out string
	c := &cobra.Command{
		Use: "init", Short: "Draft a configuration from an MCP client's servers", Args: noArguments,
		Long: "init reads a client's file with MCP servers (Claude Desktop, Claude Code's .mcp.json, Cursor, Windsurf, VS Code), starts or\n" +
			"connects to every server to ask for its tools, writes a commented configuration with a policy for each tool that writes, and prints the\n" +
			"client's entry that replaces the unguarded ones. Values under env and headers are copied as they are; put\n" +
			"${NAME} in their place to keep secrets out of the file. An existing file is never overwritten.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := refuse(c, "init; --out names the file to write, --from the client's", "config", "data"); err != nil {
				return err
			}
			return p.init(c.Context(), from, out)
		},
	}
	c.Flags().StringVar(&from, "from", "", "the client's `file` (else the one that is found)")
	c.Flags().StringVar(&out, "out", configName, "the `file` to write")
	return c
}

func (p *program) init(ctx context.Context, from, out string) error {
	if _, err := os.Lstat(out); err == nil {
		return fmt.Errorf("%s exists already, and is left as it is; name another file with --out", out)
	}
	client, err := p.clientFile(from)
	if err != nil {
		return err
	}
	d := &drafted{failed: map[string]string{}}
	var servers []config.Server
	for _, e := range client.entries {
		switch s, why := startable(e, p.env); {
		case e.ours():
			fmt.Fprintf(p.stderr, "%s: starts toolguard already; left out\n", printable(e.name))
		case e.older():
			d.older = append(d.older, e)
			fmt.Fprintf(p.stderr, "%s: is reached over HTTP+SSE, the older transport, which is not guarded; it stays in the client, unguarded\n", printable(e.name))
		default:
			d.entries = append(d.entries, e)
			if why != "" {
				d.failed[e.name] = why
				break
			}
			servers = append(servers, s)
		}
	}
	if len(d.entries) == 0 {
		return fmt.Errorf("%s: no server that can be guarded", client.path)
	}
	for _, o := range ask(ctx, servers) {
		if o.err != nil {
			d.failed[o.server] = o.err.Error()
			continue
		}
		d.offers = append(d.offers, o)
	}
	for _, e := range d.entries {
		if why, ok := d.failed[e.name]; ok {
			fmt.Fprintf(p.stderr, "%s: could not be asked for its tools: %s\n", printable(e.name), short(why, 300))
		}
	}
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted; nothing was written")
	}
	if len(d.offers) == 0 {
		return fmt.Errorf("%s: nothing was written, because not one server could be asked for its tools (the lines above say why)", client.path)
	}
	if err := writeNew(out, d.text()); err != nil {
		return err
	}
	schema := filepath.Join(filepath.Dir(out), config.SchemaFile)
	if err := writeNew(schema, string(config.Schema)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return p.tellClient(client, d, out)
}

func (p *program) clientFile(from string) (*clientFile, error) {
	if from == "" {
		return findClientFile(clientPlaces())
	}
	f, err := readClientFile(from)
	if err != nil {
		return nil, usage{err}
	}
	return f, nil
}

// startable reads an entry as the configuration would; why it cannot be started, if so.
func startable(e clientEntry, env func(string) (string, bool)) (config.Server, string) {
	c, err := config.Parse("", []byte(serversText([]clientEntry{e})), env)
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return config.Server{}, faults[0].Path + ": " + faults[0].What
	}
	return c.Servers[0], ""
}

// writeNew writes a file that must not be there yet. It may hold secrets.
func writeNew(path, text string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}

// newEntry is a server in a client's file.
type newEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// tellClient prints the entry that replaces the unguarded ones.
func (p *program) tellClient(client *clientFile, d *drafted, out string) error {
	self, err := selfCommand()
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	args := append(self[1:], "serve", "--config", abs)
	entry := newEntry{Command: self[0], Args: args}
	if client.member == "servers" {
		entry.Type = "stdio"
	}
	servers := map[string]any{"toolguard": entry}
	for _, e := range d.older {
		servers[e.name] = e.members
	}
	replacement := map[string]any{client.member: servers}
	if p.json {
		return p.printJSON(map[string]any{"config": abs, "client": replacement, "failed": d.failed})
	}
	text, err := indented(replacement)
	if err != nil {
		return err
	}
	w := p.stdout
	fmt.Fprintf(w, "%s: %s, %s drafted. Read it, then: mcp-server check --config %s\n", out, counted(len(d.entries), "server"), counted(d.writes, "policy"), shellLine([]string{out}))
	fmt.Fprintf(w, "Values under env and headers were copied as they are, and only you can read the file; ${NAME} keeps a secret out of it.\n")
	fmt.Fprintf(w, "\nThen put this in the place of %q in %s, so that nothing goes round the guard:\n\n%s\n", client.member, client.path, text)
	return nil
}

func indented(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.String(), err
}
