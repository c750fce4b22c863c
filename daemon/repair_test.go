package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// check returns the findings of check.
func (c *cluster) check() []check.Finding {
	c.t.Helper()
	done, err := check.Check(c.t.Context(), c.Disk.OpenReadOnly(), check.Options{})
	require.NoError(c.t, err)
	return done.Findings
}

// repair repairs a lock's entry by a host that has joined for that.
func (c *cluster) repair(d *Host, number int) (string, error) {
	c.t.Helper()
	r, err := locks.NewRepairer(d.Manager, func(message string) { c.t.Log(message) })
	require.NoError(c.t, err)
	return r.Entry(c.t.Context(), number)
}

// tornEntry makes a host fail during a write of the entry of a lock.
func (c *cluster) tornEntry(d *Host, f *disktest.Faulty, name string) {
	c.t.Helper()
	torn := f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Slot(0, 1), Err: unix.EIO, Landed: 50})
	_, err := d.Acquire(c.t.Context(), locks.Request{Name: name, Permits: 3})
	require.ErrorIs(c.t, err, unix.EIO)
	require.Positive(c.t, torn.Fired())
}

// TestRepairFromIntent: the intent of a host is known, also when the host is gone, and also to a
// repairer that gets its id.
func TestRepairFromIntent(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]int{"others up": 3, "own id": 1} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, f := c.faultyHost(1)
			c.tornEntry(a, f, "x")
			if id == 1 {
				require.NoError(t, a.Close(t.Context()))
			} else {
				c.host(2)
			}
			found := c.check()
			require.NotEmpty(t, found)
			require.Contains(t, found[0].Remedy, "restoring lock x with 3 permits")
			// any other host of this id takes the intent back
			repairer := c.host(id, func(cfg *Config) { cfg.repair = true })
			done, err := c.repair(repairer, 1)
			require.NoError(t, err)
			require.Contains(t, done, "restoring lock x with 3 permits")
			e := c.Entry(1)
			require.Equal(t, layout.Entry{Lock: 1, Name: "x", Permits: 3, Creation: e.Creation}, e)
			f.RemoveFaults()
			require.NoError(t, acquire(t, c.host(4), locks.Request{Name: "x", Permits: 3}).Release())
		})
	}
}
