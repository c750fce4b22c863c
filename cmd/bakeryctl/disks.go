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

// diskList is the output of bakeryctl disks --json.
type diskList struct {
	Disks []report.Disk `json:"disks"` // by position; none if the lockspace is on one disk
}

func defineDisks(a *app, cmd *cobra.Command) {
	cmd.Long = `Show the member disks of a lockspace on several, and whether this host reaches them.

  up        is read and written
  checking  had an error, or is being opened; requests wait until it is known to be the right disk
  down      is missing, fails, or is not the right disk; it is tried again every second
  hangs     has not answered a request for 5 s; requests of a lock do not wait for it
  vacant    is being replaced, or that was interrupted: see bakeryctl disk replace

FOR is how long the disk has been in that state. READ and WRITE show two times each: half of the requests
took at most the first one, and 99 % of them at most the second one, since bakeryd opened the disk. FAILED
is the number of requests that failed. BEHIND is the number of records that this host wrote and that the
disk lacks: they are written when it answers. Other hosts may reach other disks.

Without --device bakeryd is asked, which answers from memory even if no disk does. While it is not joined, disks
prints the states at the end of its lease, and then the error: exit code 69. With --device the disks are read,
without bakeryd.`
	cmd.Example = `  bakeryctl disks
  bakeryctl disks --json | jq '.disks[] | select(.state != "up")'
  bakeryctl disks --device /dev/mapper/locks1 --device /dev/mapper/locks2`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := a.disks(cmd.Context())
		if status == nil {
			return err
		}
		seen := time.Now()
		if err != nil { // not joined: FOR ends with the lease
			seen = seen.Add(-show.SinceLost(status))
		}
		disks := diskList{append([]report.Disk{}, status.Disks...)}
		return cmp.Or(a.print(disks, func(w io.Writer) { show.DiskTable(w, status, seen, a.paint()) }), err)
	}
	a.colourFlag(cmd)
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// disks returns a report with the disks, which bakeryd knows without reading them. The report may be there with an
// error, as from show.Known.
func (a *app) disks(ctx context.Context) (*report.Report, error) {
	if len(a.devices) > 0 {
		return ondevice.Status(ctx, a.devices)
	}
	r, _, err := show.Known(ctx, a.socket)
	return r, call.OrDevice(err)
}
