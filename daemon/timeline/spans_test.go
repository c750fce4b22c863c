package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// span is a span in milliseconds of the world.
type span struct {
	state      State
	from, till float64
}

func (h *Host) inWorld() (all []span) {
	for _, s := range h.Spans {
		all = append(all, span{s.State, ms(s.From), ms(s.Till)})
	}
	return all
}

func about(kind events.Kind, host int, by int) events.Event {
	return events.Event{Kind: kind, Host: host, HostName: "db" + string(rune('0'+host)), Incarnation: text.Hex(1000 + host), ByHost: by, ByHostName: "db" + string(rune('0'+by))}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	next := func(e events.Event) events.Event { e.Incarnation += 500; return e }
	for _, c := range []struct {
		name  string
		make  func(w *world)
		spans []span // of host 3
	}{
		{"joined and left", func(w *world) {
			w.host(3).note(2000, events.Event{Kind: events.Left})
			w.host(1).note(5000, about(events.Seen, 2, 1))
		}, []span{{Live, -1000, 2000}, {Gone, 2000, 5000}}},
		{"its journal is not there", func(w *world) {
			w.host(1).note(1000, about(events.Joined, 3, 1))
			w.host(1).note(2000, about(events.AtRisk, 3, 1))
			w.host(1).note(3000, about(events.Dead, 3, 1))
			w.host(1).note(5000, events.Event{Kind: events.Left})
		}, []span{{Live, 1000, 2000}, {AtRisk, 2000, 3000}, {Down, 3000, 5000}}},
		{"its journal is not there, and it had joined before the others", func(w *world) {
			w.host(1).note(2000, about(events.AtRisk, 3, 1))
			w.host(1).note(3000, about(events.Seen, 3, 1))
		}, []span{{Live, -1000, 2000}, {AtRisk, 2000, 3000}}},
		{"only a verdict of long ago", func(w *world) {
			w.host(1).note(0, about(events.Dead, 3, 1))
			w.host(1).note(5000, events.Event{Kind: events.Left})
		}, []span{{Down, 0, 5000}}},
		{"a verdict on an earlier incarnation, read late", func(w *world) {
			w.host(3).note(3000, events.Event{Kind: events.Left})
			w.host(1).note(1000, events.Event{Kind: events.Dead, Host: 3, HostName: "db3", Incarnation: 77, ByHost: 1})
		}, []span{{Live, -1000, 3000}}},
		{"a verdict on an earlier incarnation, and its own journal begins later than its joining", func(w *world) {
			w.hosts[3] = &keeper{id: 3, boot: "d", uptime: time.Hour, seq: 3 << 40}
			w.host(3).hold(-2000, 3000, 1)
			w.host(1).note(1000, events.Event{Kind: events.Dead, Host: 3, HostName: "db3", Incarnation: 77, ByHost: 1})
		}, []span{{Live, -2000, 3000}}},
		{"seen again after its verdict", func(w *world) {
			w.host(3)
			w.host(1).note(1000, about(events.Dead, 3, 1))
			w.host(1).note(1001, about(events.Seen, 3, 1))
			w.host(1).note(5000, events.Event{Kind: events.Left})
		}, []span{{Live, -1000, 1000}, {Down, 1000, 5000}}},
		{"died with all other hosts, and came back", func(w *world) {
			w.host(3).hold(0, 1000, 1)
			w.host(3).note(90_000, next(events.Event{Kind: events.Joined, Host: 3, HostName: "db3", Incarnation: 1003}))
			w.host(3).note(95_000, next(events.Event{Kind: events.Left, Host: 3, HostName: "db3", Incarnation: 1003}))
		}, []span{{Live, -1000, 1000}, {Unsure, 1000, 90_000}, {Live, 90_000, 95_000}}},
		{"bakeryd was restarted", func(w *world) {
			w.host(3).restart(2000)
			w.host(3).hold(3000, 4000, 1)
		}, []span{{Live, -1000, 4000}}},
		{"only named by another host", func(w *world) {
			w.host(1).note(2000, events.Event{Kind: events.Wanted, Lock: "x", ByHost: 3, ByHostName: "db3"})
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.make(w)
			for _, h := range w.build(Options{}).Hosts {
				if h.ID == 3 {
					require.Equal(t, c.spans, h.inWorld())
				}
			}
		})
	}
}

// TestVerdictReadAgain_CountsItsHostsOnce: a host reads it after each restart.
func TestVerdictReadAgain_CountsItsHostsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).note(1000, about(events.Dead, 3, 1))
	for at := range 5 {
		w.host(2).note(1000+float64(at), about(events.Dead, 3, 1))
		w.host(1).note(2000+float64(at), about(events.Dead, 3, 1))
	}
	changes := w.build(Options{}).Hosts[2].Changes
	require.Len(t, changes, 1)
	require.Equal(t, 1, changes[0].Others)
}

// TestVerdictThatAJoiningHostReads_IsNoDeathOfThatMoment: nor does a hold last until then.
func TestVerdictThatAJoiningHostReads_IsNoDeathOfThatMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(3).enter(0, 1)
	w.hosts[1] = &keeper{id: 1, boot: "a", uptime: time.Hour, seq: 1 << 40}
	w.host(1).note(90_000, about(events.Dead, 3, 1))
	w.host(1).note(90_300, events.Event{Kind: events.Joined, Boot: "a"})
	w.host(1).note(95_000, about(events.Joined, 2, 1))
	w.host(1).note(99_000, about(events.Dead, 2, 1))
	tl := w.build(Options{})
	for _, h := range tl.Hosts[1:] {
		require.Equal(t, h.ID == 3, h.Changes[len(h.Changes)-1].Old)
	}
	a := tl.Attempts[0]
	require.Equal(t, DeclaredDead, a.End)
	require.Zero(t, a.Held, "nothing shows that it lasted")
	require.Equal(t, []span{{Live, -1000, 0}, {Unsure, 0, 90_000}, {Down, 90_000, 99_000}}, tl.Hosts[2].inWorld())
}

