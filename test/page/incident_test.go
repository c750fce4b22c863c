package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/test/browser"
)

// pictures stores pictures in both schemes and all widths, and fails if a part overflows.
func pictures(b *browser.Tab, name string) {
	b.T.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1900, 1280, 420} {
			b.Media(scheme, width, 900)
			b.Shot(fmt.Sprintf("%s-%s-%d", name, scheme, width))
			fits(b, width)
		}
	}
}

// The remedies as bakeryd words them.
const (
	remedySilent = "nothing to do: its locks are released then; if the host runs, start bakeryd on it (systemctl start bakeryd); only if it is certainly powered off: bakeryctl evict 2 frees them immediately"
	remedyDead   = "if the host runs, start bakeryd on it (systemctl start bakeryd), and it joins again; it was not fenced: if it only hung, check that its commands have ended; " +
		"only if it is gone for good: bakeryctl evict 4 --forget frees its id"
	remedyDisk = "a host that loses one more disk loses its lease; check the device: dmesg, multipath -ll, iostat -x 1"
	longHost   = "storage-controller-17.eu-central-1b.prod.example.com"
	longLock   = "backup/postgresql/cluster-eu-central-1b/nightly-full-base-backup-with-verification"
)

// badNight is an incident: a host is silent, another is dead, a third has their name, and one of three
// disks hangs.
func badNight(o object) {
	disks(o)
	d := in(o, "report")["disks"].([]object)[2]
	d["state"], d["error"], d["device"] = "hangs", "a request has not returned for 41 s", "/dev/disk/by-path/pci-0000:00:1f.2-ata-1.0-lun-17-of-a-long-name-part1"
	latencies(1)(o)
	since, end := object{"words": "no renewal for", "ms": 21_200, "left": false}, object{"words": "dead in", "ms": 14_100, "left": true, "over": "being declared dead"}
	set("report.hosts.1", object{"name": longHost, "health": "silent", "silent_ms": 21_200, "dead_in_ms": 14_100, "silence": "no renewal for 21 s, dead in 15 s",
		"times": []object{end, since}, "watchdog_armed": true, "watchdog_ms": 10_000})(o)
	set("report.hosts.3", object{"name": longHost, "health": "dead", "dead": true, "silent_ms": 700_000})(o)
	set("report.hosts.4", object{"health": "joining", "unreadable": true})(o)
	in(o, "report.hosts.0")["verdicts"] = []object{{"host": 4, "incarnation": "4", "kind": "dead"}}
	set("report.locks.0", object{"name": longLock, "stuck": "held by host 2 (" + longHost + "), silent, dead in 15 s", "times": []object{end}})(o)
	set("report.locks.0.holders.0", object{"host_name": longHost, "command": "/usr/local/sbin/pg-base-backup --verify --target=/srv/backup/postgresql/eu-central-1b/nightly"})(o)
	in(o, "report.locks.0")["local"] = []object{{"pid": 8812, "command": "/usr/local/sbin/pg-base-backup --incremental", "mode": "exclusive", "since": time.Now().Add(-time.Minute).UTC(), "place": 1}}
	set("report.locks.1.holders.0", object{"orphan": true, "pid": 0})(o)
	problem("error", "silent", "host 2 ("+longHost+") is silent", "no renewal for 21 s, dead in 15 s", remedySilent)(o)
	problem("error", "stuck", "lock "+longLock+" is stuck", "held by host 2 ("+longHost+"), silent, dead in 15 s", "")(o)
	problem("warning", "disk", "member disk 3 ("+d["device"].(string)+") hangs", "a request has not returned for 41 s", remedyDisk)(o)
	problem("warning", "dead", "host 4 ("+longHost+") is dead", "its locks are free", remedyDead)(o)
	for _, p := range in(o, "report")["problems"].([]object)[:2] {
		p["times"] = []object{end, since}
	}
	problem("warning", "name", "2 hosts have the name "+longHost, "host ids 2, 4", "set --name or BAKERYD_NAME on all but one of them, and restart their bakeryd")(o)
}

// nightEvents are events of two hosts of one name.
func nightEvents() (all []object) {
	for i, e := range []object{
		{"kind": "joined", "host": 5, "host_name": "db5", "by_host": 1, "by_host_name": "db1"},
		{"kind": "enter", "lock": longLock, "host": 2, "host_name": longHost, "pid": 4001, "command": "/usr/local/sbin/pg-base-backup --verify", "waited_ms": 41_000},
		{"kind": "gap", "host": 1, "host_name": "db1", "missed": 1},
		{"kind": "dead", "host": 4, "host_name": longHost, "by_host": 1, "by_host_name": "db1"},
		{"kind": "timeout", "lock": "lock-00003", "host": 1, "host_name": "db1", "pid": 77, "waited_ms": 60_000, "ahead": []object{{"host": 2, "host_name": longHost, "phase": "held"}}},
		{"kind": "at_risk", "host": 2, "host_name": longHost, "by_host": 1, "by_host_name": "db1", "reason": "silent for 6.5s"},
	} {
		e["seq"], e["at"] = fmt.Sprint(i+1), time.Now().Add(time.Duration(i-6)*time.Minute).UTC()
		all = append(all, e)
	}
	return all
}

