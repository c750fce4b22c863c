package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/calltest"
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
		r.Locks = append(r.Locks, report.Lock{Name: fmt.Sprintf("stuck-%02d", i), Number: 10 + i, Permits: 1, Holders: slices.Clone(r.Locks[1].Holders)})
	}
	out := text()
	require.Contains(t, out, "\n  error: 16 more stuck locks: lock stuck-04, ")
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
	r := &report.Report{Locks: []report.Lock{{Name: "kept", Number: 1, Permits: 1, Lingering: true}, {Name: "unused", Number: 2, Permits: 1}}}
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { showLocks(w, r, showtest.Noon, false) }))
	require.Regexp(t, `(?m)^kept +lingering *$`, out.String())
	require.Regexp(t, `(?m)^unused +free *$`, out.String())
	text, err := json.Marshal(r.Locks)
	require.NoError(t, err)
	require.Regexp(t, `"name":"kept"[^{}]*"lingering":true`, string(text))
	require.NotRegexp(t, `"name":"unused"[^{}]*"lingering"`, string(text))

	// Other hosts may have got both since the lease was lost.
	r.ThisHost = &report.ThisHost{State: string(report.HealthLost)}
	out.Reset()
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { showLocks(w, r, showtest.Noon, false) }))
	require.Regexp(t, `(?m)^kept +unknown *$`, out.String())
	require.Regexp(t, `(?m)^unused +unknown *$`, out.String())
}

func TestHoldState_LostOrphan_IsAsBadAsLost(t *testing.T) {
	words, of := HoldState(report.Holder{HostHealth: report.HealthLost, Orphan: true})
	require.Equal(t, "lost, orphan", words)
	require.Equal(t, render.Bad, of)
}

func TestShow_HostileProblem_KeepsItsLine(t *testing.T) {
	r := showtest.Report()
	r.Problems = []report.Problem{{Severity: report.SeverityError, Text: "a\x1b[2J", Why: "b\nc", Remedy: "d\te"}}
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { Show(w, r, showtest.Noon, false) }))
	require.Contains(t, out.String(), "\n  error: \"a\\x1b[2J: b\\nc\"\n    \"d\\te\"\n")
}

// TestKnown_NotJoined_ReturnsWhatWasKnown: with the error, and how long ago the lease was lost.
func TestKnown_NotJoined_ReturnsWhatWasKnown(t *testing.T) {
	answer := `{"report":{"this_host":{"id":1,"state":"joining","lease_left_ms":-42300},"disks":[{"position":1},{"position":2},{"position":3}]},
		"error":{"code":"unavailable","message":"not joined to the lockspace: it is still joining","hint":"see the log"}}`
	socket := calltest.ServeBy(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answer) })
	r, _, err := Known(t.Context(), socket)
	require.EqualError(t, err, "not joined to the lockspace: it is still joining; the output is what bakeryd knew when its lease was lost, 42 s ago")
	var f *cli.Failure
	require.True(t, errors.As(err, &f))
	require.Equal(t, cli.ExitUnavailable, f.Code)
	require.Equal(t, "see the log", f.Hint)
	require.Len(t, r.Disks, 3)
	require.Equal(t, 42300*time.Millisecond, SinceLost(r))
	require.Zero(t, SinceLost(showtest.Report()))

	answer = `{"error":{"code":"unavailable","message":"not joined to the lockspace"}}`
	r, _, err = Known(t.Context(), socket)
	require.EqualError(t, err, "not joined to the lockspace")
	require.Nil(t, r)
}

// TestAskOrKnown_DiskHangs_ReturnsWhatIsInMemory: with the error, which says how old that is.
func TestAskOrKnown_DiskHangs_ReturnsWhatIsInMemory(t *testing.T) {
	for name, c := range map[string]struct {
		memory string // the answer to GET /page/status
		known  bool
		want   string
	}{
		"read before": {`{"report":{"hosts":[{"id":1}]},"read":{"ago_ms":12900,"bytes":5}}`, true, "IO to b hangs; the output is what bakeryd has in memory, with the locks of 12 s ago"},
		"never read":  {`{"report":{"hosts":[{"id":1}]},"read":{}}`, true, "IO to b hangs; the output is what bakeryd has in memory, without locks"},
		"no report":   {`{"error":{"code":"device","message":"the lockspace is still being read"}}`, false, "IO to b hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := calltest.ServeBy(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/page/status" {
					fmt.Fprint(w, c.memory)
					return
				}
				w.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(w, `{"error":{"code":"device","message":"IO to b hangs","hint":"dmesg"}}`)
			})
			r, err := AskOrKnown(t.Context(), socket)
			require.EqualError(t, err, c.want)
			var f *cli.Failure
			require.True(t, errors.As(err, &f))
			require.Equal(t, cli.ExitNoDevice, f.Code)
			require.Equal(t, "dmesg", f.Hint)
			require.Equal(t, c.known, r != nil)
			if c.known {
				require.Len(t, r.Hosts, 1)
			}
		})
	}
}

// TestShow_HostIsJoining_IsNotCountedAsJoined: it has no lease yet.
func TestShow_HostIsJoining_IsNotCountedAsJoined(t *testing.T) {
	r := showtest.Report()
	r.Hosts = []report.Host{{ID: 1, State: layout.StateLive}, {ID: 2, State: layout.StateJoining}, {ID: 3, State: layout.StateLeft}, {ID: 4, State: layout.StateLive, Dead: true}}
	var out bytes.Buffer
	require.NoError(t, render.WriteTable(&out, func(w io.Writer) { Show(w, r, showtest.Noon, false) }))
	require.Contains(t, out.String(), "\n  1 of ")
}
