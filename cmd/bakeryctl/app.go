package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// app is the environment of all commands.
type app struct {
	stdin             io.Reader
	stdout, stderr    io.Writer
	socket            string        // of bakeryd
	colour            render.Colour // of text output
	json              bool          // print JSON instead of text
	devices           []string      // disks of the lockspace to read instead of asking bakeryd; none: ask bakeryd
	completionTimeout time.Duration // of bakeryd, for shell completion
}

// colourFlag adds the flag --color to a command.
func (a *app) colourFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.colour, "color", "use colours: `auto|always|never`; auto: on a terminal, unless NO_COLOR is set")
}

// paint returns the colours for standard output.
func (a *app) paint() render.Paint { return render.Paint(a.colour.On(a.stdout, os.Getenv)) }

// print writes v to standard output as JSON with --json, or otherwise the table that text writes.
func (a *app) print(v any, text func(w io.Writer)) error {
	if a.json {
		return render.WriteJSON(a.stdout, v)
	}
	return render.WriteTable(a.stdout, text)
}

// judge prints v, and returns a failure without a message unless ok is true: the output says why.
func (a *app) judge(ok bool, v any, text func(w io.Writer)) error {
	if err := a.print(v, text); err != nil || ok {
		return err
	}
	return &cli.Failure{Code: cli.ExitConflict}
}

// interruptible returns a context that SIGINT or SIGTERM ends.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// commandPath returns the words that select a command, without bakeryctl.
func commandPath(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), "bakeryctl ")
}

// none accepts no argument.
func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		command := commandPath(cmd)
		return cli.Usage(command, "%s takes no argument, not %q", command, args[0])
	}
	return nil
}

// oneAtMost accepts one argument or none.
func oneAtMost(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			command := commandPath(cmd)
			return cli.Usage(command, "%s takes one %s at most, not %d", command, what, len(args))
		}
		return nil
	}
}

// some accepts one argument or more.
func some(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			command := commandPath(cmd)
			return cli.Usage(command, "no %s given", what)
		}
		return nil
	}
}

// one accepts exactly one argument that check, unless nil, accepts.
func one(what string, check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		command := commandPath(cmd)
		if len(args) != 1 {
			return cli.Usage(command, "%s takes one %s, not %d", command, what, len(args))
		}
		if check != nil {
			if err := check(args[0]); err != nil {
				return cli.Usage(command, "%w", err)
			}
		}
		return nil
	}
}

// completionTimeout is the timeout of bakeryd for a completion.
const completionTimeout = 300 * time.Millisecond

// completeLock completes the first argument with the names of existing locks. It reports no error if
// bakeryd does not answer. The shell completes the command of bakeryctl lock.
func (a *app) completeLock(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		if cmd.Name() == "lock" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.completionTimeout)
	defer cancel()
	locks, _ := client.New(a.socket).Locks(ctx)
	var names []cobra.Completion
	for _, l := range locks {
		if strings.HasPrefix(l.Name, begun) && !strings.ContainsRune(l.Name, '\t') { // a tab starts a description
			names = append(names, l.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
