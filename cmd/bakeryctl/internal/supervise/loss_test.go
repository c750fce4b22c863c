package supervise

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/signals"
	"github.com/bakeryd/bakeryd/daemon/client/clienttest"
	"github.com/bakeryd/bakeryd/layout"
)

// lostHold is a hold that is lost, with its deadline yet to come.
type lostHold struct{}

func (lostHold) Token() layout.Ticket { return clienttest.Token }

func (lostHold) Deadline() time.Time { return time.Now().Add(time.Hour) }

func (lostHold) StopAt() time.Duration { return 0 }

func (lostHold) Grace() time.Duration { return time.Second }

func (lostHold) Err() error { return errors.New("evicted") }

func (h lostHold) Warned() <-chan struct{} { return h.Lost() }

func (lostHold) Lost() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}

func TestLossCountsThoughTheCommandEnded(t *testing.T) {
	for range 50 { // which of the two is seen first is up to chance
		ended := make(chan struct{})
		close(ended)
		var told bytes.Buffer
		done := exec.Command("true")
		if err := done.Run(); err != nil {
			t.Fatal(err)
		}
		s := supervisor{grant: &Grant{Held: lostHold{}}, command: &command{cmd: done, since: ticksNow(), ended: ended},
			launch: Launch{Lock: "x"}, Voice: Voice{Out: &told}}
		code := s.run(&signals.Inbox{})
		s.WaitSaid()
		if code != cli.ExitLost || !strings.HasSuffix(told.String(), ": evicted\n") {
			t.Fatalf("exit code %d, want %d; told %q", code, cli.ExitLost, &told)
		}
	}
}
