package locks

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
)

// TestOverwrittenWaiterOfPermits: W waits for one of two permits, and its slot is zeroed. A
// releases; C, which has never seen W's slot, enters. W, which polls all slots, must see its own
// before it enters as a third.
func TestOverwrittenWaiterOfPermits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 320, 4)
		w := c.host(300) // at this distance, slots are not all read at every poll
		a, b, x := c.host(1), c.host(2), c.host(3)
		two := Request{Name: "x", Permits: 2}
		first, second := acquire(t, a, two), acquire(t, b, two)
		eventually(t, "shown", func() bool { return c.Slot(1, 1).Phase == layout.Held && c.Slot(1, 2).Phase == layout.Held })
		try := two
		try.Try = true
		_, err := x.Acquire(t.Context(), try)
		require.ErrorIs(t, err, api.ErrBusy)
		waits := start(t, w, two)
		eventually(t, "it waits", func() bool { return c.Slot(1, 300).Phase == layout.Waiting })
		c.Write(c.Geo.Slot(1, 300), func([]byte) error { return nil })
		require.NoError(t, first.Release())
		third, err := x.Acquire(t.Context(), two)
		if err == nil { // W was not faster
			within(t, "the end of its lease", func() { <-w.Lost() })
			require.ErrorIs(t, (<-waits).err, api.ErrUnavailable)
			require.NoError(t, third.Release())
		}
		require.NoError(t, second.Release())
	})
}

// TestZeroedSlotOfOneWhoDoesNotUseTheLock: a host that has seen it written waits for it, so its
// owner rewrites it.
func TestZeroedSlotOfOneWhoDoesNotUseTheLock(t *testing.T) {
	t.Parallel()
	for name, attached := range map[string]bool{"not known": false, "attached": true} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
			require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
			require.NoError(t, b.Close(t.Context()))
			zero := func() { c.Write(c.Geo.Slot(1, 2), func([]byte) error { return nil }) }
			if attached {
				zero()
			}
			b = c.host(2)
			if attached {
				lk, err := b.attach(c.Entry(1))
				require.NoError(t, err)
				lk.CheckOwn(true)
			} else {
				zero()
			}
			h, err := a.Acquire(timeout(t, generous), Request{Name: "x"})
			require.NoError(t, err)
			require.NoError(t, h.Release())
		})
	}
}
