package timeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// TestFindings checks violations, correct histories, and those that the journals do not decide.
func TestFindings(t *testing.T) {
	t.Parallel()
	dead1 := events.Event{Kind: events.Dead, Host: 1, HostName: "db1", Incarnation: 1001, ByHost: 2}
	for _, c := range []struct {
		name  string
		make  func(w *world)
		found []string
		text  string
	}{
		{"one after the other", func(w *world) {
			w.host(1).hold(0, 10, 1)
			w.host(2).hold(11, 20, 2)
			w.host(1).hold(21, 30, 3)
		}, nil, ""},
		{"two at once, by one clock", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 1)
			w.host(2).hold(5, 20, 2)
		}, []string{"two holders!"}, "db1 (token 524544) and db2 (token 1049088) held x at the same time for 5ms"},
		{"two at once, by a hundredth of a millisecond, by one clock", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 1)
			w.host(2).hold(9.99, 20, 2)
		}, []string{"two holders!"}, "for 10µs"},
		{"two at once, though hand-overs both ways bound the clocks", func(w *world) {
			w.host(2).hold(0, 9, 1)
			w.host(1).hold(10, 100, 2)
			w.host(2).hold(50, 150, 3)
			w.host(1).hold(151, 160, 4)
		}, []string{"two holders!"}, "db1 (token 1048832) and db2 (token 1573376) held x at the same time for 50ms"},
		{"the same where they do not: less than a second is a matter of clocks", func(w *world) {
			w.host(1).hold(10, 100, 2)
			w.host(2).hold(50, 150, 3)
		}, nil, ""},
		{"the same where they do not, by far: who knows", func(w *world) {
			w.host(1).hold(0, 100_000, 2)
			w.host(2).hold(50_000, 150_000, 3)
		}, []string{"doubt"}, "their clocks disagree by that or more, or both held it at the same time: the journals do not decide"},
		{"the same, and each has seen the other's ticket", func(w *world) {
			ahead := func(number uint64, host int) func(*events.Event) {
				return func(e *events.Event) {
					e.Kind, e.Token, e.Ahead = events.Waiting, 0, []events.Peer{{Host: host, Phase: "held", Ticket: layout.MakeTicket(number, host)}}
				}
			}
			choose := func(e *events.Event) { e.Kind, e.Ticket, e.Token = events.Choosing, e.Token, 0 }
			w.host(1).enter(-1, 2, choose)
			w.host(2).enter(49_000, 3, choose)
			w.host(2).enter(49_001, 3, ahead(2, 1))
			w.host(1).hold(0, 100_000, 2)
			w.host(2).hold(50_000, 150_000, 3)
			w.host(1).enter(101_000, 4, choose)
			w.host(1).enter(102_000, 4, ahead(3, 2))
		}, nil, ""}, // db1's look is later than necessary: its clock may be late
		{"a token goes back", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 5)
			w.host(2).hold(11, 20, 4)
		}, []string{"token back!"}, "db2 was granted x with token 2097664, after db1 (token 2621696) held it"},
		{"a token goes back, at one host", func(w *world) {
			w.host(1).hold(0, 10, 5)
			w.host(1).hold(11, 20, 4)
		}, []string{"token back!"}, ""},
		{"a token goes back, between clocks that are bounded", func(w *world) {
			w.host(1).hold(0, 10, 1)
			w.host(2).hold(11, 20, 2)
			w.host(1).hold(21, 30, 3)
			w.host(2).hold(5000, 5010, 9)
			w.host(1).hold(10_000, 10_010, 8)
			w.host(2).hold(10_011, 10_020, 10)
		}, []string{"token back!"}, ""},
		{"one token for two", func(w *world) {
			w.host(1).enter(0, 5)
			w.host(1).exit(1, 5)
			w.host(1).enter(2, 5, func(e *events.Event) { e.Request = 77 })
			w.host(1).exit(3, 5, func(e *events.Event) { e.Request = 77 })
		}, []string{"token twice!"}, ""},
		{"readers together", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 1, shared)
			w.host(2).hold(5, 20, 3, shared)
			w.host(1).hold(12, 13, 2, shared)
		}, nil, ""},
		{"a reader next to a writer", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 1, shared)
			w.host(2).hold(5, 20, 2)
		}, []string{"two holders!"}, ""},
		{"two of two permits, in any order", func(w *world) {
			w.onOneMachine(1, 2, 3)
			w.host(1).hold(0, 10, 2, permits2)
			w.host(2).hold(5, 20, 1, permits2)
			w.host(3).hold(12, 30, 3, permits2)
		}, nil, ""},
		{"three of two permits", func(w *world) {
			w.onOneMachine(1, 2, 3)
			w.host(1).hold(0, 10, 1, permits2)
			w.host(2).hold(5, 20, 2, permits2)
			w.host(3).hold(9, 30, 3, permits2)
		}, []string{"two holders!"}, "(2 may)"},
		{"a token of several permits below one that had ended", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 5, permits2)
			w.host(2).hold(12, 20, 4, permits2)
		}, []string{"token back!"}, ""},
		{"a token of several permits below one that ended before its client asked, but after its ticket was drawn", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).hold(0, 10, 1, permits2)
			w.host(2).hold(2, 5, 4, permits2)
			local := func(e *events.Event) { e.Token, e.Request = e.Token+1, 99 }
			w.host(1).hold(11, 20, 1, permits2, local)
		}, nil, ""},
		{"shared, then alone, then shared", func(w *world) {
			w.onOneMachine(1, 2)
			mode := func(mode string) func(*events.Event) {
				return func(e *events.Event) { e.Kind, e.Mode = events.ModeSet, mode }
			}
			w.host(1).enter(0, 1, shared)
			w.host(2).hold(1, 2, 2, shared)
			w.host(1).enter(3, 1, mode("exclusive"))
			w.host(1).enter(6, 1, mode("shared"))
			w.host(2).hold(7, 8, 3, shared)
			w.host(1).exit(9, 1, shared)
			w.host(2).hold(10, 11, 4)
		}, nil, ""},
		{"exclusive, next to a shared hold", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1, shared)
			w.host(2).hold(1, 5, 2, shared)
			w.host(1).enter(3, 1, func(e *events.Event) { e.Kind = events.ModeSet })
			w.host(1).exit(6, 1)
		}, []string{"two holders!"}, "for 2ms"},
		{"held after the verdict, and another host held it", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).note(50_000, events.Event{Kind: events.Dead, Host: 1, HostName: "db1", Incarnation: 1001, ByHost: 2})
			w.host(2).hold(50_001, 60_000, 2)
			w.host(1).note(70_000, events.Event{Kind: events.Lost})
			w.host(1).exit(70_001, 1)
		}, []string{"late"}, "20.001s after it had been declared dead: if its command ran on, only tokens, fencing or a watchdog stopped its writes; meanwhile db2 (token 1049088) held it"},
		{"stood still, was declared dead, and noted what it had before it noticed", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).note(50_000, dead1)
			w.host(2).hold(50_001, 60_000, 2)
			w.host(2).hold(60_001, 60_002, 3)
			w.host(1).exit(70_000, 1)
			w.host(1).note(70_015, events.Event{Kind: events.Lost})
		}, []string{"late"}, "meanwhile db2 (token 1049088) held it, and 1 after that"},
		{"stood still, and whoever declared it dead has left no journal", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).hold(50_001, 60_000, 2)
			w.host(1).exit(70_000, 1)
			w.host(1).note(70_015, events.Event{Kind: events.Lost})
		}, []string{"doubt"}, "one of them was stalled"},
		{"the same, and before it stood still another had the lock", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(1).note(30_000, events.Event{Kind: events.Enter, Lock: "y", Token: layout.MakeTicket(1, 1)})
			w.host(2).hold(20_000, 60_000, 2)
			w.host(1).note(70_000, events.Event{Kind: events.Lost})
			w.host(1).exit(70_001, 1)
		}, []string{"two holders!"}, "for 10s"},
		{"had it after it had lost its lease: its command may have run on, and others are in the right", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(1).note(10_000, events.Event{Kind: events.Lost})
			w.host(2).hold(12_000, 13_000, 2)
			w.host(1).exit(14_000, 1)
		}, []string{"late"}, "4s after its host had lost its lease"},
		{"declared dead, and went on to grant locks as if it were not", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).note(50_000, dead1)
			w.host(2).hold(50_001, 60_000, 2)
			for n := range 5 {
				at := 51_000 + 2000*float64(n)
				w.host(1).hold(at, at+1, uint64(n+1), func(e *events.Event) { e.Lock = "y" })
			}
			w.host(1).exit(70_001, 1)
		}, []string{"two holders!", "late"}, "for 8.999s; db1 had been declared dead"},
		{"what it had left running was stopped after the hold had ended", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(1).note(5, events.Event{Kind: events.Lost})
			w.host(1).exit(6, 1)
			w.host(1).note(20, events.Event{Kind: events.Kill, Lock: "x", Mode: "exclusive", PID: 11, Token: layout.MakeTicket(1, 1)})
		}, nil, ""},
		{"granted after the verdict, while another had it", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).note(0, events.Event{Kind: events.Request, Lock: "x", Request: 1, PID: 11})
			w.host(2).note(50_000, dead1)
			w.host(2).hold(50_001, 60_000, 2)
			w.host(1).hold(55_000, 56_000, 1)
			w.host(1).note(56_001, events.Event{Kind: events.Lost})
		}, []string{"doubt", "late"}, "held x at the same time for 1s"},
		{"shared meanwhile, and the event that says so was not yet written as bakeryd was killed", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).hold(50, 60, 2, shared)
			w.host(1).note(69, events.Event{Kind: events.Resumed, Boot: "same"})
			w.host(1).note(70, events.Event{Kind: events.Resumed, Lock: "x", Mode: "shared", Token: layout.MakeTicket(1, 1), HeldMS: 70})
			w.host(2).hold(75, 76, 3, shared)
			w.host(1).exit(80, 1, shared)
		}, nil, ""},
		{"the same, and another had it alone", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).hold(50, 60, 2)
			w.host(1).exit(80, 1, shared)
		}, []string{"two holders!"}, "for 10ms"},
		{"alone since an unknown moment", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1, shared)
			w.host(2).hold(50, 60, 2, shared)
			w.host(1).exit(80, 1)
		}, nil, ""},
		{"resumed, of which the grant was lost: it says since when it was asked for", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).note(0, events.Event{Kind: events.Request, Lock: "x", Request: 7, PID: 11})
			w.host(2).hold(5, 60, 1)
			w.host(1).note(99, events.Event{Kind: events.Resumed, Boot: "same"})
			w.host(1).note(100, events.Event{Kind: events.Resumed, Lock: "x", Mode: "exclusive", PID: 11, Token: layout.MakeTicket(2, 1), HeldMS: 100})
			w.host(1).exit(120, 2, func(e *events.Event) { e.Request, e.HeldMS = 0, 120 })
			w.host(2).hold(121, 130, 3)
		}, nil, ""},
		{"the same with tokens the other way round", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).note(0, events.Event{Kind: events.Request, Lock: "x", Request: 7, PID: 11})
			w.host(2).hold(5, 60, 1)
			w.host(1).note(99, events.Event{Kind: events.Resumed, Boot: "same"})
			w.host(1).note(100, events.Event{Kind: events.Resumed, Lock: "x", Mode: "exclusive", PID: 11, Token: layout.MakeTicket(1, 1), HeldMS: 100})
			w.host(1).exit(120, 1, func(e *events.Event) { e.Request, e.HeldMS = 0, 120 })
		}, nil, ""},
		{"resumed, and another host holds it", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).note(100, events.Event{Kind: events.Resumed, Lock: "x", Mode: "exclusive", PID: 11, Token: layout.MakeTicket(2, 1), HeldMS: 100})
			w.host(2).hold(110, 115, 3)
			w.host(1).exit(120, 2)
		}, []string{"two holders!"}, "for 5ms"},
		{"a verdict that was noted late, for the device hung: no clock is moved by it", func(w *world) {
			w.host(3).note(0, events.Event{Kind: events.Left})
			dead3 := events.Event{Kind: events.Dead, Host: 3, HostName: "db3", Incarnation: 1003, ByHost: 2, ByHostName: "db2"}
			w.host(1).hold(10, 20, 1)
			w.host(2).hold(21, 30, 2)
			w.host(1).hold(40, 50, 3)
			w.host(1).note(3000, dead3)
			w.host(2).note(5500, dead3)
			w.host(2).hold(5600, 5700, 4)
			w.host(1).hold(5701, 5800, 5)
			w.host(2).hold(5801, 5810, 6)
		}, nil, ""},
		{"a ticket of several permits, drawn for a client that gave up", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).note(0, events.Event{Kind: events.Request, Lock: "x", Request: 50})
			w.host(1).note(1, events.Event{Kind: events.Choosing, Lock: "x", Request: 50, Ticket: layout.MakeTicket(1, 1)})
			w.host(2).hold(2, 5, 4, permits2)
			w.host(1).note(8, events.Event{Kind: events.Request, Lock: "x", Request: 51})
			w.host(1).note(9, events.Event{Kind: events.Timeout, Lock: "x", Request: 50})
			w.host(1).hold(11, 20, 1, permits2, func(e *events.Event) { e.Request = 51 })
		}, nil, ""},
		{"held after the verdict, and no other host held it", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).note(50_000, events.Event{Kind: events.Dead, Host: 1, HostName: "db1", Incarnation: 1001, ByHost: 2})
			w.host(1).exit(70_001, 1)
		}, []string{"late"}, "still held x 20.001s after it had been declared dead"},
		{"died with the lock", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(2).note(50_000, events.Event{Kind: events.Dead, Host: 1, HostName: "db1", Incarnation: 1001, ByHost: 2})
			w.host(2).hold(50_001, 60_000, 2)
		}, nil, ""},
		{"an end that is missing", func(w *world) {
			w.onOneMachine(1, 2)
			w.host(1).enter(0, 1)
			w.host(1).note(5, events.Event{Kind: events.Gap, Missed: 3})
			w.host(2).hold(2, 3, 2) // after the last known event of db1's
			w.host(1).hold(6, 7, 3)
		}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.make(w)
			tl := w.build(Options{})
			require.Equal(t, c.found, tl.foundKinds(), "%+v", tl.Findings)
			if c.text != "" {
				require.Contains(t, tl.Findings[0].Text, c.text)
			}
		})
	}
}