func TestHostThatLeftOrDiedBeforeSince_IsNotLive(t *testing.T) {
	t.Parallel()
	for kind, state := range map[events.Kind]State{events.Left: Gone, events.Dead: Down} {
		w := newWorld(t)
		w.host(2).note(-500, about(events.Joined, 3, 2))
		w.host(2).note(1000, about(kind, 3, 2))
		w.host(2).hold(60_000, 61_000, 1)
		tl := w.build(Options{From: dawn.Add(30 * time.Second)})
		h := tl.Hosts[1]
		require.Equal(t, []any{3, 0}, []any{h.ID, len(h.Changes)})
		require.Equal(t, []span{{state, 1000, 61_000}}, h.inWorld())
	}
}

func TestHostThatJoinedAfterUntil_HasNoSpan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(2).hold(0, 1000, 1)
	w.host(2).note(60_000, about(events.Joined, 3, 2))
	tl := w.build(Options{Until: dawn.Add(30 * time.Second)})
	require.Empty(t, tl.Hosts[1].Spans)
	require.NotEmpty(t, tl.Hosts[0].Spans)
}

func TestHostsWithOneName_AreToldApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onOneMachine(1, 2)
	named := func(e *events.Event) { e.HostName = "node" }
	for id := 1; id <= 2; id++ {
		for i := range w.host(id).journal {
			named(&w.host(id).journal[i])
		}
	}
	own := func(id int) func(*events.Event) {
		return func(e *events.Event) { e.Host, e.HostName, e.Incarnation = id, "node", text.Hex(1000+id) }
	}
	w.host(1).hold(0, 10, 1, own(1))
	w.host(2).hold(5, 20, 2, own(2), func(e *events.Event) {
		e.Ahead = []events.Peer{{Host: 1, HostName: "node", Phase: "held"}}
	})
	tl := w.build(Options{})
	require.Equal(t, []string{"host 1 (node)", "host 2 (node)"}, []string{tl.Hosts[0].Name, tl.Hosts[1].Name})
	require.Equal(t, "host 1 (node) held", tl.Attempts[1].Behind)
	require.Contains(t, tl.Findings[0].Text, "host 1 (node) (token 524544) and host 2 (node) (token 1049088) held x")
}

// TestReusedHostID_IsAnotherHost: a machine that is up for 100 days has the id of one that has
// left.
func TestReusedHostID_IsAnotherHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).hold(0, 10, 1)
	w.host(1).note(20, events.Event{Kind: events.Left})
	heir := &keeper{id: 1, boot: "z", uptime: 2400 * time.Hour, seq: 1}
	w.hosts[3] = heir
	as := func(e *events.Event) { e.Host, e.HostName, e.Incarnation = 1, "web7", 4711 }
	joined := events.Event{Kind: events.Joined, Boot: "z"}
	as(&joined)
	heir.note(60_000, joined)
	heir.hold(61_000, 62_000, 2, as)
	w.host(2).note(70_000, events.Event{Kind: events.Dead, Host: 1, HostName: "", Incarnation: 4711, ByHost: 2})
	tl := w.build(Options{})
	require.Equal(t, []string{"db1", "web7", "db2"}, []string{tl.Hosts[0].Name, tl.Hosts[1].Name, tl.Hosts[2].Name})
	require.Equal(t, []int{0, 1}, []int{tl.Attempts[0].Host, tl.Attempts[1].Host})
	require.Equal(t, []span{{Live, -1000, 20}, {Gone, 20, 70_000}}, tl.Hosts[0].inWorld())
	require.Equal(t, []span{{Live, 60_000, 70_000}}, tl.Hosts[1].inWorld(), "the verdict names its incarnation only")
}

// TestHostNameLikeAnotherWithItsID_IsToldApart: a host may have any name.
func TestHostNameLikeAnotherWithItsID_IsToldApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(4).note(0, events.Event{Kind: events.Joined, Host: 1, HostName: "n", ByHost: 4})
	w.host(4).note(0, events.Event{Kind: events.Joined, Host: 2, HostName: "n", ByHost: 4})
	w.host(4).note(0, events.Event{Kind: events.Joined, Host: 3, HostName: "host 2 (n)", ByHost: 4})
	names := map[string]bool{}
	for _, h := range w.build(Options{}).Hosts {
		names[h.Name] = true
	}
	require.Len(t, names, 4)
}

// TestReplacedMachine_WithNameAndID_MovesNoClock: the new machine is up for 100 days, which does
// not bound when its predecessor left.
func TestReplacedMachine_WithNameAndID_MovesNoClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).hold(0, 10, 1)
	w.host(1).note(20, events.Event{Kind: events.Left})
	heir := &keeper{id: 1, boot: "z", uptime: 2400 * time.Hour, seq: 2 << 40}
	w.hosts[3] = heir
	heir.note(60_000, events.Event{Kind: events.Joined, Boot: "z", Host: 1, HostName: "db1", Incarnation: 4711})
	heir.hold(61_000, 62_000, 2, func(e *events.Event) { e.Host, e.HostName, e.Incarnation = 1, "db1", 4711 })
	tl := w.build(Options{})
	require.Len(t, tl.Hosts, 1)
	require.Zero(t, tl.Hosts[0].Added)
	require.Equal(t, []span{{Live, -1000, 20}, {Gone, 20, 60_000}, {Live, 60_000, 62_000}}, tl.Hosts[0].inWorld())
}
