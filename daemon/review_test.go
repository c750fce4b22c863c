package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/layout"
)

// faultyHost joins a host whose way to the disk can be made to fail. All faults are healed before it leaves.
func (c *cluster) faultyHost(id int) (*Daemon, *blockdev.Faulty) {
	c.t.Helper()
	f := blockdev.NewFaulty(c.disk.Open(), blockdev.FaultyOptions{})
	d := c.host(id, through(f))
	c.t.Cleanup(f.Heal)
	return d, f
}

func through(dev blockdev.Device) func(*Config) {
	return func(cfg *Config) {
		cfg.open = func(string, bool) (blockdev.Device, layout.Superblock, int, error) {
			sb, copyUsed, err := FindLockspace(dev)
			return dev, sb, copyUsed, err
		}
	}
}

// write puts a record on the disk as some other host would.
func (c *cluster) write(off int64, encode func(buf []byte) error) {
	c.t.Helper()
	buf := blockdev.Alloc(c.sb.Geometry.Stride)
	require.NoError(c.t, encode(buf))
	require.NoError(c.t, c.disk.Open().Write(buf, off))
}

func (c *cluster) writeEntry(e layout.Entry) {
	c.t.Helper()
	c.write(c.sb.Geometry.Entry(e.Lock), func(buf []byte) error { return c.sb.Space().EncodeEntry(buf, e) })
}

func (c *cluster) entry(lock int) layout.Entry {
	c.t.Helper()
	buf := blockdev.Alloc(c.sb.Geometry.Stride)
	require.NoError(c.t, c.disk.Open().Read(buf, c.sb.Geometry.Entry(lock)))
	e, err := c.sb.Space().DecodeEntry(buf, lock)
	require.NoError(c.t, err)
	return e
}

func (c *cluster) slot(lock, host int) layout.Slot {
	c.t.Helper()
	buf := blockdev.Alloc(c.sb.Geometry.Stride)
	require.NoError(c.t, c.disk.Open().Read(buf, c.sb.Geometry.Slot(lock, host)))
	s, err := c.sb.Space().DecodeSlot(buf, lock, host)
	require.NoError(c.t, err)
	return s
}

func (c *cluster) spoil(off int64) {
	c.t.Helper()
	c.write(off, func(buf []byte) error { clear(buf); buf[7] = 7; return nil })
}

// within fails the test unless f returns.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(generous):
		t.Fatalf("%s takes for ever", what)
	}
}

// TestReleaseIsDurableWhenItReturns: a client that lets go right after its grant is not told that others can have
// the lock before they can.
func TestReleaseIsDurableWhenItReturns(t *testing.T) {
	c := newCluster(t, 8, 4)
	d := c.host(1)
	require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		h := acquire(t, d, Request{Name: "x"})
		require.NoError(t, h.Release())
		require.Equal(t, layout.Idle, c.slot(1, 1).Phase)
	}
}

// TestOldScanDoesNotHideALock: a lock is not made a second time because another client's scan of the directory,
// begun before the lock was made, ends at the wrong moment.
func TestOldScanDoesNotHideALock(t *testing.T) {
	c := newCluster(t, 8, 64)
	a, b := c.host(1), c.host(2)
	require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
	stop, old := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(old)
		for {
			select {
			case <-stop:
				return
			default:
				b.dir.remember(&scan{})
			}
		}
	}()
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		e, err := b.createGuarded("x", 1)
		require.NoError(t, err)
		if e.Lock != 1 {
			t.Errorf("lock x made again, as number %d", e.Lock)
			break
		}
	}
	close(stop)
	<-old
}

// TestStaleEntryDoesNotEndANewerOne: a client that looked a lock up before it was removed and made anew, and comes
// only now, waits for nobody and shuts nobody out.
func TestStaleEntryDoesNotEndANewerOne(t *testing.T) {
	c := newCluster(t, 8, 4)
	d := c.host(1)
	h := acquire(t, d, Request{Name: "x"})
	stale := h.lk.entry
	stale.Creation--
	d.dir.remember(&scan{entries: []layout.Entry{stale}})
	next := start(t, d, Request{Name: "x"})
	none(t, next)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, ErrTimeout)
	defer cancel()
	d.dir.remember(&scan{entries: []layout.Entry{stale}})
	within(t, "giving up", func() {
		_, err := d.Acquire(ctx, Request{Name: "x"})
		require.ErrorIs(t, err, ErrTimeout)
	})
	require.NoError(t, h.Release())
	require.NoError(t, got(t, next).Release())
}

