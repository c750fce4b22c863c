package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// String returns a problem as a reader sees it.
func (p Problem) String() string {
	s := fmt.Sprintf("%s %s: %s", p.Severity, p.Kind, p.Text)
	if p.Why != "" {
		s += ": " + p.Why
	}
	if p.Remedy != "" {
		s += " -> " + p.Remedy
	}
	return s
}

// The remedies of a silent and of a dead host 2, in the order of their harm.
const (
	start       = "if the host runs, start bakeryd on it (systemctl start bakeryd)"
	evict       = "; " + start + "; only if it is certainly powered off: bakeryctl evict 2 frees them immediately"
	wait        = "nothing to do: its locks are released then" + evict
	forget      = " only if it is gone for good: bakeryctl evict 2 --forget frees its id"
	startOrGone = start + ", and it joins again; it was not fenced: if it only hung, check that its commands have ended;" + forget
	joinsAgain  = "it joins again when its commands have ended and the device answers; for the reason, see journalctl -u bakeryd"
)

func TestReport_Judge_ListsProblemsWithRemedies(t *testing.T) {
	silent := func(r *Report, silentMS, deadInMS int64) {
		h := silentHost(silentMS, deadInMS)
		h.ID, h.Name = 2, "db2"
		r.Hosts[1] = h
	}
	for _, c := range []struct {
		name   string
		change func(*Report)
		want   []string
	}{
		{"well", func(*Report) {}, nil},
		{"silent", func(r *Report) {
			silent(r, 21_000, 14_100)
			r.Locks[0].Holders = []Holder{{Host: 2, HostName: "db2"}}
		}, []string{
			"error silent: host 2 (db2) is silent: no renewal for 21 s, dead in 15 s -> " + wait,
			"error stuck: lock x is stuck: held by host 2 (db2), silent, dead in 15 s",
		}},
		{"policy manual", func(r *Report) {
			silent(r, 300_000, -1)
			r.Lockspace.Policy = layout.PolicyManual
		}, []string{"error silent: host 2 (db2) is silent: no renewal for 300 s, until it is back or evicted" +
			" -> its locks stay held: with policy manual no host is declared dead by time" + evict}},
		{"one name", func(r *Report) { r.Hosts[0].BootID, r.Hosts[1].BootID, r.Hosts[1].Name = "b1", "b2", r.Hosts[0].Name },
			[]string{"warning name: 2 hosts have the name db1: host ids 1, 2 -> set --name or BAKERYD_NAME on all but one of them, and restart their bakeryd"}},
		{"one name, but one of them has left", func(r *Report) {
			r.Hosts[0].BootID, r.Hosts[1].BootID, r.Hosts[1].Name, r.Hosts[1].Health = "b1", "b2", r.Hosts[0].Name, HealthLeft
		}, nil},
		{"one name, but one boot is not known", func(r *Report) { r.Hosts[0].BootID, r.Hosts[1].Name = "b1", r.Hosts[0].Name }, nil},
		{"one machine", func(r *Report) { r.Hosts[0].BootID, r.Hosts[1].BootID, r.Hosts[1].Name = "b1", "b1", r.Hosts[0].Name }, nil},
		{"being declared dead", func(r *Report) { silent(r, 37_000, 0) },
			[]string{"error silent: host 2 (db2) is silent: no renewal for 37 s, being declared dead -> " + wait}},
		{"being fenced", func(r *Report) {
			silent(r, 37_000, 0)
			r.Lockspace.Policy = layout.PolicyFence
		}, []string{"error silent: host 2 (db2) is silent: no renewal for 37 s, being fenced -> nothing to do: its locks are released when the fence is confirmed" + evict}},
		{"to be fenced", func(r *Report) {
			silent(r, 37_000, 2000)
			r.Lockspace.Policy = layout.PolicyFence
		}, []string{"error silent: host 2 (db2) is silent: no renewal for 37 s, fenced in 2 s -> nothing to do: its locks are released when the fence is confirmed" + evict}},
		{"fencing fails", func(r *Report) {
			silent(r, 71_000, 0)
			r.Lockspace.Policy = layout.PolicyFence
			r.Hosts[1].FailedFences, r.Hosts[1].NextFenceMS = 2, new(int64(4100))
		}, []string{"error silent: host 2 (db2) is silent: no renewal for 71 s, being fenced, 2 attempts have failed, the next one begins in 5 s" +
			" -> its locks stay held until it is fenced or back; for the reason, see \"fencing failed\" in the log of the host that tried" + evict}},
		{"silent, seen without a bakeryd", func(r *Report) {
			silent(r, 37_000, -1)
			r.ThisHost = nil
		}, []string{"error silent: host 2 (db2) is silent: no renewal for 37 s -> a running bakeryd shows when it is declared dead"}},
		{"dead", func(r *Report) { r.Hosts[1].Health = HealthDead },
			[]string{"warning dead: host 2 (db2) is dead: its locks are free -> " + startOrGone}},
		{"dead and fenced", func(r *Report) { r.Hosts[1].Health, r.Lockspace.Policy = HealthDead, layout.PolicyFence },
			[]string{"warning dead: host 2 (db2) is dead: its locks are free -> " + start + ", and it joins again;" + forget}},
		{"dead with a watchdog", func(r *Report) { r.Hosts[1].Health, r.Hosts[1].WatchdogArmed = HealthDead, true },
			[]string{"warning dead: host 2 (db2) is dead: its locks are free -> " + start + ", and it joins again;" + forget}},
		{"forgotten", func(r *Report) { r.Hosts[1].Health, r.Hosts[1].Forgotten = HealthDead, true }, nil},
		{"left", func(r *Report) { r.Hosts[1].Health = HealthLeft }, nil},
		{"joining", func(r *Report) { r.Hosts[1].Health, r.Hosts[1].SilentMS = HealthJoining, new(int64(60_000)) }, nil},
		{"joining, and killed", func(r *Report) { r.Hosts[1].Health, r.Hosts[1].SilentMS = HealthJoining, new(int64(61_000)) },
			[]string{"warning joining_host: host 2 (db2) began to join and is not live: its record has not changed for 61 s" +
				" -> it holds nothing and blocks no lock; start bakeryd on its machine with --host-id 2, which takes the id; use another id for another machine"}},
		{"asked to leave", func(r *Report) { r.Hosts[1].AskedToLeave = true },
			[]string{"warning asked_to_leave: host 2 (db2) was asked to leave, and still renews -> it stops its holders and leaves; until then its locks stay held"}},
		{"lease late", func(r *Report) { r.ThisHost.LeaseLeftMS = 17_000 },
			[]string{"warning lease: the lease of this host ends in 17 s: no renewal for 13 s -> commands under its locks are asked to stop in 12 s; " + checkDevice}},
		{"lease ends", func(r *Report) { r.ThisHost.LeaseLeftMS = 4_000 },
			[]string{"error lease: the lease of this host ends in 4 s: no renewal for 26 s -> commands under its locks are being stopped; " + checkDevice}},
		{"lease over", func(r *Report) { r.ThisHost.LeaseLeftMS = -1 },
			[]string{"error lease: this host has lost its lease and its locks -> " + joinsAgain}},
		{"lease lost", func(r *Report) { r.ThisHost.State = "lost" },
			[]string{"error lease: this host has lost its lease and its locks -> " + joinsAgain}},
		{"leaving", func(r *Report) { r.ThisHost.State = "leaving" }, []string{"warning leaving: this host is leaving the lockspace"}},
		{"a request takes long", func(r *Report) { r.ThisHost.IO.OldestMS = 2_000 },
			[]string{"warning request: a request to the device has not returned for 2 s: the device hangs or is overloaded -> " + checkDevice}},
		{"a request hangs", func(r *Report) { r.ThisHost.IO.OldestMS = 7_000 },
			[]string{"error request: a request to the device has not returned for 7 s: the device hangs or is overloaded -> " + checkDevice}},
		{"damage", func(r *Report) {
			r.Damaged = []Damage{{What: "slot of host 2 in lock 1", Kind: lockspace.KindSlot, Lock: 1, Host: 2, Error: "checksum differs"},
				{What: "record of host 2", Kind: lockspace.KindHost, Host: 2, Error: "checksum differs"}}
		}, []string{"error damaged: damaged: slot of host 2 in lock 1: checksum differs -> run bakeryctl check /dev/locks",
			"error damaged: damaged: record of host 2: checksum differs -> its next renewal repairs it; if the host is down: bakeryctl check --repair /dev/locks"}},
		{"damage on several disks", func(r *Report) {
			r.Disks = []Disk{{Position: 1, Device: "/dev/a", State: "up"}, {Position: 2, State: "down", Remedy: "give its path"}, {Position: 3, Device: "/dev/c", State: "up"}}
			r.Damaged = []Damage{{What: "directory entry of lock 3", Kind: lockspace.KindEntry, Error: "bad"}}
		}, []string{"error damaged: damaged: directory entry of lock 3: bad -> run bakeryctl check /dev/a /dev/c",
			"warning disk: member disk 2 is down -> a host that loses one more disk loses its lease; give its path"}},
		{"warning", func(r *Report) { r.Lockspace.Warnings = []string{"the superblock is damaged, its copy is in use"} },
			[]string{"warning lockspace: the superblock is damaged, its copy is in use"}},
		{"orphan", func(r *Report) {
			r.Locks[0].Holders = []Holder{{Host: 1, HostName: "db1", Orphan: true, Processes: []int{77, 78}, Command: "work"}}
		}, []string{"note orphan: lock x is kept by the command of a client that has ended: process 77 (work) and 1 more live -> it is released when its processes have ended"}},
		{"the worst first", func(r *Report) {
			r.Hosts[1].Health = HealthDead
			r.Damaged = []Damage{{What: "directory entry of lock 3", Kind: lockspace.KindEntry, Error: "bad"}}
		}, []string{"error damaged: damaged: directory entry of lock 3: bad -> run bakeryctl check /dev/locks",
			"warning dead: host 2 (db2) is dead: its locks are free -> " + startOrGone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := stuckReport(Host{}, Lock{Name: "x", Number: 1, Queue: []Queued{}})
			r.Lockspace.Device = "/dev/locks"
			r.ThisHost = &ThisHost{ID: 1, Name: "db1", State: "live", LeaseLeftMS: 27_000, IO: &IO{}}
			c.change(r)
			r.Judge()
			var got []string
			for _, p := range r.Problems {
				got = append(got, p.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestReport_ReadError_ComesFirst(t *testing.T) {
	r := stuckReport(Host{Health: HealthDead}, Lock{})
	r.Judge()
	r.AddReadError("IO to /dev/x hangs", "", 9*time.Second)
	require.Len(t, r.Problems, 2)
	require.Equal(t, "error device: the disk cannot be read: IO to /dev/x hangs -> the locks shown are of 9 s ago; "+checkDevice, r.Problems[0].String())
}

func TestReport_ManyProblemsOfAKind_AreShortened(t *testing.T) {
	r := stuckReport(Host{}, Lock{Name: "x"})
	r.ThisHost = &ThisHost{LeaseLeftMS: 27_000}
	r.Hosts[0].Health = HealthDead
	for id := 4; id < 40; id++ {
		h := silentHost(1000, 1000)
		h.ID = id
		r.Hosts = append(r.Hosts, h)
	}
	r.Judge()
	require.Len(t, r.Problems, listedAlone+2)
	require.Equal(t, "host 8", r.Problems[listedAlone-1].Subject)
	require.Equal(t, Problem{SeverityError, "silent", "", "31 more silent hosts", "host 9, host 10, host 11, host 12, host 13, host 14, host 15, host 16, ...",
		"if many hosts are silent, check the storage first", nil}, r.Problems[listedAlone])
	require.Equal(t, ProblemDead, r.Problems[listedAlone+1].Kind)
}

func TestReport_ManyDoubledNames_AreShortenedInPrint(t *testing.T) {
	r := stuckReport(Host{}, Lock{Name: "x"})
	for i := range 2 * (listedAlone + 2) {
		r.Hosts = append(r.Hosts, Host{ID: 10 + i, Name: fmt.Sprintf("v\u202e%d", i/2), BootID: fmt.Sprint(i), Health: HealthLive})
	}
	r.Judge()
	require.Len(t, r.Problems, listedAlone+1)
	require.Equal(t, `"v\u202e0"`, r.Problems[0].Subject)
	require.Equal(t, `warning name: 2 more names of several hosts: "v\u202e5", "v\u202e6"`, r.Problems[listedAlone].String())
}

// TestShorten_FurtherProblems_AreANounInItsNumber: "2 more lockspace" says nothing.
func TestShorten_FurtherProblems_AreANounInItsNumber(t *testing.T) {
	for kind, want := range map[ProblemKind][2]string{
		"lockspace": {"1 more warning about the lockspace", "2 more warnings about the lockspace"},
		"damaged":   {"1 more damaged record", "2 more damaged records"},
		"disk":      {"1 more disk that is not up", "2 more disks that are not up"},
		"new_kind":  {"1 more of the kind new_kind", "2 more of the kind new_kind"},
	} {
		for n, text := range want {
			var found []Problem
			for i := range listedAlone + n + 1 {
				found = append(found, Problem{Severity: SeverityWarning, Kind: kind, Subject: string(rune('a' + i))})
			}
			short := shorten(found)
			require.Len(t, short, listedAlone+1)
			require.Equal(t, text, short[listedAlone].Text)
		}
	}
}
