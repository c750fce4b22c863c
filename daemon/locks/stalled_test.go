package locks

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// renewedTimes waits until a host has renewed its lease a number of times.
func (c *cluster) renewedTimes(d *testHost, times uint64) {
	c.t.Helper()
	first := c.HostRecord(d.HostID()).Sequence
	eventually(c.t, "renewals", func() bool { return c.HostRecord(d.HostID()).Sequence >= first+times })
}

const (
	oneLease  = 6 // renewals
	twoLeases = 2 * oneLease
)

// TestDaemon_SlotWriteHangs_RenewalsWait: otherwise other hosts would wait for another lease after
// the loss.
func TestDaemon_SlotWriteHangs_RenewalsWait(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		bad := disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Hang: true})
		go func() { _, _ = d.Acquire(t.Context(), Request{Name: "x"}) }()
		<-bad.Hit()
		began := c.HostRecord(1).Sequence
		within(t, "the loss", func() { <-d.Lost() })
		require.ErrorIs(t, d.Err(), api.ErrStuck)
		require.LessOrEqual(t, c.HostRecord(1).Sequence, began+2, "of five that were due")
		bad.Release()
	})
}

// TestDaemon_IOThatHoldsUpNoOtherHost_LeaseGoesOn: it may hang without a limit.
func TestDaemon_IOThatHoldsUpNoOtherHost_LeaseGoesOn(t *testing.T) {
	runInCluster(t, "slot never used", func(t *testing.T, c *cluster) {
		require.NoError(t, acquire(t, c.host(2), Request{Name: "x"}).Release())
		d, disk := c.faultyHost(1)
		bad := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true})
		go func() { _, _ = d.Acquire(t.Context(), Request{Name: "x"}) }()
		<-bad.Hit()
		c.renewedTimes(d, twoLeases)
		require.NoError(t, d.Err())
		bad.Release()
	})
	runInCluster(t, "value of a held lock", func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		h := acquire(t, d, Request{Name: "x"})
		eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		bad := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true, Times: 1})
		go func() { _, _ = d.Value(t.Context(), "x") }()
		<-bad.Hit()
		c.renewedTimes(d, twoLeases)
		require.NoError(t, d.Err())
		bad.Release()
		require.NoError(t, h.Release())
	})
	runInCluster(t, "scrub", func(t *testing.T, c *cluster) {
		require.NoError(t, acquire(t, c.host(2), Request{Name: "x"}).Release())
		d, disk := c.faultyHost(1)
		bad := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Hang: true})
		<-bad.Hit()
		c.renewedTimes(d, twoLeases)
		require.NoError(t, d.Err())
		bad.Release()
	})
}

// TestDaemon_SlowSectorsOfOneLock_LeaseGoesOn: every IO takes a third of the lease, which is below
// the limit.
func TestDaemon_SlowSectorsOfOneLock_LeaseGoesOn(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		disk.Inject(disktest.Fault{From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Delay: c.SB.Lease / 3})
		for range 2 {
			require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		}
		require.NoError(t, d.Err())
	})
}

// TestLock_RewriteFailsOnce_IsRepeated: otherwise it may land later, and an overwritten slot would
// not be detected until then.
func TestLock_RewriteFailsOnce_IsRepeated(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		h := acquire(t, d, Request{Name: "x"})
		eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		before := c.Slot(1, 1).Sequence
		fault := disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO, Times: 1}
		disk.Inject(fault)
		fault.Op = blockdev.OpWrite
		failed := disk.Inject(fault)
		h.Lock().CheckOwn(false)
		<-failed.Hit()
		eventually(t, "another rewrite", func() bool { return c.Slot(1, 1).Sequence > before })
		c.Write(c.Geo.Slot(1, 1), func(buf []byte) error { clear(buf); return nil })
		within(t, "the loss", func() { <-d.Lost() })
		require.ErrorIs(t, d.Err(), driver.ErrOverwritten)
	})
}
