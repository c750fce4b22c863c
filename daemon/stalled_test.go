package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/stall"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// renewedTimes waits until a host has renewed its lease a number of times.
func (c *cluster) renewedTimes(d *Host, times uint64) {
	c.t.Helper()
	first := c.HostRecord(d.HostID()).Sequence
	eventually(c.t, "renewals", func() bool { return c.HostRecord(d.HostID()).Sequence >= first+times })
}

const (
	oneLease  = 6 // renewals
	twoLeases = 2 * oneLease
)

// TestDaemon_SectorsOfOneLockStuck_LeaseEndsAndOthersGoOn: the host records are readable at all
// times. The other host gets the lock. The host joins again only when no write of its earlier
// incarnation can land any more. It does not lose its other locks again to the same sectors.
func TestDaemon_SectorsOfOneLockStuck_LeaseEndsAndOthersGoOn(t *testing.T) {
	for name, fault := range map[string]disktest.Fault{
		"write hangs": {Op: blockdev.OpWrite, Hang: true},
		"read hangs":  {Op: blockdev.OpRead, Hang: true},
		"write fails": {Op: blockdev.OpWrite, Err: unix.EIO},
		"read fails":  {Op: blockdev.OpRead, Err: unix.ETIMEDOUT},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			other := c.host(2)
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			r := c.run(1)
			first := r.d
			// so that its slot is known
			require.NoError(t, acquire(t, first, locks.Request{Name: "x"}).Release())
			holder := r.ask(1, "") // of lock a
			holder.until("granted")
			fault.From, fault.To = c.Geo.Slot(1, 1), c.Geo.Slot(1, 2)
			if fault.Op == blockdev.OpRead {
				fault.To = c.Geo.Slot(1, 8) + 512
			}
			bad := r.disk.Inject(fault)
			refused := asking(t.Context(), first, locks.Request{Name: "x"})
			<-bad.Hit()
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			require.ErrorIs(t, (<-refused).err, api.ErrUnavailable)
			require.ErrorIs(t, first.Err(), api.ErrStuck)
			require.ErrorContains(t, first.Err(), `lock "x"`)
			require.NotEmpty(t, holder.until("lost").Message)
			holder.leave()
			if fault.Hang {
				c.renewedTimes(other, oneLease)
				require.Equal(t, first.mem.Incarnation(), c.HostRecord(1).Incarnation, "joined again while IO hangs")
				select {
				case <-r.joined:
					t.Fatal("joined again while IO hangs")
				default:
				}
			}
			bad.Release()
			again := r.term()
			before := c.Slot(1, 1)
			require.NotEqual(t, first.mem.Incarnation(), again.mem.Incarnation())
			_, err := again.Acquire(t.Context(), locks.Request{Name: "x"})
			require.ErrorIs(t, err, api.ErrStuck)
			require.ErrorContains(t, err, "not used by this host for another")
			require.NoError(t, acquire(t, again, locks.Request{Name: "y"}).Release())
			require.Equal(t, before, c.Slot(1, 1), "the slot stays as the incarnation before left it")
			eventually(t, "the end of the pause", func() bool {
				h, err := again.Acquire(t.Context(), locks.Request{Name: "x"})
				if err != nil {
					require.ErrorIs(t, err, api.ErrStuck)
					return false
				}
				require.NoError(t, h.Release())
				return true
			})
			require.NoError(t, again.Err())
		})
	}
}

// notClosed is a device that one term after another opens.
type notClosed struct{ blockdev.Device }

func (notClosed) Close() error { return nil }

