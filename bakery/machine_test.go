package bakery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/layout"
)

// rig is a machine and its disk. There are no faults, and no other host moves unless a test moves
// it.
type rig struct {
	m             *Machine
	views         []View
	hosts         []Host
	entry         uint64
	writes, reads int
}

func newRig(host, hosts int, change func(c *Config)) *rig {
	c := Config{Host: host, Incarnation: uint64(100 + host), Permits: 1}
	if change != nil {
		change(&c)
	}
	r := &rig{m: New(c), views: make([]View, hosts), hosts: make([]Host, hosts), entry: c.Creation}
	for i := range hosts {
		r.views[i].Readable = true
		r.hosts[i] = Host{Readable: true, Incarnation: uint64(101 + i)}
	}
	r.m.attached = true
	return r
}

// show writes the slot of a living host to the disk.
func (r *rig) show(host int, number uint64, phase layout.Phase, mode layout.Mode) {
	r.views[host-1] = View{Readable: true, Slot: Slot{Incarnation: uint64(100 + host), Creation: r.m.cfg.Creation,
		Ticket: layout.MakeTicket(number, host), Phase: phase, Mode: mode}}
}

// run carries out actions until the machine polls, holds the lock or is done.
func (r *rig) run(a Action) Action {
	for {
		switch a.Kind {
		case Write:
			r.writes++
			r.views[r.m.cfg.Host-1] = View{Readable: true, Slot: a.Slot}
			a = r.m.Written()
		case Read:
			r.reads++
			a = r.m.SlotsRead(r.views)
		case ReadHosts:
			a = r.m.HostsRead(r.hosts)
		case ReadDirectory:
			a = r.m.DirectoryRead(r.entry)
		case ClearDirectory:
			r.entry = 0
			a = r.m.DirectoryCleared()
		default:
			return a
		}
	}
}

func TestMachine_Steps_CostFewRequests(t *testing.T) {
	r := newRig(2, 3, nil)
	require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
	require.Equal(t, [2]int{1, 1}, [2]int{r.writes, r.reads}, "writes and reads to enter where nobody else is")
	require.True(t, r.m.Holding())
	require.Equal(t, Action{Kind: Done, Outcome: Released}, r.run(r.m.Release()))
	require.Equal(t, [2]int{2, 1}, [2]int{r.writes, r.reads}, "one more write to leave")
	require.Equal(t, r.m.Token(), r.views[1].Slot.Ticket, "the ticket stays")

	r.show(1, 7, layout.Held, layout.Exclusive)
	a := r.run(r.m.Acquire(Request{}))
	require.Equal(t, Action{Kind: Poll, Host: 1, Rank: 1, Enters: true}, a)
	require.Equal(t, [2]int{4, 3}, [2]int{r.writes, r.reads}, "two writes and two reads to wait in line")
	require.Equal(t, uint64(8), r.m.Token().Number())
	require.Equal(t, a, r.m.Polled(r.views[0]), "nothing has changed")
	r.show(1, 7, layout.Idle, layout.Exclusive)
	require.Equal(t, Granted, r.run(r.m.Polled(r.views[0])).Kind)
	require.Equal(t, [2]int{4, 4}, [2]int{r.writes, r.reads}, "a change is followed by one read")
}

func TestOutcomes(t *testing.T) {
	const highest = layout.MaxNumber
	for name, c := range map[string]struct {
		prepare func(r *rig)
		request Request
		want    Outcome
		writes  int
	}{
		"exhausted at the claim":         {prepare: func(r *rig) { r.m.last = highest }, want: Exhausted},
		"exhausted by a clock":           {request: Request{Clock: highest + 1}, want: Exhausted},
		"exhausted at the look":          {prepare: func(r *rig) { r.show(1, highest, layout.Idle, 0) }, want: Exhausted, writes: 2},
		"exhausted by the creation id":   {prepare: func(r *rig) { r.m = New(Config{Host: 2, Incarnation: 102, Permits: 1, Creation: highest}) }, want: Exhausted},
		"busy, held":                     {prepare: func(r *rig) { r.show(1, 1, layout.Held, 0) }, request: Request{Try: true}, want: Busy, writes: 2},
		"busy, waited for":               {prepare: func(r *rig) { r.show(1, 1, layout.Waiting, 0) }, request: Request{Try: true}, want: Busy, writes: 2},
		"busy, and another is not there": {prepare: func(r *rig) { r.show(1, 1, layout.Held, 0); r.views[2] = View{} }, request: Request{Try: true}, want: Busy, writes: 2},
		"superseded": {prepare: func(r *rig) {
			r.show(1, 1, layout.Idle, 0)
			r.views[0].Slot.Creation = 5
			r.entry = 9
		}, want: Superseded, writes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(2, 3, nil)
			if c.prepare != nil {
				c.prepare(r)
			}
			require.Equal(t, Action{Kind: Done, Outcome: c.want}, r.run(r.m.Acquire(c.request)))
			require.Equal(t, c.writes, r.writes)
			require.False(t, r.m.Holding())
			if c.writes > 0 {
				require.Equal(t, layout.Idle, r.views[1].Slot.Phase)
			}
		})
	}
}

