package timeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

func ofPID(pid int) func(*events.Event) { return func(e *events.Event) { e.PID = pid } }

func (h *keeper) restart(at float64) {
	h.note(at, events.Event{Kind: events.Resumed, Boot: h.boot})
}

func TestRestart_HoldAndWait_AreOneAttemptEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	h.request(0, "x", 5)
	h.enter(1, 5, ofPID(5))
	h.request(2, "x", 6)
	h.restart(500)
	h.note(500, events.Event{Kind: events.Resumed, Lock: "x", PID: 5, Command: "job", Token: layout.MakeTicket(5, 1), HeldMS: 500})
	h.note(500, events.Event{Kind: events.Resumed, Lock: "x", PID: 6, Command: "job", WaitedMS: 498})
	resumed := h.seq
	h.exit(900, 5, ofPID(5))
	h.enter(901, 6, ofPID(6), func(e *events.Event) { e.Request = resumed })
	h.exit(950, 6, ofPID(6), func(e *events.Event) { e.Request = resumed })
	all := w.build(Options{}).Attempts
	require.Len(t, all, 2)
	for i, a := range all {
		require.Equal(t, Released, a.End)
		require.InDelta(t, float64(2*i), ms(a.Asked), 0.001)
	}
}

// TestRestart_WaitsOfOneProcess_AreNotConfused: only the process and the time of the request find
// the attempt that was resumed.
func TestRestart_WaitsOfOneProcess_AreNotConfused(t *testing.T) {
	t.Parallel()
	for name, names := range map[string]bool{"later events name the resumption": true, "as earlier versions record it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.host(1)
			asked := []float64{0, 100, 200}
			for i, at := range asked {
				h.request(at, "x", uint64(i+1), ofPID(9))
			}
			h.restart(1000)
			var resumed [3]uint64
			for _, i := range []int{2, 0, 1} {
				h.note(1000, events.Event{Kind: events.Resumed, Lock: "x", PID: 9, Command: "job", WaitedMS: 1000 - int64(asked[i])})
				resumed[i] = h.seq
			}
			for i := range asked {
				at := 2000 + 10*float64(i)
				named := func(e *events.Event) {
					if e.Request = 0; names {
						e.Request = resumed[i]
					}
				}
				h.enter(at, uint64(i+1), ofPID(9), named, func(e *events.Event) { e.WaitedMS = int64(at - asked[i]) })
				h.exit(at+5, uint64(i+1), ofPID(9), named)
			}
			all := w.build(Options{}).Attempts
			require.Len(t, all, 3)
			for i, a := range all {
				require.Equal(t, Released, a.End)
				require.InDelta(t, asked[i], ms(a.Asked), 0.001)
				require.InDelta(t, 2000+10*float64(i), ms(a.Entered), 0.001)
			}
		})
	}
}

// TestRestart_ResumedHoldWithoutItsGrant_BeginsAfterItsWait: the event that resumed it counts from
// the request, which is no time of another client's end.
func TestRestart_ResumedHoldWithoutItsGrant_BeginsAfterItsWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	h.request(0, "x", 6)
	h.enter(100, 5, ofPID(5)) // and its end was not yet written
	h.request(200, "y", 7)
	h.restart(500)
	h.note(500, events.Event{Kind: events.Resumed, Lock: "x", PID: 6, Command: "job", Token: layout.MakeTicket(6, 1), HeldMS: 500})
	h.exit(900, 6, ofPID(6))
	all := w.build(Options{}).of("x")
	require.Len(t, all, 2)
	waiter, holder := all[0], all[1]
	require.InDelta(t, 200, ms(waiter.Entered), 0.001, "it waited by the last event before the restart")
	require.Equal(t, []Moment{200_000, 400_000}, []Moment{waiter.Waited, waiter.Held})
	require.Equal(t, Unseen, holder.End)
	require.InDelta(t, 500, ms(holder.Ended), 0.001)
	require.InDelta(t, 200, ms(holder.Sure), 0.001)
}

