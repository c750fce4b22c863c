package top

import (
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/test/showtest"
)

// noon is the time of the test data.
var noon = showtest.Noon

func anAnswer(r *report.Report) *report.Glance {
	if r.ThisHost != nil {
		r.ThisHost.IO = &report.IO{Read: report.Latency{Count: 1, P50US: 210, P99US: 1200}, Write: report.Latency{Count: 1, P50US: 1900, P99US: 14_000, Errors: 1}}
	}
	r.Judge()
	return &report.Glance{At: noon, Report: r, Read: report.GlanceRead{AgoMS: 400, TookMS: 3}}
}

// aModel returns a model with that answer and some events.
func aModel(width, height int) model {
	m := model{source: "/run/bakery/bakeryd.sock", width: width, height: height, now: noon}
	m = m.update(anAnswer(showtest.Report()), nil, noon)
	for i, e := range []events.Event{
		{Kind: events.Joined, Host: 1, HostName: "db1"},
		{Kind: events.Enter, Lock: "nightly-backup", Host: 1, HostName: "db1", PID: 7001, Command: "/usr/local/bin/backup --all", Token: 5},
		{Kind: events.Timeout, Lock: "catalogue", Host: 1, HostName: "db1", PID: 900, WaitedMS: 3000, Ahead: []events.Peer{{Host: 3, HostName: "db3", Phase: "held"}}},
		{Kind: events.AtRisk, Host: 3, HostName: "db3", ByHost: 1, ByHostName: "db1", Reason: "silent for 5s"},
	} {
		e.Seq, e.At = uint64(i+1), noon.Add(time.Duration(i-4)*time.Second)
		m = m.addEvent(e)
	}
	return m
}

// withDisks returns aModel with three member disks, of which one was lost.
func withDisks(width, height int) model {
	r := showtest.Report()
	r.Disks, r.Lockspace.Device = showtest.Disks(), "/dev/mapper/vote-a, /dev/mapper/vote-b, /dev/mapper/vote-c"
	m := aModel(width, height).update(anAnswer(r), nil, noon)
	return m.addEvent(events.Event{Seq: 9, At: noon, Kind: events.DiskLost, Host: 1, HostName: "db1",
		Reason: "disk 3 (/dev/mapper/vote-c), 2 of 3 up: input/output error"})
}

// withPaths returns aModel on the devices at paths.
func withPaths(width, height int, paths ...string) model {
	r := showtest.Report()
	r.Lockspace.Device = strings.Join(paths, ", ")
	if len(paths) > 1 {
		r.Disks = showtest.Disks()
		for i := range r.Disks {
			r.Disks[i].Device = paths[i]
		}
	}
	return aModel(width, height).update(anAnswer(r), nil, noon)
}

// press sends keys to a model by their names; a name of several ASCII letters is a special key.
func press(m model, keys ...string) model {
	for _, k := range keys {
		text := k
		if len(k) > 1 && !strings.ContainsAny(k, "é日") {
			text = ""
		}
		m, _ = m.key(k, text)
	}
	return m
}
