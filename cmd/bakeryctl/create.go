package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/internal/flags"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// createResult is the output of bakeryctl create --json.
type createResult struct {
	client.LockInfo
	Created bool `json:"created"` // false if it existed already
}

func defineCreate(a *app, cmd *cobra.Command) {
	permits := 1
	cmd.Long = `Create the lock NAME, which up to --permits hosts may hold at once: a semaphore.
A lock with one permit need not be created: it is created on first use.

If a lock of that name has the same permits, nothing changes. To give a lock
other permits, remove it (bakeryctl rm) and create it again.

A permit belongs to a host: its own commands hold the lock one after the other.
Shared holders (bakeryctl lock --shared) exclude all others, whatever the permits.

Exit codes:
  0   the lock exists
  64  the command line is wrong: the name, or the number of permits
  66  the device is not usable, or the lock directory is full
  69  bakeryd is unreachable, or refuses: the lock has other permits
  77  permission denied: this user may not use a lock of that name`
	cmd.Example = `  # At most two hosts reboot at once.
  bakeryctl create reboot --permits 2
  bakeryctl lock reboot -- /usr/local/bin/reboot-and-wait

  bakeryctl create reboot --permits 2 --json | jq .created`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var lock client.LockInfo
		var created bool
		err := call.Wait(cmd.Context(), a.socket, func(ctx context.Context) (err error) {
			lock, created, err = client.New(a.socket).Create(ctx, args[0], permits)
			return err
		})
		if err != nil {
			return call.Failure(err)
		}
		result := createResult{lock, created}
		return a.print(result, func(w io.Writer) {
			what := "%s exists, %s\n"
			if created {
				what = "created %s, %s\n"
			}
			fmt.Fprintf(w, what, text.Printable(lock.Name), render.Count(lock.Permits, "permit"))
		})
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print the result as JSON")
	flags.Int(cmd.Flags(), &permits, "permits", "", 1, layout.MaxHosts, "allow `N` hosts to hold it at once")
}
