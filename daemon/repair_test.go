package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/lockspacetest"
)

func quiet(string) {}

// TestRepairSuperblock: what was damaged is as it was, and nothing else is touched.
func TestRepairSuperblock(t *testing.T) {
	for _, kind := range []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy} {
		runInBubble(t, string(kind), func(t *testing.T) {
			c := newChecked(t)
			whole := lockspacetest.Contents(t, c.disk)
			at := map[lockspace.RecordKind]int64{lockspace.KindSuperblock: 0, lockspace.KindCopy: c.geo.Superblock(1)}[kind]
			for _, spoil := range []func(){
				func() { lockspacetest.Damage(t, c.disk.Open(), at) },
				func() { c.spoil(at) },
				func() { c.write(at, func(buf []byte) error { clear(buf); return nil }) },
			} {
				spoil()
				found := c.check()
				require.Len(t, found, 1)
				require.True(t, found[0].Repair)
				require.NoError(t, rewriteSuperblock(c.disk.Open(), kind, quiet))
				require.Equal(t, whole, lockspacetest.Contents(t, c.disk))
				require.Empty(t, c.check())
				require.NoError(t, rewriteSuperblock(c.disk.Open(), kind, func(string) { t.Error("written again") }))
			}
		})
	}
}

// TestRepairSuperblockRefuses: what is whole is not overwritten by the other, nor what formatting has begun.
func TestRepairSuperblockRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newChecked(t)
		other := c.sb
		other.UUID[5]++
		at := c.geo.Superblock(1)
		c.write(at, func(buf []byte) error { return other.Encode(buf, 1) })
		before := lockspacetest.Contents(t, c.disk)
		for _, kind := range []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy} {
			err := rewriteSuperblock(c.disk.Open(), kind, quiet)
			if kind == lockspace.KindCopy {
				require.ErrorIs(t, err, ErrNotRepaired)
				require.ErrorContains(t, err, other.UUID.String())
			}
			require.Equal(t, before, lockspacetest.Contents(t, c.disk))
		}
		found := c.check()
		require.Len(t, found, 1)
		require.False(t, found[0].Repair)

		c.write(at, func(buf []byte) error { return c.sb.Encode(buf, 1) })
		c.write(0, func(buf []byte) error { return c.sb.Encode(buf, 1) }) // the mark
		before = lockspacetest.Contents(t, c.disk)
		require.ErrorIs(t, rewriteSuperblock(c.disk.Open(), lockspace.KindSuperblock, quiet), lockspace.ErrInterrupted)
		require.Equal(t, before, lockspacetest.Contents(t, c.disk))
	})
}

// TestRepairSuperblockUnderHosts: a host whose superblock is damaged and written anew goes on.
func TestRepairSuperblockUnderHosts(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(1)
		h := acquire(t, d, Request{Name: "x"})
		for i := range 20 {
			copy := i % 2
			c.spoil(c.geo.Superblock(copy))
			time.Sleep(20 * time.Millisecond) // so that some renewals meet it so
			require.NoError(t, rewriteSuperblock(c.disk.Open(), []lockspace.RecordKind{lockspace.KindSuperblock, lockspace.KindCopy}[copy], quiet))
		}
		require.NoError(t, h.Err())
		require.NoError(t, h.Release())
	})
}

// repair mends a lock's entry by a host that has joined for that.
func (c *cluster) repair(d *Daemon, number int) (string, error) {
	c.t.Helper()
	r, err := newRepairer(d, func(message string) { c.t.Log(message) })
	require.NoError(c.t, err)
	return r.entry(c.t.Context(), number)
}

// tornEntry has a host fail in the midst of writing the entry of a lock.
func (c *cluster) tornEntry(d *Daemon, f *blockdev.Faulty, name string) {
	c.t.Helper()
	torn := f.Inject(blockdev.Fault{Op: blockdev.OpWrite, From: c.geo.Entry(1), To: c.geo.Slot(0, 1), Err: unix.EIO, Landed: 50})
	_, err := d.Acquire(c.t.Context(), Request{Name: name, Permits: 3})
	require.ErrorIs(c.t, err, unix.EIO)
	require.Positive(c.t, torn.Fired())
}

