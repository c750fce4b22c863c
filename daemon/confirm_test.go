package daemon

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/processtest"
)

// TestLink_UnconfirmedGrant_IsPassedOn: a client that does not run when it is granted the lock does
// not block the others.
func TestLink_UnconfirmedGrant_IsPassedOn(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	stopped := s.link(`{"lock":{"name":"x","confirm":true,"witness":true}}`)
	first := stopped.until("granted")
	next := s.link(`{"lock":{"name":"x"}}`)
	g := next.until("granted")

	refused := stopped.until("refused")
	require.Equal(t, "unconfirmed", refused.Code)
	stopped.say(fmt.Sprintf(`{"confirm":"%v"}`, first.Token))
	require.Equal(t, "lost", stopped.until("refused").Code, "it comes too late")
	next.unlock(g.Token)
	next.until("released")
	again := s.link(`{"lock":{"name":"x","confirm":true}}`)
	again.until("granted")
}

// TestLink_ConfirmedGrant_Stays: beyond the time for the confirmation.
func TestLink_ConfirmedGrant_Stays(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		a, client := opened(t, d, api.LockRequest{Name: "x", Confirm: true})
		<-a.Session().Done()
		h, err := a.Session().Outcome()
		require.NoError(t, err)
		require.NoError(t, a.Confirm(h.Token()))
		time.Sleep(2 * c.SB.Lease)
		require.NotContains(t, client.kinds(), api.Refused)
		require.Contains(t, client.kinds(), api.Renewed)
		require.NoError(t, h.Err())
		a.Leave()
	})
}

// TestRestart_UnconfirmedGrant_IsPassedOn: a process that waits to become the command does not keep
// the lock, even if it and its client are stopped. A confirmed command keeps it.
func TestRestart_UnconfirmedGrant_IsPassedOn(t *testing.T) {
	t.Parallel()
	for _, confirmed := range []bool{false, true} {
		t.Run(fmt.Sprintf("confirmed %v", confirmed), func(t *testing.T) {
			m := realCluster(t, 8, 4).mortal(1)
			m.confirmInTime()
			client := m.link(`{"lock":{"name":"x","confirm":true,"witness":true}}`)
			g := client.until("granted")
			if confirmed {
				client.say(fmt.Sprintf(`{"confirm":"%v"}`, g.Token))
				client.until("confirmed")
			}
			f, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
			require.NoError(t, err)
			m.kill()
			stub := processtest.Start(t, processtest.UntilKilled, f)
			require.NoError(t, f.Close())
			m.rise()
			next := m.link(`{"lock":{"name":"x"}}`)
			if confirmed {
				eventually(t, "the hold is an orphan", func() bool {
					held, _ := m.d.sessions.Holding()
					return len(held) > 0 && held[0].IsOrphan() && !held[0].Detached()
				})
				require.True(t, stub.Alive())
				require.NoError(t, stub.Signal(syscall.SIGKILL))
			}
			next.until("granted")
			eventually(t, "what waits to become the command to end", func() bool { return !stub.Alive() })
		})
	}
}

// TestLink_UnconfirmedGrantOfAClientThatEnds_IsPassedOn: the same while bakeryd runs.
func TestLink_UnconfirmedGrantOfAClientThatEnds_IsPassedOn(t *testing.T) {
	c := realCluster(t, 8, 4)
	c.lasting(time.Minute)
	s := serveSocket(t, c.host(1))
	client := s.link(`{"lock":{"name":"x","confirm":true,"witness":true}}`)
	g := client.until("granted")
	f, err := os.OpenFile(g.Witness, os.O_WRONLY, 0)
	require.NoError(t, err)
	processtest.Start(t, processtest.UntilKilled, f)
	require.NoError(t, f.Close())
	client.leave()
	s.link(`{"lock":{"name":"x"}}`).until("granted")
}

// confirmInTime gives clients unlimited time to confirm, so that a stall of the machine does not
// matter.
func (s *served) confirmInTime() {
	s.d.sessions.ConfirmWithin = generous
}

// TestLink_UnconfirmedGrantOfAnotherToken_IsRefused: only the grant that was sent can be confirmed.
func TestLink_UnconfirmedGrantOfAnotherToken_IsRefused(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	l := s.link(`{"lock":{"name":"x"}}`)
	g := l.until("granted")
	other := layout.Ticket(uint64(g.Token) + 1)
	l.say(fmt.Sprintf(`{"confirm":"%v"}`, other))
	require.Equal(t, "lost", l.until("refused").Code)
}

func TestStream_Confirm_IsRefused(t *testing.T) {
	s := serveSocket(t, realCluster(t, 8, 4).host(1))
	conn := s.dial()
	ask(t, conn, `{"name":"x","confirm":true}`, "")
	await(t, conn, "a grant is confirmed on a link only")
}
