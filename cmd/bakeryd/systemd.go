package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/api"
)

// systemd sends bakeryd's state with sd_notify(3). Without NOTIFY_SOCKET it does nothing.
type systemd struct {
	log   *slog.Logger
	beats sync.WaitGroup

	mu      sync.Mutex // guards the rest
	beating bool       // a beat for the unit's watchdog is being sent
	over    bool
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beating || s.over {
		return
	}
	s.beating = true
	s.beats.Go(func() {
		s.tell(sd.SdNotifyWatchdog)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.beating = false
	})
}

// end ends the beats. The lease of a host that was handed over is renewed until the process ends.
func (s *systemd) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.beats.Wait()
}

// tell sends a state: lines as in sd_notify(3).
func (s *systemd) tell(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Warn("sending the state to systemd failed", "err", err)
	}
}
