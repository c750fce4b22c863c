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
	completionTimeout time.Duration // of bakeryd, for shell completion
}

// envSocket returns the default of the flag --socket.
func envSocket() string { return cli.EnvOr("BAKERY_SOCKET", client.DefaultSocket) }

// colourFlag adds the flag --color to a command.
func (a *app) colourFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.colour, "color", "use colours: `auto|always|never`; auto: on a terminal, unless NO_COLOR is set")
}

// paint returns the colours for standard output.
func (a *app) paint() render.Paint { return render.Paint(a.colour.On(a.stdout, os.Getenv)) }

// print writes v to standard output as JSON, or otherwise by calling text.
func (a *app) print(asJSON bool, v any, text func(w io.Writer) error) error {
	if asJSON {
		return render.WriteJSON(a.stdout, v)
	}
	return text(a.stdout)
}

// interruptible returns a context that SIGINT or SIGTERM ends.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// one accepts exactly one argument that check, unless nil, accepts.
func one(what string, check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		command := strings.TrimPrefix(cmd.CommandPath(), "bakeryctl ")
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
