package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// stuckReport returns a report with host 1, which is this host and healthy, and host 3, which the
// test sets.
func stuckReport(host3 Host, l Lock) *Report {
	host3.ID, host3.Name = 3, "db3"
	if host3.Health == "" {
		host3.Health = HealthLive
	}
	l.Permits = max(l.Permits, 1)
	return &Report{
		Lockspace: Lockspace{LeaseMS: 30000},
		ThisHost:  &ThisHost{ID: 1, Name: "db1", State: "live", LeaseLeftMS: 27_000},
		Hosts:     []Host{{ID: 1, Name: "db1", Health: HealthLive}, {ID: 2, Name: "db2", Health: HealthLive}, host3},
		Locks:     []Lock{l},
	}
}

func silentHost(silent, deadIn int64) Host {
	h := Host{Health: HealthSilent, SilentMS: &silent}
	if deadIn >= 0 {
		h.DeadInMS = &deadIn
	}
	return h
}

// in returns the report with a policy and damage.
func (r *Report) in(policy layout.Policy, damaged ...Damage) *Report {
	r.Lockspace.Policy, r.Damaged = policy, damaged
	return r
}

func TestStuck(t *testing.T) {
	heldBy := func(id int, name string) Lock {
		return Lock{Name: "x", Number: 4, Holders: []Holder{{Host: id, HostName: name}}}
	}
	wanted := func(l Lock) Lock {
		l.Local = []Local{{PID: 5, Place: 1}}
		return l
	}
	q := func(id int, name string, phase layout.Phase, mode layout.Mode) Queued {
		return Queued{Host: id, HostName: name, Phase: phase, Mode: mode}
	}
	queue := func(l Lock, entries ...Queued) Lock {
		l.Queue = entries
		return l
	}
	const ex, sh = layout.Exclusive, layout.Shared
	db1, db2, db3 := q(1, "db1", layout.Waiting, ex), q(2, "db2", layout.Waiting, ex), q(3, "db3", layout.Waiting, ex)
	entering := q(3, "db3", layout.Choosing, ex)
	readers := Lock{Name: "x", Number: 4, Holders: []Holder{{Host: 2, HostName: "db2", Mode: sh}}}
	semaphore := Lock{Name: "x", Number: 4, Permits: 2, Holders: []Holder{{Host: 2, HostName: "db2"}}}
	orphan := func(pids ...int) Lock {
		l := heldBy(1, "db1")
		l.Holders[0].Orphan, l.Holders[0].Processes, l.Holders[0].Command = true, pids, "backup"
		return l
	}
	slot := Damage{Kind: lockspace.KindSlot, Lock: 4, Host: 3}
	record := Damage{Kind: lockspace.KindHost, Host: 3}
	unnamed := stuckReport(Host{}, wanted(heldBy(3, ""))).in(layout.PolicyLease, record)
	unnamed.Hosts = unnamed.Hosts[:2]
	silent := silentHost(21_900, 14_100)
	unwatched := stuckReport(silentHost(37_000, -1), heldBy(3, "db3"))
	unwatched.ThisHost = nil

	for name, c := range map[string]struct {
		report *Report
		want   string
	}{
		"free":                  {stuckReport(Host{}, Lock{}), ""},
		"held":                  {stuckReport(Host{}, wanted(heldBy(3, "db3"))), ""},
		"silent holder":         {stuckReport(silent, wanted(heldBy(3, "db3"))), "held by host 3 (db3), silent, dead in 15 s"},
		"that nobody wants":     {stuckReport(silent, heldBy(3, "db3")), "held by host 3 (db3), silent, dead in 15 s"},
		"strange name":          {stuckReport(silent, heldBy(3, "d b")), `held by host 3 ("d b"), silent, dead in 15 s`},
		"due":                   {stuckReport(silentHost(37_000, 0), heldBy(3, "db3")), "held by host 3 (db3), silent, being declared dead"},
		"fence":                 {stuckReport(silent, heldBy(3, "db3")).in(layout.PolicyFence), "held by host 3 (db3), silent, fenced in 15 s"},
		"fence due":             {stuckReport(silentHost(37_000, 0), heldBy(3, "db3")).in(layout.PolicyFence), "held by host 3 (db3), silent, being fenced"},
		"manual":                {stuckReport(silentHost(3_700_000, -1), heldBy(3, "db3")).in(layout.PolicyManual), "held by host 3 (db3), silent until it is back or evicted"},
		"seen without a daemon": {unwatched, "held by host 3 (db3), silent, and only a running bakeryd shows how that ends"},
		"next is silent":        {stuckReport(silent, queue(Lock{}, db3, db1)), "behind host 3 (db3) in the queue, silent, dead in 15 s"},
		"entering is silent":    {stuckReport(silent, queue(Lock{}, entering, db1)), "host 3 (db3) is entering, silent, dead in 15 s"},
		"manual next":           {stuckReport(silentHost(37_000, -1), queue(Lock{}, db3, db1)).in(layout.PolicyManual), "behind host 3 (db3) in the queue, silent until it is back or evicted"},
		"last is silent":        {stuckReport(silent, queue(Lock{}, db1, db3)), ""},
		"alone in the queue":    {stuckReport(silent, queue(Lock{}, db3)), ""},
		"a live one first":      {stuckReport(silent, queue(Lock{}, db2, db3, db1)), ""},
		"behind a live one":     {stuckReport(silent, queue(heldBy(2, "db2"), db3, db1)), ""},
		"reader behind":         {stuckReport(silent, queue(readers, db3, q(1, "db1", layout.Waiting, sh))), "behind host 3 (db3) in the queue, silent, dead in 15 s"},
		"readers together":      {stuckReport(silent, queue(Lock{}, q(3, "db3", layout.Waiting, sh), q(1, "db1", layout.Waiting, sh))), ""},
		"last permit":           {stuckReport(silent, queue(semaphore, db3, db1)), "behind host 3 (db3) in the queue, silent, dead in 15 s"},
		"permit left":           {stuckReport(silent, queue(Lock{Permits: 2}, db3, db1)), ""},
		"orphan":                {stuckReport(Host{}, wanted(orphan(4711))), "held by host 1 (db1): its bakeryctl is gone, process 4711 (backup) lives"},
		"orphan with more":      {stuckReport(Host{}, wanted(orphan(4711, 4712, 4713))), "held by host 1 (db1): its bakeryctl is gone, process 4711 (backup) and 2 more live"},
		"orphan unseen":         {stuckReport(Host{}, wanted(orphan())), "held by host 1 (db1): its bakeryctl is gone, its command (backup) lives"},
		"orphan not wanted":     {stuckReport(Host{}, orphan(4711)), ""},
		"slot":                  {stuckReport(Host{}, queue(Lock{Number: 4}, db1)).in(layout.PolicyLease, slot), "the slot of host 3 (db3) cannot be read: its bakeryd rewrites it within 30 s"},
		"slot of a silent":      {stuckReport(silent, queue(Lock{Number: 4}, db1)).in(layout.PolicyLease, slot), "the slot of host 3 (db3) cannot be read, silent, dead in 15 s"},
		"slot of a dead":        {stuckReport(Host{Health: HealthDead}, queue(Lock{Number: 4}, db1)).in(layout.PolicyLease, slot), ""},
		"slot of one left":      {stuckReport(Host{Health: HealthLeft}, queue(Lock{Number: 4}, db1)).in(layout.PolicyLease, slot), ""},
		"slot of nobody":        {stuckReport(Host{}, queue(Lock{Number: 4}, db1)).in(layout.PolicyLease, Damage{Kind: lockspace.KindSlot, Lock: 4, Host: 7}), ""},
		"slot of other lock":    {stuckReport(Host{}, queue(Lock{Number: 5}, db1)).in(layout.PolicyLease, slot), ""},
		"slot, nobody waits":    {stuckReport(Host{}, Lock{Number: 4}).in(layout.PolicyLease, slot), ""},
		"record of a holder":    {stuckReport(Host{}, wanted(heldBy(3, "db3"))).in(layout.PolicyLease, record), "held by host 3 (db3), whose record cannot be read: its next renewal repairs it; if it is down: bakeryctl check --repair"},
		"record, not known":     {unnamed, "held by host 3, whose record cannot be read: its next renewal repairs it; if it is down: bakeryctl check --repair"},
		"record of the next":    {stuckReport(Host{}, queue(Lock{}, db3, db1)).in(layout.PolicyLease, record), "behind host 3 (db3) in the queue, whose record cannot be read: its next renewal repairs it; if it is down: bakeryctl check --repair"},
		"record, not wanted":    {stuckReport(Host{}, heldBy(3, "db3")).in(layout.PolicyLease, record), ""},
		"record of a bystander": {stuckReport(Host{}, queue(heldBy(2, "db2"), db1)).in(layout.PolicyLease, record), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.report.DescribeSilence()
			c.report.explainStuck()
			require.Equal(t, c.want, c.report.Locks[0].Stuck)
		})
	}
}
