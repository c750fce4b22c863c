package locks

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/blockdev/mirror"
	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/lockspace/directory"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/disktest"
)

// These tests are named by the rules of bakery/PROTOCOL.md, "The directory on several disks".

func TestDirectory_OnMembers_VersionsGrow(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a, b := c.member(1), c.member(2)
		h := acquire(t, a.testHost, Request{Name: "x"})
		require.Equal(t, h.Lock().Entry, c.same(1))
		before := c.copies(1)[0]
		require.NotZero(t, before.Token)
		require.NoError(t, h.Release())
		require.NoError(t, b.Remove(t.Context(), "x", false))
		require.True(t, c.same(1).Free())
		require.Greater(t, c.copies(1)[0].Token, before.Token)
		require.Empty(t, c.value(0, 1))
		require.Empty(t, c.value(0, 2))
		require.NoError(t, acquire(t, a.testHost, Request{Name: "x"}).Release())
		require.Equal(t, "x", c.same(1).Name)
	})
}

// TestDirectory_HalfCreated_CreatorResolvesIt: RESOLVE. The creator returns and does not see what it wrote.
// It must not appear later.
func TestDirectory_HalfCreated_CreatorResolvesIt(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(y1(1), 5, 0, 1, 2)
		c.intend(x1(2), 1, 0, 1, 2)
		c.entry(x1(2), 6, 0)
		c.join(1, func(h *memberHost) { h.blind(0, c.Geo.Entry(2)) })
		c.resolved()
		require.True(t, c.same(2).Free())
		b := c.member(2)
		require.NoError(t, b.Remove(t.Context(), "y", false))
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		b.blind(2, c.Geo.Entry(2))
		s, err := b.dir.Scan()
		require.NoError(t, err)
		require.NoError(t, s.Damaged)
	})
}

// TestDirectory_HalfCleared_RemoverResolvesIt: RESOLVE, a clearing.
func TestDirectory_HalfCleared_RemoverResolvesIt(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 1, 2)
		c.entry(free2(1), 6, 0)
		c.intend(free2(1), 1, 0, 1, 2)
		c.join(1, func(h *memberHost) { h.blind(0, c.Geo.Entry(1)) })
		c.resolved()
		require.Equal(t, x1(1), c.same(1))
	})
}

// TestDirectory_IntentOfFormerIncarnation_IsNotCarriedOut: RESOLVE, in a process that continues an
// incarnation which had claimed the directory's lock and no more. The intent had landed after another
// host used the place.
func TestDirectory_IntentOfFormerIncarnation_IsNotCarriedOut(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(y1(1), 5, 0, 1, 2)
		a := c.member(1, func(cfg *hostConfig) {
			cfg.resumes = func(h *testHost) {
				c.slot(layout.Slot{Creation: 1, Incarnation: h.mem.Incarnation(), Sequence: 1, Value: layout.Intent(x1(1)).Value(),
					ValueToken: layout.MakeTicket(9, 1)}, 0, 1, 2)
			}
		})
		c.resolved()
		require.Equal(t, y1(1), c.same(1))
		_, err := a.FindExisting(t.Context(), "y")
		require.NoError(t, err)
	})
}

// TestDirectory_ClaimOfResolvingHost_MarksIntent: the claim keeps the intent, and marks it as one of
// an earlier incarnation.
func TestDirectory_ClaimOfResolvingHost_MarksIntent(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		c.intend(x1(1), 1, 0, 1, 2)
		held := make(chan struct{})
		a := c.join(1, func(h *memberHost) {
			for m := range h.members { // before it can read the entry
				i := h.members[m].Inject(disktest.Fault{Op: blockdev.OpRead, From: c.Geo.Entry(1), To: c.Geo.Entry(1) + 512, Hang: true})
				go func() { <-held; i.Release() }()
			}
		})
		eventually(t, "it claims the lock", func() bool {
			s := c.slotOf(0, 1)
			return s.Incarnation == a.mem.Incarnation() && s.Phase != layout.Idle && len(s.Value) > 0 && s.ValueToken != 0
		})
		close(held)
		c.resolved()
		c.same(1)
	})
}

