package lock

import (
	"github.com/spf13/pflag"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// Take is the part of the options that lock and hold have in common.
type Take struct {
	acquire.Request
	shared, exclusive bool // from the command line; Resolve sets Mode from them
}

// AddFlags adds the flags to those of a command.
func (o *Take) AddFlags(f *pflag.FlagSet) {
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "hold it alone (the default)")
	f.BoolVarP(&o.shared, "shared", "s", false, "share it with other holders")
	f.BoolVarP(&o.NonBlock, "nonblock", "n", false, "give up immediately if it is not free")
	f.VarP((*cli.Wait)(&o.Timeout), "timeout", "w", "give up after `TIME`: seconds, such as 1.5, or 300ms, 5m, 1h30m")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "do not print that it waits or gave up, and what for")
	o.Conflict = cli.ExitConflict
	flags.Int(f, &o.Conflict, "conflict-exit-code", "E", 0, 255, "exit with `N` after giving up")
}

// Resolve validates the parsed flags and completes the request.
func (o *Take) Resolve(command string, f *pflag.FlagSet) error {
	if o.shared && o.exclusive {
		return cli.Usage(command, "--shared and --exclusive exclude each other")
	}
	if o.shared {
		o.Mode = client.Shared
	}
	if f.Changed("timeout") && o.Timeout == 0 {
		o.NonBlock = true // as with flock(1)
	}
	return nil
}
