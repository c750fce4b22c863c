package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/daemon/timeline"
)

// twoHolders are the events of a broken lock: two holders at the same time, by one clock.
const twoHolders = `{"seq":"1","at":"2026-03-01T03:12:00Z","uptime_ms":1000,"kind":"joined","host":1,"host_name":"db1","boot_id":"b"}
{"seq":"2","at":"2026-03-01T03:12:01Z","uptime_ms":2000,"kind":"enter","lock":"x","host":1,"host_name":"db1","token":"524544"}
{"seq":"3","at":"2026-03-01T03:12:03Z","uptime_ms":4000,"kind":"exit","lock":"x","host":1,"host_name":"db1","token":"524544"}
{"seq":"1","at":"2026-03-01T03:12:00Z","uptime_ms":1000,"kind":"joined","host":2,"host_name":"db2","boot_id":"b"}
{"seq":"2","at":"2026-03-01T03:12:02Z","uptime_ms":3000,"kind":"enter","lock":"x","host":2,"host_name":"db2","token":"1049088"}
{"seq":"3","at":"2026-03-01T03:12:04Z","uptime_ms":5000,"kind":"exit","lock":"x","host":2,"host_name":"db2","token":"1049088"}
`

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestTimelineCommand(t *testing.T) {
	t.Parallel()
	in, out := written(t, "db1.json", twoEvents), filepath.Join(t.TempDir(), "page.html")
	for range 2 { // an existing page is replaced
		code, stdout, errs := ctl(t, "/nonexistent", "timeline", in, "-o", out)
		require.Equal(t, []any{0, "", ""}, []any{code, stdout, errs})
	}
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(page, []byte(timeline.PageMark)))
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "same mode as journals")
	left, err := os.ReadDir(filepath.Dir(out))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file remains")

	code, stdout, errs := ctl(t, "/nonexistent", "timeline", in, "-o", "-")
	require.Equal(t, []any{0, string(page), ""}, []any{code, stdout, errs}, "the same events make the same page")
	var piped, messages bytes.Buffer
	code = run(t.Context(), []string{"timeline", "-", "-o", "-"}, &app{stdin: strings.NewReader(twoEvents), stdout: &piped, stderr: &messages})
	require.Equal(t, []any{0, string(page), ""}, []any{code, piped.String(), messages.String()})
}

func TestTimeline_Violations_AreReported(t *testing.T) {
	t.Parallel()
	in := written(t, "all.json", twoHolders)
	code, stdout, errs := ctl(t, "/nonexistent", "timeline", in, "-o", "-")
	require.Equal(t, cli.ExitConflict, code)
	require.Contains(t, stdout, timeline.PageMark)
	require.Equal(t, "bakeryctl: violation: two holders: db1 (token 524544) and db2 (token 1049088) held x at the same time for 1s, at 2026-03-01 03:12:02.000 UTC\n", errs)
	other := strings.ReplaceAll(strings.SplitAfter(twoHolders, "\n")[1], `"x"`, `"z"`)
	code, _, errs = ctl(t, "/nonexistent", "timeline", in, written(t, "z.json", other), "-o", "-", "--lock", "z")
	require.Equal(t, []any{0, ""}, []any{code, errs}, "locks that are not shown are not reported")
	page := filepath.Join(t.TempDir(), "page.html")
	code, stdout, errs = ctl(t, "/nonexistent", "timeline", in, "-o", page, "--lock", "x", "--lock", "y")
	require.Equal(t, []any{cli.ExitNoDevice, ""}, []any{code, stdout})
	require.Equal(t, "bakeryctl: no events of lock \"y\" in the journals\nhint: they have events of x\n", errs)
	require.NoFileExists(t, page)
	code, _, errs = ctl(t, "/nonexistent", "timeline", in, "-o", "-", "--since", "2026-03-01T04:00:00Z")
	require.Equal(t, cli.ExitNoDevice, code)
	require.Contains(t, errs, "bakeryctl: no events in "+in)
}

func TestTimelineErrors(t *testing.T) {
	t.Parallel()
	good, bad, cut := written(t, "db1.json", twoEvents), written(t, "passwd", "root:x:0:0\n"), written(t, "cut.json", twoEvents+`{"seq":"3","at`)
	out, space := filepath.Join(t.TempDir(), "p.html"), "11111111-2222-4333-8444-55555555555"
	a, b := written(t, space+"1-1.events", twoEvents), written(t, space+"2-2.events", twoEvents)
	for _, c := range []struct {
		args  []string
		code  int
		error string
	}{
		{[]string{good}, cli.ExitUsage, "no -o PATH given"},
		{[]string{"-o", out}, cli.ExitUsage, "no EVENTS given\nhint: usage: bakeryctl timeline EVENTS... -o PAGE.html [flags]"},
		{[]string{good, "-o", good}, cli.ExitUsage, "write " + good + ": it exists and is no page of bakeryctl timeline; use --force to replace it"},
		{[]string{good, "-o", out, "--since", "soon"}, cli.ExitUsage, `--since "soon": want`},
		{[]string{good, "-o", out, "--since", "1h", "--until", "2h"}, cli.ExitUsage, "is not after --since"},
		{[]string{good, "/nonexistent", "-o", out}, cli.ExitNoDevice, "read /nonexistent: no such file or directory\nhint: give files of bakeryd's --state-dir"},
		{[]string{good, bad, "-o", out}, cli.ExitNoDevice, bad + `: no journal of events: line 1 is "root:x:0:0"`},
		{[]string{written(t, "empty", ""), "-o", out}, cli.ExitNoDevice, "no events in "},
		{[]string{t.TempDir(), "-o", out}, cli.ExitNoDevice, "is a directory"},
		{[]string{a, b, "-o", out}, cli.ExitUsage, "belong to different lockspaces"},
		{[]string{good, "-o", "/nonexistent/p.html"}, cli.ExitNoDevice, "write /nonexistent/p.html: "},
	} {
		code, stdout, errs := ctl(t, "/nonexistent", append([]string{"timeline"}, c.args...)...)
		require.Equal(t, []any{c.code, ""}, []any{code, stdout}, "%q: %s", c.args, errs)
		require.Contains(t, errs, c.error)
		require.NoFileExists(t, out)
	}
	code, _, errs := ctl(t, "/nonexistent", "timeline", cut, "-o", out)
	require.Equal(t, []any{0, "bakeryctl: " + cut + ": skipped 1 line that could not be read\n"}, []any{code, errs})
	require.FileExists(t, out)
}
