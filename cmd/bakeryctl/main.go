// Command bakeryctl runs commands under locks on a shared disk, and formats and inspects the disk.
// Package main knows flags: each command has a file of its own name, with its help, its calls
// and its exit codes; root.go has the list. The packages below internal do the work and
// know no flags. From the bottom:
//
//	term, cli, render   terminals; exit codes, errors and flag values; output formats
//	signals             inherited dispositions, received signals
//	call, ondevice      requests to bakeryd; use of a device without bakeryd
//	show                words and tables for hosts, locks and events
//	supervise, hold     work under a lock: a command, or systemd units
//	acquire             acquires the lock for that
//	probe, bench, top   the commands of these names
//
// Each package imports only packages above it in this list.
package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

// app is the environment of all commands.
type app struct {
	stdin             io.Reader
	stdout, stderr    io.Writer
	socket            string        // of bakeryd
	colour            render.Colour // of text output
	completionTimeout time.Duration // of bakeryd, for shell completion
}

func main() {
	switch os.Args[0] {
	case supervise.AsStub:
		os.Exit(supervise.RunStub(os.Args[1:]))
	case supervise.AsGuardian:
		os.Exit(supervise.RunGuardian(os.Args[1:]))
	}
	os.Exit(run(context.Background(), os.Args[1:], &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, completionTimeout: completionTimeout}))
}

// colourFlag adds the flag --color to a command.
func (a *app) colourFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.colour, "color", "use colours: `auto|always|never`; auto: on a terminal, unless NO_COLOR is set")
}

// paint returns the colours for standard output.
func (a *app) paint() render.Paint { return render.Paint(a.colour.On(a.stdout, os.Getenv)) }
