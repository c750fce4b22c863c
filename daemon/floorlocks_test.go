package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/locks/measuring"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// counted counts and delays a host's requests of one kind that touch the slots of a lock.
func (c *cluster) counted(f *disktest.Faulty, op blockdev.Op, lock int) *disktest.Injection {
	return f.Inject(disktest.Fault{Op: op, From: c.Geo.Slot(lock, 1), To: c.Geo.Slot(lock+1, 1),
		Delay: 100 * time.Microsecond})
}

// TestFloor: it makes the documented number of requests, and leaves the slot as it was.
func TestFloor(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(2)
		c.host(3)
		create(t, d, "x", 1)
		before := acquire(t, d, locks.Request{Name: "x"})
		require.NoError(t, before.Release())
		was, other := c.Slot(1, 2), c.Slot(1, 3)
		writes, reads := c.counted(disk, blockdev.OpWrite, 1), c.counted(disk, blockdev.OpRead, 1)
		f, err := d.Floor(t.Context(), "x", 50)
		require.NoError(t, err)
		require.Len(t, f.Rounds, 50)
		require.Equal(t, d.mem.Highest(), f.Slots, "as many as a lock reads")
		require.Equal(t, 50, reads.Fired())
		require.Equal(t, 101, writes.Fired(), "one beforehand, and two in each round")
		for _, r := range f.Rounds {
			require.Positive(t, r.Claim)
			require.Positive(t, r.Look)
			require.Positive(t, r.Release)
			require.Equal(t, r.Claim+r.Look+r.Release, r.Whole())
		}
		is := c.Slot(1, 2)
		require.Equal(t, was.Sequence+101, is.Sequence)
		is.Sequence = was.Sequence
		require.Equal(t, was, is)
		require.Equal(t, other, c.Slot(1, 3))
		after := acquire(t, d, locks.Request{Name: "x"})
		require.Greater(t, after.Token(), before.Token())
		require.NoError(t, after.Release())
	})
}

// TestFloorUnderAHold: a lock that is held or waited for stays so, and keeps its value.
func TestFloorUnderAHold(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *Host) {
		h := acquire(t, a, locks.Request{Name: "x"})
		require.NoError(t, h.SetValue(t.Context(), []byte("mine")))
		next := start(t, b, locks.Request{Name: "x"})
		queued := c.Slot(1, 2).Ticket
		for _, d := range []*Host{a, b, a} {
			_, err := d.Floor(t.Context(), "x", 20)
			require.NoError(t, err)
		}
		require.NotEqual(t, layout.Idle, c.Slot(1, 1).Phase)
		require.Equal(t, h.Token(), c.Slot(1, 1).Ticket)
		require.Equal(t, queued, c.Slot(1, 2).Ticket)
		none(t, next)
		v, err := b.Value(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "mine", string(v.Value))
		require.NoError(t, h.Release())
		require.NoError(t, got(t, next).Release())
	})
}

// TestFloorLeavesNoHalfASlot: other hosts wait for an unreadable slot.
func TestFloorLeavesNoHalfASlot(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		h := acquire(t, d, locks.Request{Name: "x"})
		require.NoError(t, h.Release())
		for _, after := range []int{1, 2} { // the first write of the first round, and the second
			torn := disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2),
				// the checksum, but not the sequence
				After: after, Times: 1, Err: unix.EIO, Landed: 60})
			_, err := d.Floor(t.Context(), "x", 5)
			require.ErrorIs(t, err, unix.EIO)
			require.Equal(t, 1, torn.Fired())
			require.Equal(t, layout.Idle, c.Slot(1, 1).Phase, "it can be read")
		}
		disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Times: 1, Err: unix.EIO})
		_, err := d.Floor(t.Context(), "x", 5)
		require.ErrorIs(t, err, unix.EIO)
		f, err := d.Floor(t.Context(), "x", 5)
		require.NoError(t, err, "the lock's driver continues")
		require.Len(t, f.Rounds, 5)
	})
}

// TestFloorThatHangs_EndsTheLease: as any IO of a lock, because other hosts may wait for the slot.
func TestFloorThatHangs_EndsTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		create(t, d, "x", 1)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), After: 1, Hang: true})
		go func() { _, _ = d.Floor(context.Background(), "x", 1) }()
		within(t, "the end of the lease", func() { <-d.Lost() })
		disk.RemoveFaults()
	})
}

// TestFloorStarvesNoRenewal: with rounds that last longer than the lease.
func TestFloorStarvesNoRenewal(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		disk.Inject(disktest.Fault{From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Delay: 10 * time.Millisecond})
		f, err := d.Floor(t.Context(), "x", int(c.SB.Lease/(30*time.Millisecond))+10)
		require.NoError(t, err)
		for _, r := range f.Rounds {
			require.GreaterOrEqual(t, min(r.Claim, r.Look, r.Release), 10*time.Millisecond)
		}
		require.NoError(t, d.Err())
	})
}

// TestFloorEnds: with its caller, even while the device hangs.
func TestFloorEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		hang := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-hang.Hit()
			cancel()
		}()
		within(t, "a call that was given up", func() {
			_, err := d.Floor(ctx, "x", measuring.MaxFloorRounds)
			require.ErrorIs(t, err, context.Canceled)
		})
		hang.Release()
		within(t, "the lock to be free", func() { require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release()) })
	})
}

// TestFloorKeepsTheLease: with too little of the lease left it begins no write, and after its end
// none at all.
func TestFloorKeepsTheLease(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var d *Host
		var late atomic.Int32
		const mark = time.Nanosecond // the delay of a write of the slot
		disk := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{Sleep: func(wait time.Duration) {
			if wait == mark && d.leaseLeft() < d.times().Budget() {
				late.Add(1)
			}
			time.Sleep(wait)
		}})
		d = c.host(1, through(disk))
		t.Cleanup(disk.RemoveFaults)
		require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
		disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Delay: mark})
		reads := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Delay: 5 * time.Millisecond})
		go func() {
			<-reads.Hit()
			// no renewal
			disk.Inject(disktest.Fault{From: c.Geo.Host(1), To: c.Geo.Host(8), Hang: true})
		}()
		within(t, "the end of the lease", func() {
			_, err := d.Floor(t.Context(), "x", measuring.MaxFloorRounds)
			require.ErrorIs(t, err, api.ErrLeaseLost)
		})
		require.Greater(t, reads.Fired(), 10)
		require.LessOrEqual(t, late.Load(), int32(1), "except one that the machine delayed after the decision")
	})
}

func TestFloorInvalid(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		for _, rounds := range []int{-1, 0, measuring.MaxFloorRounds + 1} {
			_, err := d.Floor(t.Context(), "x", rounds)
			require.ErrorIs(t, err, api.ErrInvalid)
			require.ErrorContains(t, err, "want 1 to 1000")
		}
		_, err := d.Floor(t.Context(), "", 1)
		require.ErrorIs(t, err, api.ErrInvalid)
		_, err = d.Floor(t.Context(), "x", 1)
		require.ErrorIs(t, err, api.ErrNoLock)
		require.True(t, c.Entry(1).Free(), "it is not made")
	})
}