// TestBadSlotOfARemovedLock: the entry of a removed lock has no permits; its slots are healed all the same.
func TestBadSlotOfARemovedLock(t *testing.T) {
	c := newCluster(t, 8, 4)
	d := c.host(1)
	free := layout.Entry{Lock: 3, Creation: 7}
	c.writeEntry(free)
	c.spoil(c.sb.Geometry.Slot(3, 1))
	require.NotPanics(t, func() { d.scrubOne(free) })
	require.Eventually(t, func() bool {
		v, err := newArea(d.dev, c.sb.Space(), 3, 1).readOne(1)
		return err == nil && v.Readable
	}, generous, time.Millisecond)
	require.Equal(t, 3, acquireEntry(t, c, d, "new", 3), "its place is used again")
}

// acquireEntry makes locks until number want is among them.
func acquireEntry(t *testing.T, c *cluster, d *Daemon, name string, want int) int {
	t.Helper()
	for i := range c.sb.Geometry.Locks {
		h := acquire(t, d, Request{Name: fmt.Sprint(name, i)})
		lock := h.lk.entry.Lock
		require.NoError(t, h.Release())
		if lock == want {
			return lock
		}
	}
	return 0
}

// TestEntryBeingWrittenIsNotDamage: what cannot be read because another host is writing it is read again.
func TestEntryBeingWrittenIsNotDamage(t *testing.T) {
	c := newCluster(t, 8, 4)
	a, b := c.host(1), c.host(2)
	lk, err := a.attach(directoryEntry)
	require.NoError(t, err)
	w, err := lk.enqueue(Request{})
	require.NoError(t, err)
	guard, err := lk.await(t.Context(), w)
	require.NoError(t, err)
	c.spoil(c.sb.Geometry.Entry(1)) // half written
	asked := make(chan result, 1)
	go func() {
		h, err := b.Acquire(t.Context(), Request{Name: "y"})
		asked <- result{h, err}
	}()
	require.Eventually(t, func() bool { return c.slot(0, 2).Phase != layout.Idle || len(asked) > 0 }, generous, time.Millisecond)
	none(t, asked)
	c.writeEntry(layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
	require.NoError(t, guard.Release())
	h := got(t, asked)
	require.Equal(t, 2, h.lk.entry.Lock)
	require.NoError(t, h.Release())
}

// TestEntryIsWrittenAgain: a write of the directory that failed half way is repeated; left as it is it would keep
// everybody from making locks.
func TestEntryIsWrittenAgain(t *testing.T) {
	c := newCluster(t, 8, 4)
	a, f := c.faultyHost(1)
	at := c.sb.Geometry.Entry(1)
	f.Inject(blockdev.Fault{Op: blockdev.OpWrite, From: at, To: at + 512, Times: 1, Err: unix.EIO, Landed: 100})
	require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
	require.NoError(t, acquire(t, c.host(2), Request{Name: "y"}).Release())
}

// TestLostLeaseEndsWaitsThoughIOHangs: the driver cannot tell its clients, for it waits for the device.
func TestLostLeaseEndsWaitsThoughIOHangs(t *testing.T) {
	c := newCluster(t, 8, 4)
	d, f := c.faultyHost(1)
	require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
	hung := f.Inject(blockdev.Fault{Hang: true})
	waiting := make(chan result, 1)
	go func() {
		h, err := d.Acquire(t.Context(), Request{Name: "x"})
		waiting <- result{h, err}
	}()
	<-hung.Hit()
	select {
	case <-d.Lost():
	case <-time.After(generous):
		t.Fatal("not lost")
	}
	select {
	case r := <-waiting:
		require.ErrorIs(t, r.err, ErrUnavailable)
	case <-time.After(generous):
		t.Fatal("still waiting")
	}
}

// TestDirectoryThatHangsKeepsNobody: who gives up, or whose lease is lost, does not wait for the directory.
func TestDirectoryThatHangsKeepsNobody(t *testing.T) {
	c := newCluster(t, 8, 4)
	d, f := c.faultyHost(1)
	g := c.sb.Geometry
	f.Inject(blockdev.Fault{Hang: true, From: g.Entry(1), To: g.Entry(4) + 512})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, ErrTimeout)
	defer cancel()
	within(t, "giving up", func() {
		_, err := d.Acquire(ctx, Request{Name: "x"})
		require.ErrorIs(t, err, ErrTimeout)
	})
	f.Inject(blockdev.Fault{Hang: true})
	within(t, "losing", func() {
		_, err := d.Acquire(t.Context(), Request{Name: "x"})
		require.ErrorIs(t, err, ErrUnavailable)
	})
}