// TestRestart_ClientThatRequestsAgain_IsOneAttempt: bakeryd did not know the wait any more, as one
// that died before it stored it, or joined again.
func TestRestart_ClientThatRequestsAgain_IsOneAttempt(t *testing.T) {
	t.Parallel()
	for name, comes := range map[string]func(h *keeper){
		"the lease went on": func(h *keeper) { h.restart(500) },
		"it joined again":   func(h *keeper) { h.note(500, events.Event{Kind: events.Joined, Boot: h.boot}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.host(1)
			h.request(0, "x", 5)
			comes(h)
			h.request(600, "x", 77, ofPID(5))
			h.note(5000, events.Event{Kind: events.Timeout, Lock: "x", Request: 77, PID: 5, Command: "job"})
			all := w.build(Options{}).Attempts
			require.Len(t, all, 1)
			require.Equal(t, TimedOut, all[0].End)
			require.InDelta(t, 0, ms(all[0].Asked), 0.001)
			require.Equal(t, Moment(5_000_000), all[0].Waited)
		})
	}
}

// TestRestart_RequestHoursLater_IsAnotherAttempt: no client tries that long to reach bakeryd.
func TestRestart_RequestHoursLater_IsAnotherAttempt(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]events.Kind{"the lease went on": events.Resumed, "it joined again": events.Joined, "it had left": events.Left} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.host(1)
			h.request(1_000, "x", 100)
			h.note(10_000, events.Event{Kind: kind, Boot: h.boot})
			h.request(18_000_000, "x", 777, ofPID(100))
			h.enter(18_000_001, 777, ofPID(100), func(e *events.Event) { e.WaitedMS = 1 })
			h.exit(18_000_100, 777, ofPID(100))
			all := w.build(Options{}).Attempts
			require.Len(t, all, 2)
			require.Equal(t, Unseen, all[0].End)
			require.InDelta(t, 10_000, ms(all[0].Ended), 0.001)
			require.Equal(t, Released, all[1].End)
			require.InDelta(t, 18_000_000, ms(all[1].Asked), 0.001)
			require.Zero(t, all[1].Waited)
		})
	}
}

// TestRestart_SeveralRequestsAgain_KeepTheirOrder: one process may wait for one lock many times.
func TestRestart_SeveralRequestsAgain_KeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	const n = 20
	for i := range n {
		h.request(float64(i), "x", uint64(i+1), ofPID(9))
	}
	h.restart(500)
	for i := range n {
		h.request(float64(600+i), "x", uint64(100+i), ofPID(9))
	}
	for i := range n {
		h.note(float64(5000+i), events.Event{Kind: events.Timeout, Lock: "x", Request: uint64(100 + i), PID: 9, Command: "job"})
	}
	all := w.build(Options{}).Attempts
	require.Len(t, all, n)
	for i, a := range all {
		require.Equal(t, TimedOut, a.End)
		require.InDelta(t, float64(i), ms(a.Asked), 0.001)
		require.Equal(t, Moment(5_000_000), a.Waited)
	}
}

// TestRestart_WaitOlderThanManyHolds_IsFound: the holds of its process that are over do not replace
// it.
func TestRestart_WaitOlderThanManyHolds_IsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	h.request(0, "x", 9)
	for i := range uint64(3 * maxOfProcess) {
		h.hold(float64(10+2*i), float64(11+2*i), 100+i, ofPID(9))
	}
	h.restart(100_000)
	h.note(100_000, events.Event{Kind: events.Resumed, Lock: "x", PID: 9, Command: "job", WaitedMS: 100_000})
	resumed := h.seq
	h.note(200_000, events.Event{Kind: events.Timeout, Lock: "x", Request: resumed, PID: 9, Command: "job"})
	all := w.build(Options{}).Attempts
	require.Len(t, all, 1+3*maxOfProcess)
	require.Equal(t, TimedOut, all[0].End)
	require.Equal(t, Moment(200_000_000), all[0].Waited)
}

// TestRestart_WaitThatWasNotResumed_Ends: else it would last forever.
func TestRestart_WaitThatWasNotResumed_Ends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	h.request(0, "x", 5)
	h.restart(500)
	h.hold(60_000, 60_010, 9, ofPID(8))
	a := w.build(Options{}).Attempts[0]
	require.Equal(t, Unseen, a.End)
	require.InDelta(t, 500, ms(a.Ended), 0.001)
	require.InDelta(t, 0, ms(a.Sure), 0.001)
}

// TestLostLease_EndsWaits: and not when the host joins again.
func TestLostLease_EndsWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host(1)
	h.request(0, "x", 5)
	h.note(700, events.Event{Kind: events.Lost, Reason: "the lease ran out"})
	h.note(90_000, events.Event{Kind: events.Joined, Boot: h.boot})
	a := w.build(Options{}).Attempts[0]
	require.Equal(t, HostLost, a.End)
	require.InDelta(t, 700, ms(a.Ended), 0.001)
}
