package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/check"
)

func defineCheck(a *app, cmd *cobra.Command) {
	var repair bool
	cmd.Long = `Verify every record of a lockspace, and their consistency. check writes nothing, and
the lockspace may be in use: suspicious records are read again before they are
reported. If a dead host could have left such a record, check watches for almost half
a lease whether that host is running.

Without DEVICE, check verifies the lockspace that bakeryd on this host serves.
Give all disks of a lockspace on several. check verifies what most of them have, and
then each disk: damaged, older and contradicting copies of records, missing disks, and
entries that are on too few disks to count.

Each finding says what to do about it. --repair does so for these records:
  - the superblock or its copy: it is rewritten from the other one on the same disk.
  - the record of a host, if no bakeryd rewrites it: bakeryctl waits until that host
    cannot be running, joins with its id and leaves; the record then says left. With
    the policies fence and manual, --repair confirms that the host is off.
  - an entry of the directory: a bakeryd that has used the lock is asked to restore
    it. If a host died while writing the entry, that write is completed. Otherwise,
    if no other host is running, the entry is freed and the name of the lock is lost.

For entries bakeryctl joins the lockspace as a host. Only the host that owns a slot
writes it.

Exit codes:
  0   no errors, or all were repaired; there may be warnings and notes
  1   errors were found
  64  the command line is wrong
  66  the device or its lockspace is not usable, or most of its disks are missing
  69  bakeryd is unreachable, and no DEVICE is given`
	cmd.Example = `  bakeryctl check
  bakeryctl check /dev/mapper/locks
  bakeryctl check /dev/mapper/locks --repair
  bakeryctl check /dev/mapper/locks1 /dev/mapper/locks2 /dev/mapper/locks3
  bakeryctl check /dev/mapper/locks --json | jq '.findings[]'`
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		if len(args) == 0 {
			if args, err = check.Devices(ctx, a.socket); err != nil {
				return err
			}
		}
		r, err := check.Run(ctx, args, repair, a.stderr)
		if err != nil {
			return err
		}
		return a.judge(r.Errors == 0, r, func(w io.Writer) { r.Show(w, a.paint()) })
	}
	a.colourFlag(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&repair, "repair", false, "repair damaged records")
}