// TestDaemon_SlotStaysUnreadable_HostStaysAwayAndOthersGoOn: its owner writes the slot, and no host
// can read it. Only while that host is away other hosts may take the slot for idle.
func TestDaemon_SlotStaysUnreadable_HostStaysAwayAndOthersGoOn(t *testing.T) {
	for name, writes := range map[string]bool{"writes succeed": true, "writes fail": false} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			other, disk := c.faultyHost(2)
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			r, own := c.runOnOne(1)
			first := r.d
			require.NoError(t, acquire(t, first, locks.Request{Name: "x"}).Release())
			holder := r.ask(1, "") // of lock a
			holder.until("granted")
			fault := disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO}
			bad := []*disktest.Injection{disk.Inject(fault), own.Inject(fault)}
			if !writes {
				fault.Op = blockdev.OpWrite
				bad = append(bad, own.Inject(fault))
			}
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			require.ErrorIs(t, first.Err(), api.ErrStuck)
			require.ErrorContains(t, first.Err(), `lock "x"`)
			holder.until("lost")
			holder.leave()
			var err error
			eventually(t, "the host stays away", func() bool {
				_, err = r.svc.Joined()
				return err != nil && strings.Contains(err.Error(), "stays away")
			})
			require.ErrorIs(t, err, api.ErrStuck)
			for _, b := range bad {
				b.Release()
			}
			again := r.term()
			eventually(t, "the lock is used again", func() bool {
				h, err := again.Acquire(t.Context(), locks.Request{Name: "x"})
				if err != nil {
					require.ErrorIs(t, err, api.ErrStuck)
					return false
				}
				return h.Release() == nil
			})
			require.NoError(t, again.Err())
		})
	}
}

// TestDaemon_SectorStaysBad_PauseDoubles: also in the directory, whose lock is granted every time.
func TestDaemon_SectorStaysBad_PauseDoubles(t *testing.T) {
	for name, lock := range map[string]int{"slot": 1, "directory": lockspace.DirectoryLock} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			r, disk := c.runOnOne(1)
			require.NoError(t, acquire(t, r.d, locks.Request{Name: "x"}).Release())
			use, fault := "x", disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO}
			// a failed write of an entry is given up, and ends no lease
			if lock == lockspace.DirectoryLock {
				use, fault = "new", disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Entry(4) + 512, Err: unix.EIO, Hang: true}
			}
			bad := disk.Inject(fault)
			for _, leases := range []time.Duration{1, 2, 4} {
				eventually(t, "the loss", func() bool {
					_, err := r.d.Acquire(t.Context(), locks.Request{Name: use})
					require.Error(t, err)
					return r.d.Err() != nil
				})
				require.ErrorIs(t, r.d.Err(), api.ErrStuck)
				left, _ := r.d.cfg.quarantine.Of(0, lock)
				require.Equal(t, leases*c.SB.Lease, left)
				next := disk.Inject(fault)
				bad.Release()
				bad = next
				r.term()
			}
			bad.Release()
		})
	}
}

// runOnOne runs a service whose terms all use one device.
func (c *cluster) runOnOne(id int) (*running, *disktest.Faulty) {
	c.t.Helper()
	disk := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	r := c.run(id, func(cfg *Config) {
		cfg.Open = func() (blockdev.Device, error) {
			return notClosed{disk}, nil
		}
	})
	c.t.Cleanup(disk.RemoveFaults)
	return r, disk
}

// TestDaemon_TwoLocksStuck_BothAreInQuarantine: the other one would end the next lease.
func TestDaemon_TwoLocksStuck_BothAreInQuarantine(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, disk := c.faultyHost(1)
		for i, name := range []string{"x", "y"} {
			require.NoError(t, acquire(t, d, locks.Request{Name: name}).Release())
			bad := disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(i+1, 1), To: c.Geo.Slot(i+1, 2), Hang: true})
			defer bad.Release()
			go func() { _, _ = d.Acquire(t.Context(), locks.Request{Name: name}) }()
			<-bad.Hit()
		}
		within(t, "the loss", func() { <-d.Lost() })
		for lock := range 4 {
			_, why := d.cfg.quarantine.Of(0, lock)
			require.Equal(t, lock == 1 || lock == 2, errors.Is(why, api.ErrStuck), "lock %d", lock)
		}
	})
}

// TestDaemon_RestoreHangs_LeaseEndsAndOthersGoOn: the new process continues the lease, and its slot
// shows a holder.
func TestDaemon_RestoreHangs_LeaseEndsAndOthersGoOn(t *testing.T) {
	for name, ofEntries := range map[string]bool{"slot": false, "directory": true} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			c.lasting(4 * time.Second) // else it may be over before the new process begins
			other, m := c.host(2), c.mortal(1)
			m.ask(1, "").until("granted")
			eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
			m.kill()
			disk := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
			fault := disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Hang: true}
			if ofEntries {
				fault.From, fault.To = c.Geo.Entry(1), c.Geo.Entry(4)
			}
			injected := make(chan *disktest.Injection, 1)
			j := newJoiner(c.config(1, through(disk), func(cfg *Config) {
				cfg.RuntimeDir, cfg.StateDir, cfg.Keep = m.dir, m.dir, true
				cfg.arm = func(timing.Times) (time.Duration, error) { // once the superblock was read
					injected <- disk.Inject(fault)
					return 0, nil
				}
			}))
			joined := make(chan *Host, 1)
			go func() {
				h, _ := j.join(t.Context()) // may return a host whose lease is over
				joined <- h
			}()
			bad := <-injected
			<-bad.Hit()
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			require.ErrorIs(t, j.driving.Load().Err(), api.ErrStuck)
			bad.Release()
			if h := <-joined; h != nil {
				endOfProcess(h)
			}
			require.ErrorIs(t, j.driving.Load().Err(), api.ErrStuck)
		})
	}
}