// TestDirectory_HalfCreated_IsNotUsed: SETTLED.
func TestDirectory_HalfCreated_IsNotUsed(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.intend(x1(1), 1, 0, 1, 2)
		c.entry(x1(1), 5, 0)
		b := c.member(2)
		b.blind(2, c.Geo.Entry(1))
		_, err := b.lookupOnce("x", false)
		require.ErrorIs(t, err, directory.ErrUnsettled)
		_, err = b.dir.Read(1)
		require.ErrorIs(t, err, directory.ErrUnsettled)
		// FORWARD: nothing else is intended there
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		require.Equal(t, x1(1), c.same(1))
	})
}

// TestDirectory_ThirdCopySettles_IsUsed: a read that begins with two different copies waits for the third.
func TestDirectory_ThirdCopySettles_IsUsed(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0, 1)
		c.entry(free2(1), 4, 2)
		b := c.member(2)
		slow := b.members[0].Inject(disktest.Fault{Op: blockdev.OpRead, Delay: time.Millisecond})
		_, err := b.FindExisting(t.Context(), "x")
		require.NoError(t, err)
		require.NotZero(t, slow.Fired())
		create(t, b.testHost, "y", 1)
		require.Equal(t, free2(1), func() layout.Entry { e := c.copies(1)[2]; e.Token, e.Sequence = 0, 0; return e }(), "nothing is rewritten")
	})
}

// TestDirectory_UnsettledEntry_IsForwarded: FORWARD. Without it no lock could be created.
func TestDirectory_UnsettledEntry_IsForwarded(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		b := c.member(2)
		b.blind(2, c.Geo.Entry(1))
		create(t, b.testHost, "z", 1)
		require.Equal(t, x1(1), c.same(1))
		require.Equal(t, "z", c.same(2).Name)
	})
}

// TestDirectory_UnsettledEntryBlocksReader_IsForwarded: a host that only looks a name up has the entry
// rewritten.
func TestDirectory_UnsettledEntryBlocksReader_IsForwarded(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		b := c.member(2)
		b.blind(2, c.Geo.Entry(1))
		eventually(t, "it is settled", func() bool { _, err := b.FindExisting(t.Context(), "x"); return err == nil })
		require.Equal(t, x1(1), c.same(1))
	})
}

// TestDirectory_AnotherEntryIntended_IsNotForwarded: CONFLICT.
func TestDirectory_AnotherEntryIntended_IsNotForwarded(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		free := free2(1)
		free.Token, free.Sequence = layout.MakeTicket(9, 1), 1
		c.intend(free, 1, 0, 1, 2)
		b := c.member(2)
		b.blind(2, c.Geo.Entry(1))
		_, _, err := b.Create(t.Context(), "x", 1)
		require.ErrorIs(t, err, api.ErrUnavailable)
		require.ErrorContains(t, err, "another host intends another entry")
		require.True(t, c.copies(1)[1].Blank())
		c.member(1)
		c.resolved()
		create(t, b.testHost, "x", 1)
	})
}

// TestDirectory_DiesTwice_WritesWhatItBegan: BINDING. Another host counted on what the slot shows.
func TestDirectory_DiesTwice_WritesWhatItBegan(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		free := free2(1)
		free.Token, free.Sequence = layout.MakeTicket(9, 1), 1
		c.intend(free, 1, 0, 1, 2)
		b := c.member(2)
		b.blind(0, c.Geo.Entry(1))
		e, created, err := b.Create(t.Context(), "x", 1)
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, 2, e.Lock)
		c.join(1, func(h *memberHost) { h.blind(2, c.Geo.Entry(1)) })
		c.resolved()
		require.Equal(t, free2(1), c.same(1))
	})
}

// TestDirectory_DiesTwiceButWasWritten_IsLeft: BINDING, a later version.
func TestDirectory_DiesTwiceButWasWritten_IsLeft(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		free := free2(1)
		free.Token, free.Sequence = layout.MakeTicket(9, 1), 1
		c.intend(free, 1, 0, 1, 2)
		c.entry(y1(1), 10, 0, 1)
		c.member(1)
		c.resolved()
		require.Equal(t, y1(1), c.same(1))
	})
}

