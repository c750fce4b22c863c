package standing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/layout"
)

const at = time.Second // end of the read of the slots

func host(change func(h *lease.Host)) lease.Host {
	h := lease.Host{Readable: true, Incarnation: 101, State: layout.StateLive, Settled: true, Read: at + 1}
	change(&h)
	return h
}

func TestHosts_AbandonedHost_CountsAsLeftWithPolicyLease(t *testing.T) {
	t.Parallel()
	own := host(func(h *lease.Host) { h.Incarnation = 102 })
	abandoned := host(func(h *lease.Host) { h.Readable, h.Settled, h.Abandoned, h.Read = false, false, true, at/2 })
	for name, c := range map[string]struct {
		policy layout.Policy
		since  time.Duration
		want   bool
	}{
		"lease":                       {layout.PolicyLease, at, true},
		"lease, the slots read later": {layout.PolicyLease, at + 2, false},
		"fence":                       {layout.PolicyFence, at, false},
		"manual":                      {layout.PolicyManual, at, false},
	} {
		got := Hosts([]lease.Host{abandoned, own}, c.policy, c.since)[0]
		require.Equal(t, c.want, got.Dead(), name)
		require.EqualValues(t, 101, got.Incarnation, name)
	}
}

func TestHosts_JoiningHost_IsDeadOnceSettled(t *testing.T) {
	t.Parallel()
	for _, settled := range []bool{false, true} {
		h := host(func(h *lease.Host) { h.State, h.Settled = layout.StateJoining, settled })
		require.Equal(t, settled, Hosts([]lease.Host{h}, layout.PolicyLease, at)[0].Dead())
	}
}

// polling returns the machine of host 2 after it saw host 1's slot.
func polling(t *testing.T, v bakery.View, known lease.Host) *bakery.Machine {
	t.Helper()
	m := bakery.New(bakery.Config{Host: 2, Incarnation: 102, Permits: 1})
	a := m.Acquire(bakery.Request{})
	own := bakery.View{Readable: true}
	for a.Kind != bakery.Poll {
		switch a.Kind {
		case bakery.Write:
			own.Slot = a.Slot
			a = m.Written()
		case bakery.Read:
			a = m.SlotsRead([]bakery.View{v, own})
		case bakery.ReadHosts:
			a = m.HostsRead(Hosts([]lease.Host{known}, layout.PolicyLease, at))
		default:
			t.Fatalf("%+v", a)
		}
	}
	return m
}

func TestEvaluateHostTable_WaitingMachine_LearnsEndedIncarnations(t *testing.T) {
	t.Parallel()
	held := bakery.View{Readable: true, Slot: bakery.Slot{Incarnation: 101, Phase: layout.Held, Ticket: layout.MakeTicket(5, 1)}}
	live := host(func(h *lease.Host) {})
	unreadable := host(func(h *lease.Host) { h.Readable, h.Read = false, at/2 })
	over := []Ended{{1, 101}}
	for name, c := range map[string]struct {
		view        bakery.View
		before, now lease.Host
		policy      layout.Policy
		want        []Ended
		again       bool
	}{
		"live": {held, live, live, 0, nil, false},
		"gone": {held, live, host(func(h *lease.Host) { h.Gone = true }), 0, over, true},
		"gone, the record unreadable from the start": {held, unreadable,
			host(func(h *lease.Host) { h.Readable, h.Gone, h.Read = false, true, at/2 }), 0, over, true},
		"ended, the record unreadable from the start": {held, unreadable,
			host(func(h *lease.Host) { h.Readable, h.Incarnation, h.Ended, h.Read = false, 107, []uint64{101}, at/2 }), 0, over, true},
		"ended, and another one joining": {held, live,
			host(func(h *lease.Host) {
				h.Incarnation, h.State, h.Settled, h.Ended = 107, layout.StateJoining, false, []uint64{101}
			}), 0, over, true},
		"another one joining": {held, live,
			host(func(h *lease.Host) { h.Incarnation, h.State, h.Settled = 107, layout.StateJoining, false }), 0, nil, false},
		"another one settled": {held, live, host(func(h *lease.Host) { h.Incarnation = 107 }), 0, over, true},
		"another one settled, read before the slots": {held, live,
			host(func(h *lease.Host) { h.Incarnation, h.Read = 107, at }), 0, nil, false},
		"abandoned": {held, live,
			host(func(h *lease.Host) { h.Readable, h.Abandoned, h.Read = false, true, at/2 }), 0, over, true},
		"abandoned, policy manual": {held, live,
			host(func(h *lease.Host) { h.Readable, h.Abandoned, h.Read = false, true, at/2 }), layout.PolicyManual, nil, false},
		"unreadable slot": {bakery.View{}, live, live, 0, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := polling(t, c.view, c.before)
			own := host(func(h *lease.Host) { h.Incarnation, h.Read = 102, at+2 })
			views := []bakery.View{c.view, {Readable: true}}
			ended, again := EvaluateHostTable(m, 2, []lease.Host{c.now, own}, c.policy, views, at, 0)
			require.Equal(t, c.want, ended)
			require.Equal(t, c.again, again)
			for _, o := range ended {
				m.Over(o.Host, o.Incarnation)
			}
			if c.view.Readable {
				ended, again = EvaluateHostTable(m, 2, []lease.Host{c.now, own}, c.policy, views, at, at+2)
				require.Empty(t, ended, "told once")
				require.False(t, again)
			}
		})
	}
}
