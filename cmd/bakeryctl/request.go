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

// requestPatience is how long bakeryd may take to find out who holds the lock and to ask.
const requestPatience = 40 * time.Second

// asked is bakeryd's answer to a request.
type asked struct {
	Asked []daemon.Asked `json:"asked"`
}

func newRequest(a *app) *cobra.Command {
	var message string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "request [flags] NAME",
		Short: "Ask those who hold a lock for it",
		Long: `Ask those who hold the lock NAME for it, on whatever host they are, by way of
the disk. What they do about it is up to them: bakeryctl lock --on-request sends
their command a signal, or runs another one; without it nothing happens. They hear
of it within a second or so. Nobody who gets the lock later is asked.

This does not take the lock, and does not wait for it: for that use bakeryctl lock,
before or after.

Exit codes:
  0   they are asked
  1   nobody holds the lock, or there is no such lock
  64  the command line is wrong
  66  the device or its lockspace is not usable
  69  bakeryd is unreachable, or refuses
  77  this user may not have the lock either`,
		Example: `  # Who runs the backup under  bakeryctl lock --on-request TERM nightly-backup  is to stop.
  bakeryctl request nightly-backup --message 'need the bandwidth'
  bakeryctl lock nightly-backup -- /usr/local/bin/restore

  bakeryctl request leader --json | jq -r '.asked[].host_name'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usage("request", "request wants one NAME, not %d", len(args))
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
			for _, who := range answer.Asked {
				if _, err := fmt.Fprintf(a.stdout, "asked %s, token %v\n", show.HostLabel(&report.Host{ID: who.Host, Name: who.HostName}), who.Token); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", fmt.Sprintf("tell them `TEXT`, at most %d bytes", layout.MaxRequest))
	cmd.Flags().BoolVar(&asJSON, "json", false, "show it as JSON")
	return cmd
}

// request asks bakeryd to ask the holders.
func (a *app) request(ctx context.Context, name, message string) (answer asked, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	body := struct {
		Name    string `json:"name"`
		Message string `json:"message"`
	}{name, message}
	err = call.Ask(ctx, a.socket, http.MethodPost, "/v1/request", body, &answer)
	return answer, err
}