// TestDirectory_EarlierIntentToClear_Counts: EARLIER.
func TestDirectory_EarlierIntentToClear_Counts(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLeft})
		c.entry(x1(1), 5, 0, 2)
		c.entry(free2(1), 6, 1)
		c.slot(layout.Slot{Lock: 1, Creation: 2, Sequence: 1, Phase: layout.Held}, 0, 1, 2) // the mark
		c.intend(free2(1), 1, 1, 2)
		again := x1(1)
		again.Token, again.Sequence = layout.MakeTicket(9, 1), 1
		c.intend(again, 2, 0)
		b := c.member(2)
		b.blind(1, c.Geo.Entry(1))
		h := acquire(t, b.testHost, Request{Name: "x"})
		require.NotEqual(t, x1(1), h.Lock().Entry, "that one may be cleared at any time")
		require.NoError(t, h.Release())
	})
}

// TestDirectory_SlotOfHostThatLeft_IsOnTwoMembers_OneIsLost: no host writes it again, and nothing is half written.
// Its last write counts, and no earlier one. The intent of a dead host may be an earlier one.
func TestDirectory_SlotOfHostThatLeft_IsOnTwoMembers_OneIsLost(t *testing.T) {
	for state, refused := range map[layout.HostState]bool{layout.StateLeft: false, layout.StateLive: true} {
		runOnMembers(t, state.String(), func(t *testing.T, c *membersCluster) {
			c.PutHost(layout.HostRecord{ID: 1, State: state})
			r := layout.HostRecord{ID: 1, State: state, Incarnation: 101, Generation: 1}
			c.put(c.Geo.Host(1), func(buf []byte) error { return c.space.EncodeHost(buf, r) }, 0, 1, 2)
			c.intend(y1(1), 1, 2)
			c.slot(layout.Slot{Creation: 1, Sequence: 2}, 0, 1)
			b := c.member(2)
			b.blind(0, c.Geo.Slot(0, 1))
			e, _, err := b.Create(t.Context(), "z", 1)
			if refused {
				require.ErrorIs(t, err, directory.ErrUnsettled)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, e.Lock)
		})
	}
}

// TestDirectory_EarlierIntentNotSeen_CreatesNothing: EARLIER. The copy that was not read may have an
// earlier intent.
func TestDirectory_EarlierIntentNotSeen_CreatesNothing(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLeft})
		c.intend(x1(1), 2, 0)
		c.intend(y1(1), 1, 1)
		c.intend(y1(1), 1, 2)
		b := c.member(2)
		lost := b.blind(2, c.Geo.Slot(0, 1))
		_, _, err := b.Create(t.Context(), "z", 1)
		require.ErrorIs(t, err, directory.ErrUnsettled)
		require.ErrorIs(t, err, api.ErrDamaged)
		lost.Release()
		e, _, err := b.Create(t.Context(), "z", 1)
		require.NoError(t, err)
		require.Equal(t, 2, e.Lock)
	})
}

// TestDirectory_SlotOfLiveHostUnsettled_IsRewritten: EARLIER. One member missed the last write of an idle
// host, and another one lost it.
func TestDirectory_SlotOfLiveHostUnsettled_IsRewritten(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a, b := c.member(1), c.member(2)
		create(t, a.testHost, "x", 1)
		s := c.slotOf(0, 1)
		s.Sequence--
		c.slot(s, 1)
		require.NoError(t, c.disks[2].Open().Write(disktest.Random(1, c.Geo.Stride), c.Geo.Slot(lockspace.DirectoryLock, 1)))
		_, _, err := b.Create(t.Context(), "y", 1)
		require.ErrorIs(t, err, directory.ErrUnsettled)
		eventually(t, "it is rewritten", func() bool { _, _, err := b.Create(t.Context(), "y", 1); return err == nil })
	})
}

