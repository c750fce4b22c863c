package locks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

func TestBlocker_Holder_IsNamedOnEveryHost(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		blocker := func(d *testHost) string {
			t.Helper()
			time.Sleep(2 * blockerEvery) // else the last read may answer
			text, err := d.Blocker(t.Context(), "x")
			require.NoError(t, err)
			return text
		}
		h := acquire(t, a, Request{Name: "x", PID: 2234, Command: "sleep 300"})
		text, err := b.Blocker(t.Context(), "x")
		require.NoError(t, err)
		require.Empty(t, text, "host 2 does not know the lock")
		knows(t, b, "x")
		for _, d := range []*testHost{a, b} {
			require.Equal(t, `held by db1 (host 1), pid 2234 "sleep 300", for 0 s`, blocker(d), "seen by host %d", d.mem.ID())
		}
		waiting := start(t, b, Request{Name: "x", PID: 7})
		time.Sleep(37 * time.Second)
		for _, d := range []*testHost{a, b} {
			require.Equal(t, `held by db1 (host 1), pid 2234 "sleep 300", for 38 s`, blocker(d), "seen by host %d", d.mem.ID())
		}
		require.NoError(t, h.Release())
		h = got(t, waiting)
		require.Equal(t, "held by db2 (host 2), pid 7, for 0 s", blocker(a))
		require.NoError(t, h.Release())
		for _, d := range []*testHost{a, b} {
			require.Empty(t, blocker(d), "seen by host %d", d.mem.ID())
		}
		_, err = a.Blocker(t.Context(), "")
		require.ErrorIs(t, err, api.ErrInvalid)
	})
}

// knows makes a host read the directory, as when one of its clients requests a lock.
func knows(t *testing.T, d *testHost, name string) {
	t.Helper()
	_, err := d.Locks(t.Context())
	require.NoError(t, err)
	_, ok := d.dir.Remembered(name)
	require.True(t, ok)
}

func TestBlocker_LockIsCreatedElsewhere_NamesTheHolder(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		before, ok := a.dir.Remembered("x")
		require.True(t, ok)
		require.NoError(t, b.Remove(timeout(t, generous), "x", false))
		other := acquire(t, b, Request{Name: "y"}) // takes the number of the lock
		h := acquire(t, b, Request{Name: "x", PID: 7})
		require.NotEqual(t, before.Lock, h.Lock().Entry.Lock)
		remembered, _ := a.dir.Remembered("x")
		require.Equal(t, before, remembered, "host 1 has not read the directory since")
		time.Sleep(2 * blockerEvery)
		text, err := a.Blocker(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "held by db2 (host 2), pid 7, for 0 s", text)
		require.NoError(t, h.Release())
		require.NoError(t, other.Release())

		require.NoError(t, b.Remove(timeout(t, generous), "x", false))
		time.Sleep(2 * blockerEvery)
		a.dir.Add(before) // unless it remembers the lock still
		_, err = a.Blocker(t.Context(), "x")
		require.ErrorIs(t, err, api.ErrNoLock)
	})
}

func TestBlocker_EntryIsUnreadable_NamesTheHolder(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := acquire(t, c.host(1), Request{Name: "x", PID: 7})
		b, f := c.faultyHost(2)
		knows(t, b, "x")
		time.Sleep(2 * blockerEvery)
		bad := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(2), Err: syscall.EIO})
		text, err := b.Blocker(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, "held by db1 (host 1), pid 7, for 0 s", text)
		require.Equal(t, 1, bad.Fired())
		require.NoError(t, h.Release())
	})
}

