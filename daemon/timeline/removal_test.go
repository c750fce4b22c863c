package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

func (h *keeper) request(at float64, lock string, n uint64, more ...func(*events.Event)) {
	e := events.Event{Kind: events.Request, Lock: lock, Request: n, PID: int(n), Command: "job"}
	for _, f := range more {
		f(&e)
	}
	h.note(at, e)
}

func byBakeryd(e *events.Event) { e.PID, e.Command = 0, events.Removing }

// of returns the attempts at a lock.
func (t *Timeline) of(lock string) (all []*Attempt) {
	for _, a := range t.Attempts {
		if t.Locks[a.Lock].Name == lock {
			all = append(all, a)
		}
	}
	return all
}

func TestRemoval_EndsItsRequest(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]func(*events.Event){
		"named":                         func(e *events.Event) { e.Request = 7; byBakeryd(e) },
		"as earlier versions record it": func(*events.Event) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.host(1)
			h.request(0, "x", 6)
			h.note(1, events.Event{Kind: events.Cancel, Lock: "x", Request: 6, PID: 6})
			h.request(2, "x", 7, byBakeryd)
			removed := events.Event{Kind: events.Removed, Lock: "x"}
			more(&removed)
			h.note(5000, removed)
			h.note(9000, events.Event{Kind: events.Left})
			tl := w.build(Options{})
			a := tl.of("x")[1]
			require.Equal(t, Removed, a.End)
			require.InDelta(t, 5000, ms(a.Ended), 0.001)
			require.Zero(t, a.Waited, "a removal is no wait of a client")
			require.Len(t, tl.Locks[0].Marks, 1)
		})
	}
}

func TestRemoval_OfAnotherRequest_DoesNotEndARemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	h.request(0, "x", 7, byBakeryd)
	h.request(1, "x", 8, byBakeryd)
	h.note(5, events.Event{Kind: events.Removed, Lock: "x", Request: 7, Command: events.Removing})
	h.note(6, events.Event{Kind: events.Refused, Lock: "x", Request: 8, Command: events.Removing, Reason: "no such lock"})
	all := w.build(Options{}).of("x")
	require.Equal(t, []End{Removed, Refused}, []End{all[0].End, all[1].End})
}

func TestRemoval_EndsHoldsThatHaveNoEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onOneMachine(1, 2)
	w.host(1).enter(0, 1, permits2) // whose host stopped before it recorded the end
	w.host(2).note(50, events.Event{Kind: events.Removed, Lock: "x"})
	w.host(2).hold(9000, 9010, 5)
	a := w.build(Options{}).holds()[0]
	require.Equal(t, Unseen, a.End)
	require.InDelta(t, 50, ms(a.Ended), 0.001)
}

func TestRemoval_NewLockOfTheName_IsTheSameRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.onOneMachine(1, 2)
	w.host(1).hold(0, 10, 1, permits2)
	w.host(2).hold(5, 20, 2, permits2)
	w.host(1).note(50, events.Event{Kind: events.Removed, Lock: "x"})
	w.host(1).hold(60, 80, 3)
	w.host(2).hold(70, 90, 4)
	tl := w.build(Options{})
	require.Len(t, tl.Locks, 1)
	require.Len(t, tl.Attempts, 4)
	require.Equal(t, []string{"two holders!"}, tl.foundKinds(), "the new lock has one permit")
	require.NotContains(t, tl.Findings[0].Text, "may")
}

func TestRemoval_SinceAfterIt_ShowsTheNewLockOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).hold(0, 1000, 1)
	w.host(1).request(1500, "x", 7, byBakeryd)
	w.host(1).note(2000, events.Event{Kind: events.Removed, Lock: "x", Request: 7, Command: events.Removing})
	w.host(1).hold(5000, 6000, 2)
	tl := w.build(Options{From: dawn.Add(3 * time.Second), Locks: []string{"x"}})
	require.Len(t, tl.Attempts, 1)
	require.Empty(t, tl.Locks[0].Marks)
	require.Equal(t, layout.MakeTicket(2, 1), tl.Attempts[0].Token)
}