// The last number can still be drawn.
func TestLastNumber(t *testing.T) {
	r := newRig(2, 3, nil)
	r.m.last = layout.MaxNumber - 1
	require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
	require.EqualValues(t, layout.MaxNumber, r.m.Token().Number())
	r.run(r.m.Release())
	require.Equal(t, Action{Kind: Done, Outcome: Exhausted}, r.m.Acquire(Request{}))
}

func TestCancel(t *testing.T) {
	r := newRig(2, 3, nil)
	r.show(2, 5, layout.Idle, 0)
	r.m.attached = false
	a := r.m.Acquire(Request{})
	require.Equal(t, Read, a.Kind)
	r.m.Cancel()
	require.Equal(t, Action{Kind: Done, Outcome: Cancelled}, r.run(a))
	require.Zero(t, r.writes, "cancelled before the claim")
	require.Equal(t, layout.MakeTicket(5, 2), r.m.OwnSlot().Ticket, "or a rewrite of the slot would lose the ticket")

	r.m.Cancel() // too late: no attempt is under way
	r.show(1, 3, layout.Held, layout.Exclusive)
	require.Equal(t, Poll, r.run(r.m.Acquire(Request{})).Kind)
	r.m.Cancel()
	require.Equal(t, Action{Kind: Done, Outcome: Cancelled}, r.run(r.m.Recheck()))
	require.Equal(t, layout.Idle, r.views[1].Slot.Phase)

	r.show(1, 3, layout.Idle, layout.Exclusive)
	require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
	r.m.Cancel()
	require.Equal(t, Granted, r.run(r.m.Settle()).Kind, "no effect on a hold")
	require.Equal(t, Action{Kind: Done, Outcome: Removed}, r.run(r.m.Remove()))
	require.Zero(t, r.entry)
}

func TestPollTarget(t *testing.T) {
	const excl, shared = layout.Exclusive, layout.Shared
	for name, c := range map[string]struct {
		permits int
		mode    layout.Mode
		show    func(r *rig)
		want    Action
	}{
		"directly ahead": {show: func(r *rig) {
			r.show(1, 3, layout.Held, excl)
			r.show(2, 5, layout.Waiting, excl)
			r.show(4, 4, layout.Waiting, excl)
		}, want: Action{Host: 2, Rank: 3}},
		"choosing comes after those in line": {show: func(r *rig) {
			r.show(1, 3, layout.Held, excl)
			r.show(4, 9, layout.Choosing, excl)
		}, want: Action{Host: 1, Rank: 2}},
		"only choosing": {show: func(r *rig) { r.show(4, 9, layout.Choosing, excl) }, want: Action{Host: 4, Rank: 1}},
		"a reader waits for writers": {mode: shared, show: func(r *rig) {
			r.show(1, 3, layout.Held, excl)
			r.show(4, 5, layout.Waiting, shared)
		}, want: Action{Host: 1, Rank: 2}},
		"unreadable": {show: func(r *rig) {
			r.show(1, 3, layout.Held, excl)
			r.views[1] = View{}
		}, want: Action{Host: 2, Rank: 2}},
		"several permits": {permits: 2, show: func(r *rig) {
			r.show(1, 3, layout.Held, excl)
			r.show(2, 4, layout.Held, excl)
		}, want: Action{Host: 0, Rank: 2}},
		"several permits, all choosing": {permits: 2, show: func(r *rig) {
			r.show(1, 3, layout.Choosing, excl)
			r.show(2, 4, layout.Choosing, excl)
		}, want: Action{Host: 0, Rank: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(3, 4, func(cfg *Config) { cfg.Permits = max(1, c.permits) })
			c.show(r)
			c.want.Kind, c.want.Enters = Poll, true
			require.Equal(t, c.want, r.run(r.m.Acquire(Request{Mode: c.mode})))
		})
	}
}

