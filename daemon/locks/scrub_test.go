package locks

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
	"github.com/bakeryd/bakeryd/test/logtest"
)

// tracing records the requests to a device.
type tracing struct {
	blockdev.Device
	mu  sync.Mutex
	all []traced
}

type traced struct {
	write bool
	n     int
	off   int64
}

func (d *tracing) note(r traced) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, r)
}

func (d *tracing) Read(p []byte, off int64) error {
	d.note(traced{false, len(p), off})
	return d.Device.Read(p, off)
}

func (d *tracing) Write(p []byte, off int64) error {
	d.note(traced{true, len(p), off})
	return d.Device.Write(p, off)
}

// since returns the requests after the first n, and their number in total.
func (d *tracing) since(n int) ([]traced, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]traced(nil), d.all[n:]...), len(d.all)
}

// settledHost joins a host and waits until it has made its first check of its slots, and is idle.
func (c *cluster) settledHost(id int, change ...func(*hostConfig)) (*testHost, *tracing) {
	c.t.Helper()
	dev := &tracing{Device: c.Disk.Open()}
	d := c.host(id, append(change, through(dev))...)
	scanned := func() bool { // the directory, then the slot in its lock, which is the last
		all, _ := dev.since(0)
		scan := false
		for _, r := range all {
			scan = scan || !r.write && r.off == c.Geo.Entry(1)
			if scan && !r.write && r.n == c.Geo.Stride && r.off == c.Geo.Slot(lockspace.DirectoryLock, id) {
				return true
			}
		}
		return false
	}
	eventually(c.t, "it has looked at its slots", scanned)
	return d, dev
}

// TestIdleHostIO: one read and one write per renewal, and nothing else, however many locks this
// host has used.
func TestIdleHostIO(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 64)
		for lock := 1; lock <= 10; lock++ {
			c.WriteEntry(layout.Entry{Lock: lock, Name: string(rune('a' + lock)), Permits: 1, Creation: 1})
		}
		c.host(2)
		d, dev := c.settledHost(1)
		for lock := 1; lock <= 10; lock++ {
			require.NoError(t, acquire(t, d, Request{Name: string(rune('a' + lock))}).Release())
		}
		c.host(3) // a third joins and leaves meanwhile
		sequence := func() uint64 { return c.HostRecord(1).Sequence }
		began := sequence()
		eventually(t, "no further host is expected to join", func() bool { return sequence() > began+2 })
		_, n := dev.since(0)
		began = sequence()
		eventually(t, "five more", func() bool { return sequence() >= began+5 })
		all, _ := dev.since(n)
		reads, writes := 0, 0
		for _, r := range all {
			switch {
			case r.write:
				require.Equal(t, traced{true, c.Geo.Stride, c.Geo.Host(1)}, r)
				writes++
			default:
				require.LessOrEqual(t, r.off+int64(r.n), c.Geo.Entry(1), "%+v", all)
				reads++
			}
		}
		require.InDelta(t, writes, reads, 1, "%+v", all)
		require.InDelta(t, 5, writes, 1, "%+v", all)
	})
}

// TestSlotIsMendedForWhoIsHeldUp: the owner of a damaged idle slot checks it when another host
// complains.
func TestSlotIsMendedForWhoIsHeldUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		before := c.host(1)
		require.NoError(t, acquire(t, before, Request{Name: "before"}).Release())
		require.NoError(t, before.Close(t.Context()))
		a, _ := c.settledHost(1)
		b, _ := c.settledHost(2)
		require.NoError(t, acquire(t, a, Request{Name: "used"}).Release())
		require.NoError(t, acquire(t, b, Request{Name: "unlike"}).Release())
		calm := func() { // existing complaints are handled with every renewal
			eventually(t, "no host complains any more", func() bool {
				return len(c.HostRecord(1).Complaints)+len(c.HostRecord(2).Complaints) == 0
			})
		}
		for _, name := range []string{"used", "before", "unlike"} {
			e, err := a.lookupNow(t.Context(), name)
			require.NoError(t, err)
			c.Spoil(c.Geo.Slot(e.Lock, 1))
			began := time.Now()
			next := start(t, b, Request{Name: name})
			eventually(t, "the complaint", func() bool { return len(c.HostRecord(2).Complaints) > 0 || len(next) > 0 })
			require.NoError(t, got(t, next).Release())
			t.Logf("%s: %v, a renewal is every %v", name, time.Since(began), a.times().Renew())
			require.NotPanics(t, func() { c.Slot(e.Lock, 1) })
		}
		// The slot in the directory's lock.
		calm()
		c.Spoil(c.Geo.Slot(lockspace.DirectoryLock, 1))
		_, created, err := b.Create(t.Context(), "new", 1)
		require.NoError(t, err)
		require.True(t, created)
		// The slot in the directory's lock, while it is held.
		calm()
		require.NoError(t, b.guarded(t.Context(), "test", func(*Lock) error {
			c.Spoil(c.Geo.Slot(lockspace.DirectoryLock, 1))
			eventually(t, "the intents", func() bool { _, err := b.intents(b.disk.Dev); return err == nil })
			return nil
		}))
		// A slot that may have a value.
		calm()
		e, err := b.lookupNow(t.Context(), "unlike")
		require.NoError(t, err)
		c.Spoil(c.Geo.Slot(e.Lock, 1))
		eventually(t, "a value", func() bool { _, err := b.Value(t.Context(), "unlike"); return err == nil })
		calm()
	})
}

