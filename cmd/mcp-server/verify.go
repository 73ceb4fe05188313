package main

import (
	"errors"
	"fmt"
	"iter"
	"regexp"

	"github.com/spf13/cobra"

	"toolguard.dev/toolguard"
)

// verified is what verify found, as --json shows it.
type verified struct {
	toolguard.Verification
	Against *checkpoint `json:"against,omitempty"`
}

// checkpoint is an event known from elsewhere.
type checkpoint struct {
	Hash  string `json:"hash"`
	Found bool   `json:"found"` // it is in the chain still
	Chain string `json:"chain,omitempty"`
	Seq   uint64 `json:"seq,omitempty"`
}

var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (p *program) verifyCommand() *cobra.Command {
	var against string
	c := &cobra.Command{
		Use: "verify", Short: "Check that the audit is whole and unchanged", Args: noArguments,
		Long: "verify recomputes every link of the audit and names the first break: an event that was edited, removed, added or moved.\n" +
			"A cut tail shows only against a checkpoint kept elsewhere: give the hash of the last event of an earlier export with\n" +
			"--against, and that event must still be in the chain.",
		RunE: func(c *cobra.Command, _ []string) error {
			v := verified{}
			if c.Flags().Changed("against") {
				if !hashForm.MatchString(against) {
					return usage{fmt.Errorf("--against %s: it is the hash of an exported event, 64 digits from 0-9 and a-f", short(against, 80))}
				}
				v.Against = &checkpoint{Hash: against}
			}
			return p.withLedger(c.Context(), func(s toolguard.Store) (err error) {
				v.Verification, err = toolguard.Verify(v.Against.watch(toolguard.Events(c.Context(), s)))
				if err != nil {
					return err
				}
				return p.printVerified(v)
			})
		},
	}
	c.Flags().StringVar(&against, "against", "", "the `hash` of an event that must still be in the audit")
	return c
}

// watch looks out for the event among events that are read.
func (c *checkpoint) watch(events iter.Seq2[toolguard.Event, error]) iter.Seq2[toolguard.Event, error] {
	if c == nil {
		return events
	}
	return func(yield func(toolguard.Event, error) bool) {
		for e, err := range events {
			if !yield(e, err) {
				return
			}
			if err == nil && e.Hash == c.Hash { // and Verify took it
				c.Found, c.Chain, c.Seq = true, e.Chain, e.ChainSeq
			}
		}
	}
}

func (p *program) printVerified(v verified) error {
	var wrong error
	switch {
	case v.Break != "":
		wrong = fmt.Errorf("the audit is broken: %s", printable(v.Break))
	case v.Against != nil && !v.Against.Found:
		wrong = errors.New("the event given with --against is not in the audit: its tail was cut off, or this is another ledger")
	}
	if p.json {
		if err := p.printJSON(v); err != nil || wrong == nil {
			return err
		}
		return said{exitFailed}
	}
	if wrong != nil {
		return wrong
	}
	line := fmt.Sprintf("the audit is intact: %s in %s", counted(v.Events, "event"), counted(len(v.Chains), "chain"))
	if a := v.Against; a != nil {
		line += fmt.Sprintf("; the event given is in it, as number %d of %d in its chain", a.Seq, v.Chains[a.Chain])
	}
	_, err := fmt.Fprintln(p.stdout, line)
	return err
}