// TestDaemon_DirectoryInQuarantine_RemovalIsLeftToOthers: this host cannot complete a dead host's
// removal, and does not keep the lock for that.
func TestDaemon_DirectoryInQuarantine_RemovalIsLeftToOthers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		m, other := c.mortal(1), c.host(2)
		require.NoError(t, acquire(t, m.d, locks.Request{Name: "x"}).Release())
		bad := m.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Hang: true})
		go func() { _ = m.d.Remove(context.Background(), "x", false) }()
		<-bad.Hit()
		m.dies(other)
		bad.Release()
		disk := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		// so that the mark lasts
		disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 3), To: c.Geo.Slot(1, 4), Delay: 2 * time.Millisecond})
		d := c.host(3, through(disk), func(cfg *Config) {
			cfg.quarantine = new(stall.Quarantine)
			cfg.quarantine.Add(c.clock.Now(), lockspace.DirectoryLock, 64*c.SB.Lease, api.ErrStuck)
		})
		ctx, cancel := context.WithCancel(t.Context())
		waiting := asking(ctx, d, locks.Request{Name: "x"})
		eventually(t, "the mark", func() bool { return c.Slot(1, 3).Creation > c.Entry(1).Creation })
		require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
		require.NoError(t, d.Err())
		cancel()
		<-waiting
	})
}

// TestDaemon_DirectoryWriteHangs_OthersMakeLocks: while this host holds the directory's lock.
func TestDaemon_DirectoryWriteHangs_OthersMakeLocks(t *testing.T) {
	for name, op := range map[string]blockdev.Op{"write": blockdev.OpWrite, "read": blockdev.OpRead} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			other := c.host(2)
			r := c.run(1)
			first := r.d
			fault := disktest.Fault{Op: op, From: c.Geo.Entry(1), To: c.Geo.Entry(4) + 512, Hang: true}
			if op == blockdev.OpRead {
				fault.After = 1 // the lookup, which blocks no host
			}
			bad := r.disk.Inject(fault)
			go func() { _, _ = first.Acquire(t.Context(), locks.Request{Name: "x"}) }()
			<-bad.Hit()
			require.NoError(t, acquire(t, other, locks.Request{Name: "y"}).Release())
			require.ErrorIs(t, first.Err(), api.ErrStuck)
			require.ErrorContains(t, first.Err(), "the lock directory")
			bad.Release()
			again := r.term()
			_, _, err := again.Create(t.Context(), "z", 1)
			require.ErrorIs(t, err, api.ErrStuck)
			require.NoError(t, acquire(t, again, locks.Request{Name: "y"}).Release())
		})
	}
}

// TestDaemon_EntryCannotBeCleared_LeaseEnds: the remover holds the lock meanwhile.
func TestDaemon_EntryCannotBeCleared_LeaseEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		other := c.host(2)
		r := c.run(1)
		first := r.d
		require.NoError(t, acquire(t, first, locks.Request{Name: "x"}).Release())
		bad := r.disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Err: unix.EIO})
		go func() { _ = first.Remove(t.Context(), "x", false) }()
		<-bad.Hit()
		require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
		require.ErrorIs(t, first.Err(), api.ErrStuck)
		bad.Release()
		r.term()
	})
}

