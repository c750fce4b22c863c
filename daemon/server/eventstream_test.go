package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/events"
)

// TestEventLines_ManyClientsFollow_ShareTheLines: each client once encoded all events itself. With 10
// that followed, a lock passed five times more slowly between others.
func TestEventLines_ManyClientsFollow_ShareTheLines(t *testing.T) {
	var l eventLines
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lines := func(es ...events.Event) string {
		return string(l.append(nil, es))
	}
	encoded := func(es ...events.Event) string {
		var b []byte
		for i := range es {
			b = es[i].AppendLine(b)
		}
		return string(b)
	}
	a := events.Event{Seq: 5, At: at, Kind: events.Enter, Lock: "a && b"}
	b := events.Event{Seq: 5 + maxLines, At: at.Add(time.Microsecond), Kind: events.Exit, Lock: "c"} // at the place of a
	for range 3 {
		require.Equal(t, encoded(a, b, a), lines(a, b, a))
	}
	same := a
	same.Reason = "not encoded again"
	require.Equal(t, encoded(a), lines(same), "the line of the other client")
	named := a
	named.Host, named.HostName = 1, "db1"
	require.Equal(t, encoded(named), lines(named), "the host was not known before")
	later := b
	later.Seq = a.Seq
	require.Equal(t, encoded(later), lines(later), "another event was renumbered")
	require.Empty(t, lines())
}

// TestEventLines_GapInPlaceOfAnEvent_IsNotThatEvent: the journal writes a gap with the number before its
// first event. That is the number of an event that was lost, which may be of the same microsecond.
func TestEventLines_GapInPlaceOfAnEvent_IsNotThatEvent(t *testing.T) {
	var l eventLines
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lost := events.Event{Seq: 5, At: at, Kind: events.Enter, Lock: "a", Host: 1}
	gap := events.Event{Seq: 5, At: at, Kind: events.Gap, Host: 1, Missed: 7}
	for _, e := range []events.Event{lost, gap, lost} {
		require.Equal(t, string(e.AppendLine(nil)), string(l.append(nil, []events.Event{e})))
	}
}