// TestDirectory_IntentRemovedOnMajority_DoesNotCount: a member that missed the removal of an intent
// changes nothing.
func TestDirectory_IntentRemovedOnMajority_DoesNotCount(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0, 1, 2)
		c.intend(x1(1), 1, 0)
		c.slot(layout.Slot{Creation: 1, Sequence: 2}, 1, 2)
		require.NoError(t, c.member(2).Remove(t.Context(), "x", false))
	})
}

// resumeRemoval joins host 1 as a process that continues its incarnation: x.1 is marked as removed, and it is to
// be cleared.
func (c *membersCluster) resumeRemoval() *memberHost {
	c.entry(x1(1), 5, 0, 1, 2)
	return c.member(1, func(cfg *hostConfig) {
		cfg.resumes = func(h *testHost) {
			own := h.mem.Incarnation()
			c.slot(layout.Slot{Lock: 1, Creation: 2, Incarnation: own, Sequence: 1, Phase: layout.Held}, 0, 1, 2)
			c.slot(layout.Slot{Creation: 1, Incarnation: own, Sequence: 1, Value: layout.Intent(free2(1)).Value()}, 0, 1, 2)
			require.NoError(c.t, h.Resume(nil, nil))
			synctest.Wait() // what does not wait for the intent goes on
		}
	})
}

// TestDirectory_RestartWhileClearing_Clears: CARRIED. The clearing may have reached a member.
func TestDirectory_RestartWhileClearing_Clears(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a := c.resumeRemoval()
		c.resolved()
		require.Equal(t, free2(1), c.same(1))
		eventually(t, "the removal is complete", func() bool {
			v, err := a.disk.View(a.disk.Dev, 1, 1)
			return err == nil && v.Slot.Phase == layout.Idle
		})
		v, err := a.disk.View(a.disk.Dev, 1, 1)
		require.NoError(t, err)
		require.Equal(t, uint64(2), v.Slot.Creation, "it was not taken back")
	})
}

// TestDirectory_CopyInFlight_KeepsIntent: RETURNED. The copy would land over what another host wrote.
func TestDirectory_CopyInFlight_KeepsIntent(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		r, b := c.member(1), c.member(2)
		require.NoError(t, acquire(t, r.testHost, Request{Name: "x"}).Release())
		synctest.Wait()
		late := r.hang(2, c.Geo.Entry(1))
		require.NoError(t, r.Remove(t.Context(), "x", false))
		require.NotEmpty(t, c.value(0, 1))
		h := acquire(t, b.testHost, Request{Name: "x"})
		require.Equal(t, 2, h.Lock().Entry.Lock, "another place")
		late.Release()
		c.resolved()
		require.True(t, c.same(1).Free())
		require.NoError(t, h.Release())
	})
}

// TestDirectory_CopyOfEarlierProcessInFlight_KeepsIntent: RETURNED. The process ended while the member hung. The
// next one resolves the intent on the others, and keeps one for the place.
func TestDirectory_CopyOfEarlierProcessInFlight_KeepsIntent(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.intend(x1(1), 1, 0, 1, 2)
		c.entry(x1(1), 5, 0)
		a := c.join(1, func(h *memberHost) {
			h.earlier.Store(uint32(mirror.At(2)))
			h.blind(0, c.Geo.Entry(1))
		})
		b := c.member(2)
		eventually(t, "it is resolved", func() bool { e := c.copies(1)[1]; return e.Free() && !e.Blank() })
		synctest.Wait()
		_, _, err := a.Create(t.Context(), "y", 1)
		require.ErrorIs(t, err, api.ErrInFlight)
		require.NotEmpty(t, c.value(0, 1))
		h := acquire(t, b.testHost, Request{Name: "x"})
		require.Equal(t, 2, h.Lock().Entry.Lock, "another place")
		c.entry(x1(1), 5, 2) // the copy lands
		_, err = b.FindExisting(t.Context(), "x")
		require.NoError(t, err)
		a.earlier.Store(0)
		c.resolved()
		create(t, a.testHost, "y", 1)
		require.Equal(t, "y", c.same(1).Name)
		require.NoError(t, h.Release())
	})
}

