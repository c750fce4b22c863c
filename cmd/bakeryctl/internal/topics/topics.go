// Package topics has the texts of bakeryctl's help topics: exit-codes and environment. They are also
// parts of the manual. It imports cli of bakeryctl.
package topics

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

// ExitCodes adds the text of the topic exit-codes to a command.
func ExitCodes(cmd *cobra.Command) {
	var text strings.Builder
	text.WriteString("The exit codes of bakeryctl, as in sysexits(3) and flock(1). The help of a command says what is special to it.\n\n")
	for _, m := range meanings {
		fmt.Fprintf(&text, "  %-5d  %s\n", m.code, m.meaning)
	}
	fmt.Fprintf(&text, "  %d+N  signal N ended it, or the command that it ran\n", cli.ExitSignal)
	text.WriteString("  N      bakeryctl lock: the command's own exit code")
	cmd.Long = text.String()
	cmd.Example = `  bakeryctl lock -n -E 200 nightly-backup -- /usr/local/bin/backup
  case $? in
  0)   ;;
  200) echo "another host makes the backup" ;;
  69)  echo "bakeryd does not run, or is joining" ;;
  75)  echo "the lock was lost, and the backup was stopped" ;;
  *)   echo "the backup failed" ;;
  esac`
}

// Environment adds the text of the topic environment to a command.
func Environment(cmd *cobra.Command) {
	cmd.Long = environment
	cmd.Example = `  export BAKERY_SOCKET=/run/bakery/backup.sock
  bakeryctl lock nightly -- sh -c 'echo "token $BAKERY_TOKEN"'`
}

const environment = `The environment variables that bakeryctl reads, and those that it sets for commands.

  BAKERY_SOCKET             path of bakeryd's socket, unless --socket is given. Also set for the command of
                            bakeryctl lock, to the socket of the bakeryd that holds its lock
  COLUMNS                   bakeryctl top --once: width of an output that is no terminal
  LC_ALL, LC_CTYPE, LANG    bakeryctl top uses UTF-8 if the first of these that is set names it, else ASCII
  LOGNAME                   name of the user in a hint, unless /etc/passwd has it
  NO_COLOR                  if set: no colours, except with --color always
  NOTIFY_SOCKET             bakeryctl hold: where systemd listens (sd_notify(3))
  PATH                      bakeryctl lock: directories to search for the command
  TERM                      if it is dumb: no colours, except with --color always, and no bakeryctl top without --once
  WATCHDOG_USEC             bakeryctl hold: the interval of systemd's watchdog, from WatchdogSec= of the unit
  XDG_RUNTIME_DIR           with --device, unless root: lock files of host ids are in bakery below it
  XDG_STATE_HOME            with --device, unless root: the state of each lockspace is in bakery below it

Set for the command of bakeryctl lock:
  BAKERY_LOCK               the lock's name
  BAKERY_TOKEN              the fencing token of this hold
  BAKERY_HOST_ID            the id of this host
  BAKERY_SESSION            the hold, for bakeryctl mode and bakeryctl value set; only by bakeryd

Also set for the commands of --on-lost and --on-request:
  BAKERY_DEADLINE_MS        --on-lost: milliseconds until SIGKILL
  BAKERY_REQUEST_HOST       --on-request: the id of the requesting host
  BAKERY_REQUEST_HOST_NAME  its name
  BAKERY_REQUEST_MESSAGE    its message`
