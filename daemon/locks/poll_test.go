package locks

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// TestRankFallsWhileTheOneAheadWaits: a host further back notices that hosts in front have gone,
// although the slot directly ahead stays unchanged. Otherwise it would poll at the rate of its
// first rank, and with many hosts the lock would be idle most of the time.
func TestRankFallsWhileTheOneAheadWaits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		first := acquire(t, c.host(1), Request{Name: "x"})
		waiting := func(id int) {
			eventually(t, "waiting", func() bool { return c.Slot(1, id).Phase == layout.Waiting })
		}
		second := start(t, c.host(2), Request{Name: "x"})
		waiting(2)
		third := start(t, c.host(3), Request{Name: "x"})
		waiting(3)
		d, places := c.host(4), make(chan int, 1)
		fourth := make(chan result, 1)
		go func() {
			h, err := d.Acquire(t.Context(), Request{Name: "x", OnWaiting: func(ahead, queued int) {
				select {
				case places <- ahead:
				default:
				}
			}})
			fourth <- result{h, err}
		}()
		place := func(want int) {
			within(t, "getting nearer", func() {
				for <-places != want {
				}
			})
		}
		place(3)
		require.NoError(t, first.Release())
		h := got(t, second)
		place(2)
		require.Equal(t, layout.Waiting, c.Slot(1, 3).Phase, "the one directly ahead has not moved")
		require.NoError(t, h.Release())
		require.NoError(t, got(t, third).Release())
		require.NoError(t, got(t, fourth).Release())
	})
}

// TestWaitingAllocatesNothing: a wait may last for days.
func TestWaitingAllocatesNothing(t *testing.T) {
	for _, behind := range []int{0, 1} {
		// Not in parallel: allocations are counted for the process.
		t.Run(fmt.Sprintf("%d others ahead", behind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 8, 4)
				c.lasting(time.Minute) // no other IO happens meanwhile
				h := acquire(t, c.host(1), Request{Name: "x", Command: "make the backup"})
				eventually(t, "settled", func() bool { return c.Slot(1, 1).Phase == layout.Held })
				var queue []<-chan result
				for i := range behind {
					queue = append(queue, start(t, c.host(2+i), Request{Name: "x"}))
					eventually(t, "waits", func() bool { return c.Slot(1, 2+i).Phase == layout.Waiting })
				}
				dev := &counting{Device: c.Disk.Open()}
				d := c.host(3, through(dev))
				queue = append(queue, start(t, d, Request{Name: "x"}))
				eventually(t, "waits", func() bool { return c.Slot(1, 3).Phase == layout.Waiting })
				polls := func(n int64) {
					for until := dev.reads.Load() + n; dev.reads.Load() < until; {
						time.Sleep(time.Millisecond)
					}
				}
				polls(20)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				began := dev.reads.Load()
				polls(100)
				runtime.ReadMemStats(&after)
				n := dev.reads.Load() - began
				each := float64(after.Mallocs-before.Mallocs) / float64(n)
				t.Logf("%d polls, %.2f allocations each", n, each)
				require.Less(t, each, 0.5, "what else the process does counts too")
				require.NoError(t, h.Release())
				for _, waiter := range queue {
					require.NoError(t, got(t, waiter).Release())
				}
			})
		})
	}
}

// slotReads counts the reads of exactly one slot.
type slotReads struct {
	blockdev.Device
	off int64
	n   atomic.Int64
}

func (d *slotReads) Read(p []byte, off int64) error {
	if off == d.off && len(p) == 512 {
		d.n.Add(1)
	}
	return d.Device.Read(p, off)
}

// TestLock_UnsettledHostAhead_PollsWithPauses: the host table by which a slot was judged is no news
// to the next poll. It once ended each pause, and slots and host table were read as fast as the
// device permits until the host was settled. The slot is far from the own one, so that a poll after
// a pause reads it alone.
func TestLock_UnsettledHostAhead_PollsWithPauses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const far = 70
		c := newCluster(t, 80, 4)
		c.lasting(time.Minute)
		record := layout.HostRecord{ID: far, Incarnation: 20, State: layout.StateLive, Sequence: 7, ReadHorizon: far + 2}
		c.Write(c.Geo.Host(far), func(buf []byte) error { return c.SB.Space().EncodeHost(buf, record) })
		dev := &slotReads{Device: c.Disk.Open(), off: c.Geo.Slot(1, far)}
		d := c.host(1, through(dev))
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		before := layout.Slot{
			Lock: 1, Host: far, Incarnation: 10, Creation: c.Entry(1).Creation, Phase: layout.Held,
			Ticket: layout.MakeTicket(1, far),
		}
		c.Write(dev.off, func(buf []byte) error { return c.SB.Space().EncodeSlot(buf, before) })
		start(t, d, Request{Name: "x"})
		eventually(t, "polls the slot alone", func() bool { return dev.n.Load() > 2 })
	})
}
