package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// noon is when all that top is told in tests happens.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)

// aReport is of three hosts, of which one is silent, and of some locks.
func aReport() *report.Report {
	holder := func(host int, ago time.Duration, command string) report.Holder {
		return report.Holder{Host: host, HostName: fmt.Sprint("db", host), PID: 7000 + host, Command: command, Since: noon.Add(-ago),
			Mode: layout.Exclusive, Token: layout.MakeTicket(uint64(1000+host), host), Phase: layout.Held, Settled: true}
	}
	return &report.Report{
		Lockspace: report.Lockspace{Name: "prod", Device: "/dev/mapper/locks", Hosts: 16, Locks: 256, LeaseMS: 30_000, Warnings: []string{}},
		ThisHost:  &report.ThisHost{ID: 1, Name: "db1", State: "live", LeaseLeftMS: 27_000},
		Hosts: []report.Host{
			{ID: 1, Name: "db1", Health: report.HealthLive, Incarnation: 0x11, Sequence: 99, SilentMS: new(int64(3000))},
			{ID: 2, Name: "db2", Health: report.HealthLive, Incarnation: 0x12, Sequence: 42, SilentMS: new(int64(2500)), WatchdogArmed: true, WatchdogSeconds: 10},
			{ID: 3, Name: "db3", Health: report.HealthSilent, Incarnation: 0x13, Sequence: 7, SilentMS: new(int64(21_000)), DeadInMS: new(int64(15_000))},
		},
		Locks: []report.Lock{
			{Name: "catalogue", Lock: 1, Permits: 1, Creation: 1},
			{Name: "deploy", Lock: 2, Permits: 1, Creation: 2, Holders: []report.Holder{holder(3, 7*time.Minute, "./deploy.sh web")},
				Queue: []report.Queued{{Place: 1, Host: 2, HostName: "db2", Phase: layout.Waiting, Ticket: layout.MakeTicket(1010, 2)}},
				Stuck: "held by host 3 (db3), not seen for 21 s, released in 15 s"},
			{Name: "nightly-backup", Lock: 3, Permits: 1, Creation: 3, Holders: []report.Holder{holder(1, 95*time.Minute, "/usr/local/bin/backup --all")},
				Queue: []report.Queued{{Place: 1, Host: 2, HostName: "db2", Phase: layout.Waiting, Ticket: layout.MakeTicket(1011, 2)}},
				Local: []report.Local{{PID: 812, Command: "restore db7", Place: 1, Since: noon.Add(-9 * time.Second)}}},
			{Name: "reboot", Lock: 4, Permits: 2, Creation: 4, Holders: []report.Holder{holder(2, 4*time.Second, "reboot-and-wait")}},
		},
		Damaged: []report.Damage{},
	}
}

func anAnswer(r *report.Report) *topAnswer {
	return &topAnswer{at: noon, report: r, read: daemon.GlanceRead{AgoMS: 400, TookMS: 3},
		speeds: []topSpeed{{what: "read", p50: 210 * time.Microsecond, p99: 1200 * time.Microsecond}, {what: "write", p50: 1900 * time.Microsecond, p99: 14 * time.Millisecond, errors: 1}}}
}

// aModel has been told all of that.
func aModel(width, height int) topModel {
	m := topModel{source: "/run/bakery/bakeryd.sock", width: width, height: height, now: noon}
	m = m.told(anAnswer(aReport()), nil, noon)
	for i, e := range []events.Event{
		{Kind: events.Joined, Host: 1, HostName: "db1"},
		{Kind: events.Enter, Lock: "nightly-backup", Host: 1, HostName: "db1", PID: 7001, Command: "/usr/local/bin/backup --all", Token: 5},
		{Kind: events.Timeout, Lock: "catalogue", Host: 1, HostName: "db1", PID: 900, WaitedMS: 3000, Ahead: []events.Peer{{Host: 3, HostName: "db3", Phase: "held"}}},
		{Kind: events.AtRisk, Host: 3, HostName: "db3", ByHost: 1, ByHostName: "db1", Reason: "silent for 5s"},
	} {
		e.Seq, e.At = uint64(i+1), noon.Add(time.Duration(i-4)*time.Second)
		m = m.happened(e)
	}
	return m
}

// press gives a model keys by their names; "/web" would be a slash and three letters.
func press(m topModel, keys ...string) topModel {
	for _, k := range keys {
		text := k
		if len(k) > 1 && !strings.ContainsAny(k, "é日") {
			text = ""
		}
		m, _ = m.key(k, text)
	}
	return m
}
