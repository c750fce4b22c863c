package locks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// removing starts a removal, and returns a channel with its outcome.
func removing(t *testing.T, d *testHost, name string, try bool) <-chan error {
	t.Helper()
	out := make(chan error, 1)
	go func() { out <- d.Remove(t.Context(), name, try) }()
	return out
}

func ended(t *testing.T, c <-chan error) error {
	t.Helper()
	return received(t, "the removal", c)
}

func TestRemoveFree(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		require.ErrorIs(t, a.Remove(t.Context(), "x", false), api.ErrNoLock)
		require.ErrorIs(t, a.Remove(t.Context(), "", false), api.ErrInvalid)
		require.NoError(t, acquire(t, b, Request{Name: "x"}).Release())
		before := c.Entry(1)
		require.NoError(t, a.Remove(t.Context(), "x", true))
		e := c.Entry(1)
		require.True(t, e.Free())
		require.Greater(t, e.Creation, before.Creation)
		require.Equal(t, layout.Idle, c.Slot(1, 1).Phase)
		require.Equal(t, e.Creation, c.Slot(1, 1).Creation)
		require.Empty(t, c.Slot(0, 1).Value, "nothing is intended any more")
		require.ErrorIs(t, b.Remove(t.Context(), "x", false), api.ErrNoLock)
	})
}

// TestTokensGrowOverRemoval: without a clock, and wherever the lock is created again.
func TestTokensGrowOverRemoval(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := clusterOf(t, 8, 4, time.Now().Add(time.Hour))
		hosts := []*testHost{c.host(1), c.host(2), c.host(3)}
		var last layout.Ticket
		for round := range 12 {
			h := acquire(t, hosts[round%3], Request{Name: "x", Permits: round%2 + 1})
			require.Greater(t, h.Token(), last)
			last = h.Token()
			require.NoError(t, h.Release())
			require.NoError(t, hosts[(round+round/3)%3].Remove(t.Context(), "x", false))
			if round == 5 { // its place is taken
				require.NoError(t, acquire(t, hosts[0], Request{Name: "y"}).Release())
			}
		}
	})
}

func TestRemoveWaitsForTheHolder(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		runInCluster(t, fmt.Sprint(elsewhere), func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			remover := a
			if elsewhere {
				remover = b
			}
			h := acquire(t, a, Request{Name: "x"})
			require.ErrorIs(t, remover.Remove(t.Context(), "x", true), api.ErrBusy)
			require.ErrorIs(t, remover.Remove(timeout(t, 50*time.Millisecond), "x", false), api.ErrTimeout)
			require.False(t, c.Entry(1).Free())
			removed := removing(t, remover, "x", false)
			require.Eventually(t, func() bool {
				return elsewhere && c.Slot(1, 2).Phase == layout.Waiting || !elsewhere && h.Lock().Queue.Vitals(time.Now()).Waiting == 1
			}, generous, time.Millisecond)
			require.NoError(t, h.Err())
			require.NoError(t, h.Release())
			require.NoError(t, ended(t, removed))
			require.Zero(t, c.named("x"))
		})
	}
}

// TestTwoRemovers: one removes the lock, and the other one gets ErrNoLock.
func TestTwoRemovers(t *testing.T) {
	t.Parallel()
	for _, permits := range []int{1, 3} {
		runInCluster(t, fmt.Sprint(permits), func(t *testing.T, c *cluster) {
			a, b, holder := c.host(1), c.host(2), c.host(3)
			for range 10 {
				create(t, a, "x", permits)
				h := acquire(t, holder, Request{Name: "x"})
				removals := []<-chan error{removing(t, a, "x", false), removing(t, b, "x", false), removing(t, a, "x", false)}
				require.NoError(t, h.Release())
				removed := 0
				for _, r := range removals {
					if err := ended(t, r); err == nil {
						removed++
					} else {
						require.ErrorIs(t, err, api.ErrNoLock)
					}
				}
				require.Equal(t, 1, removed)
				require.Zero(t, c.named("x"))
			}
		})
	}
}

// TestRemoveSemaphore: the remover waits for all holders, and none enters meanwhile.
func TestRemoveSemaphore(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, b, remover := c.host(1), c.host(2), c.host(3)
		create(t, a, "x", 2)
		one := acquire(t, a, Request{Name: "x"})
		require.ErrorIs(t, remover.Remove(t.Context(), "x", true), api.ErrBusy, "though there is room")
		require.Equal(t, 1, c.named("x"))
		removed := removing(t, remover, "x", false)
		require.Eventually(t, func() bool { return c.Slot(1, 3).Creation > c.Entry(1).Creation }, generous, time.Millisecond)
		next := start(t, b, Request{Name: "x"})
		require.NoError(t, one.Err())
		none(t, next)
		require.NoError(t, one.Release())
		require.NoError(t, ended(t, removed))
		h := got(t, next)
		require.Equal(t, 1, h.Lock().Entry.Permits, "it is created again, as any lock is on first use")
		require.NoError(t, h.Release())
	})
}

