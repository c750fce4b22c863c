package locks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/check"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

// TestRepairSuperblockUnderHosts: a host continues when its superblock is damaged and rewritten.
func TestRepairSuperblockUnderHosts(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		h := acquire(t, d, Request{Name: "x"})
		for i := range 20 {
			copy := i % 2
			c.Spoil(c.Geo.Superblock(copy))
			time.Sleep(20 * time.Millisecond) // so that some renewals read it so
			require.NoError(t, check.RewriteSuperblock(c.Disk.Open(), []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy}[copy], func(string) {}))
		}
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
	})
}

// check returns the findings of check.
func (c *cluster) check() []check.Finding {
	c.t.Helper()
	done, err := check.Check(c.t.Context(), c.Disk.OpenReadOnly(), check.Options{})
	require.NoError(c.t, err)
	return done.Findings
}

// repair repairs a lock's entry by a host that has joined for that.
func (c *cluster) repair(d *testHost, number int) (string, error) {
	c.t.Helper()
	r, err := NewRepairer(d.Manager, func(message string) { c.t.Log(message) })
	require.NoError(c.t, err)
	return r.Entry(c.t.Context(), number)
}

// TestRepairFrees: an entry that no host knows becomes a free one. Tokens continue to grow, and
// only the repairer's own records are written.
func TestRepairFrees(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		h := acquire(t, a, Request{Name: "x"})
		old, last := h.Lock().Entry, h.Token()
		require.NoError(t, h.Release())
		require.NoError(t, a.Close(t.Context()))
		c.Spoil(c.Geo.Entry(1))
		before := lockspacetest.Contents(t, c.Disk)

		d := c.host(2)
		done, err := c.repair(d, 1)
		require.NoError(t, err)
		require.Contains(t, done, "free")
		e := c.Entry(1)
		require.True(t, e.Free())
		require.Greater(t, e.Creation, old.Creation)
		require.Greater(t, e.Creation, last.Number())
		require.Equal(t, e.Creation, c.Slot(1, 2).Creation, "the slot shows it")
		require.Equal(t, layout.Idle, c.Slot(1, 2).Phase)
		require.Empty(t, c.Slot(0, 2).Value, "nothing is intended any more")
		require.NoError(t, d.Close(t.Context()))

		after := lockspacetest.Contents(t, c.Disk)
		for _, at := range []int64{c.Geo.Host(2), c.Geo.Entry(1), c.Geo.Slot(0, 2), c.Geo.Slot(1, 2)} {
			copy(after[at:at+512], before[at:])
		}
		require.Equal(t, before, after)
		require.Empty(t, c.check())

		b := c.host(3)
		h = acquire(t, b, Request{Name: "x"})
		require.Greater(t, h.Token(), last)
		require.NoError(t, h.Release())
	})
}

// TestRepairFreesOnlyOnce: a later repairer finds the entry readable.
func TestRepairFreesOnlyOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(2)
		e := layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5}
		c.WriteEntry(e)
		done, err := c.repair(d, 1)
		require.NoError(t, err)
		require.Empty(t, done)
		require.Equal(t, e, c.Entry(1))
	})
}

// TestOldEntryAfterRepair: a host that uses the old entry meets the slot of the repairer, and looks
// the name up again:
//
//	A (remembers x at 1)              repairer
//	                                  leaves its slot at 1; frees 1
//	                                  (others create y at 1, x at 2)
//	claims x at 1, by the old entry:
//	sees a newer creation; starts over
func TestOldEntryAfterRepair(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		h := acquire(t, a, Request{Name: "x"})
		old := h.Lock().Entry
		require.NoError(t, h.Release())
		require.NoError(t, a.Close(t.Context()))
		c.Spoil(c.Geo.Entry(1))
		_, err := c.repair(c.host(2), 1)
		require.NoError(t, err)
		b, other := c.host(3), c.host(4)
		y, _, err := other.create(t.Context(), "y", 1)
		require.NoError(t, err)
		require.Equal(t, old.Lock, y.Lock)
		b.dir.Remember(&directory.Scan{Entries: []layout.Entry{old}}) // as if it had read the entry before
		holder := acquire(t, other, Request{Name: "x"})
		require.NotEqual(t, old.Lock, holder.Lock().Entry.Lock)
		next := start(t, b, Request{Name: "x"})
		none(t, next)
		require.NoError(t, holder.Release())
		h = got(t, next)
		require.Equal(t, holder.Lock().Entry, h.Lock().Entry)
		require.NoError(t, h.Release())
	})
}

