package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

func newCreate(a *app) *cobra.Command {
	permits, asJSON := 1, false
	cmd := &cobra.Command{
		Use:   "create [flags] NAME",
		Short: "Create a lock that several hosts may hold at once",
		Long: `Create the lock NAME, which up to --permits hosts may hold at once: a semaphore.
A lock with one permit need not be created: that happens on first use.

A lock that is there already with as many permits is left as it is. To give a
lock other permits, remove it (bakeryctl rm) and create it anew.

A permit is a host's: its own commands still hold the lock one after the other.
Shared holders (bakeryctl lock --shared) exclude all others, whatever the permits.

Exit codes:
  0   the lock is there
  64  the command line is wrong: the name, or the number of permits
  66  the device is not usable, or the lock directory is full
  69  bakeryd is unreachable, or refuses: the lock has other permits
  77  this user may not have a lock of that name`,
		Example: `  # At most two hosts reboot at once.
  bakeryctl create reboot --permits 2
  bakeryctl lock reboot -- /usr/local/bin/reboot-and-wait

  bakeryctl create reboot --permits 2 --json | jq .created`,
		Args: oneLock("create"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if permits < 1 || permits > layout.MaxHosts {
				return callUsage("create", "--permits %d, want 1 to the number of hosts of the lockspace", permits)
			}
			return a.create(cmd.Context(), args[0], permits, asJSON)
		},
	}
	cmd.Flags().IntVar(&permits, "permits", 1, "let `N` hosts hold it at once")
	cmd.Flags().BoolVar(&asJSON, "json", false, "show what came of it as JSON")
	return cmd
}

func (a *app) create(ctx context.Context, name string, permits int, asJSON bool) error {
	lock, created, err := client.New(a.socket).Create(ctx, name, permits)
	if err != nil {
		return a.callFailure(err)
	}
	if asJSON {
		return writeJSON(a.stdout, struct {
			client.LockInfo
			Created bool `json:"created"`
		}{lock, created})
	}
	what := "%s exists, %s\n"
	if created {
		what = "created %s, %s\n"
	}
	_, err = fmt.Fprintf(a.stdout, what, text.Printable(lock.Name), count(lock.Permits, "permit"))
	return err
}

func callUsage(command, format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: "see bakeryctl " + command + " --help"}
}

// oneLock wants a lock's name for an argument, and nothing else.
func oneLock(command string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return callUsage(command, "%s wants one NAME, not %d", command, len(args))
		}
		if err := layout.ValidateLockName(args[0]); err != nil {
			return callUsage(command, "%w", err)
		}
		return nil
	}
}

// callFailure gives an error of a call of bakeryd's an exit code.
func (a *app) callFailure(err error) *failure {
	f := &failure{code: exitUnavailable, err: err}
	var refusal *client.Error
	switch {
	case errors.As(err, &refusal):
		f.hint = refusal.Hint
		switch refusal.Code {
		case api.CodeInvalid:
			f.code = exitUsage
		case api.CodeDevice, api.CodeFull:
			f.code = exitNoDevice
		case api.CodeForbidden:
			f.code = exitForbidden
		case api.CodeBusy, api.CodeTimeout, api.CodeMissing:
			f.code = exitConflict
		}
	case errors.Is(err, syscall.EACCES):
		f.hint = hintClosed
	case errors.Is(err, client.ErrUnreachable):
		f.hint = hintDown
	}
	return f
}