// TestRepairFromIntent: what a host was about to write is known, also when it is gone, and also to a repairer that
// gets its id.
func TestRepairFromIntent(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]int{"others up": 3, "own id": 1} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, f := c.faultyHost(1)
			c.tornEntry(a, f, "x")
			if id == 1 {
				require.NoError(t, a.Close(t.Context()))
			} else {
				c.host(2)
			}
			found := (&checked{cluster: c}).check()
			require.NotEmpty(t, found)
			require.Contains(t, found[0].Mend, "restoring lock x with 3 permits")
			repairer := c.host(id, func(cfg *Config) { cfg.repair = true }) // any other host of this id takes the intent back
			done, err := c.repair(repairer, 1)
			require.NoError(t, err)
			require.Contains(t, done, "restoring lock x with 3 permits")
			e := c.entry(1)
			require.Equal(t, layout.Entry{Lock: 1, Name: "x", Permits: 3, Creation: e.Creation}, e)
			f.Heal()
			require.NoError(t, acquire(t, c.host(4), Request{Name: "x", Permits: 3}).Release())
		})
	}
}

// TestRepairFrees: an entry that nobody knows becomes a free one. Tokens go on growing, and nothing is touched
// but what the repairer owns.
func TestRepairFrees(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		h := acquire(t, a, Request{Name: "x"})
		old, last := h.lk.entry, h.Token()
		require.NoError(t, h.Release())
		require.NoError(t, a.Close(t.Context()))
		c.spoil(c.geo.Entry(1))
		before := lockspacetest.Contents(t, c.disk)

		d := c.host(2)
		done, err := c.repair(d, 1)
		require.NoError(t, err)
		require.Contains(t, done, "free")
		e := c.entry(1)
		require.True(t, e.Free())
		require.Greater(t, e.Creation, old.Creation)
		require.Greater(t, e.Creation, last.Number())
		require.Equal(t, e.Creation, c.slot(1, 2).Creation, "the slot tells of it")
		require.Equal(t, layout.Idle, c.slot(1, 2).Phase)
		require.Empty(t, c.slot(0, 2).Value, "nothing is intended any more")
		require.NoError(t, d.Close(t.Context()))

		after := lockspacetest.Contents(t, c.disk)
		for _, at := range []int64{c.geo.Host(2), c.geo.Entry(1), c.geo.Slot(0, 2), c.geo.Slot(1, 2)} {
			copy(after[at:at+512], before[at:])
		}
		require.Equal(t, before, after)
		require.Empty(t, (&checked{cluster: c}).check())

		b := c.host(3)
		h = acquire(t, b, Request{Name: "x"})
		require.Greater(t, h.Token(), last)
		require.NoError(t, h.Release())
	})
}

// TestRepairFreesOnlyOnce: who is late finds the entry readable.
func TestRepairFreesOnlyOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		d := c.host(2)
		e := layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5}
		c.writeEntry(e)
		done, err := c.repair(d, 1)
		require.NoError(t, err)
		require.Empty(t, done)
		require.Equal(t, e, c.entry(1))
	})
}

// TestOldEntryAfterRepair: one who still goes by the old entry meets the slot of the repairer, and looks the name up
// again:
//
//	A (remembers x at 1)              repairer
//	                                  leaves its slot at 1; frees 1
//	                                  (others make y at 1, x at 2)
//	claims x at 1, by the old entry:
//	sees a newer creation; starts over
func TestOldEntryAfterRepair(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		a := c.host(1)
		h := acquire(t, a, Request{Name: "x"})
		old := h.lk.entry
		require.NoError(t, h.Release())
		require.NoError(t, a.Close(t.Context()))
		c.spoil(c.geo.Entry(1))
		_, err := c.repair(c.host(2), 1)
		require.NoError(t, err)
		b, other := c.host(3), c.host(4)
		y, _, err := other.create(t.Context(), "y", 1)
		require.NoError(t, err)
		require.Equal(t, old.Lock, y.Lock)
		b.dir.remember(&scan{entries: []layout.Entry{old}}) // as if it had read the entry before
		holder := acquire(t, other, Request{Name: "x"})
		require.NotEqual(t, old.Lock, holder.lk.entry.Lock)
		next := start(t, b, Request{Name: "x"})
		none(t, next)
		require.NoError(t, holder.Release())
		h = got(t, next)
		require.Equal(t, holder.lk.entry, h.lk.entry)
		require.NoError(t, h.Release())
	})
}

// TestRepairRefusesWhileOthersAreUp: they may remember the entry. Nothing is written.
func TestRepairRefusesWhileOthersAreUp(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.host(1)
		c.writeEntry(layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
		c.spoil(c.geo.Entry(1))
		d := c.host(2)
		before := lockspacetest.Contents(t, c.disk)[c.geo.Entry(1):c.geo.Slot(0, 1)]
		_, err := c.repair(d, 1)
		require.ErrorIs(t, err, ErrNotRepaired)
		require.ErrorContains(t, err, "host 1 (db1) may be up")
		require.Equal(t, before, lockspacetest.Contents(t, c.disk)[c.geo.Entry(1):c.geo.Slot(0, 1)])
		require.True(t, c.slot(1, 2).Virgin())
	})
}

