package locks

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// TestOldScanDoesNotHideALock: a lock is not created twice if another client's scan of the
// directory began before the creation and ends after it.
func TestOldScanDoesNotHideALock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, 64)
		a, b := c.host(1), c.host(2)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		guard, err := b.attach(lockspace.DirectoryEntry)
		require.NoError(t, err)
		h := guard.NewHold(Request{}, false)
		require.NoError(t, h.Acquire(t.Context()))
		stop, old := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(old)
			for {
				select {
				case <-stop:
					return
				default:
					b.dir.Remember(&directory.Scan{})
				}
			}
		}()
		for range 5000 {
			e, _, err := b.createGuarded(guard, "x", 1)
			require.NoError(t, err)
			if e.Lock != 1 {
				t.Errorf("lock x made again, as number %d", e.Lock)
				break
			}
		}
		close(stop)
		<-old
		require.NoError(t, h.Release())
	})
}

// TestStaleEntryDoesNotEndANewerOne: a client looked a lock up before it was removed and created
// again, and comes only now. It does not wait, and ends no other client's hold.
func TestStaleEntryDoesNotEndANewerOne(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		h := acquire(t, d, Request{Name: "x"})
		stale := h.Lock().Entry
		stale.Creation--
		d.dir.Remember(&directory.Scan{Entries: []layout.Entry{stale}})
		next := start(t, d, Request{Name: "x"})
		none(t, next)
		d.dir.Remember(&directory.Scan{Entries: []layout.Entry{stale}})
		within(t, "giving up", func() {
			_, err := d.Acquire(timeout(t, 50*time.Millisecond), Request{Name: "x"})
			require.ErrorIs(t, err, api.ErrTimeout)
		})
		require.NoError(t, h.Release())
		require.NoError(t, got(t, next).Release())
	})
}

// TestBadSlotOfARemovedLock: the entry of a removed lock has no permits. Its slots are repaired
// nevertheless.
func TestBadSlotOfARemovedLock(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		free := layout.Entry{Lock: 3, Creation: 7}
		c.WriteEntry(free)
		c.Spoil(c.Geo.Slot(3, 1))
		require.NotPanics(t, func() { d.scrubOne(free, false) })
		require.Eventually(t, func() bool {
			v, err := d.disk.View(d.disk.Dev, 3, 1)
			return err == nil && v.Readable
		}, generous, time.Millisecond)
		require.Equal(t, 3, acquireEntry(t, c, d, "new", 3), "its place is used again")
	})
}

// acquireEntry creates locks until number want is among them.
func acquireEntry(t *testing.T, c *cluster, d *testHost, name string, want int) int {
	t.Helper()
	for i := range c.Geo.Locks {
		h := acquire(t, d, Request{Name: fmt.Sprint(name, i)})
		lock := h.Lock().Entry.Lock
		require.NoError(t, h.Release())
		if lock == want {
			return lock
		}
	}
	return 0
}

// TestEntryBeingWrittenIsNotDamage: an entry that is unreadable because another host is writing it
// is read again.
func TestEntryBeingWrittenIsNotDamage(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		lk, err := a.attach(lockspace.DirectoryEntry)
		require.NoError(t, err)
		guard := lk.NewHold(Request{}, false)
		require.NoError(t, guard.Acquire(t.Context()))
		c.Spoil(c.Geo.Entry(1)) // half written
		asked := asking(t.Context(), b, Request{Name: "y"})
		require.Eventually(t, func() bool { return c.Slot(0, 2).Phase != layout.Idle || len(asked) > 0 }, generous, time.Millisecond)
		none(t, asked)
		c.WriteEntry(layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
		require.NoError(t, guard.Release())
		h := got(t, asked)
		require.Equal(t, 2, h.Lock().Entry.Lock)
		require.NoError(t, h.Release())
	})
}

// TestEntryIsWrittenAgain: a write of the directory that failed half way is repeated. Otherwise no
// host could create locks.
func TestEntryIsWrittenAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, f := c.faultyHost(1)
		at := c.Geo.Entry(1)
		f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: at, To: at + 512, Times: 1, Err: unix.EIO, Landed: 100})
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		require.NoError(t, acquire(t, c.host(2), Request{Name: "y"}).Release())
	})
}

// TestDirectoryThatHangsKeepsNobody: a client that gives up, or whose lease is lost, does not wait
// for the directory.
func TestDirectoryThatHangsKeepsNobody(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d, f := c.faultyHost(1)
		f.Inject(disktest.Fault{Hang: true, From: c.Geo.Entry(1), To: c.Geo.Entry(4) + 512})
		within(t, "giving up", func() {
			_, err := d.Acquire(timeout(t, 50*time.Millisecond), Request{Name: "x"})
			require.ErrorIs(t, err, api.ErrTimeout)
		})
		f.Inject(disktest.Fault{Hang: true})
		within(t, "losing", func() {
			acquireFails(t, d, Request{Name: "x"}, api.ErrUnavailable)
		})
	})
}

// counting counts the requests to a device.
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

// TestScanTakesLittleMemory: every client that requests a new name scans the directory, and buffers
// are reused.
func TestScanTakesLittleMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 2, 8192)
		dev := &counting{Device: c.Disk.Open()}
		d := c.host(1, through(dev))
		require.NoError(t, acquire(t, d, Request{Name: "x"}).Release())
		require.LessOrEqual(t, dev.longest.Load(), int64(lockspace.ScanChunk))
	})
}
