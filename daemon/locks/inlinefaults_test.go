package locks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// settled waits until the disk shows the first host's hold, so that its driver rests.
func settled(t *testing.T, c *cluster) {
	t.Helper()
	eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
}

// TestRemoverWhoGaveUp: while the releaser's goroutine checks whether other hosts wait (the remover
// is next), the remover gives up. The next local client is granted the lock. The driver must not
// continue the removal then: the slot would show idle under the hold.
func TestRemoverWhoGaveUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		other := c.host(2)
		lk := used(t, d)
		require.NoError(t, acquire(t, other, Request{Name: "x"}).Release())
		a := <-submitted(t.Context(), d, Request{Name: "x"})
		require.NoError(t, a.err)
		ctx, cancel := context.WithCancel(t.Context())
		removed := make(chan error, 1)
		go func() { removed <- d.Remove(ctx, "x", false) }()
		queued := func(n int) func() bool {
			return func() bool { return lk.Queue.Vitals(time.Now()).Waiting == n }
		}
		eventually(t, "the remover waits", queued(1))
		next := submitted(t.Context(), d, Request{Name: "x"})
		eventually(t, "the next waits", queued(2))
		settled(t, c)
		look := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 8), Hang: true})
		released := make(chan error, 1)
		go func() { released <- a.hold.Release() }()
		<-look.Hit()
		cancel()
		require.ErrorIs(t, <-removed, context.Canceled)
		look.Release()
		n := <-next
		require.NoError(t, n.err)
		require.NoError(t, <-released)
		_, err := other.Acquire(timeout(t, time.Second), Request{Name: "x"})
		require.Error(t, err, "host 1 holds it by %v", n.hold.Token())
		within(t, "the release", func() { _ = n.hold.Release() })
	})
}

// TestCloseLeavesNoClaim: a lock that no client of this host wants any more does not stay claimed
// while another one is held here.
func TestCloseLeavesNoClaim(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		other := c.host(2)
		used(t, d)
		require.NoError(t, acquire(t, other, Request{Name: "x"}).Release())
		kept := acquire(t, d, Request{Name: "y"})
		look := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 8), Hang: true, Err: unix.ETIMEDOUT, Times: 1})
		done := make(chan (<-chan result), 1)
		go func() { done <- submitted(t.Context(), d, Request{Name: "x"}) }()
		<-look.Hit()
		closed := make(chan error, 1)
		go func() { closed <- d.Close(timeout(t, generous)) }()
		<-d.stop
		look.Release()
		r := <-<-done
		require.ErrorIs(t, r.err, api.ErrUnavailable)
		// no claim blocks it
		require.NoError(t, got(t, start(t, other, Request{Name: "x"})).Release())
		require.NoError(t, kept.Release())
		require.NoError(t, <-closed)
	})
}
