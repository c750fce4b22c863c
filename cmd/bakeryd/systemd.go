package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

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

// notified reports whether a supervisor wants to be notified.
func (*systemd) notified() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// keep has systemd keep a connection for the next process: sd_pid_notify_with_fds(3). The unit's
// FileDescriptorStoreMax= limits them.
func (s *systemd) keep(name string, fd int) {
	s.store("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, unix.UnixRights(fd))
}

func (s *systemd) drop(name string) { s.store("FDSTOREREMOVE=1\nFDNAME="+name, nil) }

func (s *systemd) store(state string, rights []byte) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}, unix.MSG_NOSIGNAL)
		_ = unix.Close(fd)
	}
	if err != nil {
		s.log.Warn("having systemd keep a connection for a restart failed", "err", err)
	}
}

// kept returns the connections that systemd has kept, by name.
func kept() map[string]*os.File {
	files := map[string]*os.File{}
	for _, f := range activation.Files(true) {
		files[f.Name()] = f
	}
	return files
}
