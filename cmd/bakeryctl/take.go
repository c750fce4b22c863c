package main

import (
	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/layout"
)

// takeOptions say which lock is wanted and how: what lock and hold have in common.
type takeOptions struct {
	acquire.Request
	shared, exclusive bool // as on the command line; settle makes mode of them
	wait              cli.WaitFlag
}

func (o *takeOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "hold it alone (the default)")
	f.BoolVarP(&o.shared, "shared", "s", false, "hold it together with others that share it")
	f.BoolVarP(&o.NonBlock, "nonblock", "n", false, "give up at once if it is not free")
	f.VarP(&o.wait, "timeout", "w", "give up after `TIME`: seconds, as 1.5, or 300ms, 5m, 1h30m")
	f.IntVarP(&o.Conflict, "conflict-exit-code", "E", cli.ExitConflict, "exit with `N` after giving up")
}

// settle checks the flags once they are parsed.
func (o *takeOptions) settle(cmd *cobra.Command) error {
	if o.shared && o.exclusive {
		return cli.Usage(cmd.Name(), "--shared and --exclusive exclude each other")
	}
	if o.shared {
		o.Mode = layout.Shared
	}
	o.Timeout = o.wait.Limit
	if cmd.Flags().Changed("timeout") && o.Timeout == 0 {
		o.NonBlock = true // as with flock(1)
	}
	if o.Conflict < 0 || o.Conflict > 255 {
		return cli.Usage(cmd.Name(), "--conflict-exit-code %d, want 0 to 255", o.Conflict)
	}
	return nil
}
