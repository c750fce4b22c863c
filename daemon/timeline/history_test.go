package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// TestEnds checks the ends of attempts, recorded and guessed.
func TestEnds(t *testing.T) {
	t.Parallel()
	request := func(h *keeper, at float64, n uint64) {
		h.note(at, events.Event{Kind: events.Request, Lock: "x", Request: n, PID: int(n)})
	}
	dead := events.Event{Kind: events.Dead, Host: 1, HostName: "db1", Incarnation: 1001, ByHost: 2}
	for _, c := range []struct {
		name  string
		make  func(w *world)
		end   End
		ended float64
		sure  float64 // -1: it was not held
	}{
		{"timed out", func(w *world) {
			request(w.host(1), 0, 1)
			w.host(1).note(7, events.Event{Kind: events.Timeout, Lock: "x", Request: 1, PID: 1})
		}, TimedOut, 7, -1},
		{"the journal begins with its end", func(w *world) {
			w.host(1).note(7, events.Event{Kind: events.Exit, Lock: "x", Request: 1, Token: layout.MakeTicket(1, 1), HeldMS: 5})
		}, Released, 7, 7},
		{"lasts", func(w *world) {
			w.host(1).enter(1, 1)
			w.host(2).note(9, events.Event{Kind: events.Left})
		}, Open, 9, 1},
		{"its host was declared dead", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(1, 1)
			w.host(1).note(3, events.Event{Kind: events.Request, Lock: "y", Request: 2})
			w.host(2).note(9, dead)
		}, DeclaredDead, 9, 3},
		{"its command was stopped after the verdict", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(1, 1)
			w.host(2).note(9, dead)
			w.host(1).note(12, events.Event{Kind: events.Kill, Lock: "x", PID: 11})
		}, DeclaredDead, 12, 12},
		{"its host restarted", func(w *world) {
			w.host(1).enter(1, 1)
			w.host(1).note(9, events.Event{Kind: events.Joined, Boot: "b"})
		}, Unseen, 9, 1},
		{"it was let go by the time that another had it", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(1, 1)
			w.host(2).hold(5, 9, 2)
		}, Unseen, 5, 1},
		{"went on through a restart, of which the grant was lost", func(w *world) {
			request(w.host(1), 0, 5)
			w.host(1).note(4, events.Event{Kind: events.Resumed, Boot: "b"})
			w.host(1).note(5, events.Event{Kind: events.Resumed, Lock: "x", PID: 5, Token: layout.MakeTicket(1, 1), HeldMS: 3})
			w.host(1).note(9, events.Event{Kind: events.Exit, Lock: "x", PID: 5, Token: layout.MakeTicket(1, 1)})
		}, Released, 9, 9},
		{"waited as its host lost the lease", func(w *world) {
			request(w.host(1), 0, 1)
			w.host(1).note(8, events.Event{Kind: events.Lost})
		}, HostLost, 8, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.make(w)
			tl := w.build(Options{})
			var a *Attempt
			for _, x := range tl.Attempts {
				if tl.Hosts[x.Host].ID == 1 && tl.Locks[x.Lock].Name == "x" {
					require.Nil(t, a, "one attempt of db1's")
					a = x
				}
			}
			require.Equal(t, c.end, a.End)
			require.InDelta(t, c.ended, ms(a.Ended), 0.001)
			require.Equal(t, c.sure >= 0, a.held())
			if c.sure >= 0 {
				require.InDelta(t, c.sure, ms(a.Sure), 0.001)
			}
		})
	}
}

// TestMixedJournals: one stream of two journals, as `bakeryctl events --file A --file B --json`
// prints, has the result of two sources.
func TestMixedJournals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).hold(0, 10, 1)
	w.host(2).hold(11, 20, 2)
	w.host(2).note(21, events.Event{Kind: events.AtRisk, Host: 1, HostName: "db1", Incarnation: 1001, ByHost: 2})
	w.host(1).note(22, events.Event{Kind: events.AtRisk, Host: 1, HostName: "db1", Incarnation: 1001})
	apart := w.build(Options{})
	var mixed Source
	for _, s := range w.sources() {
		mixed.Events = append(mixed.Events, s.Events...)
	}
	together, err := Build([]Source{mixed}, Options{})
	require.NoError(t, err)
	require.Equal(t, apart.Hosts, together.Hosts)
	require.Len(t, together.Attempts, 2)
	require.Equal(t, "db1", together.Hosts[0].Name)
	require.Len(t, together.Hosts[0].Changes, 2, "two who say the same are one")
	require.Equal(t, 1, together.Hosts[0].Changes[1].Others)
}

// TestRemains: processes that survive SIGKILL are shown with their hold, also after it.
func TestRemains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remains := events.Event{Kind: events.Remains, Lock: "x", PID: 11, Token: layout.MakeTicket(1, 1), Reason: "1 process did not end by SIGKILL: pid 12"}
	w.host(1).enter(0, 1)
	w.host(1).note(5, remains)
	w.host(1).exit(6, 1)
	w.host(1).note(7, remains)
	tl := w.build(Options{})
	require.Len(t, tl.Attempts, 1)
	require.Len(t, tl.Attempts[0].Marks, 2)
	for _, m := range tl.Attempts[0].Marks {
		require.Equal(t, events.Remains, m.Kind)
		require.Equal(t, remains.Reason, m.Text)
	}
}