// TestRepairRefusesWhileOthersAreUp: they may remember the entry. Nothing is written.
func TestRepairRefusesWhileOthersAreUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.host(1)
		c.WriteEntry(layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
		c.Spoil(c.Geo.Entry(1))
		d := c.host(2)
		before := lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(1):c.Geo.Slot(0, 1)]
		_, err := c.repair(d, 1)
		require.ErrorIs(t, err, check.ErrNotRepaired)
		require.ErrorContains(t, err, "host 1 (db1) may be up")
		require.Equal(t, before, lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(1):c.Geo.Slot(0, 1)])
		require.True(t, c.Slot(1, 2).Blank())
	})
}

// TestRepairWaitsForTheDead: a silent host counts as up until its time is over.
func TestRepairWaitsForTheDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLive, ReadHorizon: 4})
		c.Spoil(c.Geo.Entry(1))
		_, err := c.repair(c.host(2), 1)
		require.NoError(t, err)
		require.True(t, c.Entry(1).Free())
	})
}

// TestRepairDoesNotBelieveAnOldIntent: an intent of a dead host is obsolete if slots are newer, or
// if its lock is elsewhere by now.
func TestRepairDoesNotBelieveAnOldIntent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *cluster){
		"removed since": func(c *cluster) {
			c.PutSlot(layout.Slot{Lock: 1, Host: 1, Creation: 9, Ticket: layout.MakeTicket(8, 1)})
		},
		"elsewhere":                func(c *cluster) { c.WriteEntry(layout.Entry{Lock: 2, Name: "x", Permits: 1, Creation: 12}) },
		"a slot cannot be read":    func(c *cluster) { c.Spoil(c.Geo.Slot(1, 3)) },
		"it was to remove a lock":  func(c *cluster) { c.Intend(1, layout.Entry{Lock: 1, Creation: 7}) },
		"it is of another's place": func(c *cluster) { c.Intend(1, layout.Entry{Lock: 3, Name: "x", Permits: 1, Creation: 5}) },
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newCluster(t, 4, 4)
			c.Now = 5
			c.Intend(1, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
			c.Spoil(c.Geo.Entry(1))
			change(c)
			_, err := c.repair(c.host(2), 1)
			require.NoError(t, err)
			e := c.Entry(1)
			require.True(t, e.Free())
			require.Greater(t, e.Creation, uint64(12))
		})
	}
}

// TestRepairer_GoneHostsIntentUnreadable_FreesPlace: an unreadable intent of a host that is gone
// does not count, as for hosts that create locks.
func TestRepairer_GoneHostsIntentUnreadable_FreesPlace(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *cluster){
		"unreadable": func(c *cluster) { c.Spoil(c.Geo.Slot(0, 1)) },
		"no intent": func(c *cluster) {
			c.PutSlot(layout.Slot{Lock: 0, Host: 1, Creation: 1, Ticket: layout.MakeTicket(5, 1), Value: []byte("junk")})
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := newCluster(t, 4, 4)
			c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLeft, ReadHorizon: 4})
			c.Spoil(c.Geo.Entry(1))
			spoil(c)
			_, err := c.repair(c.host(2), 1)
			require.NoError(t, err)
			require.True(t, c.Entry(1).Free())
		})
	}
}

// TestRepairer_HostDiedWhileJoining_FreesPlace waits until the joiner is settled: then no earlier
// incarnation is up.
func TestRepairer_HostDiedWhileJoining_FreesPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		c.PutHost(layout.HostRecord{ID: 3, State: layout.StateJoining, ReadHorizon: 4})
		c.Spoil(c.Geo.Entry(1))
		_, err := c.repair(c.host(2), 1)
		require.NoError(t, err)
		require.True(t, c.Entry(1).Free())
		require.Positive(t, c.Entry(1).Creation)
	})
}

