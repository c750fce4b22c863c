package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// listsRig drives one machine over three members, which have a list of members.
type listsRig struct {
	*membersRig
	epoch uint64 // that reads show
}

func newListsRig(t *testing.T, cfg Config) *listsRig {
	t.Helper()
	cfg.Self = self
	cfg.Self.Epoch = 5
	return &listsRig{newMembersRig(t, cfg), 5}
}

// readList completes the requested read with the copies of all members.
func (r *listsRig) readList() {
	r.t.Helper()
	records := make([]Record, want[ReadTable](r.rig).Hosts)
	for i := range records {
		for k := range r.copies {
			c := r.copies[k][i]
			c.Read = true
			records[i].Copies = append(records[i].Copies, c)
		}
	}
	r.m.Lists(r.m.cfg.Self.Epoch, r.epoch)
	r.out = r.m.TableRead(r.now, records)
}

// until carries out the actions of the machine until done.
func (r *listsRig) until(done func() bool) {
	r.t.Helper()
	for end := r.now + time.Hour; !done(); {
		require.Less(r.t, r.now, end)
		switch {
		case has[ReadTable](r.rig):
			r.readList()
		case has[Write](r.rig):
			r.writeTo(0, 0, 1, 2)
		default:
			r.tick()
		}
	}
}

func (r *listsRig) joins() *listsRig {
	r.t.Helper()
	r.start()
	r.until(func() bool { return has[Joined](r.rig) })
	return r
}

func (r *listsRig) claims() { r.until(func() bool { return has[Write](r.rig) }) }

// TestMembers_ListChangesDuringTheClaim_ClaimIsGivenUp (BEFORE-LIVE): by the read after the claim's wait.
func TestMembers_ListChangesDuringTheClaim_ClaimIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *listsRig)
	}{
		{"read", func(r *listsRig) { r.epoch = 6 }},
		{"in use, but read by no member of the majority", func(r *listsRig) { r.m.Lists(6, 0) }},
		{"read and in use", func(r *listsRig) { r.epoch = 6; r.m.Lists(6, 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newListsRig(t, Config{ID: 1})
			r.start()
			r.claims()
			first := want[Write](r.rig).Record
			require.Equal(t, uint64(5), first.Epoch)
			r.writeTo(0, 0, 1, 2)
			c.change(r)
			for !has[ReadTable](r.rig) {
				r.tick()
			}
			r.readList()
			none[Write](r.rig)
			r.epoch = 6
			if r.m.cfg.Self.Epoch == 5 { // no claim with an older list, either
				for end := r.now + times.Lease; r.now < end; {
					require.False(t, has[Write](r.rig))
					if has[ReadTable](r.rig) {
						r.readList()
					} else {
						r.tick()
					}
				}
				r.m.Lists(6, 0)
			}
			r.claims()
			again := want[Write](r.rig).Record
			require.Equal(t, layout.StateJoining, again.State)
			require.Equal(t, uint64(6), again.Epoch)
			require.NotEqual(t, first.Incarnation, again.Incarnation)
			r.writeTo(0, 0, 1, 2)
			r.claims()
			require.Equal(t, layout.StateLive, want[Write](r.rig).Record.State)
			require.Equal(t, uint64(6), want[Write](r.rig).Record.Epoch)
		})
	}
}

// TestMembers_OldList_TakesNoID: the host that looks for an id has a list that others have replaced.
func TestMembers_OldList_TakesNoID(t *testing.T) {
	r := newListsRig(t, Config{ID: 1})
	r.epoch = 6
	r.start()
	r.readList()
	none[Write](r.rig)
	require.Equal(t, ErrOldList, want[Delayed](r.rig).Reason)
	r.m.Lists(6, 0)
	r.claims()
	require.Equal(t, uint64(6), want[Write](r.rig).Record.Epoch)
}

// TestMembers_ListChanges_LiveHostShowsItSoon: it does not wait for the next renewal.
func TestMembers_ListChanges_LiveHostShowsItSoon(t *testing.T) {
	r := newListsRig(t, Config{ID: 1}).joins()
	r.until(func() bool { return r.m.ready && !r.m.reading && !r.m.writing })
	now := r.now
	r.epoch = 6 // the machine does not know whether the list is in use
	r.out = r.m.Refresh(r.now)
	r.readList()
	none[Write](r.rig)
	r.m.Lists(6, 0)
	r.out = r.m.Refresh(r.now)
	r.readList()
	require.Equal(t, uint64(6), want[Write](r.rig).Record.Epoch)
	require.Equal(t, now, r.now)
	term, ok := r.m.Term()
	require.True(t, ok)
	require.Equal(t, uint64(6), term.Epoch) // NOTE-FIRST: it is kept before the write
	r.writeTo(0, 0, 1, 2)
	require.True(t, has[Renewed](r.rig))
	none[ReadTable](r.rig)
}

// TestMembers_Entering_ShowsTheListOfTheClaim: the next write shows a list that is used since.
func TestMembers_Entering_ShowsTheListOfTheClaim(t *testing.T) {
	r := newListsRig(t, Config{ID: 1})
	r.start()
	r.claims()
	r.writeTo(0, 0, 1, 2)
	r.claims()
	r.m.Lists(6, 0)
	require.Equal(t, uint64(5), want[Write](r.rig).Record.Epoch)
	r.writeTo(0, 0, 1, 2)
	require.True(t, has[Joined](r.rig))
	r.claims()
	require.Equal(t, uint64(6), want[Write](r.rig).Record.Epoch)
}

// TestMembers_ResumedWithOldList_Waits (NOTE-FIRST): its earlier process has shown a newer one, in a write of
// which the copies read may have nothing.
func TestMembers_ResumedWithOldList_Waits(t *testing.T) {
	for _, c := range []struct {
		name         string
		noted, shown uint64
		resumes      bool
	}{
		{"as before", 5, 5, true},
		{"noted", 6, 5, false},
		{"read", 5, 6, false},
		{"newer than shown", 4, 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := newListsRig(t, Config{ID: 1}).joins()
			before.until(func() bool { return before.m.ready && !before.m.reading && !before.m.writing })
			term, ok := before.m.Term()
			require.True(t, ok)
			term.Epoch = c.noted
			r := newListsRig(t, Config{ID: 1, Resume: &term})
			r.now, r.copies = before.now, before.copies
			for k := range r.copies {
				r.copies[k][0].Epoch = c.shown
			}
			r.start()
			r.readList()
			require.Equal(t, c.resumes, has[Joined](r.rig))
			if !c.resumes {
				require.Equal(t, ErrOldList, want[Delayed](r.rig).Reason)
				r.m.Lists(6, 0)
				r.until(func() bool { return has[Joined](r.rig) })
			}
			require.True(t, want[Joined](r.rig).Resumed)
			now := r.now
			r.claims()
			require.Equal(t, max(5, c.noted, c.shown), want[Write](r.rig).Record.Epoch)
			require.Equal(t, c.shown < r.m.cfg.Self.Epoch, r.now == now) // it is shown at once
		})
	}
}
