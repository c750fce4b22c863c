package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// meanings are all exit codes.
var meanings = []struct {
	code    int
	meaning string
}{
	{cli.ExitOK, "done"},
	{cli.ExitConflict, "no: the lock was not free in time (lock, hold; -E sets another code), or as in the help of the command"},
	{cli.ExitUsage, "the command line is wrong"},
	{cli.ExitNoDevice, "the device or its lockspace is not usable"},
	{cli.ExitUnavailable, "bakeryd is unreachable, or refuses"},
	{cli.ExitLost, "the lock was lost, or about to be"},
	{cli.ExitForbidden, "permission denied by bakeryd"},
	{cli.ExitNotExec, "the command to run is not executable"},
	{cli.ExitNotFound, "the command to run was not found"},
}

// defineExitCodes defines the help topic exit-codes.
func defineExitCodes(_ *app, cmd *cobra.Command) {
	var text strings.Builder
	text.WriteString("The exit codes of bakeryctl, as in sysexits(3) and flock(1). The help of each command has its own list.\n\n")
	for _, m := range meanings {
		fmt.Fprintf(&text, "  %-5d  %s\n", m.code, m.meaning)
	}
	fmt.Fprintf(&text, "  %d+N  signal N ended it, or the command that it ran\n", cli.ExitSignal)
	text.WriteString("  N      bakeryctl lock: the command's own exit code")
	cmd.Long = text.String()
}

// defineEnvironment defines the help topic environment.
func defineEnvironment(_ *app, cmd *cobra.Command) {
	cmd.Long = `The environment variables that bakeryctl reads, and those that it sets for commands.

  BAKERY_SOCKET             path of bakeryd's socket, unless --socket is given. Also set for the command of
                            bakeryctl lock, to the socket of the bakeryd that holds its lock
  NOTIFY_SOCKET             bakeryctl hold: where systemd listens (sd_notify(3))
  PATH                      bakeryctl lock: directories to search for the command
  XDG_STATE_HOME            with --device, unless root: bakeryctl keeps the state of each lockspace in bakery below it

Set for the command of bakeryctl lock:
  BAKERY_LOCK               the lock's name
  BAKERY_TOKEN              the fencing token of this hold
  BAKERY_HOST_ID            the id of this host
  BAKERY_SESSION            the hold, for bakeryctl mode and bakeryctl value set; not with --device

Also set for the commands of --on-lost and --on-request:
  BAKERY_DEADLINE_MS        --on-lost: milliseconds until SIGKILL
  BAKERY_REQUEST_HOST       --on-request: the id of the requesting host
  BAKERY_REQUEST_HOST_NAME  its name
  BAKERY_REQUEST_MESSAGE    its message`
}
