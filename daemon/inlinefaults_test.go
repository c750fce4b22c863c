package daemon

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// settled waits until the disk shows the first host's hold, so that its driver rests.
func settled(t *testing.T, c *cluster) {
	t.Helper()
	eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
}

// TestTimeoutThoughIOHangs: a client of the socket is notified of its timeout.
func TestTimeoutThoughIOHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		used(t, d)
		s := serveSocket(t, d)
		hung := f.Inject(disktest.Fault{From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 8), Hang: true})
		codes := make(chan string, 1)
		go func() {
			_, r := s.post(`{"name": "x", "timeout_ms": 100}`)
			e := nextEvent(t, r)
			for e.Kind == "waiting" {
				e = nextEvent(t, r)
			}
			codes <- e.Kind + " " + e.Code
		}()
		<-hung.Hit()
		require.Equal(t, "refused timeout", received(t, "the timeout of 100ms", codes))
		hung.Release()
	})
}

// TestLostWhileAReleaseHangs: a client has released and gone, its release hangs, and the lease
// ends. Nothing is held any more, so the watchdog must still be fed (safe).
func TestLostWhileAReleaseHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d, err := Join(t.Context(), c.config(1, through(f)))
		require.NoError(t, err)
		used(t, d)
		s := serveSocket(t, d)
		conn, r := s.post(`{"name": "x"}`)
		for nextEvent(t, r).Kind != "granted" {
		}
		settled(t, c)
		hung := f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Hang: true})
		require.NoError(t, conn.Close())
		<-hung.Hit()
		all := f.Inject(disktest.Fault{Hang: true})
		<-d.Lost()
		eventually(t, "nothing is held, so the watchdog is fed", func() bool { return d.safe(c.clock.Now()) })
		all.Release()
		f.RemoveFaults()
		require.NoError(t, d.giveUp(timeout(t, generous)))
	})
}

// TestSecondConnectionIsTold: a client that has reconnected is sent its place.
func TestSecondConnectionIsTold(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		other := c.host(2)
		h := acquire(t, other, locks.Request{Name: "x"})
		s := serveSocket(t, d)
		body := fmt.Sprintf(`{"name": "x", "session": "%032x"}`, 7)
		_, r := s.post(body)
		require.Equal(t, "waiting", nextEvent(t, r).Kind)
		told := make(chan string, 1)
		go func() {
			_, r := s.post(body)
			told <- nextEvent(t, r).Kind
		}()
		require.Equal(t, "waiting", received(t, "its place", told))
		require.NoError(t, h.Release())
	})
}
