package main

import (
	"cmp"
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/report"
)

// hostList is the output of bakeryctl hosts --json.
type hostList struct {
	ThisHost *report.ThisHost `json:"this_host"` // null if no bakeryd was asked
	Hosts    []report.Host    `json:"hosts"`     // hosts that ever joined, by id
}

func defineHosts(a *app, cmd *cobra.Command) {
	cmd.Long = show.HostsHelp
	cmd.Example = `  bakeryctl hosts
  bakeryctl hosts --json | jq '.hosts[] | select(.health == "silent")'
  bakeryctl hosts --device /dev/mapper/locks`
	var all bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := a.status(cmd.Context())
		if status == nil {
			return err
		}
		hosts := hostList{status.ThisHost, status.Hosts}
		return cmp.Or(a.print(hosts, func(w io.Writer) { show.HostTable(w, status, all, a.paint()) }), err)
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list the hosts that have left")
	a.colourFlag(cmd)
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}
