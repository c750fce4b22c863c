package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/complete"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
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
	patience          cli.Patience  // with bakeryd and devices
	ordinary          bool          // the user is not root, and may be refused
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

// completionTimeout is the timeout of bakeryd for a completion.
const completionTimeout = 300 * time.Millisecond

// bakeryd completes words of a command line with what bakeryd knows.
func (a *app) bakeryd() complete.Bakeryd {
	return complete.Bakeryd{Socket: &a.socket, Timeout: &a.completionTimeout}
}
