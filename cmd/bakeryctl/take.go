package main

import (
	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/layout"
)

// takeOptions are the options that lock and hold have in common.
type takeOptions struct {
	acquire.Request
	shared, exclusive bool // from the command line; resolve sets Mode from them
}

func (o *takeOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "hold it alone (the default)")
	f.BoolVarP(&o.shared, "shared", "s", false, "share it with other holders")
	f.BoolVarP(&o.NonBlock, "nonblock", "n", false, "give up immediately if it is not free")
	f.VarP((*cli.Wait)(&o.Timeout), "timeout", "w", "give up after `TIME`: seconds, such as 1.5, or 300ms, 5m, 1h30m")
	f.IntVarP(&o.Conflict, "conflict-exit-code", "E", cli.ExitConflict, "exit with `N` after giving up")
}

// resolve validates the parsed flags and completes the request.
func (o *takeOptions) resolve(cmd *cobra.Command) error {
	if o.shared && o.exclusive {
		return cli.Usage(cmd.Name(), "--shared and --exclusive exclude each other")
	}
	if o.shared {
		o.Mode = layout.Shared
	}
	if cmd.Flags().Changed("timeout") && o.Timeout == 0 {
		o.NonBlock = true // as with flock(1)
	}
	if o.Conflict < 0 || o.Conflict > 255 {
		return cli.Usage(cmd.Name(), "--conflict-exit-code %d, want 0 to 255", o.Conflict)
	}
	return nil
}
