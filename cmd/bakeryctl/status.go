package main

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/report"
)

func defineStatus(a *app, cmd *cobra.Command) {
	cmd.Long = `Show the hosts of the lockspace, the locks, their holders and waiters.

Without --device bakeryd is asked. If it cannot read the disk, status prints what bakeryd
has in memory, and then the error, which says how old that is: exit code 66. With --device
the device is read, without joining and without bakeryd; this does not show whether a host
is alive.

The state of this host is "live"; "leaving", while it stops; or "lost" if its lease is
over: it stops its commands, and joins again. The states of hosts, SEEN and WATCHDOG are
those of bakeryctl hosts. Elapsed times are rounded down, remaining ones up.

STATE of a lock is "held", or "1. waiting" and so on for the hosts in its queue.
"1. entering" is a host that draws its number, or has the lock for a moment. "1. on this
host" is a client that waits in the bakeryd of this host. "free" is a lock without any.
A lock is "stuck" if its queue cannot move: the first lines give the reason.

STATE is "held, weak" if bakeryd cannot stop all processes of a command of this host,
because it has no cgroup. The field containment of --json states the reason. STATE is
"held, orphan" if the bakeryctl of a lock has ended and its command, or processes that
the command left, keep the lock. PID is then the first of these processes, and otherwise
bakeryctl. STATE is "lingering" if no client has the lock, but this host keeps it for its
next client for a few milliseconds (bakeryd --linger). Other hosts see it as held or
entering then.`
	cmd.Example = `  bakeryctl status
  bakeryctl status --json | jq '.locks[] | select(.holders != [])'
  bakeryctl status --device /dev/mapper/locks`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := a.status(cmd.Context())
		if status == nil {
			return err
		}
		return cmp.Or(a.print(status, func(w io.Writer) { show.Show(w, status, time.Now(), a.paint()) }), err)
	}
	a.colourFlag(cmd)
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// status reads the device, or asks bakeryd. The report may be there with an error, as from show.Ask.
func (a *app) status(ctx context.Context) (*report.Report, error) {
	if len(a.devices) > 0 {
		return ondevice.Status(ctx, a.devices)
	}
	status, err := show.AskOrKnown(ctx, a.socket)
	return status, call.OrDevice(err)
}
