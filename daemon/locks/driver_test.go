package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestReleaseIsDurableWhenItReturns: a release right after the grant does not return before other
// hosts can have the lock.
func TestReleaseIsDurableWhenItReturns(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		for range 10000 {
			h := acquire(t, d, Request{Name: "x"})
			require.NoError(t, h.Release())
			require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
		}
	})
}

// TestLostLeaseEndsWaitsThoughIOHangs: the driver cannot notify its clients, because it waits for
// the device.
func TestLostLeaseEndsWaitsThoughIOHangs(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		hung := f.Inject(disktest.Fault{Hang: true})
		waiting := asking(t.Context(), d, Request{Name: "x"})
		<-hung.Hit()
		received(t, "the loss", d.Lost())
		require.ErrorIs(t, received(t, "the end of the wait", waiting).err, api.ErrUnavailable)
	})
}

// TestHealedSlotKeepsTokensGrowing: a slot that became unreadable may hide a ticket much newer than
// the lock.
func TestHealedSlotKeepsTokensGrowing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.SB.Formatted = time.Now().Add(-30 * 24 * time.Hour).UTC().Truncate(time.Microsecond)
		c.Format()
		e := layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: bakery.ClockNumber(c.SB.Formatted, c.SB.Formatted)}
		c.WriteEntry(e)
		before := c.host(1)
		h := acquire(t, before, Request{Name: "x"})
		require.NoError(t, h.Release())
		require.NoError(t, before.Close(t.Context()))
		c.Spoil(c.Geo.Slot(1, 1))
		d := c.host(1)
		d.scrubOne(e, false)
		require.Eventually(t, func() bool {
			v, err := d.disk.View(d.disk.Dev, 1, 1)
			return err == nil && v.Readable
		}, generous, time.Millisecond)
		require.Greater(t, c.Slot(1, 1).Ticket, h.Token())
	})
}

func TestUnknownModeIsRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		acquireFails(t, d, Request{Name: "x", Mode: 7}, api.ErrInvalid)
	})
}

// TestWaitingDoesNotSpin: the next host in line polls one slot with pauses, and a daemon without
// clients does almost no IO.
func TestWaitingDoesNotSpin(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		dev := &counting{Device: c.Disk.Open()}
		b := c.host(2, through(dev))
		h := acquire(t, a, Request{Name: "x"})
		before := dev.reads.Load()
		next := start(t, b, Request{Name: "x"})
		const wait = 2 * time.Second
		time.Sleep(wait) // this long is measured
		reads := dev.reads.Load() - before
		t.Logf("first in line: %d reads in %v", reads, wait)
		require.Less(t, reads, int64(wait/(2*time.Millisecond))+500, "the disk takes no time: one every 2 ms, and more at first")
		require.NoError(t, h.Release())
		require.NoError(t, got(t, next).Release())
		before = dev.reads.Load()
		time.Sleep(wait)
		idle := dev.reads.Load() - before
		t.Logf("idle: %d reads in %v", idle, wait)
		require.Less(t, idle, int64(40))
	})
}

// TestCloseDuringAttempts: a client that comes while the daemon closes is served or refused.
func TestCloseDuringAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 8)
		other := c.host(1, c.slowly())
		state := t.TempDir()
		for range 10 {
			d, err := join(t.Context(), c.config(2, c.slowly(), func(cfg *hostConfig) { cfg.StateDir = state }))
			require.NoError(t, err)
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					for n := 0; ; n++ {
						h, err := d.Acquire(t.Context(), Request{Name: fmt.Sprint((i + n) % 4), Mode: layout.Mode(n % 2)})
						if err != nil {
							if !errors.Is(err, api.ErrUnavailable) {
								t.Error(err)
							}
							return
						}
						if !assertNoError(t, h.Release()) {
							return
						}
					}
				})
			}
			require.NoError(t, acquire(t, other, Request{Name: "0"}).Release())
			ctx, cancel := context.WithTimeout(t.Context(), generous)
			require.NoError(t, d.Close(ctx))
			cancel()
			within(t, "notifying every client", wg.Wait)
		}
	})
}