// TestDirectory_MemberHangs_HostCreatesOneLock: RETURNED. The slot has room for one intent.
func TestDirectory_MemberHangs_HostCreatesOneLock(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a, b := c.member(1), c.member(2)
		hung := a.members[2].Inject(disktest.Fault{Hang: true})
		began := time.Now()
		require.NoError(t, acquire(t, a.testHost, Request{Name: "x"}).Release())
		require.Less(t, time.Since(began), time.Second)
		_, _, err := a.Create(t.Context(), "y", 1)
		require.ErrorIs(t, err, api.ErrInFlight)
		require.ErrorIs(t, a.Remove(t.Context(), "x", false), api.ErrInFlight)
		require.NoError(t, acquire(t, a.testHost, Request{Name: "x"}).Release(), "what exists is used")
		create(t, b.testHost, "z", 1)
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		require.NoError(t, b.Remove(t.Context(), "z", false))
		err = b.Remove(t.Context(), "x", false)
		require.EqualError(t, err, "another host may still write the entry of the lock: an intent of "+text.HostName(1, a.disk.HostName(1))+" is open: a disk hangs there, or the host died")
		require.Equal(t, api.CodeUnavailable, api.ErrorOf(err).Code)
		require.Contains(t, api.ErrorOf(err).Hint, "run bakeryctl disks there")
		hung.Release()
		c.resolved()
		create(t, a.testHost, "y", 1)
		require.NoError(t, b.Remove(t.Context(), "x", false))
	})
}

// TestDirectory_CopyInFlightWhileRemoving_IsTakenBack: the removal was begun before.
func TestDirectory_CopyInFlightWhileRemoving_IsTakenBack(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a, b := c.member(1), c.member(2)
		create(t, a.testHost, "x", 1)
		h := acquire(t, b.testHost, Request{Name: "x"})
		removed := removing(t, a.testHost, "x", false)
		eventually(t, "it waits", func() bool {
			v, err := b.disk.View(b.disk.Dev, 1, 1)
			return err == nil && v.Slot.Phase == layout.Waiting
		})
		hung := a.hang(2, c.Geo.Entry(2))
		create(t, a.testHost, "y", 1)
		require.NoError(t, h.Release())
		require.ErrorIs(t, ended(t, removed), api.ErrInFlight)
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		hung.Release()
	})
}

// TestDirectory_OneCopyDamaged_ChangesNothing: each of three entries has a damaged copy, on another member.
func TestDirectory_OneCopyDamaged_ChangesNothing(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		b := c.member(2)
		for i := range 3 {
			c.damage(i+1, i)
		}
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		require.NoError(t, acquire(t, b.testHost, Request{Name: "y"}).Release())
		require.NoError(t, b.Remove(t.Context(), "x", false))
	})
}

// TestDirectory_TwoCopiesDamaged_AreRestored: by the host that knows the entry.
func TestDirectory_TwoCopiesDamaged_AreRestored(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a, b := c.member(1), c.member(2)
		h := acquire(t, a.testHost, Request{Name: "x"})
		synctest.Wait()
		c.damage(1, 0, 1)
		_, err := b.dir.Read(1)
		require.Error(t, err)
		_, _, err = b.Create(t.Context(), "y", 1)
		require.ErrorIs(t, err, api.ErrDamaged)
		eventually(t, "it is restored", func() bool { _, _, err := b.Create(t.Context(), "y", 1); return err == nil })
		require.Equal(t, h.Lock().Entry, c.same(1))
		require.NoError(t, h.Release())
	})
}

// TestDirectory_MemberIsSlow_NextCreationWaits: RETURNED. A copy that takes long is no refusal.
func TestDirectory_MemberIsSlow_NextCreationWaits(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a := c.member(1)
		slow := a.members[2].Inject(disktest.Fault{Op: blockdev.OpWrite, Delay: c.SB.Lease / 4})
		for i := range 3 {
			create(t, a.testHost, fmt.Sprint("x", i), 1)
		}
		slow.Release()
		time.Sleep(c.SB.Lease) // the last copy returns
	})
}

