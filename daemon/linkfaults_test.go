package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/handover"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestLinkReaderHangsForAnotherClient: the goroutine that reads a link hangs in the device for the
// next client, after its own was granted the lock. The host counts as safe once that client has
// released and gone. Otherwise the watchdog would reset it.
func TestLinkReaderHangsForAnotherClient(t *testing.T) {
	c := realCluster(t, 8, 4)
	d, f := c.faultyHost(1)
	s := serveSocket(t, d)
	require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
	eventually(t, "the driver rests", func() bool { return len(d.InUse()) == 0 })
	from, to := c.Geo.Slot(1, 1), c.Geo.Slot(1, 1)+int64(c.Geo.Hosts*c.Geo.Stride)
	release := f.Hang(disktest.Fault{Op: blockdev.OpWrite, From: from, To: to})
	a := s.link(`{"lock":{"name":"x","mode":"shared"}}`)
	eventually(t, "a claims", func() bool { return f.Stats().Oldest > 0 })
	s.link(`{"lock":{"name":"x","mode":"shared"}}`)
	eventually(t, "b waits", func() bool { return d.Vitals()[0].Waiting == 2 })
	// The read of the claim passes, that of elsewhere hangs.
	f.Inject(disktest.Fault{Op: blockdev.OpRead, From: from, To: to, After: 1, Hang: true})
	release()
	tok := a.until("granted").Token
	a.unlock(tok)
	a.leave()                // as client.Unlock does after its timeout
	f.Hang(disktest.Fault{}) // the lease is lost
	<-d.mem.Lost()
	eventually(t, "nothing is held, so the host must not be reset", func() bool { return d.safe(clock.Boottime.Now()) })
	f.RemoveFaults()
}

// TestLinkModeWhileNotListening: a change of mode while the client does not read is sent later.
func TestLinkModeWhileNotListening(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		a, client := opened(t, d, api.LockRequest{Name: "x"})
		client.deaf.Store(true)
		<-a.Session().Done()
		h, err := a.Session().Outcome()
		require.NoError(t, err)
		require.NoError(t, h.SetMode(t.Context(), layout.Shared))
		time.Sleep(2 * c.SB.Lease)
		require.Equal(t, []string{api.Granted}, client.kinds())
		client.deaf.Store(false)
		time.Sleep(c.SB.Lease)
		require.Contains(t, client.kinds(), api.Mode)
		a.Leave()
	})
}

// TestLinkClockSetBack: a client that reconnects after a restart is sent its place, even if the
// wall clock was set back.
func TestLinkClockSetBack(t *testing.T) {
	m := realCluster(t, 8, 4).mortal(1)
	holder := m.linkAs(1, "")
	token := holder.until("granted").Token
	waiter := m.linkAs(2, "")
	waiter.until("waiting")
	// the clock is set back by an hour before the restart
	m.edit(fmt.Sprintf("%032x", 2), func(r *handover.Session) { r.Since = r.Since.Add(time.Hour) })
	m.restart()
	holder = m.linkAs(1, `,"token":"`+token.String()+`"`)
	holder.until("granted")
	waiter = m.linkAs(2, "")
	waiter.until("waiting")
}