// TestExclusionOnABadDisk: slots that are torn while they are written, reads that fail or return
// garbage, and writes that fail half way only cost time.
func TestExclusionOnABadDisk(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(10 * time.Second)
		var wg sync.WaitGroup
		calls, end := contended(t), time.Now().Add(4*time.Second)
		for id := 1; id <= 3; id++ {
			f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{Seed: uint64(id)})
			d := c.host(id, through(f))
			t.Cleanup(f.RemoveFaults)
			for _, fault := range []disktest.Fault{
				{Op: blockdev.OpWrite, Chance: 0.3, Flicker: 3, Delay: 100 * time.Microsecond},
				{Op: blockdev.OpRead, Chance: 0.02, Returns: disktest.Garbage},
				{Op: blockdev.OpRead, Chance: 0.02, Err: unix.EIO},
				{Op: blockdev.OpRead, Chance: 0.005, Err: unix.ETIMEDOUT},
				{Op: blockdev.OpWrite, Chance: 0.005, Err: unix.EIO, Landed: 100},
				{Op: blockdev.OpWrite, Chance: 0.005, Err: unix.EIO, Landed: disktest.All},
			} {
				fault.From, fault.To = c.Geo.Slot(0, 1), c.Geo.Size()
				f.Inject(fault)
			}
			for range 3 {
				wg.Go(func() {
					for n := 0; time.Now().Before(end); n++ {
						req := Request{Name: "x"}
						if n%3 == 0 {
							req.Mode = layout.Shared
						}
						v := calls.enter(d, req)
						if v == nil {
							return
						}
						runtime.Gosched()
						if !v.leave() {
							return
						}
					}
				})
			}
		}
		within(t, "admitting every client", wg.Wait)
	})
}

// TestHostileSlots: no valid sector with any contents makes bakeryd panic.
func TestHostileSlots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 8)
		d := c.host(1)
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		e := c.Entry(1)
		for _, ticket := range []layout.Ticket{0, layout.MakeTicket(layout.MaxNumber, 2), layout.MakeTicket(1, 2)} {
			for _, creation := range []uint64{0, e.Creation, e.Creation + 1, layout.MaxCreation} {
				for phase := layout.Idle; phase <= layout.Held; phase++ {
					if ticket == 0 && phase != layout.Idle {
						continue // not a valid sector
					}
					s := layout.Slot{Lock: 1, Host: 2, Incarnation: 77, Creation: creation, Sequence: math.MaxUint64, Phase: phase, Ticket: ticket}
					c.Write(c.Geo.Slot(1, 2), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, s) })
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					if h, err := d.Acquire(ctx, Request{Name: "x"}); err == nil {
						require.NoError(t, h.Release())
					}
					cancel()
				}
			}
		}
		own := c.Slot(1, 1)
		own.Ticket, own.Sequence, own.Creation = layout.MakeTicket(layout.MaxNumber, 1), math.MaxUint64, layout.MaxCreation
		for i, creation := range []uint64{layout.MaxCreation, layout.MaxNumber, layout.MaxNumber + 1} {
			lock := i + 2
			own.Lock = lock
			c.Write(c.Geo.Slot(lock, 1), func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, own) })
			c.WriteEntry(layout.Entry{Lock: lock, Name: fmt.Sprint("old", i), Permits: layout.MaxHosts, Creation: creation})
			for _, name := range []string{fmt.Sprint("old", i), fmt.Sprint("new", i)} {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				h, err := d.Acquire(ctx, Request{Name: name})
				if err == nil {
					require.NoError(t, h.Release())
				}
				t.Log(name, err)
				cancel()
			}
		}
	})
}

// TestIdleLockGivesBackMemory: with many hosts and many locks, slots as read take most of it.
func TestIdleLockGivesBackMemory(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		for range 2 {
			require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
			d.mu.Lock()
			lk := d.locks[1]
			d.mu.Unlock()
			eventually(t, "given back", func() bool {
				given := false
				require.NoError(t, lk.WithSlot(func(s SlotTx) error {
					given = reflect.ValueOf(s).FieldByName("lk").Elem().FieldByName("slots").Elem().FieldByName("Views").IsNil()
					return nil
				}))
				return given
			})
		}
	})
}
