package main

import (
	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/join"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/lock"
)

const lockLong = `Run COMMAND while holding the lock NAME, as flock(1) does for the hosts that share a disk.

The lock is released when COMMAND and every process that it leaves behind have ended, even if bakeryctl is killed.
COMMAND finds the lock's name in BAKERY_LOCK, its fencing token in BAKERY_TOKEN and the id of this host in
BAKERY_HOST_ID. By BAKERY_SESSION and BAKERY_SOCKET it reaches its hold: bakeryctl mode and bakeryctl value set use
them. A storage or service that refuses tokens smaller than one it has seen is protected even from a holder that
was suspended.

COMMAND runs in its own cgroup (version 2) below that of bakeryctl. bakeryctl creates it if permitted; otherwise
bakeryd does, if it runs as root and sees the process. Every process in the cgroup keeps the lock and is killed when
the lock is lost, whatever it closed, executed or forked. If no cgroup can be created, containment is weak: a process
keeps the lock while it has a descriptor open that COMMAND inherits, and if bakeryctl has ended, bakeryd finds only
such processes and their descendants. -v prints the containment, bakeryctl status shows "held, weak", and with
--require-containment COMMAND then does not start.

COMMAND never starts late: its process compares CLOCK_BOOTTIME with the end of the lease right before execve(2). If
bakeryctl is stopped when it is granted the lock, and does not confirm that within 2 s, or a sixth of the lease if
that is less, the lock passes to the next client, and bakeryctl waits again, last in the queue.

If the host's lease is about to end without having been renewed, COMMAND and every process that descends from it
get SIGTERM a sixth of the lease before its end, and SIGKILL at its end; if the lock is lost before that, SIGTERM
immediately. Once COMMAND has been sent SIGTERM it is killed at the deadline, even if the lease is renewed in the
meantime. --on-lost also runs CMD, with BAKERY_DEADLINE_MS, the milliseconds left until SIGKILL, which ends CMD,
too. bakeryctl exits when none of them is left, and reports processes that SIGKILL does not end.

COMMAND starts with the signal dispositions and the signal mask of bakeryctl. bakeryctl forwards SIGHUP, SIGINT,
SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT and the real-time signals to COMMAND if a process sent them. Ctrl-C of
a terminal reaches COMMAND once, from the terminal. A terminal that is stopped by Ctrl-S, or that stops writers of
the background (stty tostop), delays what bakeryctl prints, but not COMMAND.

If a user requests the lock with bakeryctl request, on any host, COMMAND continues, unless --on-request is given.
With a signal, such as TERM, SIGUSR1 or 10, COMMAND gets that signal: only the process itself, not its children. Any
other value is a shell command. It runs once for every request, one after the other, with the variables above and
BAKERY_REQUEST_HOST, the id of the requesting host, BAKERY_REQUEST_HOST_NAME and BAKERY_REQUEST_MESSAGE. It does not
hold the lock, and is stopped when COMMAND has ended. A request arrives within about a second.

If bakeryd dies or is restarted, COMMAND continues, and a waiting bakeryctl keeps its place in the queue, provided
that bakeryd is back before the lease ends. bakeryctl stops COMMAND in time without bakeryd. If bakeryctl is killed,
too, COMMAND keeps the lock, and the next bakeryd stops it at the end of a lease. With --close none of this applies to
COMMAND and its remaining processes: only bakeryctl holds the lock.

With --device bakeryctl itself is a host of the lockspace while it runs, and the lock ends with bakeryctl. If
bakeryctl is killed, all processes in the cgroup of COMMAND are killed, too (without a cgroup only COMMAND's own
process). Processes that COMMAND leaves running do not hold the lock.

A wait of a second prints on standard error which process holds the lock and how many waiters are ahead; so does
giving up (-n, -w). -q suppresses that, but no error or warning. A command that requests the lock it runs under waits
forever: bakeryctl prints a warning if an ancestor of it holds the lock.

Exit codes:
  N    COMMAND's own exit code
  1    the lock was not granted immediately (-n) or in time (-w); -E sets another code
  64   the command line is wrong
  66   the device or its lockspace is not usable
  69   bakeryd is unreachable, or refuses
  75   the lock was lost, or about to be, and COMMAND was stopped or not started
  77   permission denied by the policy of bakeryd (--policy-file)
  126  COMMAND is not executable
  127  COMMAND was not found
  128+N  signal N killed COMMAND, or ended the wait for the lock`

const lockExample = `  # In /etc/crontab of each host: one makes the backup, the others skip it.
  0 3 * * * root bakeryctl lock -q -n -E 0 nightly -- /usr/local/bin/backup

  # Wait for five minutes at most.
  bakeryctl lock -w 5m deploy -- ./deploy.sh production

  # Any number of readers, but no writer among them.
  bakeryctl lock --shared catalogue -- sh -c 'report < /srv/catalogue'

  # Publish the leader's address; bakeryctl value get leader prints it.
  bakeryctl lock --value "$(hostname):5432" leader -- ./serve

  # Log when the service is stopped because its lock is about to be lost.
  bakeryctl lock --on-lost 'logger -p crit "lock lost"' web -- ./serve

  # A backup that stops at a bakeryctl request nightly-backup of any user.
  bakeryctl lock --on-request TERM nightly-backup -- /usr/local/bin/backup

  # Without bakeryd, on a file: try it in two terminals.
  bakeryctl lock --device ./demo.img --create demo -- \
    sh -c 'echo token $BAKERY_TOKEN; sleep 10'`

func defineLock(a *app, cmd *cobra.Command) {
	o := lock.Options{}
	cmd.Long = lockLong
	cmd.Example = lockExample

	cmd.ValidArgsFunction = a.bakeryd().Command
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.Parse(cmd.Flags(), args); err != nil {
			return err
		}
		o.Socket, o.OnDevice = a.socket, join.Acquire
		return o.Run(cmd.Context(), a.stdin, a.stdout, a.stderr)
	}
	o.AddFlags(cmd.Flags())
}
