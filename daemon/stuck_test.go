package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// stuckReport is of host 1, which is this one and well, and host 3, of which more is said in the test.
func stuckReport(host3 HostReport, l LockReport) *Report {
	host3.ID, host3.Name = 3, "db3"
	if host3.Health == "" {
		host3.Health = HealthLive
	}
	l.Permits = max(l.Permits, 1)
	return &Report{
		Lockspace: LockspaceReport{LeaseMS: 30000},
		Hosts:     []HostReport{{ID: 1, Name: "db1", Health: HealthLive}, {ID: 2, Name: "db2", Health: HealthLive}, host3},
		Locks:     []LockReport{l},
	}
}

func silentHost(silent, deadIn int64) HostReport {
	h := HostReport{Health: HealthSilent, SilentMS: &silent}
	if deadIn >= 0 {
		h.DeadInMS = &deadIn
	}
	return h
}

// in is a report with a policy and damage.
func (r *Report) in(policy layout.Policy, damaged ...DamageReport) *Report {
	r.Lockspace.Policy, r.Damaged = policy, damaged
	return r
}

func TestStuck(t *testing.T) {
	heldBy := func(id int, name string) LockReport {
		return LockReport{Name: "x", Lock: 4, Holders: []HolderReport{{Host: id, HostName: name}}}
	}
	wanted := func(l LockReport) LockReport {
		l.Local = []LocalReport{{PID: 5, Place: 1}}
		return l
	}
	q := func(id int, name string, phase layout.Phase, mode layout.Mode) QueueReport {
		return QueueReport{Host: id, HostName: name, Phase: phase, Mode: mode}
	}
	queue := func(l LockReport, entries ...QueueReport) LockReport {
		l.Queue = entries
		return l
	}
	const ex, sh = layout.Exclusive, layout.Shared
	db1, db2, db3 := q(1, "db1", layout.Waiting, ex), q(2, "db2", layout.Waiting, ex), q(3, "db3", layout.Waiting, ex)
	entering := q(3, "db3", layout.Choosing, ex)
	readers := LockReport{Name: "x", Lock: 4, Holders: []HolderReport{{Host: 2, HostName: "db2", Mode: sh}}}
	semaphore := LockReport{Name: "x", Lock: 4, Permits: 2, Holders: []HolderReport{{Host: 2, HostName: "db2"}}}
	orphan := func(pids ...int) LockReport {
		l := heldBy(1, "db1")
		l.Holders[0].Orphan, l.Holders[0].Processes, l.Holders[0].Command = true, pids, "backup"
		return l
	}
	slot := DamageReport{Kind: lockspace.KindSlot, Lock: 4, Host: 3}
	record := DamageReport{Kind: lockspace.KindHost, Host: 3}
	unnamed := stuckReport(HostReport{}, wanted(heldBy(3, ""))).in(layout.PolicyLease, record)
	unnamed.Hosts = unnamed.Hosts[:2]
	silent := silentHost(21_900, 14_100)

	for name, c := range map[string]struct {
		report *Report
		want   string
	}{
		"free":                  {stuckReport(HostReport{}, LockReport{}), ""},
		"held":                  {stuckReport(HostReport{}, wanted(heldBy(3, "db3"))), ""},
		"silent holder":         {stuckReport(silent, wanted(heldBy(3, "db3"))), "held by host 3 (db3), not seen for 21 s, released in 15 s"},
		"that nobody wants":     {stuckReport(silent, heldBy(3, "db3")), "held by host 3 (db3), not seen for 21 s, released in 15 s"},
		"strange name":          {stuckReport(silent, heldBy(3, "d b")), `held by host 3 ("d b"), not seen for 21 s, released in 15 s`},
		"due":                   {stuckReport(silentHost(37_000, 0), heldBy(3, "db3")), "held by host 3 (db3), not seen for 37 s, being declared dead"},
		"fence":                 {stuckReport(silent, heldBy(3, "db3")).in(layout.PolicyFence), "held by host 3 (db3), not seen for 21 s, to be fenced in 15 s"},
		"fence due":             {stuckReport(silentHost(37_000, 0), heldBy(3, "db3")).in(layout.PolicyFence), "held by host 3 (db3), not seen for 37 s, being fenced"},
		"manual":                {stuckReport(silentHost(3_700_000, -1), heldBy(3, "db3")).in(layout.PolicyManual), "held by host 3 (db3), not seen for 61 min, until it is back or evicted: bakeryctl evict 3"},
		"next is silent":        {stuckReport(silent, queue(LockReport{}, db3, db1)), "behind host 3 (db3) in the queue, not seen for 21 s, passed over in 15 s"},
		"entering is silent":    {stuckReport(silent, queue(LockReport{}, entering, db1)), "host 3 (db3) is entering, not seen for 21 s, passed over in 15 s"},
		"manual next":           {stuckReport(silentHost(37_000, -1), queue(LockReport{}, db3, db1)).in(layout.PolicyManual), "behind host 3 (db3) in the queue, not seen for 37 s, until it is back or evicted: bakeryctl evict 3"},
		"last is silent":        {stuckReport(silent, queue(LockReport{}, db1, db3)), ""},
		"alone in the queue":    {stuckReport(silent, queue(LockReport{}, db3)), ""},
		"a live one first":      {stuckReport(silent, queue(LockReport{}, db2, db3, db1)), ""},
		"behind a live one":     {stuckReport(silent, queue(heldBy(2, "db2"), db3, db1)), ""},
		"reader behind":         {stuckReport(silent, queue(readers, db3, q(1, "db1", layout.Waiting, sh))), "behind host 3 (db3) in the queue, not seen for 21 s, passed over in 15 s"},
		"readers together":      {stuckReport(silent, queue(LockReport{}, q(3, "db3", layout.Waiting, sh), q(1, "db1", layout.Waiting, sh))), ""},
		"last permit":           {stuckReport(silent, queue(semaphore, db3, db1)), "behind host 3 (db3) in the queue, not seen for 21 s, passed over in 15 s"},
		"permit left":           {stuckReport(silent, queue(LockReport{Permits: 2}, db3, db1)), ""},
		"orphan":                {stuckReport(HostReport{}, wanted(orphan(4711))), "held by host 1 (db1): its bakeryctl is gone, process 4711 (backup) lives"},
		"orphan with more":      {stuckReport(HostReport{}, wanted(orphan(4711, 4712, 4713))), "held by host 1 (db1): its bakeryctl is gone, process 4711 (backup) and 2 more live"},
		"orphan unseen":         {stuckReport(HostReport{}, wanted(orphan())), "held by host 1 (db1): its bakeryctl is gone, its command (backup) lives"},
		"orphan not wanted":     {stuckReport(HostReport{}, orphan(4711)), ""},
		"slot":                  {stuckReport(HostReport{}, queue(LockReport{Lock: 4}, db1)).in(layout.PolicyLease, slot), "the slot of host 3 (db3) cannot be read: its bakeryd rewrites it within 30 s"},
		"slot of a silent":      {stuckReport(silent, queue(LockReport{Lock: 4}, db1)).in(layout.PolicyLease, slot), "the slot of host 3 (db3) cannot be read, not seen for 21 s, passed over in 15 s"},
		"slot of a dead":        {stuckReport(HostReport{Health: HealthDead}, queue(LockReport{Lock: 4}, db1)).in(layout.PolicyLease, slot), ""},
		"slot of one left":      {stuckReport(HostReport{Health: HealthLeft}, queue(LockReport{Lock: 4}, db1)).in(layout.PolicyLease, slot), ""},
		"slot of nobody":        {stuckReport(HostReport{}, queue(LockReport{Lock: 4}, db1)).in(layout.PolicyLease, DamageReport{Kind: lockspace.KindSlot, Lock: 4, Host: 7}), ""},
		"slot of other lock":    {stuckReport(HostReport{}, queue(LockReport{Lock: 5}, db1)).in(layout.PolicyLease, slot), ""},
		"slot, nobody waits":    {stuckReport(HostReport{}, LockReport{Lock: 4}).in(layout.PolicyLease, slot), ""},
		"record of a holder":    {stuckReport(HostReport{}, wanted(heldBy(3, "db3"))).in(layout.PolicyLease, record), "held by host 3 (db3), whose record cannot be read: its next renewal mends that; if it is down: bakeryctl check --repair"},
		"record, not known":     {unnamed, "held by host 3, whose record cannot be read: its next renewal mends that; if it is down: bakeryctl check --repair"},
		"record of the next":    {stuckReport(HostReport{}, queue(LockReport{}, db3, db1)).in(layout.PolicyLease, record), "behind host 3 (db3) in the queue, whose record cannot be read: its next renewal mends that; if it is down: bakeryctl check --repair"},
		"record, not wanted":    {stuckReport(HostReport{}, heldBy(3, "db3")).in(layout.PolicyLease, record), ""},
		"record of a bystander": {stuckReport(HostReport{}, queue(heldBy(2, "db2"), db1)).in(layout.PolicyLease, record), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.report.explain()
			require.Equal(t, c.want, c.report.Locks[0].Stuck)
		})
	}
}