// TestDirectory_MemberHangs_RefusalWritesNothing: other hosts do not wait for a host that cannot create.
func TestDirectory_MemberHangs_RefusalWritesNothing(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a := c.member(1)
		hung := a.hang(2, c.Geo.Entry(1))
		create(t, a.testHost, "x", 1)
		before := c.record(0, c.Geo.Slot(0, 1))
		_, _, err := a.Create(t.Context(), "y", 1)
		require.ErrorIs(t, err, api.ErrInFlight)
		require.Equal(t, before, c.record(0, c.Geo.Slot(0, 1)))
		hung.Release()
	})
}

// TestDirectory_MemberHangs_OneOfTwoCreates: RETURNED, for clients that come together.
func TestDirectory_MemberHangs_OneOfTwoCreates(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a := c.member(1)
		hung := a.hang(2, c.Geo.Entry(1))
		slow := a.members[0].Inject(disktest.Fault{Delay: time.Millisecond}) // so that both come before the first write
		outcome := make(chan error, 2)
		for _, name := range []string{"x", "y"} {
			go func() {
				_, _, err := a.Create(t.Context(), name, 1)
				outcome <- err
			}()
		}
		errs := []error{<-outcome, <-outcome}
		require.ErrorIs(t, errors.Join(errs...), api.ErrInFlight)
		require.Contains(t, errs, nil)
		slow.Release()
		hung.Release()
	})
}

// TestDirectory_CopyOfForwardInFlight_CreatesNothing: RETURNED, within one hold of the directory's lock.
func TestDirectory_CopyOfForwardInFlight_CreatesNothing(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		b := c.member(2)
		b.blind(2, c.Geo.Entry(1))
		hung := b.hang(2, c.Geo.Entry(1))
		_, _, err := b.Create(t.Context(), "z", 1)
		require.ErrorIs(t, err, api.ErrInFlight)
		require.Equal(t, layout.Intent(x1(1)).Value(), c.value(0, 2))
		hung.Release()
		create(t, b.testHost, "z", 1)
		require.Equal(t, x1(1), c.same(1))
	})
}

// TestDirectory_WriteFailsAfterCopyReturned_KeepsIntent: RETURNED. The intent is of the write that failed.
func TestDirectory_WriteFailsAfterCopyReturned_KeepsIntent(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		a := c.member(1)
		err := a.guarded(t.Context(), "write two entries", func(guard *Lock) error {
			hung := a.hang(2, c.Geo.Entry(1))
			require.NoError(t, a.Manager.put(guard, x1(1), false))
			hung.Release()
			synctest.Wait()
			for m := range 2 {
				a.members[m].Inject(disktest.Fault{Op: blockdev.OpWrite, From: c.Geo.Entry(2), To: c.Geo.Entry(2) + 512, Err: unix.EIO})
			}
			return a.Manager.put(guard, y1(2), false)
		})
		require.ErrorIs(t, err, unix.EIO)
		for range 1000 {
			time.Sleep(time.Millisecond)
			require.NotEmpty(t, c.value(0, 1))
		}
		for _, m := range a.members {
			m.RemoveFaults()
		}
		c.resolved()
		require.Equal(t, y1(2), c.same(2))
	})
}

// TestDirectory_ForwardThenCreate_VersionsDiffer: two writes of a place under one token.
func TestDirectory_ForwardThenCreate_VersionsDiffer(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(free2(1), 5, 0)
		b := c.member(2)
		b.blind(2, c.Geo.Entry(1))
		create(t, b.testHost, "z", 1)
		require.Equal(t, "z", c.same(1).Name)
		require.Equal(t, uint64(2), c.copies(1)[0].Sequence)
	})
}

// TestDirectory_ResolvingHost_ShowsVersion: BINDING. The next incarnation needs the version.
func TestDirectory_ResolvingHost_ShowsVersion(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		c.intend(x1(1), 1, 0, 1, 2)
		var hung []*disktest.Injection
		c.join(1, func(h *memberHost) {
			for m := range h.members {
				hung = append(hung, h.hang(m, c.Geo.Entry(1)))
			}
		})
		received(t, "the write", hung[0].Hit())
		i, err := c.space.DecodeIntent(c.value(0, 1))
		require.NoError(t, err)
		require.NotZero(t, i.Token)
		for _, h := range hung {
			h.Release()
		}
		c.resolved()
		require.Equal(t, i.Token, c.copies(1)[0].Token)
		require.Equal(t, i.Sequence, c.copies(1)[0].Sequence)
	})
}

