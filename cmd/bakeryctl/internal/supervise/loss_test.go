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
)

// lostHold is a lost hold whose deadline is in the future.
type lostHold struct{}

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

func TestSupervisor_LossAfterTheCommandEnded_ReturnsExitLost(t *testing.T) {
	for range 50 { // select picks one of the two at random
		ended := make(chan struct{})
		close(ended)
		var output bytes.Buffer
		done := exec.Command("true")
		if err := done.Run(); err != nil {
			t.Fatal(err)
		}
		s := supervisor{grant: &Grant{Held: lostHold{}}, command: &command{cmd: done, since: ticksNow(), ended: ended},
			launch: Launch{Lock: "x"}, inbox: &signals.Inbox{}, Messages: Messages{Out: &output}}
		code := s.run()
		s.Flush()
		if code != cli.ExitLost || !strings.HasSuffix(output.String(), ": evicted\n") {
			t.Fatalf("exit code %d, want %d; output %q", code, cli.ExitLost, &output)
		}
	}
}
