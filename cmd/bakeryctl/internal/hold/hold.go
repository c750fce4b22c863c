// Package hold holds a lock for systemd units, without a command. It notifies systemd (sd_notify)
// of the state of the lock and releases the lock at a signal. The caller passes the function that
// acquires the lock. Package hold imports cli, signals and supervise of bakeryctl, and never
// package daemon.
package hold

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// Run acquires the lock name and holds it until a signal arrives or the lock is about to be lost.
func Run(name string, inbox *signals.Inbox, stderr io.Writer, acquire supervise.Acquirer) error {
	h := holder{name: name, signals: inbox, systemd: &systemd{enabled: os.Getenv("NOTIFY_SOCKET") != "", stderr: stderr}, Messages: supervise.Messages{Out: stderr}}
	defer h.Flush()
	defer h.systemd.Flush()
	beats, err := h.systemd.beats()
	if err != nil {
		return err
	}
	h.systemd.notify("STATUS=waiting for " + name)
	h.grant, err = acquire(func(ahead int) {
		h.systemd.notify(fmt.Sprintf("STATUS=waiting for %s: %d ahead", name, ahead))
	})
	if err != nil {
		return err
	}
	if supervise.IsClosed(h.grant.Warned()) {
		why := h.grant.Why()
		_ = h.grant.Release() // fails if the lock is lost already
		return &cli.Failure{Code: cli.ExitLost, Err: fmt.Errorf("not holding %q: %w", name, why)}
	}
	h.systemd.notify(sd.SdNotifyReady, fmt.Sprintf("STATUS=holding %s, token %v", name, h.grant.Token))
	return h.run(beats)
}

// holder holds a lock for the units that are bound to the unit of this process.
type holder struct {
	name    string
	grant   *supervise.Grant
	signals *signals.Inbox
	systemd *systemd
	supervise.Messages
}

// run blocks until the lock is released or lost.
func (h *holder) run(beats <-chan time.Time) error {
	for {
		select {
		case got := <-h.signals.C:
			if !signals.Ends(got) || supervise.IsClosed(h.grant.Warned()) {
				continue // the loss takes precedence
			}
			h.systemd.notify(sd.SdNotifyStopping, "STATUS=releasing "+h.name)
			if err := h.grant.Release(); err != nil {
				return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("release %q: %w", h.name, err)}
			}
			return nil
		case <-h.grant.Warned():
			h.lose()
			_ = h.grant.Release() // lose has reported the loss
			return &cli.Failure{Code: cli.ExitLost}
		case <-h.grant.Silent:
			h.Printf("bakeryd is gone; %q is held until %s at most unless it comes back", h.name, h.grant.Deadline().Format(time.TimeOnly))
		case <-beats:
			h.systemd.keepAlive()
		}
	}
}

// lose makes systemd stop the units that are bound to this one, and delays the release while they
// stop. systemd starts to stop them at STOPPING=1, before this process ends. If the lock were free
// by then, a recovering device could grant it to the next holder while the units still run.
//
// A later renewal of the lease changes nothing: the units are stopped.
func (h *holder) lose() {
	rest := min(time.Until(h.grant.Deadline()), h.grant.Grace())
	end := clock.Boottime.Now() + rest
	h.Printf("lost %q: %v", h.name, h.grant.Why())
	if !h.systemd.enabled {
		return
	}
	h.systemd.notify(sd.SdNotifyStopping, fmt.Sprintf("STATUS=lost %s: %v", h.name, h.grant.Why()),
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (max(rest, 0)+2*supervise.MessageTimeout).Microseconds()))
	for rest > 0 {
		select {
		case got := <-h.signals.C:
			if signals.Ends(got) {
				return
			}
		case <-time.After(min(rest, supervise.RecheckInterval)):
		}
		rest = end - clock.Boottime.Now()
	}
}

// systemd sends sd_notify(3) messages in the background, so a blocked systemd does not delay the hold
// or its end. Without NOTIFY_SOCKET it sends nothing.
type systemd struct {
	enabled bool
	stderr  io.Writer
	failed  bool // an error was reported; owned by the functions in the background
	supervise.Background
}

// notify queues a message.
func (s *systemd) notify(lines ...string) {
	if !s.enabled {
		return
	}
	s.Go(func() {
		if _, err := sd.SdNotify(false, strings.Join(lines, "\n")); err != nil && !s.failed {
			s.failed = true
			fmt.Fprintf(s.stderr, "bakeryctl: notify systemd: %v\n", err)
		}
	})
}

// keepAlive notifies the watchdog of systemd, unless earlier messages are not sent yet.
func (s *systemd) keepAlive() {
	if !s.Busy() {
		s.notify(sd.SdNotifyWatchdog)
	}
}

// beats returns the ticks for keep-alives to systemd, or nil if there is no watchdog.
func (s *systemd) beats() (<-chan time.Time, error) {
	timeout, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("read the watchdog timeout of systemd: %w", err),
			Hint: "do not set WATCHDOG_USEC; systemd sets it from WatchdogSec= of the unit"}
	}
	if timeout == 0 || !s.enabled {
		return nil, nil
	}
	return time.Tick(max(timeout/3, time.Millisecond)), nil // tolerates a late keep-alive
}
