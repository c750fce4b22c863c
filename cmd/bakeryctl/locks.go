package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/ondevice"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/text"
)

func defineLocks(a *app, cmd *cobra.Command) {
	cmd.Long = `List the locks in the lock directory: their names, their numbers, which are their
places on the disk, and their permits, the number of hosts that may hold each at
once. bakeryctl status shows the holders. bakeryctl list is the same command.

Without --device bakeryd is asked. With --device the device is read, without
joining and without bakeryd.`
	cmd.Example = `  bakeryctl locks
  bakeryctl locks --json | jq -r '.locks[] | select(.permits > 1).name'
  bakeryctl locks --device /dev/mapper/locks`
	cmd.Aliases = []string{"list"}

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := a.listLocks(cmd.Context())
		if err != nil {
			return err
		}
		err = a.print(list, func(w io.Writer) {
			if len(list.Locks) > 0 {
				fmt.Fprintf(w, "NAME\tNUMBER\tPERMITS\n")
			}
			for _, l := range list.Locks {
				fmt.Fprintf(w, "%s\t%d\t%d\n", text.Printable(l.Name), l.Number, l.Permits)
			}
		})
		if err != nil || list.Damaged == "" {
			return err
		}
		return &cli.Failure{Code: cli.ExitNoDevice, Err: fmt.Errorf("list all locks: the list may be incomplete: %s", list.Damaged),
			Hint: "run bakeryctl check to find the damaged record and its remedy"}
	}
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// listLocks reads the device, or asks bakeryd.
func (a *app) listLocks(ctx context.Context) (*directory.Listing, error) {
	if len(a.devices) > 0 {
		return ondevice.Read(ctx, a.devices, directory.List)
	}
	list := new(directory.Listing)
	err := call.Ask(ctx, a.socket, "GET", "/v1/locks", nil, list)
	return list, call.OrDevice(err)
}
