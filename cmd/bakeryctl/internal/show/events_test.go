package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// at is the time of the test events, in the local time zone.
var at = time.Date(2026, 3, 1, 3, 12, 7, 123456000, time.Local)

func shownEvents(t *testing.T, es ...events.Event) string {
	t.Helper()
	var out bytes.Buffer
	table := EventTable{Out: &out}
	for i := range es {
		es[i].At = at
		require.NoError(t, table.Row(&es[i]))
	}
	return strings.ReplaceAll(out.String(), "2026-03-01 03:12:07.123  ", "")
}

func TestEventTable(t *testing.T) {
	t.Parallel()
	of := func(kind events.Kind, change func(*events.Event)) events.Event {
		e := events.Event{Kind: kind, Lock: "backup", Host: 1, HostName: "db1", PID: 4711, Command: "/usr/bin/backup", Mode: "exclusive"}
		change(&e)
		return e
	}
	token := layout.MakeTicket(1000, 1)
	holder := events.Peer{Host: 2, HostName: "db2", Phase: "held", PID: 88, Command: "make all"}
	require.Equal(t, `
backup    request    db1   pid 4711 /usr/bin/backup
backup    waiting    db1   pid 4711 /usr/bin/backup  behind pid 12 (waiting here) (3 ahead in all)
backup    ticket     db1   pid 4711 /usr/bin/backup  ticket 524288256  behind db2 (held by pid 88 make all), host 3 (waiting)
backup    enter      db1   pid 4711 /usr/bin/backup  shared  token 524288256  waited 2.1s behind db2 (held by pid 88 make all)
backup    mode       db1   pid 4711 /usr/bin/backup  exclusive  token 524288256  held 1.2s
backup    exit       db1   pid 4711 /usr/bin/backup  token 524288256  held 0ms
backup    timeout    db1   pid 4711 /usr/bin/backup  waited 2m10s behind db2 (unreadable)
backup    kill       db1   pid 4711 /usr/bin/backup  token 524288256  SIGKILL to 3 processes: their lease is over
-         at risk    db2   by db1  silent for 21s
-         dead       db2   by host 3
-         gap        db1   7 events are missing  the disk was slow
-         gap        -     lines are damaged
-         disk lost  db1   disk 3 (/dev/c), 2 of 3 up: input/output error
-         disk back  db1   disk 3 (/dev/c), 3 of 3 up
`, "\n"+shownEvents(t,
		of(events.Request, func(*events.Event) {}),
		of(events.Waiting, func(e *events.Event) {
			e.Ahead, e.AheadCount = []events.Peer{{Host: 1, HostName: "db1", Phase: "waiting", PID: 12}}, 3
		}),
		of(events.Ticket, func(e *events.Event) {
			e.Ticket, e.Ahead = token, []events.Peer{holder, {Host: 3, Phase: "waiting"}}
		}),
		of(events.Enter, func(e *events.Event) {
			e.Mode, e.Token, e.WaitedMS, e.Ahead = "shared", token, 2140, []events.Peer{holder}
		}),
		of(events.ModeSet, func(e *events.Event) { e.Token, e.HeldMS = token, 1200 }),
		of(events.Exit, func(e *events.Event) { e.Token = token }),
		of(events.Timeout, func(e *events.Event) {
			e.WaitedMS, e.Ahead = 130_000, []events.Peer{{Host: 2, HostName: "db2", Phase: "unreadable"}}
		}),
		of(events.Kill, func(e *events.Event) { e.Token, e.Reason = token, "SIGKILL to 3 processes: their lease is over" }),
		events.Event{Kind: events.AtRisk, Host: 2, HostName: "db2", ByHost: 1, ByHostName: "db1", Reason: "silent for 21s"},
		events.Event{Kind: events.Dead, Host: 2, HostName: "db2", ByHost: 3},
		events.Event{Kind: events.Gap, Host: 1, HostName: "db1", Missed: 7, Reason: "the disk was slow"},
		events.Event{Kind: events.Gap, Reason: "lines are damaged"},
		events.Event{Kind: events.DiskLost, Host: 1, HostName: "db1", Reason: "disk 3 (/dev/c), 2 of 3 up: input/output error"},
		events.Event{Kind: events.DiskBack, Host: 1, HostName: "db1", Reason: "disk 3 (/dev/c), 3 of 3 up"},
	))
}

// Lines printed earlier keep their column widths.
// TestEventTable_HostsWithOneName_AreToldApart: as soon as both are named.
func TestEventTable_HostsWithOneName_AreToldApart(t *testing.T) {
	t.Parallel()
	require.Equal(t, `
x         request    db    pid 7
-         dead       host 2 (db)  by host 1 (db)
x         timeout    host 1 (db)  waited 2.0s behind host 2 (db) (held)
-         left       db3
-         left       host 4
`, "\n"+shownEvents(t,
		events.Event{Kind: events.Request, Lock: "x", Host: 1, HostName: "db", PID: 7},
		events.Event{Kind: events.Dead, Host: 2, HostName: "db", ByHost: 1, ByHostName: "db"},
		events.Event{Kind: events.Timeout, Lock: "x", Host: 1, HostName: "db", WaitedMS: 2000, Ahead: []events.Peer{{Host: 2, HostName: "db", Phase: "held"}}},
		events.Event{Kind: events.Left, Host: 3, HostName: "db3"},
		events.Event{Kind: events.Left, Host: 4},
	))
}

func TestEventTable_LongName_WidensLaterLines(t *testing.T) {
	t.Parallel()
	require.Equal(t, `
x         enter      db1   pid 1
nightly-backup  enter      a-long-host-name  pid 1
"two words"     enter      db1               pid 1
`, "\n"+shownEvents(t, events.Event{Kind: events.Enter, Lock: "x", HostName: "db1", PID: 1},
		events.Event{Kind: events.Enter, Lock: "nightly-backup", HostName: "a-long-host-name", PID: 1},
		events.Event{Kind: events.Enter, Lock: "two words", HostName: "db1", PID: 1}))
}

// Events from a file or a socket are untrusted.
func TestEventTable_ControlCharacters_AreEscaped(t *testing.T) {
	t.Parallel()
	evil := "\x1b]0;x\a\u202e\n"
	out := shownEvents(t, events.Event{Kind: events.Kind(evil), Lock: evil, HostName: evil, Command: evil, Reason: evil, ByHost: 1, ByHostName: evil,
		Ahead: []events.Peer{{Host: 2, HostName: evil, Phase: evil, Command: evil}, {Command: evil, Phase: evil}}})
	require.Equal(t, 1, strings.Count(out, "\n"))
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "\u202e")
	require.Equal(t, 11, strings.Count(out, `\x1b]0;x`))
}

func TestEventLevel_MemberDisk(t *testing.T) {
	t.Parallel()
	require.Equal(t, render.Warn, EventLevel(events.DiskLost))
	require.Equal(t, render.Good, EventLevel(events.DiskBack))
}
