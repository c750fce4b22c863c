package bakery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// resumed returns a machine of host 2 after Resume, and the action that it came to. The own slot
// and the slots of others are on the disk before.
func resumed(own Slot, entered bool, change func(c *Config), others func(r *rig)) (*rig, Action) {
	r := newRig(2, 3, change)
	r.m.attached = false
	r.views[1] = View{Readable: true, Slot: own}
	if others != nil {
		others(r)
	}
	return r, r.run(r.m.Resume(own, entered))
}

func TestResume(t *testing.T) {
	const inc, earlier = 102, 7
	ticket := layout.MakeTicket(50, 2)
	attached := Action{Kind: Done, Outcome: Attached}
	slot := func(phase layout.Phase, change ...func(s *Slot)) Slot {
		s := Slot{Incarnation: inc, Creation: 3, Ticket: ticket, Phase: phase, Mode: layout.Exclusive}
		for _, f := range change {
			f(&s)
		}
		return s
	}
	old := func(s *Slot) { s.Incarnation = earlier }
	shared := func(s *Slot) { s.Mode = layout.Shared }
	creation := func(c uint64) func(s *Slot) { return func(s *Slot) { s.Creation = c } }
	held := func(r *rig) { r.show(1, 49, layout.Held, layout.Exclusive) }
	for name, c := range map[string]struct {
		slot    Slot
		entered bool
		entry   uint64 // the directory's creation id; 0: the machine's
		others  func(r *rig)
		want    Action
		writes  int
		phase   layout.Phase
	}{
		"never written":             {slot: Slot{}, want: attached},
		"idle":                      {slot: slot(layout.Idle), want: attached},
		"released, still noted":     {slot: slot(layout.Idle), entered: true, want: attached},
		"of an earlier incarnation": {slot: slot(layout.Held, old), want: attached, phase: layout.Held},
		"an earlier one's removal":  {slot: slot(layout.Held, old, creation(9)), want: attached, phase: layout.Held},
		"held by the fast path":     {slot: slot(layout.Choosing), entered: true, others: held, want: Action{Kind: Granted}, phase: layout.Choosing},
		"held after waiting":        {slot: slot(layout.Waiting, shared), entered: true, others: held, want: Action{Kind: Granted}, phase: layout.Waiting},
		"held, settled":             {slot: slot(layout.Held), entered: true, others: held, want: Action{Kind: Granted}, phase: layout.Held},
		"held, not noted":           {slot: slot(layout.Held), others: held, want: Action{Kind: Granted}, phase: layout.Held},
		"choosing":                  {slot: slot(layout.Choosing), want: attached, writes: 1},
		"waiting, first now":        {slot: slot(layout.Waiting), want: Action{Kind: Granted}, phase: layout.Waiting},
		"waiting still":             {slot: slot(layout.Waiting), others: held, want: Action{Kind: Poll, Host: 1, Rank: 1, Enters: true}, phase: layout.Waiting},
		"a removal that was not":    {slot: slot(layout.Held, creation(9)), entered: true, want: Action{Kind: Done, Outcome: Cancelled}, writes: 1},
		"a removal that was":        {slot: slot(layout.Held, creation(9)), entered: true, entry: 11, want: Action{Kind: Done, Outcome: Removed}, writes: 1},
		"an entry that is gone":     {slot: slot(layout.Choosing, creation(2)), want: attached, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, a := resumed(c.slot, c.entered, func(cfg *Config) { cfg.Creation = 3 }, func(r *rig) {
				if c.entry != 0 {
					r.entry = c.entry
				}
				if c.others != nil {
					c.others(r)
				}
			})
			require.Equal(t, c.want, a)
			require.Equal(t, c.writes, r.writes)
			require.Equal(t, c.phase, r.views[1].Slot.Phase)
			require.Equal(t, a.Kind == Granted, r.m.Holding())
			if a.Kind == Granted {
				require.Equal(t, c.slot.Mode, r.m.Mode())
				require.Equal(t, ticket, r.m.Token())
				require.Equal(t, r.views[1].Slot, r.m.OwnSlot())
				a = r.run(r.m.Release())
			}
			if a.Kind != Done {
				r.m.Cancel()
				require.Equal(t, Action{Kind: Done, Outcome: Cancelled}, r.run(r.m.Recheck()))
			}
			require.True(t, r.m.attached)
			require.Equal(t, layout.Idle, r.m.OwnSlot().Phase)
			require.GreaterOrEqual(t, r.m.OwnSlot().Ticket, c.slot.Ticket)
			if a.Outcome == Removed {
				require.EqualValues(t, 9, r.views[1].Slot.Creation, "the slot still shows the removal")
				return
			}
			require.EqualValues(t, 3, r.m.OwnSlot().Creation)
			r.show(1, 60, layout.Idle, layout.Exclusive)
			require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
			require.Greater(t, r.m.Token(), c.slot.Ticket)
		})
	}
}

// The own slot was unreadable: the noted ticket is written.
func TestResumeUnreadable(t *testing.T) {
	r := newRig(2, 3, nil)
	r.m.attached, r.views[1] = false, View{}
	noted := Slot{Incarnation: 102, Ticket: layout.MakeTicket(50, 2), Phase: layout.Held, Mode: layout.Shared}
	require.Equal(t, Granted, r.run(r.m.Resume(noted, true)).Kind)
	require.Equal(t, Granted, r.run(r.m.Settle()).Kind)
	require.Equal(t, View{Readable: true, Slot: noted}, r.views[1])
}

// A hold was shared when its driver ended, and its slot shows an upgrade.
func TestResumeUpgrade(t *testing.T) {
	r := newRig(2, 3, nil)
	require.Equal(t, Granted, r.run(r.m.Acquire(Request{Mode: layout.Shared})).Kind)
	r.show(1, 60, layout.Held, layout.Shared)
	upgrade := r.m.Upgrade()
	require.Equal(t, Write, upgrade.Kind)

	r, a := resumed(upgrade.Slot, true, nil, nil)
	require.Equal(t, Granted, a.Kind)
	require.Equal(t, layout.Exclusive, r.m.Mode(), "as the slot shows; no client is notified")
	require.Equal(t, Granted, r.run(r.m.Downgrade()).Kind)
	require.Equal(t, layout.Shared, r.m.Mode())
	require.Equal(t, layout.Held, r.views[1].Slot.Phase)
	require.Equal(t, upgrade.Slot.Ticket, r.m.Token())
}

// A ticket that attach guessed stays a guess: see TestAttach.
func TestResumeGuess(t *testing.T) {
	guess := Slot{Incarnation: 102, Ticket: layout.MakeTicket(40+ownSpan, 2)}
	high := func(r *rig) { r.show(1, 1<<30, layout.Idle, 0) }
	for name, c := range map[string]struct {
		phase layout.Phase
		clock uint64
		want  uint64
	}{
		"idle":                  {layout.Idle, 0, 1<<30 + ownSpan + 1},
		"choosing":              {layout.Choosing, 0, 1<<30 + ownSpan + 1},
		"idle, by the clock":    {layout.Idle, 40 + ownSpan, 1<<30 + 1},
		"waiting, after a look": {layout.Waiting, 0, 40 + ownSpan},
	} {
		t.Run(name, func(t *testing.T) {
			own := guess
			own.Phase = c.phase
			r, a := resumed(own, false, func(cfg *Config) { cfg.Clock = c.clock }, high)
			if a.Kind == Done {
				a = r.run(r.m.Acquire(Request{}))
			}
			require.Equal(t, Granted, a.Kind)
			require.Equal(t, c.want, r.m.Token().Number())
		})
	}
}
