package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestIntentIsTakenBackLater: taking back an earlier bakeryd's intent is retried until it succeeds.
func TestIntentIsTakenBackLater(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m := c.mortal(1)
		require.NoError(t, acquire(t, m.d, locks.Request{Name: "y"}).Release())
		m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Err: unix.EIO})
		_, _, err := m.d.Create(t.Context(), "x", 1)
		require.Error(t, err)
		require.NotEmpty(t, c.Slot(0, 1).Value)
		m.kill()
		m.rise(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Times: 10, Err: unix.EIO})
		eventually(t, "it is carried out", func() bool { return len(c.Slot(0, 1).Value) == 0 })
		require.Equal(t, 1, c.named("x"))
	})
}
