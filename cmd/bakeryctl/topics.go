package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// meanings are the exit codes, as they are told where none of them is left out.
var meanings = []struct {
	code    int
	meaning string
}{
	{cli.ExitOK, "it was done"},
	{cli.ExitConflict, "no: the lock was not free in time (lock, hold; -E sets another), or what the command's own list says"},
	{cli.ExitUsage, "the command line is wrong"},
	{cli.ExitNoDevice, "the device or its lockspace is not usable"},
	{cli.ExitUnavailable, "bakeryd is unreachable, or refuses"},
	{cli.ExitLost, "the lock was lost, or about to be, while it was needed"},
	{cli.ExitForbidden, "bakeryd does not let this user do that"},
	{cli.ExitNotExec, "the command to run is not executable"},
	{cli.ExitNotFound, "the command to run was not found"},
}

// newExitCodes makes a topic of the help.
func newExitCodes(*app) *cobra.Command {
	var text strings.Builder
	text.WriteString("What bakeryctl exits with, as in sysexits(3) and flock(1). The help of each command has a list of its own.\n\nExit codes:\n")
	for _, m := range meanings {
		fmt.Fprintf(&text, "  %-5d  %s\n", m.code, m.meaning)
	}
	fmt.Fprintf(&text, "  %d+N  signal N ended it, or the command that it ran\n", cli.ExitSignal)
	text.WriteString("  N      bakeryctl lock: the command's own exit code")
	return &cobra.Command{Use: "exit-codes", Short: "What bakeryctl exits with", Long: text.String()}
}

const environmentLong = `The environment that bakeryctl looks at, and what the commands find in theirs that it runs.

Environment:
  BAKERY_SOCKET             path of bakeryd's socket, where --socket is not given. Also set for the command of
                            bakeryctl lock, to that which has its lock
  NOTIFY_SOCKET             bakeryctl hold: where systemd listens (sd_notify(3))
  PATH                      bakeryctl lock: where its command is looked for
  XDG_STATE_HOME            with --device, and not as root: in bakery below it is what is kept of each lockspace

Set for the command of bakeryctl lock:
  BAKERY_LOCK               the lock's name
  BAKERY_TOKEN              the fencing token of this hold
  BAKERY_HOST_ID            the id of this host
  BAKERY_SESSION            the hold, for bakeryctl mode and bakeryctl value set; not with --device

Set besides for the commands of --on-lost and --on-request:
  BAKERY_DEADLINE_MS        --on-lost: milliseconds until SIGKILL
  BAKERY_REQUEST_HOST       --on-request: the id of the host that asks
  BAKERY_REQUEST_HOST_NAME  its name
  BAKERY_REQUEST_MESSAGE    what it says`

// newEnvironment makes a topic of the help.
func newEnvironment(*app) *cobra.Command {
	return &cobra.Command{Use: "environment", Short: "The variables that bakeryctl reads and sets", Long: environmentLong}
}