// TestHealedSlotKeepsTokensGrowing: a slot that went bad may hide a ticket much newer than the lock.
func TestHealedSlotKeepsTokensGrowing(t *testing.T) {
	c := newCluster(t, 8, 4)
	c.sb.Formatted = time.Now().Add(-30 * 24 * time.Hour).UTC().Truncate(time.Microsecond)
	for copy := range 2 {
		c.write(c.sb.Geometry.Superblock(copy), func(buf []byte) error { return c.sb.Encode(buf, copy) })
	}
	e := layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: bakery.ClockNumber(c.sb.Formatted, c.sb.Formatted)}
	c.writeEntry(e)
	before := c.host(1)
	h := acquire(t, before, Request{Name: "x"})
	require.NoError(t, h.Release())
	require.NoError(t, before.Close(t.Context()))
	c.spoil(c.sb.Geometry.Slot(1, 1))
	d := c.host(1)
	d.scrubOne(e)
	require.Eventually(t, func() bool {
		v, err := newArea(d.dev, c.sb.Space(), 1, 1).readOne(1)
		return err == nil && v.Readable
	}, generous, time.Millisecond)
	require.Greater(t, c.slot(1, 1).Ticket, h.Token())
}

// TestStatusOfALargerLockspace: the device may be formatted anew, for more hosts, under a daemon that runs.
func TestStatusOfALargerLockspace(t *testing.T) {
	c := newCluster(t, 2, 16)
	d := c.host(1)
	c.sb.UUID = layout.UUID{9}
	c.sb.Geometry.Hosts, c.sb.Geometry.Locks = 6, 1
	for _, copy := range []int{1, 0} {
		c.write(c.sb.Geometry.Superblock(copy), func(buf []byte) error { return c.sb.Encode(buf, copy) })
	}
	c.write(c.sb.Geometry.Host(6), func(buf []byte) error {
		return c.sb.Space().EncodeHost(buf, layout.HostRecord{ID: 6, Incarnation: 1, State: layout.StateLive, Highest: 6})
	})
	require.NotPanics(t, func() { _, _ = d.Status() })
}

func TestUnknownModeIsRefused(t *testing.T) {
	c := newCluster(t, 8, 4)
	d := c.host(1)
	_, err := d.Acquire(t.Context(), Request{Name: "x", Mode: 7})
	require.ErrorIs(t, err, ErrInvalid)
}

// counting counts what is asked of a device.
type counting struct {
	blockdev.Device
	reads   atomic.Int64
	longest atomic.Int64
}

func (d *counting) Read(p []byte, off int64) error {
	d.reads.Add(1)
	for {
		was := d.longest.Load()
		if int64(len(p)) <= was || d.longest.CompareAndSwap(was, int64(len(p))) {
			return d.Device.Read(p, off)
		}
	}
}

// TestScanTakesLittleMemory: every client that asks for a new name scans the directory, and buffers are kept.
func TestScanTakesLittleMemory(t *testing.T) {
	c := newCluster(t, 2, 8192)
	dev := &counting{Device: c.disk.Open()}
	d := c.host(1, through(dev))
	require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
	require.LessOrEqual(t, dev.longest.Load(), int64(scanChunk))
}

// TestWaitingDoesNotSpin: the first in line reads its one slot now and then, and a daemon without clients next to
// nothing.
func TestWaitingDoesNotSpin(t *testing.T) {
	c := newCluster(t, 8, 4)
	a := c.host(1)
	dev := &counting{Device: c.disk.Open()}
	b := c.host(2, through(dev))
	h := acquire(t, a, Request{Name: "x"})
	before := dev.reads.Load()
	next := start(t, b, Request{Name: "x"})
	const wait = 2 * time.Second
	time.Sleep(wait) // what is measured is a span of time
	reads := dev.reads.Load() - before
	t.Logf("first in line: %d reads in %v", reads, wait)
	require.Less(t, reads, int64(1000))
	require.NoError(t, h.Release())
	require.NoError(t, got(t, next).Release())
	before = dev.reads.Load()
	time.Sleep(wait)
	idle := dev.reads.Load() - before
	t.Logf("idle: %d reads in %v", idle, wait)
	require.Less(t, idle, int64(40))
}

