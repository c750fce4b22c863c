package locks

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/locks/driver"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

const testLinger = 5 * time.Millisecond

func lingering(cfg *hostConfig) { cfg.Linger = testLinger }

// once acquires a lock and releases it, in the caller's goroutine where possible.
func once(t *testing.T, d *testHost, req Request) layout.Ticket {
	t.Helper()
	h, err := d.Acquire(context.Background(), req)
	require.NoError(t, err)
	require.NoError(t, h.Release())
	return h.Token()
}

// shows reports whether a host's slot shows that it takes part in the lock.
func (c *cluster) shows(host int) bool { return c.Slot(1, host).Phase != layout.Idle }

// linger has a host keep its hold for the next client.
func linger(t *testing.T, c *cluster, d *testHost) layout.Ticket {
	t.Helper()
	var token layout.Ticket
	for range 3 {
		require.False(t, c.shows(d.HostID()))
		token = once(t, d, Request{Name: "x"})
	}
	require.True(t, c.shows(d.HostID()), "it lingers")
	return token
}

// slotIO counts the reads and writes of slots from an offset on.
type slotIO struct {
	blockdev.Device
	from          int64
	reads, writes atomic.Int64
}

func (d *slotIO) Read(p []byte, off int64) error {
	if off >= d.from {
		d.reads.Add(1)
	}
	return d.Device.Read(p, off)
}

func (d *slotIO) Write(p []byte, off int64) error {
	if off >= d.from {
		d.writes.Add(1)
	}
	return d.Device.Write(p, off)
}

// TestLinger_SameHostAgain_NoIO: with the next token of the ticket, as long as clients come in time.
func TestLinger_SameHostAgain_NoIO(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(time.Minute) // no other IO happens meanwhile
		io := &slotIO{Device: c.Disk.Open(), from: c.Geo.Slot(1, 1)}
		d := c.host(1, lingering, through(io))
		token := linger(t, c, d)
		wrote, read := io.writes.Load(), io.reads.Load()
		for n := range layout.MaxGrants - 1 {
			time.Sleep(testLinger * 9 / 10 * time.Duration(n%2))
			next := once(t, d, Request{Name: "x"})
			require.Equal(t, token+1, next)
			token = next
		}
		require.Equal(t, wrote+1, io.writes.Load(), "the release of the ticket, which is used up")
		looks := io.reads.Load() - read
		require.LessOrEqual(t, looks, int64(layout.MaxGrants))
		require.GreaterOrEqual(t, looks, int64(layout.MaxGrants/8))
		require.False(t, c.shows(1))
		next := once(t, d, Request{Name: "x"})
		require.Greater(t, next.Number(), token.Number())
		require.True(t, c.shows(1), "the next one lingers immediately")
		time.Sleep(testLinger + time.Millisecond)
		require.False(t, c.shows(1), "its time is over")
		read = io.reads.Load()
		time.Sleep(10 * testLinger)
		require.Equal(t, read, io.reads.Load(), "idle: no looks")
		linger(t, c, d)
	})
}

// TestLinger_OtherHostAsks_IsServedWithinTheBound: while clients of the lingering host come without a
// pause, and while none comes.
func TestLinger_OtherHostAsks_IsServedWithinTheBound(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(1, lingering, c.slowly()), c.host(2, c.slowly())
		const handoff = 8
		var grants atomic.Int64
		most, done := int64(0), make(chan struct{})
		within(t, "serving both", func() {
			var wg sync.WaitGroup
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					default:
					}
					once(t, a, Request{Name: "x"})
					grants.Add(1)
					time.Sleep(time.Duration(n%3) * 10 * time.Microsecond)
				}
			})
			for range 30 {
				for seen := grants.Load(); grants.Load() < seen+2*handoff; {
					time.Sleep(100 * time.Microsecond)
				}
				since := int64(-1)
				h := acquire(t, b, Request{Name: "x", OnWaiting: func(int, int) {
					if since < 0 {
						since = grants.Load()
					}
				}})
				if since >= 0 {
					most = max(most, grants.Load()-since)
				}
				require.NoError(t, h.Release())
			}
			close(done)
			wg.Wait()
		})
		t.Logf("%d grants, at most %d while the other host waited", grants.Load(), most)
		require.LessOrEqual(t, most, int64(handoff+1)) // one may not have been counted before
	})
}

// TestLinger_NoClientComes_OtherHostWaitsForItsTime: and not for a look.
func TestLinger_NoClientComes_OtherHostWaitsForItsTime(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(1, lingering), c.host(2)
		token := linger(t, c, a)
		began := time.Now()
		h := acquire(t, b, Request{Name: "x"})
		require.LessOrEqual(t, time.Since(began), testLinger+time.Millisecond)
		require.Greater(t, h.Token(), token)
		require.NoError(t, h.Release())
	})
}