func TestOthers(t *testing.T) {
	r := newRig(1, 6, nil)
	require.Equal(t, Granted, r.run(r.m.Acquire(Request{Mode: layout.Shared})).Kind)
	r.show(2, 9, layout.Waiting, layout.Exclusive)
	r.show(3, 9, layout.Held, layout.Shared)
	r.show(4, 9, layout.Idle, layout.Exclusive)
	r.views[4] = View{} // counts in both modes
	for host := 2; host <= 5; host++ {
		r.m.peers[host-1].live = uint64(100 + host)
	}
	exclusive, shared := r.m.Others(r.views)
	require.Equal(t, [2]int{2, 2}, [2]int{exclusive, shared})
}

func TestAttach(t *testing.T) {
	attach := func(own View, change func(*Config)) (*rig, Action) {
		r := newRig(2, 3, change)
		r.m.attached = false
		r.show(1, 40, layout.Idle, 0)
		r.views[1] = own
		return r, r.run(r.m.Attach())
	}
	done := Action{Kind: Done, Outcome: Attached}
	old := View{Readable: true, Slot: Slot{Incarnation: 7, Ticket: layout.MakeTicket(50, 2), Phase: layout.Held}}

	r, a := attach(old, nil)
	require.Equal(t, done, a)
	require.Zero(t, r.writes)
	require.Equal(t, layout.MakeTicket(50, 2), r.m.OwnSlot().Ticket)
	require.Equal(t, layout.Idle, r.m.OwnSlot().Phase)

	r, a = attach(View{}, nil)
	require.Equal(t, done, a)
	require.Equal(t, 1, r.writes)
	require.Equal(t, View{Readable: true, Slot: r.m.OwnSlot()}, r.views[1])
	require.EqualValues(t, 40+ownSpan, r.m.OwnSlot().Ticket.Number())

	r.views[1] = View{} // unreadable again: now the ticket is known
	require.Equal(t, done, r.run(r.m.Attach()))
	require.EqualValues(t, 40+ownSpan, r.views[1].Slot.Ticket.Number())

	r, _ = attach(View{}, func(c *Config) { c.Clock = 1000 })
	require.EqualValues(t, 1000+ownSpan, r.m.OwnSlot().Ticket.Number())

	r = newRig(2, 3, nil) // another slot is torn meanwhile: the look corrects the guess
	r.m.attached = false
	r.views[0], r.views[1] = View{}, View{}
	require.Equal(t, Poll, r.run(r.m.Acquire(Request{})).Kind)
	r.show(1, 1<<30, layout.Idle, 0)
	require.Equal(t, Granted, r.run(r.m.Polled(r.views[0])).Kind)
	require.EqualValues(t, 1<<30+ownSpan+1, r.m.Token().Number())

	r, a = attach(View{}, func(c *Config) { c.Clock = layout.MaxNumber - 1 })
	require.Equal(t, Action{Kind: Done, Outcome: Exhausted}, a)
	require.Zero(t, r.writes)
}

// TestMachine_HiddenNumbers_AreGrantedOnce checks that the span of a dead host's unreadable slot
// is granted once, and again only after a later incarnation joined, drew numbers and lost them.
func TestMachine_HiddenNumbers_AreGrantedOnce(t *testing.T) {
	r := newRig(2, 3, nil)
	draw := func() uint64 {
		require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
		require.Equal(t, Released, r.run(r.m.Release()).Outcome)
		return r.m.Token().Number()
	}
	r.views[0] = View{}
	r.hosts[0] = Host{Readable: true, Incarnation: 7, Gone: true}
	require.EqualValues(t, 1+hiddenSpan+1, draw())
	require.EqualValues(t, 1+hiddenSpan+3, draw(), "claimed with 2 more, numbered with 3")
	r.hosts[0].Incarnation = 8
	require.EqualValues(t, 1+hiddenSpan+4+hiddenSpan+1, draw())
	r.hosts[0].Unsettled = true
	require.Equal(t, Poll, r.run(r.m.Acquire(Request{})).Kind, "an earlier incarnation may still be up")
	r.hosts[0].Unsettled = false
	require.Equal(t, Granted, r.run(r.m.Polled(View{})).Kind, "an undecided slot is judged again")
}

