package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/layout"
)

// takeOptions say which lock is wanted and how: what lock and hold have in common.
type takeOptions struct {
	name     string
	mode     layout.Mode
	nonblock bool
	timeout  time.Duration // 0: none
	conflict int           // the exit code if it is not granted

	shared, exclusive bool // as on the command line; settle makes mode of them
	wait              waitFlag
}

func (o *takeOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "hold it alone (the default)")
	f.BoolVarP(&o.shared, "shared", "s", false, "hold it together with others that share it")
	f.BoolVarP(&o.nonblock, "nonblock", "n", false, "give up at once if it is not free")
	f.VarP(&o.wait, "timeout", "w", "give up after `TIME`: seconds, as 1.5, or 300ms, 5m, 1h30m")
	f.IntVarP(&o.conflict, "conflict-exit-code", "E", exitConflict, "exit with `N` after giving up")
}

// settle checks the flags once they are parsed.
func (o *takeOptions) settle(cmd *cobra.Command) error {
	if o.shared && o.exclusive {
		return misuse(cmd, "--shared and --exclusive exclude each other")
	}
	if o.shared {
		o.mode = layout.Shared
	}
	o.timeout = o.wait.limit
	if cmd.Flags().Changed("timeout") && o.timeout == 0 {
		o.nonblock = true // as with flock(1)
	}
	if o.conflict < 0 || o.conflict > 255 {
		return misuse(cmd, "--conflict-exit-code %d, want 0 to 255", o.conflict)
	}
	return nil
}

// misuse is the error of a command line that is wrong.
func misuse(cmd *cobra.Command, format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: "see " + cmd.CommandPath() + " --help"}
}