// incidents: what the page shows while much is wrong.
func incidents(t *testing.T, real string) {
	t.Run("night", func(t *testing.T) {
		s := newStage(t, real, answer(5, 9, 3, 1, badNight))
		s.events = nightEvents()
		b := browser.Visit(t, s.url, ready)
		says(b, "#todo", "Nothing to do: its locks are released then; if the host runs, start bakeryd on it")
		says(b, "#eventlist", longHost+" (2)")
		says(b, "#eventlist", "behind "+longHost+" (2)")
		says(b, "#eventlist", longHost+" (4) by db1 (1)")
		says(b, "#eventlist", "1 event missing")
		says(b, "#hostlist", "no renewal for 11 min, its locks are free")
		pictures(b, "night")
		b.Quiet()
	})
	t.Run("lost", func(t *testing.T) {
		unread := func(o object) {
			o["error"] = object{"code": "device", "message": "IO hangs"}
			o["read"].(object)["ago_ms"] = 44_000
			problem("error", "device", "the disk cannot be read", "reading the lockspace takes longer than 3s: IO to /dev/mapper/vote-b, /dev/mapper/vote-c hangs",
				"the locks shown are of 44 s ago; check the device: dmesg, multipath -ll, iostat -x 1")(o)
			problem("error", "lease", "this host has lost its lease and its locks", "", "it joins again when its commands have ended and the device answers; for the reason, see journalctl -u bakeryd")(o)
			set("report.this_host", object{"state": "lost", "lease_left_ms": -12_300})(o)
			over, seen := object{"words": "its lease has been over for", "ms": 12_300}, object{"words": "no renewal seen for", "ms": 43_100}
			set("report.hosts.0", object{"health": "lost", "silence": "its lease has been over for 12 s", "times": []object{over}})(o)
			for _, i := range []int{1, 2} {
				set(fmt.Sprint("report.hosts.", i), object{"health": "unknown", "silent_ms": 43_100, "silence": "no renewal seen for 43 s", "times": []object{seen}})(o)
			}
			for i, health := range []string{"unknown", "unknown", "lost"} {
				set(fmt.Sprintf("report.locks.%d.holders.0", i), object{"host_health": health})(o)
			}
			disks(o)
			for _, d := range in(o, "report")["disks"].([]object)[1:] {
				d["state"], d["error"] = "hangs", "a request has not returned for 44 s"
			}
		}
		s := newStage(t, real, answer(3, 5, 3, 1, unread))
		b := browser.Visit(t, s.url, ready)
		says(b, "#headline", "The disk cannot be read: ")
		says(b, "#todo", "The locks shown are of 44 s ago")
		says(b, "#link", "the disk does not answer · disk read 44 s ago")
		require.Equal(t, []string{"lost", "unknown", "unknown"}, browser.Eval[[]string](b, `[...document.querySelectorAll('#hostlist .chip')].map((c) => c.textContent)`))
		require.Equal(t, []string{"bad", "warn", "warn"}, browser.Eval[[]string](b, `[...document.querySelectorAll('#hostlist .chip')].map((c) => c.dataset.level)`))
		says(b, "#hostlist > li:nth-child(1)", "its lease has been over for 1")
		says(b, "#hostlist > li:nth-child(2)", "no renewal seen for 4")
		require.Equal(t, []string{"unknown", "unknown", "lost"}, browser.Eval[[]string](b, `[...document.querySelectorAll('.lockline .chip')].map((c) => c.textContent)`))
		says(b, "#locklist > li:nth-child(3) .holders .chip", "lost")
		require.Contains(t, text(b, "#self"), "over for 1")
		says(b, "#summary", "0 hosts live · 0 locks held · 1 waiting · 2 locks free when last read")
		require.Equal(t, "Free when last read", text(b, "#freehead"))
		pictures(b, "lost")

		joining := answer(3, 5, 3, 1, unread)
		joining["error"] = object{"code": "unavailable", "message": "not joined to the lockspace: it is still joining"}
		s.set(joining)
		says(b, "#link", "not joined · disk read 4")
		b.Quiet()
	})
}

// unanswered: a page without an answer claims no state that may be over.
func unanswered(t *testing.T, real string) {
	s := newStage(t, real, answer(3, 5, 2, 1, set("report.this_host", object{"lease_left_ms": 1500})))
	b := browser.Visit(t, s.url, ready)
	require.Equal(t, "live", text(b, "#hostlist > li:first-child .chip"))
	s.set(object{"read": object{}, "error": object{"code": "unavailable", "message": "not joined to the lockspace: it is still joining", "hint": "the log says more"}})
	b.Until(`[...document.querySelectorAll('#hostlist .chip')].every((c) => c.textContent === 'unknown')`)
	says(b, "#hostlist", "live when last seen")
	says(b, "#freehead", "Free when last read")
	require.Equal(t, []string{"unknown", "unknown"}, browser.Eval[[]string](b, `[...document.querySelectorAll('.lockline .chip')].map((c) => c.textContent)`))
	says(b, "#todo", "The state shown is of ")
	says(b, "#headline", "bakeryd runs, but has not joined the lockspace: it is still joining")
	pictures(b, "unanswered")
	b.Quiet()
}