// TestDirectory_DeadRemoversIntentUnreadable_LockIsNotUsed: its clearing may be half written.
func TestDirectory_DeadRemoversIntentUnreadable_LockIsNotUsed(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLeft})
		c.entry(x1(1), 5, 0, 1, 2)
		c.slot(layout.Slot{Lock: 1, Creation: 2, Sequence: 1, Phase: layout.Held}, 0, 1, 2) // the mark
		c.intend(free2(1), 1, 0, 1, 2)
		b := c.member(2)
		for m := range 3 {
			b.blind(m, c.Geo.Slot(0, 1))
		}
		_, err := b.Acquire(timeout(t, 10*time.Second), Request{Name: "x"})
		require.ErrorIs(t, err, api.ErrTimeout)
		require.Equal(t, x1(1), c.same(1))
		b.members[0].RemoveFaults()
		b.members[1].RemoveFaults()
		h := acquire(t, b.testHost, Request{Name: "x"})
		require.NotEqual(t, x1(1), h.Lock().Entry)
		require.NoError(t, h.Release())
	})
}

// TestDirectory_PlaceHalfReused_IsNotCleared: SETTLED. A host that remembers the lock which had the place
// before does not complete its removal, but forwards the new lock.
func TestDirectory_PlaceHalfReused_IsNotCleared(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.PutHost(layout.HostRecord{ID: 1, State: layout.StateLeft})
		c.entry(x1(1), 5, 0, 1, 2)
		b := c.member(2)
		require.NoError(t, acquire(t, b.testHost, Request{Name: "x"}).Release())
		y := layout.Entry{Lock: 1, Name: "y", Permits: 1, Creation: 9}
		c.slot(layout.Slot{Lock: 1, Creation: 2, Sequence: 1}, 0, 1, 2) // x is removed
		c.entry(free2(1), 6, 0, 1, 2)
		c.intend(y, 1, 0, 1, 2)
		c.entry(y, 7, 0)
		b.blind(2, c.Geo.Entry(1))
		h := acquire(t, b.testHost, Request{Name: "x"})
		require.Equal(t, 2, h.Lock().Entry.Lock)
		require.Equal(t, y, c.same(1))
		require.NoError(t, acquire(t, b.testHost, Request{Name: "y"}).Release())
		require.NoError(t, h.Release())
	})
}

func TestRepairer_UnsettledEntry_IsForwarded(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.entry(x1(1), 5, 0)
		b := c.member(2, func(cfg *hostConfig) { cfg.Repairs = true })
		b.blind(2, c.Geo.Entry(1))
		done, err := c.repair(b.testHost, 1)
		require.NoError(t, err)
		require.Contains(t, done, "newest copy")
		require.Equal(t, x1(1), c.same(1))
	})
}

// TestRepairer_OwnIntentOfDamagedEntry_Repairs: what the entry showed is not known, so RESOLVE is not possible.
func TestRepairer_OwnIntentOfDamagedEntry_Repairs(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.intend(x1(1), 1, 0, 1, 2)
		c.damage(1, 0, 1)
		a := c.member(1, func(cfg *hostConfig) { cfg.Repairs = true })
		_, err := c.repair(a.testHost, 1)
		require.NoError(t, err)
		require.Equal(t, x1(1), c.same(1))
		c.resolved()
	})
}

// TestDirectory_OwnIntentOfDamagedEntry_CreateSaysSo: only a repair knows what the entry showed.
func TestDirectory_OwnIntentOfDamagedEntry_CreateSaysSo(t *testing.T) {
	onMembers(t, func(t *testing.T, c *membersCluster) {
		c.intend(x1(1), 1, 0, 1, 2)
		c.damage(1, 0, 1)
		_, _, err := c.member(1).Create(t.Context(), "y", 1)
		require.ErrorIs(t, err, api.ErrDamaged)
	})
}
