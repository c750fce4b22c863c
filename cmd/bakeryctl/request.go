package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/call"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/show"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// requestTimeout is the timeout for bakeryd to find the holders of the lock and to ask them.
const requestTimeout = 40 * time.Second

// asked is the answer of bakeryd to a request.
type asked struct {
	Asked []daemon.Asked `json:"asked"`
}

func newRequest(a *app) *cobra.Command {
	var message string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "request [flags] NAME",
		Short: "Ask the holders of a lock to give it up",
		Long: `Ask the holders of the lock NAME, on any host, to give it up. The request goes
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
  77  permission denied: this user may not use the lock`,
		Example: `  # Stop the backup that runs under  bakeryctl lock --on-request TERM nightly-backup.
  bakeryctl request nightly-backup --message 'need the bandwidth'
  bakeryctl lock nightly-backup -- /usr/local/bin/restore

  bakeryctl request leader --json | jq -r '.asked[].host_name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("request", "request takes one NAME, not %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: a.completeLock,

		RunE: func(cmd *cobra.Command, args []string) error {
			for _, err := range []error{layout.ValidateLockName(args[0]), layout.ValidateRequest(message)} {
				if err != nil {
					return cli.Usage("request", "%w", err)
				}
			}
			answer, err := a.request(cmd.Context(), args[0], message)
			if err != nil {
				return err
			}
			if asJSON {
				return render.WriteJSON(a.stdout, answer)
			}
			for _, holder := range answer.Asked {
				if _, err := fmt.Fprintf(a.stdout, "asked %s, token %v\n", show.HostLabel(&report.Host{ID: holder.Host, Name: holder.HostName}), holder.Token); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", fmt.Sprintf("send `TEXT` to the holders, at most %d bytes", layout.MaxRequest))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// request makes bakeryd ask the holders.
func (a *app) request(ctx context.Context, name, message string) (answer asked, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body := struct {
		Name    string `json:"name"`
		Message string `json:"message"`
	}{name, message}
	err = call.Ask(ctx, a.socket, http.MethodPost, "/v1/request", body, &answer)
	return answer, err
}
