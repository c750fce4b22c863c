// Command bakeryctl runs commands under locks on a shared disk, and formats and looks at the disk.
// Package main knows flags: each command has a file of its own name, with its help, what it calls,
// and its exit codes; root.go has the list. What the commands do is in the packages below internal,
// which know no flags. From the bottom:
//
//	term, cli, render   terminals; exit codes, errors and values of flags; what is printed, and how
//	signals             the signals that a command inherits, and those that it is sent
//	call, ondevice      asks bakeryd; uses a device without it
//	report              words and tables for hosts, locks and events
//	supervise, hold     what is done under a lock: a command, or systemd units
//	acquire             takes the lock for that
//	probe, bench, top   the commands of these names
//
// Each imports only those before it (imports_test.go).
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

// app is what the commands share: where they read and write, and how.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	socket         string        // of bakeryd
	colour         render.Colour // of what people read
	patience       time.Duration // of who completes a word
}

func main() {
	switch os.Args[0] {
	case supervise.AsStub:
		os.Exit(supervise.RunStub(os.Args[1:]))
	case supervise.AsGuardian:
		os.Exit(supervise.RunGuardian(os.Args[1:]))
	}
	os.Exit(run(context.Background(), os.Args[1:], &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, patience: completionPatience}))
}

// colourFlag gives a command the flag --color.
func (a *app) colourFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&a.colour, "color", "colour it `auto|always|never`; auto: on a terminal, unless NO_COLOR is set")
}

// paint returns how to colour what is printed on standard output.
func (a *app) paint() render.Paint { return render.Paint(a.colour.On(a.stdout, os.Getenv)) }