// TestOneClock: with one clock, as in a simulation, no pair is excused.
func TestOneClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(1).hold(10, 100, 2)
	w.host(2).hold(50, 150, 3)
	require.Empty(t, w.build(Options{}).Findings)
	require.Equal(t, []string{"two holders!"}, w.build(Options{OneClock: true}).foundKinds())
}

// TestClocksArePutRight: clocks are corrected by the tokens, as little as necessary, and the page
// reports that.
func TestClocksArePutRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(3).offset = 4 * time.Second // as soon as it has joined
	n := uint64(0)
	for at := 0.0; at < 3000; at += 30 {
		for id := 1; id <= 3; id++ {
			n++
			w.host(id).hold(at+float64(id)*10, at+float64(id)*10+9, n)
		}
	}
	tl := w.build(Options{})
	require.Empty(t, tl.Findings)
	all := tl.holds()
	require.Len(t, all, 300)
	for i, a := range all {
		require.Equal(t, layout.MakeTicket(uint64(i+1), i%3+1), a.Token, "by time they come as by token")
		require.InDelta(t, float64(i+1)*10, ms(a.Entered), 3)
	}
	require.Len(t, tl.Notes, 2)
	require.Contains(t, tl.Notes[0], "the clock of db3 was stepped by +4.000 s")
	require.Contains(t, tl.Notes[1], "the clocks of the hosts disagree by at least 3.99")
	require.InDelta(t, -4e6, tl.Hosts[2].Added, 3000)
}

