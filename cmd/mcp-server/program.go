package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// program is what all commands share.
type program struct {
	env    func(string) (string, bool)
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	began  bool // flags and arguments were taken

	unnamed string // what a wrapped server is called before it has given its name

	config string // --config
	data   string // --data
	json   bool   // --json
}

// log writes to stderr: on stdio, stdout belongs to JSON-RPC.
func (p *program) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "server" && a.Value.String() == "" && p.unnamed != "" {
			a.Value = slog.StringValue(p.unnamed)
		}
		return a
	}}))
}

func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "mcp-server",
		Short: "Makes the repeated tool calls of AI agents safe",
		Long: "mcp-server stands between an AI agent and the MCP servers that write for it.\n" +
			"A repeated call has one effect, whatever times out, crashes, reconnects or plans again.",
		SilenceUsage: true, SilenceErrors: true, DisableSuggestions: true,
		PersistentPreRun: func(*cobra.Command, []string) { p.began = true },
		RunE: func(c *cobra.Command, _ []string) error {
			return usage{fmt.Errorf("which command? %s --help shows them", c.CommandPath())}
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Version = version()
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.SetHelpCommand(helpCommand())
	flags := root.PersistentFlags()
	flags.StringVar(&p.config, "config", "", "configuration `file` (else $TOOLGUARD_CONFIG, ./toolguard.yaml, the user's config folder)")
	flags.StringVar(&p.data, "data", "", "`folder` of the ledger (else the configuration's store, else one in the user's state folder)")
	flags.BoolVar(&p.json, "json", false, "print records as JSON")
	root.AddCommand(p.serveCommand(), p.wrapCommand(), p.initCommand(), p.checkCommand(), p.demoCommand(), p.opsCommand(), p.approvalsCommand(), p.tokenCommand(),
		p.exportCommand(), p.verifyCommand(), p.reportCommand(), p.versionCommand(), p.officeCommand())
	return root
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			if p.json {
				return p.printJSON(map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprint(p.stdout, versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("toolguard %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is that of the module the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// isTerminal reports whether a person sits at the other end of a stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// table prints aligned columns.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, printable(cell))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
