package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/clock"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/test/calltest"
)

// ctl runs bakeryctl and returns its exit code and output.
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
	s := calltest.Serve(t, 200, twoEvents)
	code, out, errs := ctl(t, s.Socket, "events")
	require.Equal(t, []any{0, ""}, []any{code, errs})
	require.Equal(t, 2, strings.Count(out, "\n"))
	require.Contains(t, out, "x         enter      db1   token 524288256\n")
	require.Contains(t, out, "something new", "from a newer bakeryd")
	require.Equal(t, "GET /v1/events?", <-s.Asked)

	code, out, errs = ctl(t, s.Socket, "events", "--json", "--limit", "5", "x y")
	require.Equal(t, []any{0, "", twoEvents}, []any{code, errs, out}, "unchanged")
	require.Equal(t, "GET /v1/events?limit=5&name=x+y", <-s.Asked)

	code, _, errs = ctl(t, s.Socket, "events", "-f")
	require.Equal(t, cli.ExitUnavailable, code)
	require.Equal(t, "bakeryctl: follow the events of bakeryd at "+s.Socket+": bakeryd has ended\nhint: after a restart, run bakeryctl events --since to see the missed events\n", errs)
	require.Equal(t, "GET /v1/events?follow=1&limit=10", <-s.Asked)

	before := time.Now().Add(-2 * time.Hour)
	_, _, _ = ctl(t, s.Socket, "events", "--since", "2h", "--until", "2999-01-01T00:00:00Z")
	asked := <-s.Asked
	require.Contains(t, asked, "&until=2999-01-01T00%3A00%3A00Z")
	require.Contains(t, asked, "?from="+before.Format("2006-01-02T15"))
	_, _, _ = ctl(t, s.Socket, "events", "-f", "--since", "2h")
	require.NotContains(t, <-s.Asked, "limit")
}

func TestEventsCommandErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		error string
	}{
		{[]string{"a", "b"}, "events takes one lock NAME at most, not 2\nhint: usage: bakeryctl events [NAME] [flags]"},
		{[]string{"a\nb"}, "lock name"},
		{[]string{"--since", "soon"}, `--since "soon": want 03:12, 2h, 2006-01-02`},
		{[]string{"--until", "soon"}, `--until "soon": want`},
		{[]string{"--since", "1h", "--until", "2h"}, "is not after --since"},
		{[]string{"--limit", "0"}, `--limit "0": want a whole number from 1`},
		{[]string{"-f", "--until", "2h"}, "--follow and --until exclude each other"},
		{[]string{"-f", "--file", "x"}, "--follow and --file exclude each other"},
		{[]string{"--colour"}, "unknown flag --colour\nhint: did you mean --color? bakeryctl events --help lists the flags"},
	} {
		code, out, errs := ctl(t, "/nonexistent", append([]string{"events"}, c.args...)...)
		require.Equal(t, []any{cli.ExitUsage, ""}, []any{code, out}, "%q", c.args)
		require.Contains(t, errs, "bakeryctl: ")
		require.Contains(t, errs, c.error)
	}
	code, out, errs := ctl(t, "/nonexistent", "events")
	require.Equal(t, []any{cli.ExitUnavailable, ""}, []any{code, out})
	require.Contains(t, errs, "hint: is bakeryd running?")
	s := calltest.Serve(t, 400, `{"error": {"code": "invalid", "message": "since=\"x\"", "hint": ""}}`)
	code, _, errs = ctl(t, s.Socket, "events")
	require.Equal(t, []any{cli.ExitUsage, "bakeryctl: since=\"x\"\n"}, []any{code, errs})
	for _, body := range []string{twoEvents + `{"seq":`, "<html>\n"} {
		s = calltest.Serve(t, 200, body)
		code, _, errs = ctl(t, s.Socket, "events")
		require.Equal(t, cli.ExitUnavailable, code)
		require.Contains(t, errs, "read its events: ")
	}
}

// TestEventsOfFiles_HostsWithOneName_AreToldApart: from the first line on.
func TestEventsOfFiles_HostsWithOneName_AreToldApart(t *testing.T) {
	t.Parallel()
	one := written(t, "1.events", `{"seq":"1","at":"2026-03-01T03:12:07Z","uptime_ms":1,"kind":"left","host":1,"host_name":"db"}`+"\n")
	two := written(t, "2.events", `{"seq":"1","at":"2026-03-01T03:12:08Z","uptime_ms":1,"kind":"left","host":2,"host_name":"db"}`+"\n")
	code, out, errs := ctl(t, "/nonexistent", "events", "--file", one, "--file", two)
	require.Equal(t, []any{0, ""}, []any{code, errs})
	require.Regexp(t, `  left       host 1 \(db\)\n.*  left       host 2 \(db\)\n$`, out)
}

// The events of several hosts are merged by time.
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
		time.Sleep(time.Microsecond) // so that their times differ
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
	require.Regexp(t, `  a         enter      db1\n.*  c         enter      db1\n$`, out)
	require.NoError(t, os.Remove(paths[1]))
	code, out, errs := ctl(t, "/nonexistent", "events", "--file", paths[1])
	require.Equal(t, []any{cli.ExitNoDevice, ""}, []any{code, out})
	require.Equal(t, "bakeryctl: read the journal "+paths[1]+": no such file or directory\nhint: give files of bakeryd's --state-dir: UUID-N.events\n", errs)
}