// TestEntryIsMendedForWhoIsHeldUp: a host that has used a free lock restores its entry when another
// host complains.
func TestEntryIsMendedForWhoIsHeldUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.settledHost(1)
		b, _ := c.settledHost(2)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		before := c.Entry(1)
		c.Spoil(c.Geo.Entry(1))
		_, err := b.Acquire(t.Context(), Request{Name: "x"})
		require.ErrorIs(t, err, api.ErrDamaged)
		var h *Hold
		eventually(t, "it is restored", func() bool { h, err = b.Acquire(t.Context(), Request{Name: "x"}); return err == nil })
		require.Equal(t, before, c.Entry(1))
		require.NoError(t, h.Release())
	})
}

// TestRestoreEntries_LockIsAnotherMeanwhile_IsRestoredToo: the entry that this host knows is that of
// the moment at which it is restored. A lock before it in the order may take half a lease:
//
//	A                                     B
//	                                      holds x
//	restores x, then y: waits for x
//	                                      removes y, creates it again
//	uses the new y; its entry is damaged
//	                                      releases x
//	restores the new y
func TestRestoreEntries_LockIsAnotherMeanwhile_IsRestoredToo(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.settledHost(1)
		b, _ := c.settledHost(2)
		for _, name := range []string{"x", "y"} {
			require.NoError(t, acquire(t, a, Request{Name: name}).Release())
		}
		h := acquire(t, b, Request{Name: "x"})
		a.restoreEntries(slices.Repeat([]int{1, 2}, 30)) // in any order, so that an x comes before a y
		before := c.Entry(2)
		require.NoError(t, b.Remove(t.Context(), "y", false))
		require.NoError(t, acquire(t, b, Request{Name: "y"}).Release())
		require.NoError(t, acquire(t, a, Request{Name: "y"}).Release())
		after := c.Entry(2)
		require.Greater(t, after.Creation, before.Creation)
		c.Spoil(c.Geo.Entry(2))
		require.NoError(t, h.Release())
		time.Sleep(c.SB.Lease / 2)
		e, err := c.SB.Space().DecodeEntry(lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(2):], 2)
		require.NoError(t, err)
		require.Equal(t, after, e)
	})
}

// TestHeldLockIsLookedAt: a host checks the locks that it holds without a complaint.
func TestHeldLockIsLookedAt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, _ := c.settledHost(1)
		h := acquire(t, a, Request{Name: "x"})
		eventually(t, "shown", func() bool { return c.Slot(1, 1).Phase == layout.Held })
		before, entry := c.Slot(1, 1), c.Entry(1)
		c.Spoil(c.Geo.Slot(1, 1))
		c.Spoil(c.Geo.Entry(1))
		readable := func() bool {
			_, entry := c.SB.Space().DecodeEntry(lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(1):], 1)
			_, slot := c.SB.Space().DecodeSlot(lockspacetest.Contents(t, c.Disk)[c.Geo.Slot(1, 1):], 1, 1)
			return entry == nil && slot == nil
		}
		eventually(t, "both are restored", readable)
		require.Equal(t, entry, c.Entry(1))
		require.Equal(t, before.Ticket, c.Slot(1, 1).Ticket)
		require.NoError(t, h.Release())
	})
}