// TestLinger_LookHangs_GrantsStopAtTheBound: the bound counts from the begin of a look that ended.
func TestLinger_LookHangs_GrantsStopAtTheBound(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d := c.host(1, lingering, through(f), func(cfg *hostConfig) { cfg.Handoff = 4 })
		t.Cleanup(f.RemoveFaults)
		linger(t, c, d)
		hung := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Size(), Hang: true})
		granted := 0
		var waits <-chan result
		for ; granted <= 8; granted++ {
			waits = asking(t.Context(), d, Request{Name: "x"})
			time.Sleep(time.Millisecond / 2)
			if len(waits) == 0 {
				break
			}
			require.NoError(t, got(t, waits).Release())
		}
		<-hung.Hit()
		require.LessOrEqual(t, granted, 4)
		require.Positive(t, granted)
		f.RemoveFaults()
		require.NoError(t, got(t, waits).Release())
	})
}

// handOver passes a hold on among clients of its host while another host waits, until the next one is not
// served. It returns the number of grants by the ticket since the hold, that one included. Then the other
// host's client has the lock, and after it the next one.
func handOver(t *testing.T, d *testHost, h *Hold, waits <-chan result, handoff int) (granted int) {
	t.Helper()
	ticket := h.Token().Number()
	for granted = 1; granted < 3*handoff; granted++ {
		next := asking(t.Context(), d, Request{Name: "x"})
		synctest.Wait()
		require.NoError(t, h.Release())
		synctest.Wait()
		if len(next) == 0 {
			require.NoError(t, got(t, waits).Release())
			require.NoError(t, got(t, next).Release())
			return granted
		}
		h = got(t, next)
		require.Equal(t, ticket, h.Token().Number())
	}
	t.Fatal("every client was served")
	return granted
}

// TestLinger_OtherHostClaimsDuringALook_GrantsCountFromItsBegin: the look has not found that host.
func TestLinger_OtherHostClaimsDuringALook_GrantsCountFromItsBegin(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		const handoff = 4
		a, b, hung := duringLook(t, c, handoff)
		h := acquire(t, a, Request{Name: "x"})
		waits := start(t, b, Request{Name: "x"})
		hung.Release()
		synctest.Wait()
		require.Equal(t, handoff, handOver(t, a, h, waits, handoff))
	})
}

// TestLinger_LookFails_DoesNotCount: the next one finds the other host.
func TestLinger_LookFails_DoesNotCount(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		const handoff = 4
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		a := c.host(1, lingering, through(f), func(cfg *hostConfig) { cfg.Handoff = handoff })
		b := c.host(2)
		t.Cleanup(f.RemoveFaults)
		linger(t, c, a)
		h := acquire(t, a, Request{Name: "x"})
		waits := start(t, b, Request{Name: "x"})
		f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Err: unix.ENXIO, Times: 1})
		require.LessOrEqual(t, handOver(t, a, h, waits, handoff), handoff)
	})
}

// TestLinger_LookFindsAHost_EndsAtOnce: although no client comes.
func TestLinger_LookFindsAHost_EndsAtOnce(t *testing.T) {
	for how, comes := range map[string]func(t *testing.T, b *testHost) <-chan result{
		"waits": func(t *testing.T, b *testHost) <-chan result { return start(t, b, Request{Name: "x"}) },
		"requests the lock": func(t *testing.T, b *testHost) <-chan result {
			_, err := b.Request(t.Context(), "x", "please")
			require.NoError(t, err)
			return nil
		},
	} {
		runInCluster(t, how, func(t *testing.T, c *cluster) {
			a, b := c.host(1, func(cfg *hostConfig) { cfg.Linger = time.Hour }), c.host(2)
			linger(t, c, a)
			h := acquire(t, a, Request{Name: "x"})
			waits := comes(t, b)
			time.Sleep(2 * time.Millisecond) // the next look is due
			require.NoError(t, h.Release())
			time.Sleep(10 * time.Millisecond)
			require.False(t, c.shows(1))
			if waits != nil {
				require.NoError(t, got(t, waits).Release())
			}
		})
	}
}

// hangingLook has a lingering host begin a look that hangs, and shows the slots as they were.
func hangingLook(t *testing.T, c *cluster, d *testHost, f *disktest.Faulty, times int) *disktest.Injection {
	t.Helper()
	linger(t, c, d)
	hung := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true, Returns: disktest.Stale, Times: times})
	beginLook(t, d, hung)
	return hung
}

