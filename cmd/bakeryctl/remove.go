package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/acquire"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// removeResult is the output of bakeryctl rm --json.
type removeResult struct {
	Name string `json:"name"` // of the lock
}

func defineRemove(a *app, cmd *cobra.Command) {
	o := acquire.Request{Conflict: cli.ExitConflict}
	cmd.Long = `Remove the lock NAME with its permits and its value, so that its place in the lock
directory becomes free.

The lock is removed when it has no holder: bakeryctl rm waits in the queue as
bakeryctl lock does, unless -n or -w is given. After 1 s it prints what the lock waits
for. Removal does not forbid the name: a client that waits for the lock, or requests it
later, creates it again, with one permit. Tokens continue to increase.

If this host dies during the removal, the next host that uses the lock completes
the removal and creates the lock again.

Exit codes:
  0   the lock is removed
  1   there is no such lock, or it was not free immediately (-n) or in time (-w)
  64  the command line is wrong
  66  the device or its lockspace is not usable
  69  bakeryd is unreachable, or refuses
  77  permission denied: only for root and the user of bakeryd`
	cmd.Example = `  bakeryctl rm old-batch
  bakeryctl rm -n old-batch
  bakeryctl rm -w 30s reboot && bakeryctl create reboot --permits 3`
	cmd.ValidArgsFunction = a.bakeryd().Lock

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("timeout") && o.Timeout == 0 {
			o.NonBlock = true // as with lock
		}
		o.Name, o.Socket, o.Stderr = args[0], a.socket, a.stderr
		if err := o.Remove(cmd.Context()); err != nil {
			return err
		}
		return a.print(removeResult{args[0]}, func(w io.Writer) { fmt.Fprintf(w, "removed %s\n", text.Printable(args[0])) })
	}
	cmd.Flags().BoolVarP(&o.NonBlock, "nonblock", "n", false, "give up immediately if it is not free")
	cmd.Flags().VarP((*cli.Wait)(&o.Timeout), "timeout", "w", "give up after `TIME`: seconds, such as 1.5, or 300ms, 5m, 1h30m")
	cmd.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "do not print that it waits or gave up, and what for")
	cmd.Flags().BoolVar(&a.json, "json", false, "print the result as JSON")
}
