package main

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"toolguard.dev/cmd/mcp-server/config"
)

//go:embed sample.yaml
var sampleConfig []byte

// officeFile is the name of the sample office's file in the folder of the ledger.
const officeFile = "office.json"

// serveSample guards the sample office, which runs as a child process like any other MCP server.
func (p *program) serveSample(ctx context.Context, at endpoint) error {
	ledger := p.data
	if ledger == "" {
		var err error
		if ledger, err = p.stateFolder("sample-office", "sample-office"); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	env := map[string]string{"OFFICE_PROGRAM": self, "OFFICE_FILE": filepath.Join(ledger, officeFile), "OFFICE_FAULT": os.Getenv("OFFICE_FAULT")}
	cfg, err := config.Parse("sample.yaml", sampleConfig, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		return err
	}
	return p.serve(ctx, service{cfg, serversOf(cfg), ledger, at})
}

func (p *program) officeCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "sample-office", Short: "The sample office: an MCP server with tickets, invoices and mail", Args: noArguments, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := openOffice(file, os.Getenv("OFFICE_FAULT"))
			if err != nil {
				return err
			}
			return o.serve(c.Context(), p.stdin, p.stdout)
		},
	}
	c.Flags().StringVar(&file, "file", officeFile, "the office's books")
	return c
}
