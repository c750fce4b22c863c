// Package hold holds a lock for systemd units, without a command. It notifies systemd (sd_notify)
// of the state of the lock and releases the lock at a signal. The caller passes the function that
// acquires the lock. Package hold imports cli, signals and supervise of bakeryctl, and never
// package daemon.
package hold

import (
	"fmt"
	"io"
	"os"
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
	h.systemd.notify(sd.SdNotifyReady, fmt.Sprintf("STATUS=holding %s, token %v", name, h.grant.Token()))
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
			h.Printf("bakeryd is gone; %q is held until %s unless it comes back", h.name, h.grant.Deadline().Format(time.TimeOnly))
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