// TestDaemon_WholeDeviceHangs_NoLockIsBlamed: the lease ends by itself then.
func TestDaemon_WholeDeviceHangs_NoLockIsBlamed(t *testing.T) {
	for name, fault := range map[string]disktest.Fault{"hangs": {Hang: true}, "fails": {Err: unix.EIO}} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			r := c.run(1)
			d := r.d
			require.NoError(t, acquire(t, d, locks.Request{Name: "x"}).Release())
			bad := r.disk.Inject(fault)
			acquireFails(t, d, locks.Request{Name: "x"}, api.ErrUnavailable)
			within(t, "the end of the lease", func() { <-d.Lost() })
			require.ErrorIs(t, d.Err(), lease.ErrExpired)
			bad.Release()
			require.NoError(t, acquire(t, r.term(), locks.Request{Name: "x"}).Release())
		})
	}
}

// TestLock_RewriteReadHangsBeyondTheLease_WritesNothing: the slot may be the next incarnation's by
// then (LAST-CALL).
func TestLock_RewriteReadHangsBeyondTheLease_WritesNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		other := c.host(2)
		r, disk := c.runOnOne(1)
		d := r.d
		acquire(t, d, locks.Request{Name: "x"})
		eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		bad := disk.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO, Hang: true, Times: 1})
		<-bad.Hit()
		within(t, "the loss", func() { <-d.Lost() })
		require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
		before := c.Slot(1, 1)
		bad.Release()
		r.term() // when no IO of the term before is in flight any more
		require.Equal(t, before, c.Slot(1, 1))
	})
}

// TestDaemon_SlotGoesBadDuringThePause_IsRepaired: the lock is not used meanwhile.
func TestDaemon_SlotGoesBadDuringThePause_IsRepaired(t *testing.T) {
	for name, damage := range map[string]func(c *cluster, at int64){
		"damaged": (*cluster).Spoil,
		"zeroed":  func(c *cluster, at int64) { c.Write(at, func(buf []byte) error { clear(buf); return nil }) },
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			m, other := c.host(1), c.host(2)
			require.NoError(t, acquire(t, m, locks.Request{Name: "x"}).Release())
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			require.NoError(t, m.Close(t.Context()))
			d := c.host(1, func(cfg *Config) {
				cfg.quarantine = new(stall.Quarantine)
				cfg.quarantine.Add(c.clock.Now(), 1, 64*c.SB.Lease, api.ErrStuck)
			})
			damage(c, c.Geo.Slot(1, 1))
			require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
			require.NoError(t, d.Err())
			acquireFails(t, d, locks.Request{Name: "x"}, api.ErrStuck)
		})
	}
}

// TestDaemon_PolicyManualSlotStaysUnreadable_OtherLocksPassOn: no host may declare the one that
// stays away dead, so it leaves.
func TestDaemon_PolicyManualSlotStaysUnreadable_OtherLocksPassOn(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SetPolicy(layout.PolicyManual)
		other, disk := c.faultyHost(2)
		require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
		r, own := c.runOnOne(1)
		first := r.d
		require.NoError(t, acquire(t, first, locks.Request{Name: "x"}).Release())
		holder := r.ask(1, "") // of lock a
		holder.until("granted")
		fault := disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Err: unix.EIO}
		bad := []*disktest.Injection{disk.Inject(fault), own.Inject(fault)}
		require.NoError(t, acquire(t, other, locks.Request{Name: "x"}).Release())
		require.ErrorIs(t, first.Err(), api.ErrStuck)
		holder.until("lost")
		holder.leave()
		require.NoError(t, acquire(t, other, locks.Request{Name: "a"}).Release())
		eventually(t, "the host stays away", func() bool {
			_, err := r.svc.Joined()
			return err != nil && strings.Contains(err.Error(), "stays away")
		})
		require.Equal(t, layout.StateLeft, c.HostRecord(1).State)
		for _, b := range bad {
			b.Release()
		}
		r.term()
	})
}

// TestService_ChosenIDLostToAStuckLock_IsJoinedAgain: no other machine can take a dead id.
func TestService_ChosenIDLostToAStuckLock_IsJoinedAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		r, disk := c.runOnOne(0)
		require.NoError(t, acquire(t, r.d, locks.Request{Name: "x"}).Release())
		id := r.d.HostID()
		bad := disk.Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 8) + 512, Err: unix.EIO})
		go func(d *Host) { _, _ = d.Acquire(t.Context(), locks.Request{Name: "x"}) }(r.d)
		within(t, "the loss", func() { <-r.d.Lost() })
		require.ErrorIs(t, r.d.Err(), api.ErrStuck)
		bad.Release()
		require.Equal(t, id, r.term().HostID())
	})
}
