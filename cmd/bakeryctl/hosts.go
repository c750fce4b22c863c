package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon/report"
)

func defineHosts(a *app, cmd *cobra.Command) {
	cmd.Long = `Show the hosts of the lockspace, their state, and when they last renewed their
lease.

  live     renews its lease
  silent   has not renewed as expected; if it does not renew, it is declared dead
           and its locks pass to the waiters
  dead     was declared dead: its locks are free
  left     has left the lockspace
  joining  not live yet; it holds nothing. If there is no change for longer than two
           leases, its process has ended: evict says how to free the id

VERDICTS are what a host publishes about others: dead, wish (asked to leave), or
forgotten (dead, and its id free), and the id. It does so until they return.

Without --device bakeryd is asked. With --device the device is read, without
joining and without bakeryd; this does not show whether a host is silent.`
	cmd.Example = `  bakeryctl hosts
  bakeryctl hosts --json | jq '.hosts[] | select(.health == "silent")'
  bakeryctl hosts --device /dev/mapper/locks`
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		status, err := a.status(cmd.Context())
		if err != nil {
			return err
		}
		hosts := struct {
			ThisHost *report.ThisHost `json:"this_host"`
			Hosts    []report.Host    `json:"hosts"`
		}{status.ThisHost, status.Hosts}
		return a.print(hosts, func(w io.Writer) { show.HostTable(w, status, a.paint()) })
	}
	a.colourFlag(cmd)
	cmd.Flags().StringArrayVar(&a.devices, "device", nil, "read the lockspace at `PATH` instead of asking bakeryd; repeated for several disks")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}
