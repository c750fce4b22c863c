package show

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/render"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/showtest"
)

func TestSeen(t *testing.T) {
	host := func(health report.Health, ms ...int64) report.Host {
		h := report.Host{Health: health}
		if len(ms) > 0 {
			h.SilentMS = &ms[0]
		}
		if len(ms) > 1 {
			h.DeadInMS = &ms[1]
		}
		return h
	}
	silent := host(report.HealthSilent, 21_000, 15_000)
	silent.Silence = "no renewal for 21 s, dead in 15 s"
	lost := host(report.HealthLost, 42_000)
	lost.Silence = "its lease has been over for 12 s"
	for _, c := range []struct {
		host report.Host
		want string
	}{
		{host(report.HealthLive), "-"},
		{host(report.HealthDead), "-"},
		{host(report.HealthLive, 2199), "renewed 2.1 s ago"},
		{host(report.HealthJoining, 2199), "no change for 2 s"},
		{host(report.HealthDead, 700_900), "no renewal for 11 min"},
		{host(report.HealthLeft, 61_900), "left 61 s ago"},
		{silent, "no renewal for 21 s, dead in 15 s"},
		{lost, "its lease has been over for 12 s"},
	} {
		require.Equal(t, c.want, Seen(c.host))
	}
}

// TestComplete_ReportWithoutSilence_DescribesIt: an older bakeryd sends only the numbers.
func TestComplete_ReportWithoutSilence_DescribesIt(t *testing.T) {
	r := showtest.Report()
	r.Problems = []report.Problem{}
	Complete(r)
	require.Equal(t, "no renewal for 21 s, dead in 15 s", Seen(r.Hosts[2]))
	require.Empty(t, r.Problems, "they are as bakeryd found them")
}

func TestHostTable_HostsThatLeft_AreNamedInOneLine(t *testing.T) {
	r := showtest.Report()
	r.Hosts[1].Health = report.HealthLeft
	r.Hosts = append(r.Hosts, report.Host{ID: 4, Name: "v m", Health: report.HealthLeft})
	r.Judge()
	table := func(all bool) string {
		var out bytes.Buffer
		require.NoError(t, render.WriteTable(&out, func(w io.Writer) { HostTable(w, r, all, false) }))
		return out.String()
	}
	require.Equal(t, `ID  NAME             STATE   SEEN                               WATCHDOG
1   db1 (this host)  live    renewed 3.0 s ago                  -
3   db3              silent  no renewal for 21 s, dead in 15 s  -
left: 2 db2, 4 "v m" (bakeryctl hosts --all)
`, table(false))
	require.Regexp(t, `(?m)^4 +"v m" +left `, table(true))
	require.NotContains(t, table(true), "--all")
	r.Hosts = r.Hosts[3:]
	require.Equal(t, "left: 4 \"v m\" (bakeryctl hosts --all)\n", table(false))
}

func TestHostState(t *testing.T) {
	for want, h := range map[string]report.Host{
		"live":                   {Health: report.HealthLive},
		"live, asked to leave":   {Health: report.HealthLive, AskedToLeave: true},
		"dead, forgotten":        {Health: report.HealthDead, Dead: true, Forgotten: true},
		"silent, unreadable":     {Health: report.HealthSilent, Unreadable: true},
		"dead":                   {State: layout.StateLive, Dead: true}, // by a bakeryd that reports no health
		"joining":                {State: layout.StateJoining},          // as above
		"left":                   {State: layout.StateLeft, Health: report.HealthLeft},
		"silent, asked to leave": {Health: report.HealthSilent, AskedToLeave: true},
	} {
		r := &report.Report{Hosts: []report.Host{h}}
		Complete(r)
		require.Equal(t, want, HostState(r.Hosts[0]))
	}
}
