package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/hold"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/lock"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

const holdLong = `Hold the lock NAME without a command, until a signal ends it. hold is meant for systemd units: one unit runs
it with Type=notify, and the units that need the lock have BindsTo= and After= that unit. To run a command under a
lock, and for scripts, use bakeryctl lock, which also keeps the lock for remaining processes if bakeryctl is killed.

hold notifies systemd by sd_notify(3):
  while it waits     the status "waiting for NAME: 2 ahead"
  when it holds      ready, and the status "holding NAME, token 3676650270761156864"
  when it releases   stopping. systemctl stop first stops the units that are bound to this one
  before it is lost  stopping, so that systemd stops the units bound to this one. The lock is kept for
                     a sixth of the lease (5 s of 30 s), or until the lease ends if that is sooner; then
                     bakeryctl exits with 75. No other host has the lock before that
  while it holds     keep-alives for the watchdog, if WatchdogSec= is set

If a unit must never run at the same time on two hosts, set its TimeoutStopSec= below a sixth of the lease, and
SendSIGKILL=yes, the default of systemd. Stop this unit with systemctl, not with kill: the lock is released
immediately if this process is killed. A restart of bakeryd within the lease is not noticed, so use
After=bakeryd.service, not BindsTo=. Do not use Wants=, which would start a stopped bakeryd again.

The wait may take any time: with Type=notify set TimeoutStartSec=infinity, or limit it with -w.

Without NOTIFY_SOCKET nothing is notified, and hold exits immediately when the lock is about to be lost.
hold prints only errors, what it waits for, and that it gave up; with -q only errors.

Exit codes:
  0    it held the lock, and was ended by SIGTERM, SIGINT, SIGHUP or SIGQUIT
  1    the lock was not granted immediately (-n) or in time (-w); -E sets another code
  64   the command line is wrong
  66   the device or its lockspace is not usable
  69   bakeryd is unreachable, or refuses
  75   the lock was lost, or about to be
  77   permission denied: this user may not use the lock
  128+N  signal N ended the wait for the lock`

const holdExample = `  # The service web runs on the host that holds the lock web, and on the
  # next host if that one fails. With
  #   [Unit]     BindsTo=bakery-lock@web.service
  #              After=bakery-lock@web.service
  #   [Service]  TimeoutStopSec=4
  #   [Install]  WantedBy=bakery-lock@web.service
  # in web.service, on each host:
  systemctl enable web.service
  systemctl enable --now bakery-lock@web.service

  # In a unit of your own, with Type=notify, Restart=always and
  # TimeoutStartSec=infinity:
  ExecStart=/usr/bin/bakeryctl hold --shared catalogue

  # Manually, until Ctrl-C.
  bakeryctl hold maintenance`

func holdArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return cli.Arguments(cmd.UseLine(), "hold: no lock NAME given")
	case len(args) > 1:
		return &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("unexpected argument %q: hold takes one lock and no command", args[1]),
			Hint: "to run a command under a lock, use bakeryctl lock"}
	}
	return nil
}

func defineHold(a *app, cmd *cobra.Command) {
	var o lock.Take
	cmd.Long = holdLong
	cmd.Example = holdExample

	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = a.bakeryd().Lock

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := o.Resolve(cmd.Name(), cmd.Flags()); err != nil {
			return err
		}
		o.Name = args[0]
		if err := layout.ValidateLockName(o.Name); err != nil {
			return cli.Usage(cmd.Name(), "%w", err)
		}
		inbox := signals.Open(signals.Inherited())
		defer func() { inbox.Close(err) }()
		o.Close, o.Command = true, "bakeryctl hold "+o.Name
		o.Session, o.Socket, o.Stderr = client.NewSession(), a.socket, a.stderr
		return hold.Run(o.Name, inbox, a.stderr, func(onWaiting func(ahead int)) (*supervise.Grant, error) {
			return o.Acquire(cmd.Context(), inbox, onWaiting)
		})
	}
	o.AddFlags(cmd.Flags())
}