// TestRepairWaitsForTheDead: one that is silent is up until time tells.
func TestRepairWaitsForTheDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &checked{cluster: newCluster(t, 4, 4)}
		c.putHost(layout.HostRecord{ID: 1, State: layout.StateLive, Highest: 4})
		c.spoil(c.geo.Entry(1))
		_, err := c.repair(c.host(2), 1)
		require.NoError(t, err)
		require.True(t, c.entry(1).Free())
	})
}

// TestRepairDoesNotBelieveAnOldIntent: one of a dead host that slots know better, or that names a lock that is
// elsewhere by now, is not what was there.
func TestRepairDoesNotBelieveAnOldIntent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *checked){
		"removed since": func(c *checked) {
			c.putSlot(layout.Slot{Lock: 1, Host: 1, Creation: 9, Ticket: layout.MakeTicket(8, 1)})
		},
		"elsewhere":                func(c *checked) { c.writeEntry(layout.Entry{Lock: 2, Name: "x", Permits: 1, Creation: 12}) },
		"a slot cannot be read":    func(c *checked) { c.spoil(c.geo.Slot(1, 3)) },
		"it was to remove a lock":  func(c *checked) { c.intend(1, layout.Entry{Lock: 1, Creation: 7}) },
		"it is of another's place": func(c *checked) { c.intend(1, layout.Entry{Lock: 3, Name: "x", Permits: 1, Creation: 5}) },
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := &checked{cluster: newCluster(t, 4, 4)}
			c.now = 5
			c.intend(1, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
			c.spoil(c.geo.Entry(1))
			change(c)
			_, err := c.repair(c.host(2), 1)
			require.NoError(t, err)
			e := c.entry(1)
			require.True(t, e.Free())
			require.Greater(t, e.Creation, uint64(12))
		})
	}
}

// TestRepairRefusesWithoutIntents: what a host that is up intends may be newer than the intent that can be read.
func TestRepairRefusesWithoutIntents(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *checked){
		"unreadable": func(c *checked) { c.spoil(c.geo.Slot(0, 1)) },
		"no intent": func(c *checked) {
			c.putSlot(layout.Slot{Lock: 0, Host: 1, Creation: 1, Ticket: layout.MakeTicket(5, 1), Value: []byte("junk")})
		},
		"numbers used up": func(c *checked) {
			c.putSlot(layout.Slot{Lock: 1, Host: 1, Creation: layout.MaxNumber, Ticket: layout.MakeTicket(5, 1)})
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := &checked{cluster: newCluster(t, 4, 4)}
			c.now = 5
			c.putHost(layout.HostRecord{ID: 1, State: layout.StateLive, Highest: 4})
			c.intend(3, layout.Entry{Lock: 1, Name: "x", Permits: 1, Creation: 5})
			c.spoil(c.geo.Entry(1))
			spoil(c)
			ex := examiner{dev: c.disk.Open(), sb: c.sb, space: c.sb.Space()}
			p, err := ex.look([]int{lockspace.DirectoryLock, 1})
			require.NoError(t, err)
			require.ErrorIs(t, p.remedy(1, nil).err, ErrNotRepaired)
		})
	}
}

// TestRepairer_GoneHostsIntentUnreadable_FreesPlace: the intent of a host that is gone counts for nothing if it cannot
// be read, as for hosts that create locks.
func TestRepairer_GoneHostsIntentUnreadable_FreesPlace(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(c *checked){
		"unreadable": func(c *checked) { c.spoil(c.geo.Slot(0, 1)) },
		"no intent": func(c *checked) {
			c.putSlot(layout.Slot{Lock: 0, Host: 1, Creation: 1, Ticket: layout.MakeTicket(5, 1), Value: []byte("junk")})
		},
	} {
		runInBubble(t, name, func(t *testing.T) {
			c := &checked{cluster: newCluster(t, 4, 4)}
			c.putHost(layout.HostRecord{ID: 1, State: layout.StateLeft, Highest: 4})
			c.spoil(c.geo.Entry(1))
			spoil(c)
			_, err := c.repair(c.host(2), 1)
			require.NoError(t, err)
			require.True(t, c.entry(1).Free())
		})
	}
}

