package show

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
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
	const lease, fence, manual = layout.PolicyLease, layout.PolicyFence, layout.PolicyManual
	for _, c := range []struct {
		host   report.Host
		policy layout.Policy
		want   string
	}{
		{host(report.HealthLive), lease, "-"},
		{host(report.HealthDead), lease, "-"},
		{host(report.HealthLive, 2199), lease, "renewed 2.1 s ago"},
		{host(report.HealthJoining, 100), lease, "no change for 0.1 s"},
		{host(report.HealthSilent, 21_000, 15_000), lease, "silent for 21 s, dead in 15 s"},
		{host(report.HealthSilent, 37_000, 0), lease, "silent for 37 s, being declared dead"},
		{host(report.HealthSilent, 21_000, 15_000), fence, "silent for 21 s, fenced in 15 s"},
		{host(report.HealthSilent, 37_000, 0), fence, "silent for 37 s, being fenced"},
		{host(report.HealthSilent, 130_000), manual, "silent for 2m10s"},
	} {
		require.Equal(t, c.want, Seen(c.host, c.policy))
	}
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