// The slot was lost before the joiner came, and again with the numbers that the joiner drew
// since.
func TestMachine_JoinerWentLiveAndDied_IsGrantedAnotherSpan(t *testing.T) {
	m := newRig(2, 2, nil)
	m.views[0] = View{}
	m.hosts[0] = Host{Readable: true, Incarnation: 7, Joining: true, Unsettled: true}
	a := m.run(m.m.Acquire(Request{}))
	require.Equal(t, Poll, a.Kind, "an earlier incarnation may be up")
	m.hosts[0].Unsettled = false
	require.Equal(t, Granted, m.run(m.m.Polled(View{})).Kind)
	require.Equal(t, Released, m.run(m.m.Release()).Outcome)
	first := m.m.Token().Number()
	require.EqualValues(t, 1+hiddenSpan+1, first)

	j := newRig(1, 2, func(c *Config) { c.Incarnation = 7 })
	j.m.attached, j.views, j.hosts = false, m.views, []Host{{Readable: true, Incarnation: 7}, {Readable: true, Incarnation: 102}}
	require.Equal(t, Granted, j.run(j.m.Acquire(Request{})).Kind)
	require.Equal(t, Released, j.run(j.m.Release()).Outcome)
	lost := j.m.Token()
	require.Greater(t, lost.Number(), first)

	m.views[0] = View{}
	m.hosts[0] = Host{Readable: true, Incarnation: 7, Gone: true}
	require.Equal(t, Granted, m.run(m.m.Acquire(Request{})).Kind)
	require.Greater(t, m.m.Token(), lost)
}

// An ended incarnation is passed whatever the record shows, and also if it is unreadable.
func TestMachine_EndedIncarnation_IsPassed(t *testing.T) {
	for name, h := range map[string]Host{
		"by an earlier read":        {Incarnation: 101, Gone: true},
		"unreadable":                {Incarnation: 107, Ended: []uint64{101}},
		"another, unsettled":        {Readable: true, Incarnation: 107, Unsettled: true, Ended: []uint64{103, 101}},
		"another, joining":          {Readable: true, Incarnation: 107, Unsettled: true, Joining: true, Ended: []uint64{101}},
		"itself, by a late renewal": {Readable: true, Incarnation: 101, Ended: []uint64{101}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, known := range []bool{false, true} {
				r := newRig(2, 2, nil)
				r.show(1, 5, layout.Held, layout.Exclusive)
				if known {
					r.m.grow(1)
					r.m.peers[0].live = 101
					r.m.Over(1, 101)
				}
				r.hosts[0] = h
				require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
				require.EqualValues(t, 6, r.m.Token().Number())
			}
		})
	}
}

func TestClockNumber(t *testing.T) {
	formatted := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	base := uint64(formatted.UnixMicro()) / 256
	for name, c := range map[string]struct {
		now  time.Time
		want uint64
	}{
		"at the format":       {formatted, base},
		"an hour later":       {formatted.Add(time.Hour), base + 3600_000_000/256},
		"before the format":   {formatted.Add(-time.Second), base},
		"20 years later":      {formatted.Add(clockSpan), base + uint64(clockSpan.Microseconds())/256},
		"more than 20 years":  {formatted.Add(clockSpan + 1), base},
		"a clock never set":   {time.Unix(0, 0), base},
		"a clock of all ones": {time.Unix(1<<40, 0), base},
	} {
		require.InDelta(t, c.want, ClockNumber(c.now, formatted), 1, name)
	}
	require.Zero(t, ClockNumber(time.Unix(0, 0), time.Unix(0, 0)))
	far := time.Unix(1<<33, 0)
	require.EqualValues(t, clockLast, ClockNumber(far, far), "leaves numbers to draw")
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	require.Less(t, ClockNumber(year(2111), year(2100)), uint64(clockLast), "still grows")
}