// TestRepairer_HostDiedWhileJoining_FreesPlace waits until the joiner is settled: no incarnation before it is up then.
func TestRepairer_HostDiedWhileJoining_FreesPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &checked{cluster: newCluster(t, 4, 4)}
		c.putHost(layout.HostRecord{ID: 3, State: layout.StateJoining, Highest: 4})
		c.spoil(c.geo.Entry(1))
		_, err := c.repair(c.host(2), 1)
		require.NoError(t, err)
		require.True(t, c.entry(1).Free())
		require.Positive(t, c.entry(1).Creation)
	})
}

// TestHolderRestoresEntry: a host that holds, shares, waits for or has used a lock knows its entry, and restores it: by
// itself as long as it holds or waits, else when somebody is held up. Who waits by it goes on waiting, and nobody enters
// beside the holder.
func TestHolderRestoresEntry(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]func(t *testing.T, a *Daemon) *Hold{
		"held":   func(t *testing.T, a *Daemon) *Hold { return acquire(t, a, Request{Name: "x"}) },
		"shared": func(t *testing.T, a *Daemon) *Hold { return acquire(t, a, Request{Name: "x", Mode: layout.Shared}) },
		"idle":   nil,
	} {
		runInCluster(t, name, func(t *testing.T, c *cluster) {
			a, b := c.host(1), c.host(2)
			require.NoError(t, acquire(t, a, Request{Name: "x"}).Release())
			e := c.entry(1)
			var h *Hold
			var next <-chan result
			if held != nil {
				h = held(t, a)
				next = start(t, b, Request{Name: "x"})
			}
			c.spoil(c.geo.Entry(1))
			eventually(t, "restored", func() bool {
				if held == nil {
					asksFor(t, b)
				}
				buf := lockspacetest.Contents(t, c.disk)[c.geo.Entry(1):]
				found, err := c.sb.Space().DecodeEntry(buf, 1)
				return err == nil && found == e
			})
			if held != nil {
				none(t, next)
				require.NoError(t, h.Release())
				require.NoError(t, got(t, next).Release())
			}
			require.NoError(t, acquire(t, c.host(3), Request{Name: "x"}).Release())
			require.Equal(t, e, c.entry(1))
		})
	}
}

// TestRepairer_EntryRestoredByAHost_IsLeftAlone: the host that was asked has restored it, and runs.
func TestRepairer_EntryRestoredByAHost_IsLeftAlone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		require.NoError(t, acquire(t, c.host(1), Request{Name: "x"}).Release())
		r, err := newRepairer(c.host(3), func(string) {})
		require.NoError(t, err)
		before := c.entry(1)
		done, err := r.entry(t.Context(), 1)
		require.NoError(t, err)
		require.Empty(t, done)
		require.Equal(t, before, c.entry(1))
	})
}

// TestDirectory_ScanWhileAnEntryIsDamaged_LockStaysKnown: a host that has used the lock continues to use it.
func TestDirectory_ScanWhileAnEntryIsDamaged_LockStaysKnown(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		for _, e := range []layout.Entry{{Lock: 1, Creation: 5, Name: "x", Permits: 1}, {Lock: 2, Creation: 6, Name: "y", Permits: 1}} {
			c.writeEntry(e)
		}
		dir := newDirectory(c.disk.Open(), c.sb.Space())
		_, err := dir.scan()
		require.NoError(t, err)
		c.spoil(c.geo.Entry(1))
		c.writeEntry(layout.Entry{Lock: 2, Creation: 7})
		_, err = dir.scan()
		require.NoError(t, err)
		e, known := dir.remembered("x")
		require.True(t, known)
		require.Equal(t, uint64(5), e.Creation)
		_, known = dir.remembered("y")
		require.False(t, known, "its place is free")
	})
}

// asksFor has a host ask for lock x, in vain or not.
func asksFor(t *testing.T, d *Daemon) {
	if h, err := d.Acquire(timeout(t, time.Second), Request{Name: "x"}); err == nil {
		assert.NoError(t, h.Release())
	}
}

// TestRestoreHeedsIntents: an entry that a host was about to remove when it died is not restored beside that.
func TestRestoreHeedsIntents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &checked{cluster: newCluster(t, 4, 4)}
		a := c.host(1)
		h := acquire(t, a, Request{Name: "x"})
		c.now = 5
		c.putHost(layout.HostRecord{ID: 3, State: layout.StateLeft, Highest: 4})
		c.intend(3, layout.Entry{Lock: 1, Creation: h.Token().Number() + 9})
		c.spoil(c.geo.Entry(1))
		require.ErrorIs(t, a.mendEntry(t.Context(), h.lk), ErrNotRepaired)
		_, err := c.sb.Space().DecodeEntry(lockspacetest.Contents(t, c.disk)[c.geo.Entry(1):], 1)
		require.Error(t, err)
		require.NoError(t, h.Release())
	})
}
