// Command bakeryctl runs commands under locks on a shared disk, and formats and inspects the disk.
// Package main knows flags: the help, the calls and the exit codes of each command, in a file of its
// own. root.go has the list of the commands, and app.go what all share. The packages below internal do
// the work and know no flags. From the bottom:
//
//	term, cli, render         terminals; exit codes, errors and flag values; output formats
//	signals                   inherited dispositions, received signals
//	call, ondevice            requests to bakeryd; use of a device without bakeryd
//	show                      words and tables for hosts, locks and events
//	supervise, hold           work under a lock: a command, or systemd units
//	acquire, join             acquire the lock for that: from bakeryd, as a host on a device
//	lock                      the command lock, without its help
//	probe, bench, check, stress, top
//	                          the commands of these names
//	usage, complete           wrong words of a command line; completion of words by a shell
//
// Each package imports only packages above it in this list.
//
// This program is complete. cmd/build and the packages install it as bakeryctl-full, next to
// bakeryctl-lock as bakeryctl: that runs the command lock and starts in half the time.
package main

import (
	"context"
	"os"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

// patience is that of all commands. Tests, which check standard error on slow machines, set another one.
var patience = cli.DefaultPatience()

func main() {
	switch os.Args[0] {
	case supervise.AsStub:
		os.Exit(supervise.RunStub(os.Args[1:]))
	case supervise.AsGuardian:
		os.Exit(supervise.RunGuardian(os.Args[1:]))
	}
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, completionTimeout: completionTimeout, patience: patience, ordinary: os.Geteuid() != 0}
	os.Exit(run(context.Background(), os.Args[1:], a))
}