// TestHolderRestoresEntry: a host that holds, shares, waits for or has used a lock knows its entry,
// and restores it. It does so by itself while it holds or waits, else when a host is blocked.
// Waiters by the entry continue to wait, and no host enters while the holder is inside.
func TestHolderRestoresEntry(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]func(t *testing.T, a *testHost) *Hold{
		"held":   func(t *testing.T, a *testHost) *Hold { return acquire(t, a, Request{Name: "x"}) },
		"shared": func(t *testing.T, a *testHost) *Hold { return acquire(t, a, Request{Name: "x", Mode: layout.Shared}) },
		"idle":   nil,
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
			e := c.Entry(1)
			var h *Hold
			var next <-chan result
			if held != nil {
				h = held(t, a)
				next = start(t, b, Request{Name: "x"})
			}
			c.Spoil(c.Geo.Entry(1))
			eventually(t, "restored", func() bool {
				if held == nil {
					asksFor(t, b)
				}
				buf := lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(1):]
				found, err := c.SB.Space().DecodeEntry(buf, 1)
				return err == nil && found == e
			})
			if held != nil {
				none(t, next)
				require.NoError(t, h.Release())
				require.NoError(t, got(t, next).Release())
			}
			require.NoError(t, acquire(t, c.host(3), Request{Name: "x"}).Release())
			require.Equal(t, e, c.Entry(1))
		})
	}
}

// TestRepairer_EntryRestoredByAHost_IsLeftAlone: the host that was asked has restored it, and runs.
func TestRepairer_EntryRestoredByAHost_IsLeftAlone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		require.NoError(t, acquire(t, c.host(1), Request{Name: "x"}).Release())
		r, err := NewRepairer(c.host(3).Manager, func(string) {})
		require.NoError(t, err)
		before := c.Entry(1)
		done, err := r.Entry(t.Context(), 1)
		require.NoError(t, err)
		require.Empty(t, done)
		require.Equal(t, before, c.Entry(1))
	})
}

// TestDirectory_ScanWhileAnEntryIsDamaged_LockStaysKnown: a host that has used the lock continues
// to use it.
func TestDirectory_ScanWhileAnEntryIsDamaged_LockStaysKnown(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		for _, e := range []layout.Entry{{Lock: 1, Creation: 5, Name: "x", Permits: 1}, {Lock: 2, Creation: 6, Name: "y", Permits: 1}} {
			c.WriteEntry(e)
		}
		dir := directory.New(c.Disk.Open(), c.SB.Space())
		_, err := dir.Scan()
		require.NoError(t, err)
		c.Spoil(c.Geo.Entry(1))
		c.WriteEntry(layout.Entry{Lock: 2, Creation: 7})
		_, err = dir.Scan()
		require.NoError(t, err)
		e, known := dir.Remembered("x")
		require.True(t, known)
		require.Equal(t, uint64(5), e.Creation)
		_, known = dir.Remembered("y")
		require.False(t, known, "its place is free")
	})
}

// asksFor makes a host request lock x, with any outcome.
func asksFor(t *testing.T, d *testHost) {
	if h, err := d.Acquire(timeout(t, time.Second), Request{Name: "x"}); err == nil {
		assert.NoError(t, h.Release())
	}
}

// TestRestoreHeedsIntents: an entry that a host intended to remove when it died is not restored.
func TestRestoreHeedsIntents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 4, 4)
		a := c.host(1)
		h := acquire(t, a, Request{Name: "x"})
		c.Now = 5
		c.PutHost(layout.HostRecord{ID: 3, State: layout.StateLeft, ReadHorizon: 4})
		c.Intend(3, layout.Entry{Lock: 1, Creation: h.Token().Number() + 9})
		c.Spoil(c.Geo.Entry(1))
		require.ErrorIs(t, a.restoreKnownEntry(t.Context(), h.Lock()), check.ErrNotRepaired)
		_, err := c.SB.Space().DecodeEntry(lockspacetest.Contents(t, c.Disk)[c.Geo.Entry(1):], 1)
		require.Error(t, err)
		require.NoError(t, h.Release())
	})
}
