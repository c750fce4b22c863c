package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/test/showtest"
)

func TestShow_ManyStuckLocks_ListsThemAll(t *testing.T) {
	r := showtest.Report()
	text := func() string {
		r.Judge()
		var out bytes.Buffer
		require.NoError(t, render.WriteTable(&out, func(w io.Writer) { Show(w, r, showtest.Noon, false) }))
		return out.String()
	}
	require.NotContains(t, text(), "STUCK", "the problems name the only one")
	for i := range 20 {
		r.Locks = append(r.Locks, report.Lock{Name: fmt.Sprintf("stuck-%02d", i), Lock: 10 + i, Permits: 1, Holders: slices.Clone(r.Locks[1].Holders)})
	}
	out := text()
	require.Contains(t, out, "\n  error: 16 more stuck: lock stuck-04, ")
	for i := range 20 {
		require.Regexp(t, fmt.Sprintf(`(?m)^stuck-%02d +held by host 3`, i), out)
	}
}

// TestShow_LostLease_ShowsNoHold: neither the host nor its locks look as if all were well.
func TestShow_LostLease_ShowsNoHold(t *testing.T) {
	r := showtest.Report()
	r.ThisHost.State, r.ThisHost.Incarnation, r.ThisHost.LeaseLeftMS = "lost", r.Hosts[0].Incarnation, -12_300
	r.Judge()
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { Show(w, r, showtest.Noon, false) }))
	require.Regexp(t, `(?m)^1 +db1 +lost +its lease has been over for 12 s `, out.String())
	require.Regexp(t, `(?m)^nightly-backup +lost +1 db1 `, out.String())
	require.Regexp(t, `(?m)^reboot x2 +held +2 db2 `, out.String())
}

// TestShow_Lingering_IsNotFree: as text and as JSON, in which a lock that is free has no such field.
func TestShow_Lingering_IsNotFree(t *testing.T) {
	r := &report.Report{Locks: []report.Lock{{Name: "kept", Lock: 1, Permits: 1, Lingering: true}, {Name: "unused", Lock: 2, Permits: 1}}}
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { showLocks(w, r.Locks, showtest.Noon, false) }))
	require.Regexp(t, `(?m)^kept +lingering *$`, out.String())
	require.Regexp(t, `(?m)^unused +free *$`, out.String())
	text, err := json.Marshal(r.Locks)
	require.NoError(t, err)
	require.Regexp(t, `"name":"kept"[^{}]*"lingering":true`, string(text))
	require.NotRegexp(t, `"name":"unused"[^{}]*"lingering"`, string(text))
}

func TestShow_HostileProblem_KeepsItsLine(t *testing.T) {
	r := showtest.Report()
	r.Problems = []report.Problem{{Severity: report.SeverityError, Text: "a\x1b[2J", Why: "b\nc", Remedy: "d\te"}}
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { Show(w, r, showtest.Noon, false) }))
	require.Contains(t, out.String(), "\n  error: \"a\\x1b[2J: b\\nc\"\n    \"d\\te\"\n")
}
