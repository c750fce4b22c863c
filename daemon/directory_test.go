package daemon

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// acquireEntry creates locks until number want is among them.
func acquireEntry(t *testing.T, c *cluster, d *Host, name string, want int) int {
	t.Helper()
	for i := range c.Geo.Locks {
		h := acquire(t, d, locks.Request{Name: fmt.Sprint(name, i)})
		lock := h.Lock().Entry.Lock
		require.NoError(t, h.Release())
		if lock == want {
			return lock
		}
	}
	return 0
}

// TestLateWriteOfADeadHost: a directory entry that a host intended when it died may land at any
// time. Until then no host puts another lock there, nor the same name elsewhere.
func TestLateWriteOfADeadHost(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x", "y"} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			m := c.mortal(1)
			other := c.host(2)
			late := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Late: true, Err: unix.EIO})
			creator := m.ask(1, "") // creates x
			require.Equal(t, http.StatusInternalServerError, creator.r.StatusCode)
			require.Positive(t, late.Fired())
			m.kill()
			h := acquire(t, other, locks.Request{Name: name})
			landed, err := m.disk.Land()
			require.NoError(t, err)
			require.Positive(t, landed)
			names := map[string]int{}
			for lock := 1; lock <= 4; lock++ {
				names[c.Entry(lock).Name]++
			}
			require.Equal(t, 1, names["x"], "%v", names)
			require.Equal(t, 1, names[name], "%v", names)
			third := c.host(3)
			acquireFails(t, third, locks.Request{Name: name, Try: true}, api.ErrBusy)
			require.NoError(t, h.Release())
			require.NoError(t, acquire(t, third, locks.Request{Name: name}).Release())
		})
	}
}
