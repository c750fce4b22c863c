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

// systemd is told how bakeryd fares by sd_notify(3). It is nobody without NOTIFY_SOCKET.
type systemd struct {
	log   *slog.Logger
	beats chan struct{} // takes one; for the watchdog of the unit
	quit  chan struct{} // closed: nobody is to be told any more
	fed   sync.WaitGroup
}

// newSystemd has the watchdog of the unit fed by the service of cfg, which says when it is alive. A unit without
// WatchdogSec= is no error; a WATCHDOG_USEC that makes no sense is an ErrInvalid.
func newSystemd(log *slog.Logger, cfg *daemon.Config) (*systemd, error) {
	s := &systemd{log: log, beats: make(chan struct{}, 1), quit: make(chan struct{})}
	timeout, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("%w: watchdog of systemd: %w: WATCHDOG_USEC is set by systemd, from WatchdogSec= of the unit",
			api.ErrInvalid, err)
	}
	if timeout == 0 {
		return s, nil
	}
	// Half of it: one may be late.
	cfg.Alive, cfg.AliveEvery = s.beat, max(timeout/2, time.Millisecond)
	s.fed.Go(s.feed)
	return s, nil
}

// beat returns at once: systemd may be slow to take in what it is told, and the lease is not to wait for that.
func (s *systemd) beat() {
	select {
	case s.beats <- struct{}{}:
	default:
	}
}

func (s *systemd) feed() {
	for {
		select {
		case <-s.beats:
			s.tell(sd.SdNotifyWatchdog)
		case <-s.quit:
			return
		}
	}
}

// close ends the feeding of the watchdog.
func (s *systemd) close() {
	close(s.quit)
	s.fed.Wait()
}

func (s *systemd) joining(device string) { s.tell("STATUS=joining the lockspace on " + device) }

func (s *systemd) ready(host int, device string) {
	s.tell(fmt.Sprintf("%s\nSTATUS=host %d on %s", sd.SdNotifyReady, host, device))
}

func (s *systemd) stopping() { s.tell(sd.SdNotifyStopping) }

func (s *systemd) tell(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Warn("telling systemd failed", "err", err)
	}
}
