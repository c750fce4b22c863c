package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
)

// TestTornClearing: the remover dies while it clears the entry, half of which lands.
func TestTornClearing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, a, b := c.mortal(1), c.host(2), c.host(3)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		crash := m.disk.Inject(blockdev.Fault{Op: blockdev.OpWrite, From: c.geo.Entry(1), To: c.geo.Entry(1) + 512, Crash: true, Landed: 50})
		go func() { _ = m.d.Remove(context.Background(), "x", false) }()
		within(t, "the crash", func() { <-crash.Hit() })
		m.dies(a)
		for _, d := range []*Daemon{a, b} {
			var h *Hold
			eventually(t, "the entry is restored", func() (done bool) {
				var err error
				h, err = d.Acquire(timeout(t, generous), Request{Name: "x"})
				if !errors.Is(err, ErrDamaged) { // what a client gets until the entry is restored
					require.NoError(t, err)
				}
				return err == nil
			})
			require.NoError(t, h.Release())
		}
	})
}

// TestLivingCreatorTakesItsIntentBack: a creator that failed and lives keeps its intent.
func TestLivingCreatorTakesItsIntentBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, f := c.faultyHost(1)
		b := c.host(2)
		f.Inject(blockdev.Fault{Op: blockdev.OpWrite, From: c.geo.Entry(1), To: c.geo.Entry(1) + 512, Times: entryTries, Err: unix.EIO})
		_, _, err := a.Create(t.Context(), "x", 1)
		require.ErrorIs(t, err, unix.EIO)
		require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
		require.Eventually(t, func() bool { err = b.Remove(t.Context(), "x", false); return err == nil }, generous, 100*time.Millisecond, "%v", err)
	})
}
