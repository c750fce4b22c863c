// Package showtest provides a report for tests of code that formats reports.
package showtest

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// Noon is the time of the report.
var Noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)

// Report returns a report of three hosts, one of them silent, and of four locks.
func Report() *report.Report {
	holder := func(host int, ago time.Duration, command string) report.Holder {
		return report.Holder{Host: host, HostName: fmt.Sprint("db", host), PID: 7000 + host, Command: command, Since: Noon.Add(-ago),
			Mode: layout.Exclusive, Token: layout.MakeTicket(uint64(1000+host), host), Phase: layout.Held, Published: true}
	}
	return &report.Report{
		Lockspace: report.Lockspace{Name: "prod", Device: "/dev/mapper/locks", Hosts: 16, Locks: 256, LeaseMS: 30_000, Warnings: []string{}},
		ThisHost:  &report.ThisHost{ID: 1, Name: "db1", State: "live", LeaseLeftMS: 27_000},
		Hosts: []report.Host{
			{ID: 1, Name: "db1", Health: report.HealthLive, Incarnation: 0x11, Sequence: 99, SilentMS: new(int64(3000))},
			{ID: 2, Name: "db2", Health: report.HealthLive, Incarnation: 0x12, Sequence: 42, SilentMS: new(int64(2500)), WatchdogArmed: true, WatchdogMS: 10_000},
			{ID: 3, Name: "db3", Health: report.HealthSilent, Incarnation: 0x13, Sequence: 7, SilentMS: new(int64(21_000)), DeadInMS: new(int64(15_000))},
		},
		Locks: []report.Lock{
			{Name: "catalogue", Number: 1, Permits: 1, Creation: 1},
			{Name: "deploy", Number: 2, Permits: 1, Creation: 2, Holders: []report.Holder{holder(3, 7*time.Minute, "./deploy.sh web")},
				Queue: []report.Queued{{Place: 1, Host: 2, HostName: "db2", Phase: layout.Waiting, Ticket: layout.MakeTicket(1010, 2)}},
				Stuck: "held by host 3 (db3), silent, dead in 15 s"},
			{Name: "nightly-backup", Number: 3, Permits: 1, Creation: 3, Holders: []report.Holder{holder(1, 95*time.Minute, "/usr/local/bin/backup --all")},
				Queue: []report.Queued{{Place: 1, Host: 2, HostName: "db2", Phase: layout.Waiting, Ticket: layout.MakeTicket(1011, 2)}},
				Local: []report.Local{{PID: 812, Command: "restore db7", Place: 1, Since: Noon.Add(-9 * time.Second)}}},
			{Name: "reboot", Number: 4, Permits: 2, Creation: 4, Holders: []report.Holder{holder(2, 4*time.Second, "reboot-and-wait")}},
		},
		Damaged: []report.Damage{},
	}
}

// Disks returns three member disks, one of them down.
func Disks() []report.Disk {
	disk := func(at int, state string, ago time.Duration, failures, behind int, read, write report.Latency) report.Disk {
		return report.Disk{Position: at, Device: "/dev/mapper/vote-" + string(rune('a'+at-1)), UUID: layout.UUID{byte(at)}, State: state, Since: Noon.Add(-ago),
			Failures: failures, Behind: behind, IO: report.IO{Read: read, Write: write}}
	}
	took := func(p50, p99 int64) report.Latency {
		return report.Latency{Count: 9, P50US: p50, P99US: p99, MaxUS: p99}
	}
	disks := []report.Disk{
		disk(1, "up", 2*time.Hour, 0, 0, took(210, 1200), took(1900, 14_000)),
		disk(2, "up", 2*time.Hour, 3, 1, took(240, 1500), took(2100, 18_000)),
		disk(3, "down", 80*time.Second, 12, 7, took(1100, 9000), took(5300, 104_000)),
	}
	disks[2].Error = "open /dev/mapper/vote-c: no such file or directory"
	return disks
}
