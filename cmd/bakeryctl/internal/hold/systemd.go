package hold

import (
	"fmt"
	"io"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

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