// beginLook has clients come to a lingering host until it looks, which a fault hits.
func beginLook(t *testing.T, d *testHost, fault *disktest.Injection) {
	t.Helper()
	for range 8 {
		once(t, d, Request{Name: "x"})
		synctest.Wait()
		select {
		case <-fault.Hit():
			return
		default:
		}
	}
	t.Fatal("no look")
}

// duringLook returns two hosts, of which a keeps the lock and looks for others. The look hangs.
func duringLook(t *testing.T, c *cluster, handoff int) (a, b *testHost, hung *disktest.Injection) {
	t.Helper()
	f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
	a, b = c.host(1, lingering, through(f), func(cfg *hostConfig) { cfg.Handoff = handoff }), c.host(2)
	t.Cleanup(f.RemoveFaults)
	return a, b, hangingLook(t, c, a, f, 1)
}

// TestLinger_LookHangsAfterTheRelease_LeaseGoesOn: no other host waits for a look of a hold that has
// ended.
func TestLinger_LookHangsAfterTheRelease_LeaseGoesOn(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d := c.host(1, lingering, through(f))
		t.Cleanup(f.RemoveFaults)
		hung := hangingLook(t, c, d, f, 1)
		time.Sleep(2 * testLinger)
		require.False(t, c.shows(1))
		other := acquire(t, c.host(2), Request{Name: "x"})
		c.renewedTimes(d, twoLeases)
		require.NoError(t, d.Err())
		require.NoError(t, other.Release())
		for range 2 * 8 { // more than the bound: the driver reads the slots itself
			once(t, d, Request{Name: "x"})
		}
		hung.Release()
		time.Sleep(3 * testLinger)
		linger(t, c, d)
	})
}

// TestLinger_LookHangsWhileAClientWaits_LeaseEnds: the slot shows the hold, which no client has, until
// the look has ended.
func TestLinger_LookHangsWhileAClientWaits_LeaseEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d := c.host(1, lingering, through(f), func(cfg *hostConfig) { cfg.Handoff = 4 })
		t.Cleanup(f.RemoveFaults)
		hangingLook(t, c, d, f, 0)
		once(t, d, Request{Name: "x"}) // the last one that the bound permits
		for range 8 {
			asking(t.Context(), d, Request{Name: "x"})
			time.Sleep(time.Millisecond / 2)
		}
		began := time.Now()
		received(t, "the loss", d.Lost())
		require.ErrorIs(t, d.Err(), api.ErrStuck)
		require.LessOrEqual(t, time.Since(began), c.SB.Lease)
	})
}

// TestLinger_LookOfAnEarlierHold_DoesNotCount: for the bound of the present one.
func TestLinger_LookOfAnEarlierHold_DoesNotCount(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		const handoff = 4
		a, b, hung := duringLook(t, c, handoff)
		time.Sleep(2 * testLinger)
		require.False(t, c.shows(1))

		h := acquire(t, a, Request{Name: "x"})
		waits := start(t, b, Request{Name: "x"})
		hung.Release() // it has not found host 2
		synctest.Wait()
		require.LessOrEqual(t, handOver(t, a, h, waits, handoff), handoff)
	})
}

// TestLinger_SeveralPermits_TokensGrow: another host can have the lock while one keeps its hold, so
// its next client needs another ticket.
func TestLinger_SeveralPermits_TokensGrow(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b := c.host(1, lingering), c.host(2)
		create(t, a, "x", 2)
		for range 5 {
			once(t, a, Request{Name: "x", Permits: 2})
			require.False(t, c.shows(1))
		}
		other := once(t, b, Request{Name: "x", Permits: 2})
		require.Greater(t, once(t, a, Request{Name: "x", Permits: 2}), other)
	})
}

// TestLinger_HostDies_OthersWaitAsForAHolder: from the crash on.
func TestLinger_HostDies_OthersWaitAsForAHolder(t *testing.T) {
	t.Parallel()
	waited := func(t *testing.T, lingers bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 8, 4)
			f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
			a, b := c.host(1, func(cfg *hostConfig) { cfg.Linger = time.Hour }, through(f)), c.host(2)
			linger(t, c, a)
			h := acquire(t, a, Request{Name: "x"})
			time.Sleep(2 * driver.SettleAfter)
			if lingers {
				require.NoError(t, h.Release())
			}
			require.Equal(t, layout.Held, c.Slot(1, 1).Phase)
			f.Crash()
			began := time.Now()
			require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
			took = time.Since(began)
			if !lingers {
				_ = h.Release() // the lease is lost
			}
		})
		return took
	}
	held, lingering := waited(t, false), waited(t, true)
	t.Logf("%v after a holder's crash, %v after one while lingering", held, lingering)
	require.Positive(t, held)
	require.LessOrEqual(t, lingering, held)
}

