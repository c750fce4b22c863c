package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func newCreate(a *app) *cobra.Command {
	permits, asJSON := 1, false
	cmd := &cobra.Command{
		Use:   "create [flags] NAME",
		Short: "Create a lock that several hosts may hold at once",
		Long: `Create the lock NAME, which up to --permits hosts may hold at once: a semaphore.
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
  77  permission denied: this user may not use a lock of that name`,
		Example: `  # At most two hosts reboot at once.
  bakeryctl create reboot --permits 2
  bakeryctl lock reboot -- /usr/local/bin/reboot-and-wait

  bakeryctl create reboot --permits 2 --json | jq .created`,
		Args: oneLock("create"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if permits < 1 || permits > layout.MaxHosts {
				return cli.Usage("create", "--permits %d, want 1 to the number of hosts of the lockspace", permits)
			}
			return a.create(cmd.Context(), args[0], permits, asJSON)
		},
	}
	cmd.Flags().IntVar(&permits, "permits", 1, "allow `N` hosts to hold it at once")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func (a *app) create(ctx context.Context, name string, permits int, asJSON bool) error {
	lock, created, err := client.New(a.socket).Create(ctx, name, permits)
	if err != nil {
		return call.Failure(err)
	}
	if asJSON {
		return render.WriteJSON(a.stdout, struct {
			client.LockInfo
			Created bool `json:"created"`
		}{lock, created})
	}
	what := "%s exists, %s\n"
	if created {
		what = "created %s, %s\n"
	}
	_, err = fmt.Fprintf(a.stdout, what, text.Printable(lock.Name), render.Count(lock.Permits, "permit"))
	return err
}

// oneLock accepts exactly one argument, the name of a lock.
func oneLock(command string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usage(command, "%s takes one NAME, not %d", command, len(args))
		}
		if err := layout.ValidateLockName(args[0]); err != nil {
			return cli.Usage(command, "%w", err)
		}
		return nil
	}
}
