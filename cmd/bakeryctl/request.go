package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// requestResult is the output of bakeryctl request --json.
type requestResult struct {
	Asked []locks.Asked `json:"asked"` // the holders
}

func defineRequest(a *app, cmd *cobra.Command) {
	var message string
	cmd.Long = `Ask the holders of the lock NAME, on any host, to give it up. The request goes
through the disk and arrives within about a second. The holders decide what to do:
bakeryctl lock --on-request sends their command a signal, or runs another command;
without it nothing happens. Clients that acquire the lock later are not asked.

request does not acquire the lock and does not wait for it. For that, run bakeryctl
lock, before or after.

Exit codes:
  0   the holders are asked
  1   the lock has no holder, or there is no such lock
  64  the command line is wrong
  66  the device or its lockspace is not usable
  69  bakeryd is unreachable, or refuses
  77  permission denied: this user may not use the lock`
	cmd.Example = `  # Stop a backup that runs under bakeryctl lock --on-request TERM.
  bakeryctl request nightly-backup --message 'need the bandwidth'
  bakeryctl lock nightly-backup -- /usr/local/bin/restore

  bakeryctl request leader --json | jq -r '.asked[].host_name'`
	cmd.ValidArgsFunction = a.bakeryd().Lock

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := layout.ValidateRequest(message); err != nil {
			return cli.Usage("request", "%w", err)
		}
		body := map[string]string{"name": args[0], "message": message}
		var answer requestResult
		if err := call.Ask(cmd.Context(), a.socket, "POST", "/v1/request", body, &answer); err != nil {
			return err
		}
		return a.print(answer, func(w io.Writer) {
			for _, holder := range answer.Asked {
				fmt.Fprintf(w, "asked %s, token %v\n", text.HostName(holder.Host, holder.HostName), holder.Token)
			}
		})
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	cmd.Flags().StringVarP(&message, "message", "m", "", fmt.Sprintf("send `TEXT` to the holders, at most %d bytes", layout.MaxRequest))
}