// TestCloseDuringAttempts: whoever comes while the daemon closes is served or told.
func TestCloseDuringAttempts(t *testing.T) {
	c := newCluster(t, 8, 8)
	other := c.host(1)
	state := t.TempDir()
	for range 10 {
		d := c.unjoined(2, func(cfg *Config) { cfg.StateDir = state })
		require.NoError(t, d.Join(t.Context()))
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for n := 0; ; n++ {
					h, err := d.Acquire(t.Context(), Request{Name: fmt.Sprint((i + n) % 4), Mode: layout.Mode(n % 2)})
					if err != nil {
						if !errors.Is(err, ErrUnavailable) {
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
		within(t, "telling everybody", wg.Wait)
	}
}

// TestExclusionOnABadDisk: slots that are torn while they are written, reads that fail or return garbage, and writes
// that fail half way cost time and nothing else.
func TestExclusionOnABadDisk(t *testing.T) {
	c := newCluster(t, 8, 4)
	c.sb.Lease = 10 * time.Second
	for copy := range 2 {
		c.write(c.sb.Geometry.Superblock(copy), func(buf []byte) error { return c.sb.Encode(buf, copy) })
	}
	var (
		mu               sync.Mutex
		writers, readers int
		last             layout.Ticket
		wg               sync.WaitGroup
		end              = time.Now().Add(4 * time.Second)
		served           atomic.Int64
	)
	for id := 1; id <= 3; id++ {
		f := blockdev.NewFaulty(c.disk.Open(), blockdev.FaultyOptions{Seed: uint64(id)})
		d := c.host(id, through(f))
		t.Cleanup(f.Heal)
		from := c.sb.Geometry.Slot(0, 1)
		for _, fault := range []blockdev.Fault{
			{Op: blockdev.OpWrite, Chance: 0.3, Flicker: 3, Delay: 100 * time.Microsecond},
			{Op: blockdev.OpRead, Chance: 0.02, Returns: blockdev.Garbage},
			{Op: blockdev.OpRead, Chance: 0.02, Err: unix.EIO},
			{Op: blockdev.OpRead, Chance: 0.005, Err: unix.ETIMEDOUT},
			{Op: blockdev.OpWrite, Chance: 0.005, Err: unix.EIO, Landed: 100},
			{Op: blockdev.OpWrite, Chance: 0.005, Err: unix.EIO, Landed: blockdev.All},
		} {
			fault.From, fault.To = from, c.sb.Geometry.Size()
			f.Inject(fault)
		}
		for range 3 {
			wg.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					req := Request{Name: "x"}
					if n%3 == 0 {
						req.Mode = layout.Shared
					}
					h, err := d.Acquire(t.Context(), req)
					if !assertNoError(t, err) {
						return
					}
					mu.Lock()
					if writers > 0 || readers > 0 && req.Mode == layout.Exclusive {
						t.Errorf("%v beside %d writers and %d readers", req.Mode, writers, readers)
					}
					if req.Mode == layout.Exclusive {
						writers++
						if h.Token() <= last {
							t.Errorf("token %d after %d", h.Token(), last)
						}
						last = h.Token()
					} else {
						readers++
					}
					mu.Unlock()
					served.Add(1)
					runtime.Gosched()
					mu.Lock()
					if req.Mode == layout.Exclusive {
						writers--
					} else {
						readers--
					}
					mu.Unlock()
					if !assertNoError(t, h.Release()) {
						return
					}
				}
			})
		}
	}
	within(t, "letting everybody in", wg.Wait)
	t.Logf("%d grants", served.Load())
}

// TestHostileSlots: whatever sound sectors say, nobody panics.
func TestHostileSlots(t *testing.T) {
	c := newCluster(t, 8, 8)
	d := c.host(1)
	require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
	e := c.entry(1)
	for _, ticket := range []layout.Ticket{0, layout.MakeTicket(layout.MaxNumber, 2), layout.MakeTicket(1, 2)} {
		for _, creation := range []uint64{0, e.Creation, e.Creation + 1, math.MaxUint64} {
			for phase := layout.Idle; phase <= layout.Held; phase++ {
				s := layout.Slot{Lock: 1, Host: 2, Incarnation: 77, Creation: creation, Sequence: math.MaxUint64, Phase: phase, Ticket: ticket}
				c.write(c.sb.Geometry.Slot(1, 2), func(buf []byte) error { return c.sb.Space().EncodeSlot(buf, s) })
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if h, err := d.Acquire(ctx, Request{Name: "x"}); err == nil {
					require.NoError(t, h.Release())
				}
				cancel()
			}
		}
	}
	own := c.slot(1, 1)
	own.Ticket, own.Sequence, own.Creation = layout.MakeTicket(layout.MaxNumber, 1), math.MaxUint64, math.MaxUint64
	for i, creation := range []uint64{math.MaxUint64, layout.MaxNumber, layout.MaxNumber + 1} {
		lock := i + 2
		own.Lock = lock
		c.write(c.sb.Geometry.Slot(lock, 1), func(buf []byte) error { return c.sb.Space().EncodeSlot(buf, own) })
		c.writeEntry(layout.Entry{Lock: lock, Name: fmt.Sprint("old", i), Permits: layout.MaxHosts, Creation: creation})
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
}
