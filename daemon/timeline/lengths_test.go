package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

func TestLengths(t *testing.T) {
	t.Parallel()
	ends := func(h *keeper, at float64, kind events.Kind, more ...func(*events.Event)) {
		e := events.Event{Kind: kind, Lock: "x", Request: 5, PID: 5}
		for _, f := range more {
			f(&e)
		}
		h.note(at, e)
	}
	behind := func(e *events.Event) { e.Ahead = []events.Peer{{Host: 2, Phase: "held"}} }
	for _, c := range []struct {
		name         string
		make         func(w *world)
		waited, held float64 // ms
	}{
		{"waited behind another, then held", func(w *world) {
			w.host(1).request(0, "x", 5)
			w.host(1).enter(30, 5, ofPID(5), behind)
			w.host(1).exit(80, 5, ofPID(5))
		}, 30, 50},
		{"granted as fast as the disk allows", func(w *world) {
			w.host(1).request(0, "x", 5)
			w.host(1).enter(30, 5, ofPID(5))
			w.host(1).exit(80, 5, ofPID(5))
		}, 0, 50},
		{"granted by a slow disk", func(w *world) {
			w.host(1).request(0, "x", 5)
			w.host(1).enter(3000, 5, ofPID(5))
			w.host(1).exit(3000.2, 5, ofPID(5))
		}, 3000, 0},
		{"timed out at the same moment", func(w *world) {
			w.host(1).request(0, "x", 5)
			ends(w.host(1), 0.5, events.Timeout, behind)
		}, 0, 0},
		{"would not wait, on a disk that took its time", func(w *world) {
			w.host(1).request(0, "x", 5)
			ends(w.host(1), 500, events.Busy, behind)
		}, 0, 0},
		{"waits by the end of its journal", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).request(0, "x", 5)
			w.host(1).request(700, "y", 6)
			w.host(2).hold(90_000, 90_001, 1)
		}, 700, 0},
		{"holds by the end of its journal", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 5)
			w.host(1).request(700, "y", 6)
			w.host(2).note(90_000, events.Event{Kind: events.Left})
		}, 0, 700},
		{"held until the verdict", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 5)
			w.host(2).note(9000, about(events.Dead, 1, 2))
		}, 0, 9000},
		{"recorded its end long after the verdict", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 5)
			w.host(2).note(9000, about(events.Dead, 1, 2))
			w.host(1).exit(20_000, 5)
		}, 0, 9000},
		{"waited as its host died", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).request(0, "x", 5)
			w.host(1).request(200, "y", 6)
			w.host(2).note(9000, about(events.Dead, 1, 2))
		}, 200, 0},
		{"resumed, and its grant was lost: it counts from the request", func(w *world) {
			w.host(1).request(0, "x", 5)
			w.host(1).restart(4000)
			w.host(1).note(4000, events.Event{Kind: events.Resumed, Lock: "x", PID: 5, Command: "job", Token: layout.MakeTicket(5, 1), HeldMS: 4000})
			w.host(1).exit(5000, 5, ofPID(5))
		}, 0, 1000},
		{"a removal that had to wait", func(w *world) {
			w.host(1).request(0, "x", 5, byBakeryd)
			ends(w.host(1), 9000, events.Removed, byBakeryd)
		}, 0, 0},
		{"bakeryd restored the directory", func(w *world) {
			restores := func(e *events.Event) { e.Command = events.Restoring }
			w.host(1).enter(1, 5, restores)
			w.host(1).exit(5000, 5, restores)
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.make(w)
			for _, a := range w.build(Options{}).of("x") {
				if a.host.ID == 1 {
					require.Equal(t, []any{Moment(c.waited * 1000), Moment(c.held * 1000)}, []any{a.Waited, a.Held})
				}
			}
		})
	}
}
