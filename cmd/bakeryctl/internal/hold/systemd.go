package hold

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/supervise"
)

// systemd sends sd_notify(3) messages from its own goroutine, so a blocked systemd does not delay
// the hold or its end. Without NOTIFY_SOCKET it sends nothing.
type systemd struct {
	enabled bool
	stderr  io.Writer
	pending chan notice // the notice not sent yet; capacity 1
	writer  sync.WaitGroup
}

// notice is the content of one message to systemd.
type notice struct {
	state  string        // READY=1 or STOPPING=1; empty: unchanged
	status string        // text for the operator; empty: unchanged
	extend time.Duration // new stop timeout; 0: that of the unit
	beat   bool          // keep-alive for the watchdog of systemd
}

// then returns n merged with next, which replaces it before it was sent.
func (n notice) then(next notice) notice {
	return notice{state: cmp.Or(next.state, n.state), status: cmp.Or(next.status, n.status),
		extend: cmp.Or(next.extend, n.extend), beat: n.beat || next.beat}
}

func (n notice) String() string {
	var lines []string
	if n.state != "" {
		lines = append(lines, n.state)
	}
	if n.status != "" {
		lines = append(lines, "STATUS="+n.status)
	}
	if n.extend > 0 {
		lines = append(lines, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", n.extend.Microseconds()))
	}
	if n.beat {
		lines = append(lines, sd.SdNotifyWatchdog)
	}
	return strings.Join(lines, "\n")
}

func newSystemd(stderr io.Writer) *systemd {
	s := &systemd{enabled: os.Getenv("NOTIFY_SOCKET") != "", stderr: stderr, pending: make(chan notice, 1)}
	if s.enabled {
		s.writer.Go(s.write)
	}
	return s
}

// notify queues a notice. It must be called from one goroutine.
func (s *systemd) notify(n notice) {
	if !s.enabled {
		return
	}
	select {
	case old := <-s.pending:
		n = old.then(n)
	default:
	}
	s.pending <- n
}

func (s *systemd) write() {
	reported := false
	for n := range s.pending {
		if _, err := sd.SdNotify(false, n.String()); err != nil && !reported {
			reported = true
			fmt.Fprintf(s.stderr, "bakeryctl: notify systemd: %v\n", err)
		}
	}
}

// close blocks until all notices are sent, supervise.MessageTimeout at most.
func (s *systemd) close() {
	close(s.pending)
	written := make(chan struct{})
	go func() {
		s.writer.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(supervise.MessageTimeout):
	}
}

// beats returns a ticker for keep-alives to systemd. Without a watchdog it never ticks.
func (s *systemd) beats() (*time.Ticker, error) {
	timeout, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("read the watchdog timeout of systemd: %w", err),
			Hint: "do not set WATCHDOG_USEC; systemd sets it from WatchdogSec= of the unit"}
	}
	if timeout == 0 || !s.enabled {
		t := time.NewTicker(time.Hour)
		t.Stop()
		return t, nil
	}
	return time.NewTicker(max(timeout/3, time.Millisecond)), nil // tolerates a late keep-alive
}
