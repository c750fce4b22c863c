package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

var reader = locks.Request{Name: "x", Mode: layout.Shared}

// eventually waits until so returns true.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	within(t, what, func() {
		for !so() && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	})
}

func TestUpgradeAndDowngrade(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *Host) {
		h := acquire(t, a, reader)
		token := h.Token()
		require.NoError(t, h.SetMode(t.Context(), layout.Exclusive))
		require.NoError(t, h.SetMode(t.Context(), layout.Exclusive), "the mode that it has")
		require.Equal(t, layout.Exclusive, h.Mode())
		require.Equal(t, token, h.Token())
		eventually(t, "the disk shows it", func() bool {
			s := c.Slot(1, 1)
			return s.Phase == layout.Held && s.Mode == layout.Exclusive && s.Ticket == token
		})
		elsewhere, here := start(t, b, reader), start(t, a, reader)
		acquireFails(t, a, locks.Request{Name: "x", Mode: layout.Shared, Try: true}, api.ErrBusy)
		none(t, elsewhere, here)
		status, err := a.Status()
		require.NoError(t, err)
		require.Equal(t, layout.Exclusive, status.Locks[0].Holders[0].Mode)

		require.NoError(t, h.SetMode(t.Context(), layout.Shared))
		require.Equal(t, layout.Shared, c.Slot(1, 1).Mode, "durable when it returns")
		r1, r2 := got(t, elsewhere), got(t, here)
		require.Equal(t, token, h.Token())
		require.ErrorIs(t, h.SetMode(t.Context(), layout.Exclusive), api.ErrUpgrade)
		require.NoError(t, r1.Release())
		require.NoError(t, r2.Release())
		require.NoError(t, h.SetMode(t.Context(), layout.Exclusive))
		require.NoError(t, h.Release())
		require.ErrorIs(t, h.SetMode(t.Context(), layout.Shared), api.ErrLost)
		last := acquire(t, a, locks.Request{Name: "x"})
		require.Greater(t, last.Token(), token)
		require.NoError(t, last.Release())
	})
}