// TestClockThatIsStepped: a step of a host's clock causes neither a violation nor a hold of
// hours.
func TestClockThatIsStepped(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		w := newWorld(t)
		a, b := w.host(1), w.host(2)
		a.hold(0, 10, 1)
		b.hold(11, 20, 2)
		a.enter(21, 3)
		a.offset = by
		a.exit(30, 3)
		b.hold(31, 40, 4)
		a.hold(41, 50, 5)
		b.hold(51, 60, 6)
		tl := w.build(Options{})
		require.Empty(t, tl.Findings)
		held := tl.holds()[2]
		require.InDelta(t, 9, ms(held.Ended)-ms(held.Entered), 3, "%v", by)
		require.Contains(t, tl.Notes[0], "the clock of db1 was stepped by ")
		for i, a := range tl.holds() {
			require.Equal(t, uint64(i+1), a.Token.Number())
		}
	}
}

// TestClocksThatDrift: over days clocks drift by more than the time between hand-overs.
func TestClocksThatDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.host(1), w.host(2)
	n := uint64(0)
	for at := 0.0; at < 48*3600e3; at += 60e3 {
		b.offset = time.Duration(at*100e-6) * time.Millisecond // 100 ppm
		n += 2
		a.hold(at, at+20e3, n)
		b.hold(at+20e3+1, at+60e3-1, n+1)
	}
	require.Empty(t, w.build(Options{}).Findings)
	a.hold(49*3600e3, 49*3600e3+100e3, n+2) // an excessive difference is found nevertheless
	b.hold(49*3600e3+20e3, 49*3600e3+60e3, n+3)
	a.hold(49*3600e3+101e3, 49*3600e3+102e3, n+4)
	b.hold(49*3600e3+103e3, 49*3600e3+104e3, n+5)
	require.Equal(t, []string{"two holders!"}, w.build(Options{}).foundKinds())
}
