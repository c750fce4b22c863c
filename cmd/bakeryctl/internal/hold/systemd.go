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

// systemd is told of a hold by sd_notify(3), from a goroutine of its own: the hold goes on, and ends, whether or not
// systemd takes anything in. It is nobody without NOTIFY_SOCKET.
type systemd struct {
	listens bool
	stderr  io.Writer
	pending chan notice // what is yet to be told; takes one
	writer  sync.WaitGroup
}

// notice is what systemd is told at once.
type notice struct {
	state  string        // READY=1 or STOPPING=1; empty: as before
	status string        // for people; empty: as before
	extend time.Duration // it may take so long to stop, whatever the unit says; 0: what the unit says
	beat   bool          // for its watchdog
}

// then is what to tell if next is to be told before this was.
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
	s := &systemd{listens: os.Getenv("NOTIFY_SOCKET") != "", stderr: stderr, pending: make(chan notice, 1)}
	if s.listens {
		s.writer.Go(s.write)
	}
	return s
}

// tell may be called from one goroutine.
func (s *systemd) tell(n notice) {
	if !s.listens {
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
	told := false
	for n := range s.pending {
		if _, err := sd.SdNotify(false, n.String()); err != nil && !told {
			told = true // once says it
			fmt.Fprintf(s.stderr, "bakeryctl: tell systemd: %v\n", err)
		}
	}
}

// close waits until all was told.
func (s *systemd) close() {
	close(s.pending)
	written := make(chan struct{})
	go func() {
		s.writer.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(supervise.SayWithin):
	}
}

// beats returns a ticker for systemd's watchdog, which stands still if there is none.
func (s *systemd) beats() (*time.Ticker, error) {
	timeout, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return nil, &cli.Failure{Code: cli.ExitUsage, Err: fmt.Errorf("watchdog of systemd: %w", err),
			Hint: "WATCHDOG_USEC is set by systemd, from WatchdogSec= of the unit"}
	}
	if timeout == 0 || !s.listens {
		t := time.NewTicker(time.Hour)
		t.Stop()
		return t, nil
	}
	return time.NewTicker(max(timeout/3, time.Millisecond)), nil // one may be late
}
