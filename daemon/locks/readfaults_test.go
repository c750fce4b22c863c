package locks

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestRequest_AndRemovalOfTheLock_HolderIsTold: this host removes a lock of two permits. The mark
// of the removal overwrites a request.
func TestRequest_AndRemovalOfTheLock_HolderIsTold(t *testing.T) {
	for name, removesFirst := range map[string]bool{"while removing": true, "then removal": false} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			l := newListener()
			req := l.request("x", layout.Exclusive)
			req.Permits = 2
			h := acquire(t, a, req)
			var removed <-chan error
			if removesFirst {
				removed = removing(t, b, "x", false)
				eventually(t, "drains", func() bool { return c.Slot(1, 2).Creation > c.Entry(1).Creation })
			}
			asked, err := b.Request(t.Context(), "x", "reboot")
			require.NoError(t, err)
			require.Len(t, asked, 1)
			if !removesFirst {
				removed = removing(t, b, "x", false)
			}
			within(t, "telling of a request that is durable", func() { <-l })
			require.NoError(t, h.Release())
			require.NoError(t, ended(t, removed))
		})
	}
}

// TestValueOutlivesAReadErrorAtFirstUse: a passing read error at the first use of the lock by this
// incarnation.
func TestValueOutlivesAReadErrorAtFirstUse(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		setValue(t, a, "precious")
		require.NoError(t, a.Close(t.Context()))
		d, disk := c.faultyHost(1)
		disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO, Times: 2})
		h := acquire(t, d, Request{Name: "x"})
		require.NoError(t, h.Release())
		require.Equal(t, "precious", string(valueOf(t, d).Value))
	})
}

// TestAcquire_OwnSlotUnreadableForAMoment_TokensGrow (TOKENS): the ticket there is above this host's clock by
// more than an unreadable slot may hide, because the clock was set back.
func TestAcquire_OwnSlotUnreadableForAMoment_TokensGrow(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		first := acquire(t, c.host(2), Request{Name: "x"})
		require.NoError(t, first.Release())
		d, disk := c.faultyHost(1)
		last := layout.MakeTicket(first.Token().Number()+1<<30, 1)
		c.put(layout.Slot{Lock: 1, Host: 1, Incarnation: 1, Creation: c.Entry(1).Creation, Ticket: last})
		disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO, After: 1, Times: 2})
		h := acquire(t, d, Request{Name: "x"})
		require.Greater(t, h.Token(), last)
		require.NoError(t, h.Release())
	})
}
