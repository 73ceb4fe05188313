package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// usage is an error in how the program was called or configured.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but was given %s", c.Name(), shellLine(args))
	}
	return nil
}

// oneKey takes the key of an operation.
func oneKey(c *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("KEY is missing: ops list shows the keys")
	case 1:
		return nil
	}
	return fmt.Errorf("%s takes one KEY, but was given %s", c.Name(), shellLine(args))
}

// refuse refuses flags that would not be heeded; with says what does not, and what there is instead.
func refuse(c *cobra.Command, with string, flags ...string) error {
	for _, name := range flags {
		if c.Flags().Changed(name) {
			return usage{fmt.Errorf("--%s has no use with %s", name, with)}
		}
	}
	return nil
}

// flagError says in words what a flag's value must be.
func flagError(err error) error {
	cause, ok := errors.AsType[*strconv.NumError](err)
	if !ok {
		return err
	}
	want := "it must be a whole number"
	switch {
	case cause.Func == "ParseBool":
		want = "it must be true or false"
	case errors.Is(cause, strconv.ErrRange):
		want = "the number is too large"
	}
	return errors.New(strings.TrimSuffix(err.Error(), cause.Error()) + want)
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage{fmt.Errorf("there is no command %q; %s --help shows what there is", strings.Join(args, " "), c.Root().Name())}
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
