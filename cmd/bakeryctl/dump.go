package main

import (
	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
)

func defineDump(a *app, cmd *cobra.Command) {
	cmd.Long = `Show every record on a device as it is stored, in the order of the disk, with
its offset in bytes. Records that were never written are omitted; a record that
cannot be decoded is shown with the reason. Of several disks it shows one, with the
versions of its copies. dump writes nothing to the device.

With --json each record is one JSON object per line.`
	cmd.Example = `  bakeryctl dump /dev/mapper/locks
  bakeryctl dump /dev/mapper/locks --json | jq 'select(.error)'`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		write := show.Record
		if a.json {
			write = show.RecordJSON
		}
		_, err := ondevice.Read(cmd.Context(), args, func(dev blockdev.Device) (any, error) {
			sb, _, err := lockspace.FindSuperblock(dev)
			if err == nil {
				err = lockspace.Walk(dev, sb, func(r lockspace.Record) error { return write(a.stdout, r) })
			}
			return nil, err
		})
		return err
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print one JSON object per line")
}