// TestSlotThatStaysBad: the owner rewrites it repeatedly, at most once per renewal interval.
func TestSlotThatStaysBad(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, disk := c.faultyHost(1)
		b, other := c.faultyHost(2)
		for _, d := range []*testHost{a, b} {
			require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		}
		bad := disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(1, 2), Returns: disktest.Garbage}
		disk.Inject(bad)
		before := c.Slot(1, 1).Sequence
		other.Inject(bad)
		next := start(t, b, Request{Name: "x"})
		eventually(t, "it is rewritten", func() bool { return c.Slot(1, 1).Sequence >= before+2 })
		began, from := c.Slot(1, 1).Sequence, time.Now()
		eventually(t, "and again", func() bool { return c.Slot(1, 1).Sequence >= began+2 })
		require.GreaterOrEqual(t, time.Since(from), a.times().Renew())
		none(t, next)
		disk.RemoveFaults()
		other.RemoveFaults()
		require.NoError(t, got(t, next).Release())
	})
}

// TestHostileComplaints: a complaint of another host costs a few reads, and has no other effect.
func TestHostileComplaints(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 64)
		d, dev := c.settledHost(1)
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		_, n := dev.since(0)
		const rounds = 100
		for i := range rounds {
			r := layout.HostRecord{ID: 5, Incarnation: 77, State: layout.StateLive, Sequence: uint64(i), ReadHorizon: 5}
			for k := range layout.MaxComplaints {
				r.Complaints = append(r.Complaints, layout.Complaint{Host: k % 2, Lock: (8*i+k)%64 + 1})
			}
			c.Write(c.Geo.Host(5), func(buf []byte) error { return c.SB.Space().EncodeHost(buf, r) })
			d.mem.Watch(0)
			time.Sleep(c.SB.Lease / rounds) // this long is measured
		}
		all, _ := dev.since(n)
		looks := 0
		for _, r := range all {
			if r.off >= c.Geo.Entry(1) {
				require.False(t, r.write, "%+v", r)
				require.LessOrEqual(t, r.n, c.Geo.Stride)
				looks++
			}
		}
		t.Logf("%d reads", looks)
		require.Positive(t, looks)
		require.LessOrEqual(t, looks, 2*64*8)
	})
}

// TestHangingIOIsReported: IO of the lease, once while it hangs and once when it has returned.
func TestHangingIOIsReported(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.lasting(6 * time.Second) // a hang is detected long before the lease is over
		said := new(logtest.Log)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		d := c.host(1, through(f), func(cfg *hostConfig) { cfg.Logger = slog.New(slog.NewTextHandler(said, nil)) })
		t.Cleanup(f.RemoveFaults)
		for what, fault := range map[string]disktest.Fault{
			"reading the host table":  {Op: blockdev.OpRead},
			"writing the host record": {Op: blockdev.OpWrite},
		} {
			release := f.Hang(fault)
			eventually(t, what+" hangs", func() bool { return count(said, "IO hangs", what) == 1 })
			release()
			eventually(t, what+" has returned", func() bool { return count(said, "IO that hung has returned", what) == 1 })
			require.Equal(t, 1, count(said, "IO hangs", what))
			eventually(t, "it is renewed", func() bool {
				return d.leaseLeft() > d.disk.SB.Lease-timing.Times{Lease: d.disk.SB.Lease}.Renew()
			})
		}
	})
}

// TestHangingJoinIsReported: also before there is a lease.
func TestHangingJoinIsReported(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		said := new(logtest.Log)
		f := disktest.NewFaulty(c.Disk.Open(), disktest.FaultyOptions{})
		release := f.Hang(disktest.Fault{Op: blockdev.OpWrite})
		t.Cleanup(release)
		cfg := c.config(1, through(f), func(cfg *hostConfig) { cfg.Logger = slog.New(slog.NewTextHandler(said, nil)) })
		joined := make(chan *testHost, 1)
		go func() {
			d, err := join(context.Background(), cfg)
			assertNoError(t, err)
			joined <- d
		}()
		eventually(t, "reported", func() bool { return count(said, "IO hangs", "writing the host record") == 1 })
		release()
		require.NoError(t, received(t, "joined", joined).Close(t.Context()))
	})
}

// count returns the number of lines of a log with all of these parts.
func count(l *logtest.Log, parts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			n++
		}
	}
	return n
}