// TestLinger_OtherUse_EndsAtOnce: immediately, for whatever else is to be done with the lock.
func TestLinger_OtherUse_EndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *cluster, *testHost){
		"a reader": func(t *testing.T, c *cluster, d *testHost) {
			require.NoError(t, acquire(t, d, Request{Name: "x", Mode: layout.Shared}).Release())
		},
		"a removal": func(t *testing.T, c *cluster, d *testHost) {
			require.NoError(t, d.Remove(t.Context(), "x", false))
			once(t, d, Request{Name: "x"})
		},
		"a request": func(t *testing.T, c *cluster, d *testHost) {
			_, err := d.Request(t.Context(), "x", "please")
			require.ErrorIs(t, err, api.ErrFree)
		},
		"the end of the host": func(t *testing.T, c *cluster, d *testHost) {
			require.NoError(t, d.Close(t.Context()))
		},
		"the end of all drivers": func(t *testing.T, c *cluster, d *testHost) {
			d.Halt()
			synctest.Wait()
			require.False(t, c.shows(1))
			require.NoError(t, d.Close(t.Context()))
		},
		"a restart": func(t *testing.T, c *cluster, d *testHost) {
			require.True(t, d.Lingers())
			d.EndLingers()
			synctest.Wait()
			require.False(t, d.Lingers())
			require.False(t, c.shows(1))
			for range 5 {
				once(t, d, Request{Name: "x"})
				require.False(t, c.shows(1))
			}
		},
		"a client that is the last for now": func(t *testing.T, c *cluster, d *testHost) {
			once(t, d, Request{Name: "x", NoLinger: true})
		},
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			d := c.host(1, func(cfg *hostConfig) { cfg.Linger = time.Hour })
			linger(t, c, d)
			h, err := d.Acquire(context.Background(), Request{Name: "x"})
			require.NoError(t, err)
			time.Sleep(2 * driver.SettleAfter) // the driver rests since, and has no alarm
			require.NoError(t, h.Release())    // in this goroutine
			require.True(t, c.shows(1), "it lingers")
			began := time.Now()
			end(t, c, d)
			synctest.Wait()
			require.False(t, c.shows(1))
			require.Less(t, time.Since(began), time.Second)
		})
	}
}

// TestLinger_ReadersAndLastClients_ReleaseAtOnce: the hold is not kept
// after a reader, nor after a client that has ruled it out.
func TestLinger_ReadersAndLastClients_ReleaseAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1, lingering)
		for range 10 {
			for _, req := range []Request{{Name: "x", Mode: layout.Shared}, {Name: "x", NoLinger: true}} {
				once(t, d, req)
				require.False(t, c.shows(1))
			}
		}
	})
}

// TestLinger_SeldomUsed_ReleasesAtOnce: a host that comes again after the time to linger gains
// nothing.
func TestLinger_SeldomUsed_ReleasesAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1, lingering)
		for range 10 {
			once(t, d, Request{Name: "x"})
			require.False(t, c.shows(1))
			time.Sleep(2 * testLinger)
		}
	})
}

// TestLinger_LeaseLost_NoGrant: no client is granted the lock any more.
func TestLinger_LeaseLost_NoGrant(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d := c.host(1, func(cfg *hostConfig) { cfg.Linger = time.Hour }, through(f))
		t.Cleanup(f.RemoveFaults)
		linger(t, c, d)
		f.Inject(disktest.Fault{Hang: true})
		received(t, "the loss", d.Lost())
		acquireFails(t, d, Request{Name: "x"}, api.ErrUnavailable)
	})
}

// TestLinger_HostJoinsDuringALook_ItsSlotCounts: a host table that was read before a slot was is no
// proof that the slot's incarnation is over.
func TestLinger_HostJoinsDuringALook_ItsSlotCounts(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(time.Minute) // the next renewal comes after all of this
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		a := c.host(1, func(cfg *hostConfig) { cfg.Linger = time.Hour }, through(f))
		c.host(3) // so that the reads of host 1 cover host 2
		t.Cleanup(f.RemoveFaults)
		linger(t, c, a)
		hung := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true})
		beginLook(t, a, hung)
		c.renewedTimes(a, 1) // it reads the host table
		b := c.host(2)
		waits := asking(t.Context(), b, Request{Name: "x"})
		eventually(t, "host 2 waits", func() bool { return c.Slot(1, 2).Phase == layout.Waiting })
		f.RemoveFaults()
		time.Sleep(time.Millisecond)           // the look is applied
		_, _ = a.Request(t.Context(), "x", "") // ends the linger in any case
		h := got(t, waits)
		acquireFails(t, a, Request{Name: "x", Try: true}, api.ErrBusy)
		require.NoError(t, h.Release())
	})
}