// TestRemoveGivenUp: a client that waits behind a removal that has begun is granted the lock as it
// was.
func TestRemoveGivenUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, remover := c.host(1), c.host(2)
		create(t, a, "x", 2)
		h := acquire(t, a, Request{Name: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 1)
		go func() { given <- remover.Remove(ctx, "x", false) }()
		require.Eventually(t, func() bool { return c.Slot(1, 2).Creation > c.Entry(1).Creation }, generous, time.Millisecond)
		next := start(t, c.host(3), Request{Name: "x"})
		local := start(t, remover, Request{Name: "x"})
		cancel()
		require.ErrorIs(t, ended(t, given), context.Canceled)
		require.NoError(t, h.Release()) // there is room for both now
		for _, w := range []<-chan result{next, local} {
			served := got(t, w)
			require.Equal(t, h.Lock().Entry, served.Lock().Entry)
			defer func() { require.NoError(t, served.Release()) }()
		}
	})
}

// TestStaleEntryAfterOwnRemoval: the host that removed a lock does not use its remembered entry.
// Only its own slot shows that removal.
func TestStaleEntryAfterOwnRemoval(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		require.NoError(t, acquire(t, b, Request{Name: "y"}).Release())
		h := acquire(t, a, Request{Name: "x"})
		stale := h.Lock().Entry
		require.Equal(t, 2, stale.Lock)
		require.NoError(t, h.Release())
		require.NoError(t, a.Remove(t.Context(), "x", false))
		require.NoError(t, b.Remove(t.Context(), "y", false)) // now there is room before it
		anew := acquire(t, b, Request{Name: "x"})
		require.Equal(t, 1, anew.Lock().Entry.Lock)
		a.dir.Remember(&directory.Scan{Entries: []layout.Entry{stale}})
		acquireFails(t, a, Request{Name: "x", Try: true}, api.ErrBusy)
		require.NoError(t, anew.Release())
	})
}

// TestEntryThatCannotBeCleared: a failed write is retried, and other locks can be created
// meanwhile.
func TestEntryThatCannotBeCleared(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a, f := c.faultyHost(1)
		b := c.host(2)
		require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
		at := c.Geo.Entry(1)
		broken := f.Inject(disktest.Fault{Op: blockdev.OpWrite, From: at, To: at + 512, Err: unix.EIO})
		removed := removing(t, a, "x", false)
		<-broken.Hit()
		e, _, err := b.Create(t.Context(), "y", 1)
		require.NoError(t, err)
		require.Equal(t, 2, e.Lock)
		require.Len(t, removed, 0)
		broken.Release()
		require.NoError(t, ended(t, removed))
		require.Zero(t, c.named("x"))
		h := acquire(t, b, Request{Name: "z"})
		require.Equal(t, 1, h.Lock().Entry.Lock)
		require.NoError(t, h.Release())
	})
}

// TestRemoveLetsOthersGoFirst: a client on another host is served before a removal that came later,
// and holds the lock as it was.
func TestRemoveLetsOthersGoFirst(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		h := acquire(t, a, Request{Name: "x"})
		entry := h.Lock().Entry
		next := start(t, b, Request{Name: "x"})
		eventually(t, "b waits", func() bool { return c.Slot(1, 2).Phase == layout.Waiting })
		removed := removing(t, a, "x", false)
		eventually(t, "the removal waits", func() bool { return h.Lock().Queue.Front() != nil })
		require.NoError(t, h.Release())
		h2 := got(t, next)
		require.Equal(t, entry, h2.Lock().Entry)
		require.NoError(t, h2.Release())
		require.NoError(t, ended(t, removed))
		require.Zero(t, c.named("x"))
	})
}

// A removal that keeps values reads them when it has the lock: it also meets a value that is set while it
// waits, by a client of its host or of another one.
func TestRemoveIfNoValue_ValueIsSetWhileItWaits_KeepsTheLock(t *testing.T) {
	t.Parallel()
	for _, host := range []int{1, 2} {
		runInCluster(t, fmt.Sprint(host), func(t *testing.T, c *cluster) {
			remover := c.host(1)
			setter := remover
			if host != 1 {
				setter = c.host(host)
			}
			h := acquire(t, setter, Request{Name: "x"})
			out := make(chan error, 1)
			go func() { out <- remover.RemoveIfNoValue(t.Context(), "x", false) }()
			require.Eventually(t, func() bool {
				return host != 1 && c.Slot(1, 1).Phase == layout.Waiting || host == 1 && h.Lock().Queue.Vitals(time.Now()).Waiting == 1
			}, generous, time.Millisecond)
			require.NoError(t, h.SetValue(t.Context(), []byte("precious")))
			require.NoError(t, h.Release())
			require.ErrorIs(t, ended(t, out), api.ErrValue)
			require.Equal(t, "precious", string(valueOf(t, remover).Value))
			require.NoError(t, acquire(t, setter, Request{Name: "x"}).Release(), "the lock is usable")
			require.ErrorIs(t, remover.RemoveIfNoValue(t.Context(), "x", true), api.ErrValue)

			setValue(t, setter, "")
			require.NoError(t, remover.RemoveIfNoValue(t.Context(), "x", true), "the value is cleared")
			require.ErrorIs(t, remover.RemoveIfNoValue(t.Context(), "x", true), api.ErrNoLock)
		})
	}
}

// An unreadable slot may have a value, so the lock stays.
func TestRemoveIfNoValue_SlotIsUnreadable_KeepsTheLock(t *testing.T) {
	onTwoHosts(t, func(t *testing.T, c *cluster, a, b *testHost) {
		setValue(t, a, "precious")
		require.NoError(t, a.Close(t.Context())) // no host rewrites its slot now
		c.Spoil(c.Geo.Slot(1, 1))
		require.ErrorIs(t, b.RemoveIfNoValue(timeout(t, generous), "x", false), api.ErrUnreadable)
		require.Equal(t, 1, c.named("x"))
	})
}
