package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/replace"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/usage"
)

func defineDisk(a *app, cmd *cobra.Command) {
	cmd.Long = `Change the member disks of a lockspace on several. bakeryctl disks shows them.`
	cmd.Example = `  bakeryctl disk replace 3 /dev/mapper/locks4`
	usage.Group(cmd)
	cmd.AddCommand(command{"replace OLD NEW", "Replace a member disk while hosts use the lockspace", usage.Two("OLD", "NEW"), defineDiskReplace}.create(a))
}

func defineDiskReplace(a *app, cmd *cobra.Command) {
	var force bool
	cmd.Long = `Replace the member disk OLD by the disk NEW, while hosts use the lockspace. Commands that
hold locks continue. OLD is a position, as bakeryctl disks shows it, a uuid or a path,
and may be lost. NEW is the path of an empty block device or file.

Before, add the path of NEW to BAKERYD_DEVICE on every host, next to that of OLD, and
restart bakeryd. A host without it continues with one disk less.

bakeryctl joins the lockspace as a host, so the lockspace must have a free host id. Until
the command ends, OLD counts no more and NEW not yet: with 3 disks both others must work.
No lock is created or removed meanwhile. If the command is interrupted the lockspace
continues without the disk. Run the command again, on any host: it completes the
replacement. NEW may also be the disk at OLD's position: with --force it is filled again.

Without --device bakeryd is asked for the other disks. OLD is not written.

Exit codes:
  0      the disk was replaced
  64     the command line is wrong, or OLD is no member
  66     a disk cannot be used, or the replacement is not complete
  69     bakeryd is unreachable
  128+N  signal N ended it: the message says whether something was changed`
	cmd.Example = `  bakeryctl disk replace 3 /dev/mapper/locks4
  bakeryctl disk replace /dev/mapper/locks3 /dev/mapper/locks4
  bakeryctl disk replace 3 /dev/mapper/locks4 \
    --device /dev/mapper/locks1 --device /dev/mapper/locks2`
	cmd.ValidArgsFunction = a.bakeryd().OldDisk

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		done, err := replace.Run(ctx, replace.Options{Devices: a.devices, Socket: a.socket, Old: args[0], New: args[1], Force: force, Stderr: a.stderr})
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) { replace.Show(w, done) })
	}
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "`PATH` of a disk of the lockspace, instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&force, "force", false, "destroy what NEW holds, except for another lockspace")
	cmd.Flags().BoolVar(&a.json, "json", false, "print the result as JSON")
}
