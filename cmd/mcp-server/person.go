package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"

	"github.com/spf13/cobra"

	"toolguard.dev/cmd/mcp-server/config"
	"toolguard.dev/people"
	"toolguard.dev/toolguard"
)

// tokenVariable is where the command line finds the token of whoever uses it.
const tokenVariable = "TOOLGUARD_TOKEN"

// membersOf are a configuration's reviewers.
func membersOf(reviewers []config.Reviewer) []people.Member {
	var members []people.Member
	for _, r := range reviewers {
		m := people.Member{Name: r.Name, Token: r.Token, Tenants: r.Tenants}
		for _, role := range r.Roles {
			m.Roles = append(m.Roles, people.Role(role))
		}
		members = append(members, m)
	}
	return members
}

// book is who may decide on a ledger: the reviewers of the configuration, where there is one, else those that the ledger
// was last served with.
func (p *program) book(ctx context.Context, store toolguard.Store) (*people.Book, error) {
	path, err := p.findConfig()
	if err == nil {
		reviewers, err := config.ReviewersOf(path, p.env)
		if err != nil {
			return nil, usage{err}
		}
		if len(reviewers) > 0 {
			return people.NewBook(membersOf(reviewers), whoami())
		}
	} else if _, none := errors.AsType[noConfig](err); !none {
		return nil, err
	}
	members, err := people.Remembered(ctx, store)
	if err != nil {
		return nil, err
	}
	return people.NewBook(members, whoami())
}

// desk is the ledger for whoever decides: by their token where there are reviewers, else as the local user.
func (p *program) desk(ctx context.Context, store toolguard.Store) (*people.Desk, error) {
	book, err := p.book(ctx, store)
	if err != nil {
		return nil, err
	}
	token, _ := p.env(tokenVariable)
	account, err := book.Identify(token)
	switch {
	case err != nil && token == "":
		return nil, fmt.Errorf("reviewers are configured: put your token into $%s (mcp-server token new makes one)", tokenVariable)
	case err != nil:
		return nil, fmt.Errorf("the token in $%s is no reviewer's", tokenVariable)
	}
	return &people.Desk{Store: store, Account: account}, nil
}

// whoami names the local user in the record.
func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "local:" + u.Username
	}
	return "local"
}

func (p *program) tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "token", Short: "Tokens of the people who decide",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %s", args[0], c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return usage{fmt.Errorf("which one? %s new NAME --role viewer|reviewer|operator makes a token", c.CommandPath())}
		},
	}
	c.AddCommand(p.tokenNewCommand())
	return c
}

func (p *program) tokenNewCommand() *cobra.Command {
	var role string
	var tenants []string
	c := &cobra.Command{
		Use: "new NAME --role viewer|reviewer|operator", Short: "Make a token for a person, and the lines that let them in",
		Long: "new prints a token, which is shown this once and kept nowhere, and the lines for the configuration, which hold only its\n" +
			"SHA-256. It changes no file. A viewer looks; a reviewer also decides approvals; an operator also resolves operations and has\n" +
			"them repeated. Give the token to its person alone, in a place that the agent's account cannot read.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes the NAME of one person", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if role == "" {
				return usage{errors.New("--role is missing: viewer, reviewer or operator")}
			}
			if !slices.Contains(people.Roles, people.Role(role)) {
				return usage{fmt.Errorf("--role %s: there is viewer, reviewer and operator", short(role, 40))}
			}
			token, sum := people.NewToken()
			lines, err := config.ReviewerLines(config.Reviewer{Name: args[0], Token: sum, Roles: []string{role}, Tenants: tenants})
			if err != nil {
				return usage{err}
			}
			if p.json {
				return p.printJSON(map[string]any{"name": args[0], "token": token, "token_sha256": sum, "roles": []string{role}, "tenants": tenants})
			}
			_, err = fmt.Fprintf(p.stdout, "%s\n\nThis is the token of %s, shown this once. On the command line it goes into $%s; the console asks for it.\n"+
				"Paste into the configuration, below its reviewers if there are some already, then start the server anew:\n\n%s", token, printable(args[0]), tokenVariable, lines)
			return err
		},
	}
	c.Flags().StringVar(&role, "role", "", "viewer, reviewer or operator")
	c.Flags().StringArrayVar(&tenants, "tenant", nil, "only this `tenant`'s operations exist for them (may be given several times)")
	return c
}