func TestWrongEvents(t *testing.T) {
	for name, f := range map[string]func(m *Machine){
		"written":            func(m *Machine) { m.Written() },
		"slots read":         func(m *Machine) { m.SlotsRead(nil) },
		"hosts read":         func(m *Machine) { m.HostsRead(nil) },
		"directory read":     func(m *Machine) { m.DirectoryRead(1) },
		"directory cleared":  func(m *Machine) { m.DirectoryCleared() },
		"directory kept":     func(m *Machine) { m.DirectoryKept() },
		"polled":             func(m *Machine) { m.Polled(View{}) },
		"recheck":            func(m *Machine) { m.Recheck() },
		"release":            func(m *Machine) { m.Release() },
		"settle":             func(m *Machine) { m.Settle() },
		"upgrade":            func(m *Machine) { m.Upgrade() },
		"downgrade":          func(m *Machine) { m.Downgrade() },
		"remove":             func(m *Machine) { m.Remove() },
		"others":             func(m *Machine) { m.Others(nil) },
		"acquired twice":     func(m *Machine) { m.Acquire(Request{}); m.Acquire(Request{}) },
		"resumed, acquiring": func(m *Machine) { m.Acquire(Request{}); m.Resume(Slot{}, false) },
		"attached inside": func(m *Machine) {
			m.attached = true
			m.Acquire(Request{})
			m.Written()
			m.SlotsRead(make([]View, 1))
			m.Attach()
		},
		"host 0":         func(*Machine) { New(Config{Incarnation: 1, Permits: 1}) },
		"no incarnation": func(*Machine) { New(Config{Host: 1, Permits: 1}) },
		"no permits":     func(*Machine) { New(Config{Host: 1, Incarnation: 1}) },
	} {
		require.Panics(t, func() { f(New(Config{Host: 1, Incarnation: 1, Permits: 1})) }, name)
	}
}

// With several permits a change of mode would let a reader enter next to a writer.
func TestMachine_SeveralPermits_KeepTheMode(t *testing.T) {
	for _, mode := range []layout.Mode{layout.Exclusive, layout.Shared} {
		r := newRig(1, 2, func(c *Config) { c.Permits = 2 })
		r.run(r.m.Acquire(Request{Mode: mode}))
		require.Equal(t, Granted, r.run(r.m.Downgrade()).Kind)
		require.Equal(t, Granted, r.run(r.m.Upgrade()).Kind)
		require.Equal(t, mode, r.m.Mode())
		require.Equal(t, 1, r.writes)
	}
}

// crowd returns a lock with 2,000 hosts in its queue.
func crowd() *rig {
	r := newRig(layout.MaxHosts, layout.MaxHosts, nil)
	for host := 1; host < layout.MaxHosts; host++ {
		r.show(host, uint64(host), layout.Waiting, layout.Exclusive)
	}
	return r
}

func TestPollDoesNotAllocate(t *testing.T) {
	r := crowd()
	want := Action{Kind: Poll, Host: layout.MaxHosts - 1, Rank: layout.MaxHosts - 1, Enters: true}
	require.Equal(t, want, r.run(r.m.Acquire(Request{})))
	require.Zero(t, testing.AllocsPerRun(10, func() {
		r.m.Polled(r.views[want.Host-1])
		r.run(r.m.Recheck())
	}))
}

func BenchmarkLook(b *testing.B) {
	r := crowd()
	r.run(r.m.Acquire(Request{}))
	b.ReportAllocs()
	for b.Loop() {
		r.run(r.m.Recheck())
	}
}

// An entry with the greatest creation id leaves no creation for a removal. No host can have made
// it.
func TestRemoveWithoutNumbers(t *testing.T) {
	m := New(Config{Host: 1, Incarnation: 7, Creation: layout.MaxCreation, Permits: 1})
	a := m.Resume(Slot{Incarnation: 7, Creation: layout.MaxCreation, Ticket: layout.MakeTicket(5, 1), Phase: layout.Held}, true)
	require.Equal(t, Granted, a.Kind)
	a = m.Remove()
	require.Equal(t, Write, a.Kind)
	require.Equal(t, uint64(layout.MaxCreation), a.Slot.Creation)
	require.Equal(t, layout.Idle, a.Slot.Phase)
	require.Equal(t, Action{Kind: Done, Outcome: Cancelled}, m.Written())
}

// A removal that finds an unreadable slot of a dead host is undone if that slot may hide numbers
// above the largest creation id: the entry could not be cleared with an id above them.
func TestMachine_RemoveBelowHiddenNumbers_IsTakenBack(t *testing.T) {
	const creation = layout.MaxNumber - 3
	r := newRig(1, 2, func(c *Config) { c.Creation = creation })
	require.Equal(t, Granted, r.run(r.m.Acquire(Request{})).Kind)
	r.views[1] = View{}
	r.hosts[1].Gone = true
	require.Equal(t, Action{Kind: Done, Outcome: Cancelled}, r.run(r.m.Remove()))
	require.Equal(t, uint64(creation), r.entry, "the entry stays")
	require.Equal(t, uint64(creation), r.views[0].Slot.Creation)
	require.Equal(t, layout.Idle, r.views[0].Slot.Phase)
}
