package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// at is 03:12:07.123 of some day, where the test runs.
var at = time.Date(2026, 3, 1, 3, 12, 7, 123456000, time.Local)

func shownEvents(t *testing.T, es ...events.Event) string {
	t.Helper()
	var out bytes.Buffer
	table := newEventTable(&out, false)
	for i := range es {
		es[i].At = at
		require.NoError(t, table.row(&es[i]))
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
backup    request   db1   pid 4711 /usr/bin/backup
backup    waiting   db1   pid 4711 /usr/bin/backup  behind pid 12 (waiting here) (3 ahead in all)
backup    ticket    db1   pid 4711 /usr/bin/backup  ticket 524288256  behind db2 (held by pid 88 make all), host 3 (waiting)
backup    enter     db1   pid 4711 /usr/bin/backup  shared  token 524288256  waited 2.1s behind db2 (held by pid 88 make all)
backup    mode      db1   pid 4711 /usr/bin/backup  exclusive  token 524288256  held 1.2s
backup    exit      db1   pid 4711 /usr/bin/backup  token 524288256  held 0ms
backup    timeout   db1   pid 4711 /usr/bin/backup  waited 2m10s behind db2 (unreadable)
backup    kill      db1   pid 4711 /usr/bin/backup  token 524288256  SIGKILL to 3 processes: their lease is over
-         at risk   db2   by db1  silent for 21s
-         dead      db2   by host 3
-         gap       db1   7 events are missing  the disk was slow
-         gap       -     lines are damaged
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
	))
}

// TestEventTableGrows: a line that was shown stays as it was.
func TestEventTableGrows(t *testing.T) {
	t.Parallel()
	require.Equal(t, `
x         enter     db1   pid 1
nightly-backup  enter     a-long-host-name  pid 1
"two words"     enter     db1               pid 1
`, "\n"+shownEvents(t, events.Event{Kind: events.Enter, Lock: "x", HostName: "db1", PID: 1},
		events.Event{Kind: events.Enter, Lock: "nightly-backup", HostName: "a-long-host-name", PID: 1},
		events.Event{Kind: events.Enter, Lock: "two words", HostName: "db1", PID: 1}))
}

// TestEventsNeverReachTheTerminal: neither a file nor what serves the socket is trusted with it.
func TestEventsNeverReachTheTerminal(t *testing.T) {
	t.Parallel()
	evil := "\x1b]0;x\a\u202e\n"
	out := shownEvents(t, events.Event{Kind: events.Kind(evil), Lock: evil, HostName: evil, Command: evil, Reason: evil, ByHost: 1, ByHostName: evil,
		Ahead: []events.Peer{{Host: 2, HostName: evil, Phase: evil, Command: evil}, {Command: evil, Phase: evil}}})
	require.Equal(t, 1, strings.Count(out, "\n"))
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "\u202e")
	require.Equal(t, 11, strings.Count(out, `\x1b]0;x`))
}

// eventServer answers like bakeryd, and notes what was asked for.
type eventServer struct {
	socket string
	asked  chan string
}

func serveEvents(t *testing.T, status int, body string) *eventServer {
	t.Helper()
	s := &eventServer{socket: filepath.Join(t.TempDir(), "s"), asked: make(chan string, 10)}
	ln, err := net.Listen("unix", s.socket)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked <- r.Method + " " + r.URL.String()
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(ln)
		close(done)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return s
}

// ctl runs bakeryctl and returns its exit code and what it printed.
func ctl(t *testing.T, socket string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"--socket", socket}, args...), &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

const twoEvents = `{"seq":"1","at":"2026-03-01T03:12:07Z","uptime_ms":1,"kind":"enter","lock":"x","host":1,"host_name":"db1","token":"524288256"}
{"seq":"2","at":"2026-03-01T03:12:08Z","uptime_ms":2,"kind":"something new","lock":"x","host":1,"host_name":"db1","colour":"blue"}
`

