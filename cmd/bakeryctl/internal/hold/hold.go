// Package hold holds a lock for systemd units, without a command: it tells systemd (sd_notify) what
// becomes of the lock, and lets go at a signal. It is handed what acquires the lock. It imports
// cli, signals and supervise of bakeryctl, and never package daemon.
package hold

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
	"github.com/bakeryd/bakeryd/daemon/clock"
)

// Acquirer blocks until the lock is granted. It calls onWaiting with the place in the queue.
type Acquirer func(onWaiting func(ahead, queued int)) (*supervise.Grant, error)

// Run acquires the lock name, and holds it until a signal comes or it is about to be lost.
func Run(name string, inbox *signals.Inbox, stderr io.Writer, acquire Acquirer) error {
	h := holder{name: name, signals: inbox, systemd: newSystemd(stderr), Voice: supervise.Voice{Out: stderr}}
	defer h.WaitSaid()
	defer h.systemd.close()
	beats, err := h.systemd.beats()
	if err != nil {
		return err
	}
	defer beats.Stop()
	h.systemd.tell(notice{status: "waiting for " + name})
	h.grant, err = acquire(func(ahead, _ int) {
		h.systemd.tell(notice{status: fmt.Sprintf("waiting for %s: %d ahead", name, ahead)})
	})
	if err != nil {
		return err
	}
	if supervise.IsClosed(h.grant.Warned()) {
		why := h.why()
		_ = h.grant.Release() // there may be nothing left to release
		return &cli.Failure{Code: cli.ExitLost, Err: fmt.Errorf("not holding %q: %w", name, why)}
	}
	h.systemd.tell(notice{state: sd.SdNotifyReady, status: fmt.Sprintf("holding %s, token %v", name, h.grant.Token())})
	return h.run(beats.C)
}

// holder holds a lock for the units that are bound to its own.
type holder struct {
	name    string
	grant   *supervise.Grant
	signals *signals.Inbox
	systemd *systemd
	supervise.Voice
}

// run returns when the lock is let go.
func (h *holder) run(beats <-chan time.Time) error {
	for {
		select {
		case got := <-h.signals.C:
			if !ends(got) || supervise.IsClosed(h.grant.Warned()) {
				continue // the loss comes first
			}
			h.systemd.tell(notice{state: sd.SdNotifyStopping, status: "letting go of " + h.name})
			if err := h.grant.Release(); err != nil {
				return &cli.Failure{Code: cli.ExitUnavailable, Err: fmt.Errorf("release %q: %w", h.name, err)}
			}
			return nil
		case <-h.grant.Warned():
			h.lose()
			_ = h.grant.Release() // it is told already that the lock is lost
			return &cli.Failure{Code: cli.ExitLost}
		case <-h.grant.Silent:
			h.Say("bakeryd is gone; %q is held until %s unless it comes back", h.name, h.grant.Deadline().Format(time.TimeOnly))
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
	h.Say("lost %q: %v", h.name, h.why())
	if !h.systemd.listens {
		return
	}
	h.systemd.tell(notice{state: sd.SdNotifyStopping, status: fmt.Sprintf("lost %s: %v", h.name, h.why()),
		extend: max(rest, 0) + 2*supervise.SayWithin})
	for rest > 0 {
		select {
		case got := <-h.signals.C:
			if ends(got) {
				return
			}
		case <-time.After(min(rest, supervise.LookAgain)):
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
