package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/complete"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/client"
)

// modeResult is the output of bakeryctl mode --json.
type modeResult struct {
	Mode client.Mode `json:"mode"`
}

func defineMode(a *app, cmd *cobra.Command) {
	cmd.Long = `Change the mode of the lock that this command runs under: shared with other holders, or exclusive.

mode is for the command of bakeryctl lock. It finds the lock by BAKERY_SESSION, BAKERY_TOKEN and BAKERY_SOCKET. The
token stays the same.

shared lets in other clients that want to share the lock, except those that requested it after an exclusive waiter.
exclusive is granted or refused immediately. It is refused if another host holds the lock or waits for it, or another
client of this host holds it. It never waits: two shared holders that both wait to hold the lock exclusively would wait
forever. If it is refused, the lock stays shared. The command can try again, or release the lock and acquire it
exclusively. A lock with several permits cannot change its mode.

Exit codes:
  0    the lock is held in that mode
  1    other clients hold it, too, or wait for it
  64   the command line is wrong, or this does not run under a lock of bakeryd
  69   bakeryd is unreachable
  75   the lock is not held any more
  77   permission denied: the lock is held by another user`
	cmd.Example = `  # Look for work among other readers, and do it alone.
  bakeryctl lock -s queue -- \
    sh -c 'grep -q todo jobs && bakeryctl mode exclusive && ./run jobs'

  # Prepare alone, then let the readers in.
  bakeryctl lock catalogue -- \
    sh -c './build && bakeryctl mode shared && ./verify'`
	cmd.ValidArgsFunction = complete.First("shared", "exclusive")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var mode client.Mode
		if err := mode.UnmarshalText([]byte(args[0])); err != nil {
			return cli.Usage("mode", "mode %q: want shared or exclusive", args[0])
		}
		err := a.inside(cmd.Context(), func(ctx context.Context, hold *client.Access) error { return hold.SetMode(ctx, mode) })
		if err != nil || !a.json {
			return err
		}
		return render.WriteJSON(a.stdout, modeResult{mode})
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print the mode as JSON")
}
