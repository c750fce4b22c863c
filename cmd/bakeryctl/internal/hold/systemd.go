package hold

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
	pending chan notice   // the notice not sent yet; capacity 1
	written chan struct{} // closed when all notices are sent
}

// notice is one message to systemd: the lines below; an empty one changes nothing.
type notice [4]string

const (
	state  = iota // READY=1 or STOPPING=1
	status        // text for the operator
	extend        // new stop timeout
	beat          // keep-alive for the watchdog of systemd
)

func newSystemd(stderr io.Writer) *systemd {
	s := &systemd{enabled: os.Getenv("NOTIFY_SOCKET") != "", stderr: stderr, pending: make(chan notice, 1), written: make(chan struct{})}
	go s.write()
	return s
}

// notify queues a notice. It must be called from one goroutine.
func (s *systemd) notify(n notice) {
	if !s.enabled {
		return
	}
	select {
	case old := <-s.pending: // not sent yet
		for i := range n {
			n[i] = cmp.Or(n[i], old[i])
		}
	default:
	}
	s.pending <- n
}

func (s *systemd) write() {
	defer close(s.written)
	reported := false
	for n := range s.pending {
		lines := slices.DeleteFunc(n[:], func(line string) bool { return line == "" })
		if _, err := sd.SdNotify(false, strings.Join(lines, "\n")); err != nil && !reported {
			reported = true
			fmt.Fprintf(s.stderr, "bakeryctl: notify systemd: %v\n", err)
		}
	}
}

// close blocks until all notices are sent, supervise.MessageTimeout at most.
func (s *systemd) close() {
	close(s.pending)
	select {
	case <-s.written:
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
