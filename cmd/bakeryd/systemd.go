package main

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/tasks"
)

// systemd sends bakeryd's state with sd_notify(3). Without NOTIFY_SOCKET it does nothing.
type systemd struct {
	log     *slog.Logger
	beating atomic.Bool // a beat for the unit's watchdog is being sent
	beats   tasks.Group
}

// newSystemd makes the service of cfg feed the unit's watchdog. A unit without WatchdogSec= is no
// error; an invalid WATCHDOG_USEC is an ErrInvalid.
func newSystemd(log *slog.Logger, cfg *daemon.Config) (*systemd, error) {
	s := &systemd{log: log}
	timeout, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("%w: watchdog of systemd: %w: WATCHDOG_USEC is set by systemd, from WatchdogSec= of the unit",
			api.ErrInvalid, err)
	}
	if timeout == 0 {
		return s, nil
	}
	// Half of the timeout: one beat may be late.
	cfg.Alive, cfg.AliveEvery = s.beat, max(timeout/2, time.Millisecond)
	return s, nil
}

// beat feeds the unit's watchdog unless the last beat is still being sent. It does not block: systemd
// may be slow, and the lease must not wait for it.
func (s *systemd) beat() {
	if s.beating.CompareAndSwap(false, true) {
		s.beats.Go(func() {
			s.tell(sd.SdNotifyWatchdog)
			s.beating.Store(false)
		})
	}
}

// tell sends a state: lines as in sd_notify(3).
func (s *systemd) tell(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Warn("sending the state to systemd failed", "err", err)
	}
}