func TestEventsCommand(t *testing.T) {
	t.Parallel()
	s := serveEvents(t, 200, twoEvents)
	code, out, errs := ctl(t, s.socket, "events")
	require.Equal(t, []any{0, ""}, []any{code, errs})
	require.Equal(t, 2, strings.Count(out, "\n"))
	require.Contains(t, out, "x         enter     db1   token 524288256\n")
	require.Contains(t, out, "something new", "by a bakeryd that knows more")
	require.Equal(t, "GET /v1/events?", <-s.asked)

	code, out, errs = ctl(t, s.socket, "events", "--json", "--limit", "5", "x y")
	require.Equal(t, []any{0, "", twoEvents}, []any{code, errs, out}, "as it is")
	require.Equal(t, "GET /v1/events?limit=5&name=x+y", <-s.asked)

	code, _, errs = ctl(t, s.socket, "events", "-f")
	require.Equal(t, exitUnavailable, code)
	require.Equal(t, "bakeryctl: bakeryd at "+s.socket+" has ended\nhint: when it is started again, bakeryctl events --since shows what was missed\n", errs)
	require.Equal(t, "GET /v1/events?follow=1&limit=10", <-s.asked)

	before := time.Now().Add(-2 * time.Hour)
	_, _, _ = ctl(t, s.socket, "events", "--since", "2h", "--until", "2999-01-01T00:00:00Z")
	asked := <-s.asked
	require.Contains(t, asked, "&until=2999-01-01T00%3A00%3A00Z")
	require.Contains(t, asked, "?from="+before.Format("2006-01-02T15"))
	_, _, _ = ctl(t, s.socket, "events", "-f", "--since", "2h")
	require.NotContains(t, <-s.asked, "limit")
}

func TestEventsCommandErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		error string
	}{
		{[]string{"a", "b"}, "accepts at most 1 arg(s), received 2"},
		{[]string{"a\nb"}, "lock name"},
		{[]string{"--since", "soon"}, `--since "soon" is no time: want 03:12, 2h, 2006-01-02`},
		{[]string{"--until", "soon"}, `--until "soon" is no time`},
		{[]string{"--since", "1h", "--until", "2h"}, "is not after --since"},
		{[]string{"--limit", "0"}, "--limit 0, want 1 or more"},
		{[]string{"-f", "--until", "2h"}, "--follow has no end"},
		{[]string{"-f", "--file", "x"}, "--follow asks bakeryd"},
		{[]string{"--colour"}, "unknown flag: --colour"},
	} {
		code, out, errs := ctl(t, "/nonexistent", append([]string{"events"}, c.args...)...)
		require.Equal(t, []any{exitUsage, ""}, []any{code, out}, "%q", c.args)
		require.Contains(t, errs, "bakeryctl: ")
		require.Contains(t, errs, c.error)
	}
	code, out, errs := ctl(t, "/nonexistent", "events")
	require.Equal(t, []any{exitUnavailable, ""}, []any{code, out})
	require.Contains(t, errs, "hint: is bakeryd running?")
	s := serveEvents(t, 400, `{"error": {"code": "invalid", "message": "since=\"x\"", "hint": ""}}`)
	code, _, errs = ctl(t, s.socket, "events")
	require.Equal(t, []any{exitUsage, "bakeryctl: since=\"x\"\n"}, []any{code, errs})
	for _, body := range []string{twoEvents + `{"seq":`, "<html>\n"} {
		s = serveEvents(t, 200, body)
		code, _, errs = ctl(t, s.socket, "events")
		require.Equal(t, exitUnavailable, code)
		require.Contains(t, errs, "read its events: ")
	}
}

// TestEventsOfFiles: what several hosts kept, in one order.
func TestEventsOfFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var paths []string
	logs := make([]*events.Log, 2)
	for i := range logs {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("db%d.events", i+1)))
		logs[i] = events.New(clock.Boottime, slog.New(slog.NewTextHandler(io.Discard, nil)))
		logs[i].Keep(paths[i], events.Self{Host: i + 1, Name: fmt.Sprintf("db%d", i+1)})
	}
	for i, lock := range []string{"a", "b", "c", "d"} {
		logs[i%2].Add(events.Event{Kind: events.Enter, Lock: lock})
		time.Sleep(time.Microsecond) // their times differ
	}
	for _, l := range logs {
		l.Close()
	}
	names := func(args ...string) (locks []string) {
		t.Helper()
		code, out, errs := ctl(t, "/nonexistent", append([]string{"events", "--json", "--file", paths[0], "--file", paths[1]}, args...)...)
		require.Equal(t, []any{0, ""}, []any{code, errs})
		for line := range strings.Lines(out) {
			var e events.Event
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			locks = append(locks, e.Lock)
		}
		return locks
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, names())
	require.Equal(t, []string{"c", "d"}, names("--limit", "2"))
	require.Equal(t, []string{"b"}, names("b"))
	require.Empty(t, names("--until", "1h"))
	code, out, _ := ctl(t, "/nonexistent", "events", "--file", paths[0])
	require.Zero(t, code)
	require.Regexp(t, `  a         enter     db1\n.*  c         enter     db1\n$`, out)
	require.NoError(t, os.Remove(paths[1]))
	code, out, errs := ctl(t, "/nonexistent", "events", "--file", paths[1])
	require.Equal(t, []any{exitNoDevice, ""}, []any{code, out})
	require.Equal(t, "bakeryctl: read the journal "+paths[1]+": no such file or directory\nhint: bakeryd keeps them in its --state-dir, as LOCKSPACE-ID.events\n", errs)
}