func TestBlocker_HostIsSilent_TellsWhenItEnds(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		b, f := c.faultyHost(2)
		acquire(t, b, Request{Name: "x", PID: 7})
		time.Sleep(2 * blockerEvery) // the disk shows the hold
		hanging := f.Inject(disktest.Fault{Hang: true})
		var text string
		require.Eventually(t, func() bool {
			var err error
			text, err = a.Blocker(t.Context(), "x")
			require.NoError(t, err)
			return strings.Contains(text, "silent")
		}, generous, blockerEvery)
		require.Regexp(t, `^held by db2 \(host 2\), pid 7, for \d+ s, silent, (dead in \d+ s|being declared dead)$`, text)
		require.Positive(t, hanging.Fired())
		require.Eventually(t, func() bool {
			text, err := a.Blocker(t.Context(), "x")
			return err == nil && text == ""
		}, generous, blockerEvery, "once it is dead")
	})
}

func TestBlocker_ManyClients_ShareARead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := acquire(t, c.host(1), Request{Name: "x", PID: 7})
		b, f := c.faultyHost(2)
		t.Cleanup(f.RemoveFaults)
		knows(t, b, "x")
		time.Sleep(2 * blockerEvery)
		reads := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Delay: time.Millisecond})
		ask := func(n int) {
			for range n {
				go func() {
					text, err := b.Blocker(t.Context(), "x")
					assert.NoError(t, err)
					assert.Equal(t, "held by db1 (host 1), pid 7, for 0 s", text)
				}()
			}
			synctest.Wait()
		}
		ask(250)
		time.Sleep(blockerEvery / 2)
		ask(250)
		require.Equal(t, 1, reads.Fired())
		require.NoError(t, h.Release())
	})
}

func TestBlocker_DeviceHangs_IsLeftToOneRead(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		h := acquire(t, c.host(1), Request{Name: "x"})
		b, f := c.faultyHost(2)
		knows(t, b, "x")
		hanging := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Slot(1, 1), To: c.Geo.Slot(2, 1), Hang: true})
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := b.Blocker(ctx, "x")
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, 1, hanging.Fired())
		f.RemoveFaults()
		require.NoError(t, h.Release())
	})
}

// TestBlocker_DeviceHangs_ReadsAreBounded: clients may ask for any number of names.
func TestBlocker_DeviceHangs_ReadsAreBounded(t *testing.T) {
	const known = 3 * mostBlockerReads
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 8, known+1)
		b, f := c.faultyHost(2)
		for i := range known {
			require.NoError(t, acquire(t, b, Request{Name: fmt.Sprint("lock", i)}).Release())
		}
		time.Sleep(2 * blockerEvery)
		hanging := f.Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(known + 1), Hang: true})
		for i := range 2000 {
			text, err := b.Blocker(t.Context(), fmt.Sprint("unknown", i))
			require.NoError(t, err)
			require.Empty(t, text)
		}
		require.Zero(t, hanging.Fired())
		require.Empty(t, b.blockers.byName)
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for i := range 2000 {
			asking.Go(func() {
				_, err := b.Blocker(ctx, fmt.Sprint("lock", i%known))
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		require.Equal(t, mostBlockerReads, hanging.Fired())
		require.Len(t, b.blockers.byName, mostBlockerReads)
		cancel()
		asking.Wait()
		synctest.Wait()
		require.Equal(t, mostBlockerReads, hanging.Fired())
		f.RemoveFaults()
		synctest.Wait()
		for i := range known {
			_, err := b.Blocker(t.Context(), fmt.Sprint("lock", i))
			require.NoError(t, err)
		}
	})
}

func TestBlocker_SeveralHolders_AreCounted(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		reader := func(d *testHost, pid int) *Hold {
			return acquire(t, d, Request{Name: "x", Mode: layout.Shared, PID: pid, Command: "report"})
		}
		holds := []*Hold{reader(a, 1), reader(a, 2), reader(b, 3)}
		time.Sleep(2 * blockerEvery)
		text, err := a.Blocker(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, `held by db1 (host 1), pid 1 "report", for 0 s, and 2 more`, text)
		for _, h := range holds {
			require.NoError(t, h.Release())
		}
	})
}
