package locks

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestRemoveWhatIsBeingMended: an entry is restored, or about to be, while a remover waits for the
// lock.
func TestRemoveWhatIsBeingMended(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, f := c.faultyHost(1)
		r, other, third := c.host(2), c.host(3), c.host(4)
		h := acquire(t, a, Request{Name: "x"})
		removed := removing(t, r, "x", false)
		require.Eventually(t, func() bool { return c.Slot(1, 2).Phase == layout.Waiting }, generous, time.Millisecond)
		c.Spoil(c.Geo.Entry(1))
		fault := f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Entry(1) + 512, Err: unix.EIO})
		// its scrub restores it
		require.Eventually(t, func() bool { return fault.Fired() >= entryTries }, generous, time.Millisecond)
		require.NoError(t, h.Release())
		if err := ended(t, removed); errors.Is(err, api.ErrIntended) {
			t.Log(err)
			f.RemoveFaults()
			return
		}
		t.Log(c.directory())
		ho := acquire(t, other, Request{Name: "x"})
		f.RemoveFaults()
		_, _, err := a.Create(t.Context(), "z", 1)
		t.Log(err, c.directory())
		require.NoError(t, r.Close(t.Context()))
		_, err = third.Acquire(timeout(t, 5*time.Second), Request{Name: "x"})
		require.Error(t, err, "host 3 holds %+v", ho.Lock().Entry)
		require.NoError(t, ho.Release())
	})
}

// TestCloseBesideADamagedFreeEntry: the free entry of a removed lock that this host has used is
// damaged.
func TestCloseBesideADamagedFreeEntry(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		require.NoError(t, b.Remove(t.Context(), "x", false))
		c.Spoil(c.Geo.Entry(1))
		time.Sleep(2 * c.SB.Lease)
		require.NoError(t, a.Close(timeout(t, generous)))
	})
}

// TestDirectory_IntentOfLivingHostUnreadable_WaitsForIt: nothing is concluded from a host that is
// up.
func TestDirectory_IntentOfLivingHostUnreadable_WaitsForIt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, f := c.faultyHost(1)
		b := c.host(2)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		slot := c.Geo.Slot(lockspace.DirectoryLock, 1)
		held := f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: slot, To: slot + 512, Err: unix.EIO})
		c.Spoil(slot)
		_, err := b.intents(b.disk.Dev)
		require.ErrorIs(t, err, api.ErrDamaged)
		eventually(t, "it is asked to rewrite it", func() bool { return held.Fired() > 0 })
		f.RemoveFaults()
		eventually(t, "it has rewritten it", func() bool { _, err := b.intents(b.disk.Dev); return err == nil })
	})
}

// TestDaemon_OwnIntentUnreadableAtJoin_RewritesIt: the next incarnation of the host makes it
// readable.
func TestDaemon_OwnIntentUnreadableAtJoin_RewritesIt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		require.NoError(t, acquire(t, c.host(2), Request{Name: "x"}).Release())
		c.Spoil(c.Geo.Slot(lockspace.DirectoryLock, 1))
		a := c.host(1)
		eventually(t, "it is readable", func() bool {
			found, bad, err := a.disk.Intents(a.disk.Dev, 1, 1)
			return err == nil && len(found)+len(bad) == 0
		})
	})
}

// TestLivingCreatorTakesItsIntentBack: a creator that failed and lives carries out its intent.
func TestLivingCreatorTakesItsIntentBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, f := c.faultyHost(1)
		b := c.host(2)
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Entry(1) + 512, Times: entryTries, Err: unix.EIO})
		_, _, err := a.Create(t.Context(), "x", 1)
		require.ErrorIs(t, err, unix.EIO)
		require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
		require.Eventually(t, func() bool { err = b.Remove(t.Context(), "x", false); return err == nil }, generous, 100*time.Millisecond, "%v", err)
	})
}
