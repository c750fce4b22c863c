package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/layout"
)

const holdLong = `Hold the lock NAME without a command, until a signal ends it. It is meant for systemd units: one of this runs
under Type=notify, and those that need the lock say BindsTo= and After= it. To run a command under a lock, and for
locks in scripts, use bakeryctl lock, which also keeps the lock for what a killed bakeryctl leaves running.

systemd is told by sd_notify(3):
  while it waits     the status "waiting for NAME: 2 ahead"
  when it holds      ready, and the status "holding NAME, token 3676650270761156864"
  when it lets go    stopping. What systemd stops by itself, it has stopped the units bound to this one before
  before it is lost  stopping, so that systemd stops the units bound to this one. The lock is held on for
                     a sixth of the lease (5 s of 30 s), or until the lease ends if that is sooner; then
                     bakeryctl exits with 75. Nobody else has the lock before that
  while it holds     its watchdog, if WatchdogSec= is set

So a unit that must never run beside another host's wants a TimeoutStopSec= below a sixth of the lease, and
SendSIGKILL=yes, which is systemd's default. Let systemctl stop this unit, not kill: the lock goes at once if this
process is killed. A restart of bakeryd within the lease is not noticed, so say After=bakeryd.service, not BindsTo=; nor
Wants=, which would start a bakeryd again that was stopped.

The wait may take any time: with Type=notify say TimeoutStartSec=infinity, or -w here for a limit.

Without NOTIFY_SOCKET nobody is told but by the exit, which then comes at once when the lock is about to be lost.
Nothing is printed but errors, and at a terminal what is waited for.

Exit codes:
  0    it held the lock, and was ended by SIGTERM, SIGINT, SIGHUP or SIGQUIT
  1    the lock was not granted at once (-n) or in time (-w); -E sets another
  64   the command line is wrong
  66   the device or its lockspace is not usable
  69   bakeryd is unreachable, or refuses
  75   the lock was lost, or about to be
  77   this user may not take the lock
  128+N  signal N ended the wait for the lock`

const holdExample = `  # The service web runs on the one host that holds the lock web, and on the next one if that fails. With
  #   [Unit]     BindsTo=bakery-lock@web.service
  #              After=bakery-lock@web.service
  #   [Service]  TimeoutStopSec=4
  #   [Install]  WantedBy=bakery-lock@web.service
  # in web.service, on each host:
  systemctl enable web.service
  systemctl enable --now bakery-lock@web.service

  # In a unit of your own, of Type=notify, TimeoutStartSec=infinity and Restart=always:
  ExecStart=/usr/bin/bakeryctl hold --shared catalogue

  # By hand, until Ctrl-C.
  bakeryctl hold maintenance`

// holdOptions are what the command line says.
type holdOptions struct {
	takeOptions
}

func newHold(a *app) *cobra.Command {
	var o holdOptions
	cmd := &cobra.Command{
		Use:     "hold [flags] NAME",
		Short:   "Hold a lock for systemd units",
		Long:    holdLong,
		Example: holdExample,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return misuse(cmd, "no lock given")
			case len(args) > 1:
				return &failure{code: exitUsage, err: fmt.Errorf("hold takes one lock and no command, not %q as well", args[1]),
					hint: "bakeryctl lock runs a command under a lock"}
			}
			return nil
		},

		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.completeLock,

		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.settle(cmd); err != nil {
				return err
			}
			o.name = args[0]
			if err := layout.ValidateLockName(o.name); err != nil {
				return misuse(cmd, "%w", err)
			}
			return a.hold(cmd.Context(), o)
		},
	}
	cmd.Flags().SortFlags = false
	o.addFlags(cmd)
	return cmd
}

// hold holds the lock until a signal comes or it is about to be lost.
func (a *app) hold(ctx context.Context, o holdOptions) (err error) {
	signals := openInbox(inheritedSignals())
	defer func() { signals.close(err) }()
	h := holder{name: o.name, signals: signals, systemd: newSystemd(a.stderr), voice: voice{out: a.stderr}}
	defer h.waitSaid()
	defer h.systemd.close()
	beats, err := h.systemd.beats()
	if err != nil {
		return err
	}
	defer beats.Stop()
	h.systemd.tell(notice{status: "waiting for " + o.name})
	h.grant, err = a.acquire(ctx, lockOptions{
		takeOptions: o.takeOptions, close: true, argv: []string{"bakeryctl", "hold", o.name},
	}, client.NewSession(), signals, func(ahead, _ int) {
		h.systemd.tell(notice{status: fmt.Sprintf("waiting for %s: %d ahead", o.name, ahead)})
	})
	if err != nil {
		return err
	}
	if isClosed(h.grant.Warned()) {
		why := h.why()
		_ = h.grant.release() // there may be nothing left to release
		return &failure{code: exitLost, err: fmt.Errorf("not holding %q: %w", o.name, why)}
	}
	h.systemd.tell(notice{state: sd.SdNotifyReady, status: fmt.Sprintf("holding %s, token %v", o.name, h.grant.Token())})
	return h.run(beats.C)
}

// holder holds a lock for the units that are bound to its own.
type holder struct {
	name    string
	grant   *grant
	signals *inbox
	systemd *systemd
	voice
}

// run returns when the lock is let go.
func (h *holder) run(beats <-chan time.Time) error {
	for {
		select {
		case got := <-h.signals.signals:
			if !ends(got) || isClosed(h.grant.Warned()) {
				continue // the loss comes first
			}
			h.systemd.tell(notice{state: sd.SdNotifyStopping, status: "letting go of " + h.name})
			if err := h.grant.release(); err != nil {
				return &failure{code: exitUnavailable, err: fmt.Errorf("release %q: %w", h.name, err)}
			}
			return nil
		case <-h.grant.Warned():
			h.lose()
			_ = h.grant.release() // it is told already that the lock is lost
			return &failure{code: exitLost}
		case <-h.grant.silent:
			h.say("bakeryd is gone; %q is held until %s unless it comes back", h.name, h.grant.Deadline().Format(time.TimeOnly))
		case <-beats:
			h.systemd.tell(notice{beat: true})
		}
	}
}

// lose has systemd stop the units bound to this one, and keeps the lock from the others for as long as they may
// take. systemd does that at STOPPING=1, not only when this process has ended. By then the lock must not be free: a
// device that recovers just now would let it be given to the next, beside units that are still stopping.
//
// A lease that is renewed after all changes nothing: what was told to stop does stop.
func (h *holder) lose() {
	rest := min(time.Until(h.grant.Deadline()), h.grant.Grace())
	end := clock.Boottime.Now() + rest
	h.say("lost %q: %v", h.name, h.why())
	if !h.systemd.listens {
		return
	}
	h.systemd.tell(notice{state: sd.SdNotifyStopping, status: fmt.Sprintf("lost %s: %v", h.name, h.why()),
		extend: max(rest, 0) + 2*sayWithin})
	for rest > 0 {
		select {
		case got := <-h.signals.signals:
			if ends(got) {
				return
			}
		case <-time.After(min(rest, lookAgain)):
		}
		rest = end - clock.Boottime.Now()
	}
}

// why says why the lock is lost.
func (h *holder) why() error {
	if err := h.grant.Err(); err != nil {
		return err
	}
	return errors.New("its lease is about to end without a renewal")
}

// ends says whether a signal asks for the end of the hold. The others are for commands.
func ends(s os.Signal) bool {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		return true
	}
	return false
}
