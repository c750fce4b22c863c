package daemon

import (
	"encoding/hex"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Health is what is to be thought of a host.
type Health string

// The kinds of health. That a host is silent only a daemon can tell, who has watched it.
const (
	HealthLive    Health = "live"
	HealthJoining Health = "joining"
	HealthLeft    Health = "left"
	HealthSilent  Health = "silent" // it has not renewed its lease for longer than any host that is well
	HealthDead    Health = "dead"   // declared dead: its locks are free
)

// knowledge is what a daemon knows of the hosts that one read of the disk does not tell; nil: nothing.
type knowledge struct {
	now   time.Duration
	times lease.Times
	hosts []lease.Host // 1..N
}

// verdicts returns what is published. A verdict that nobody publishes any more, but a daemon has read, still counts.
func verdicts(s *lockspace.Snapshot, k *knowledge) lockspace.Published {
	all := s.Published()
	if k == nil {
		return all
	}
	for i, h := range k.hosts {
		if h.Gone && h.Incarnation != 0 && h.State != layout.StateLeft {
			of := lockspace.Life{Host: i + 1, Incarnation: h.Incarnation}
			all[of] = lockspace.Verdicts{Dead: true, Forgotten: h.Forgotten || all[of].Forgotten, Wish: all[of].Wish}
		}
	}
	return all
}

func hostReport(s *lockspace.Snapshot, h layout.HostRecord, unreadable bool, said lockspace.Published, k *knowledge) HostReport {
	w := said[lockspace.Life{Host: h.ID, Incarnation: h.Incarnation}]
	r := HostReport{
		ID: h.ID, Name: h.Name, State: h.State, Health: HealthLive, Dead: w.Dead, Forgotten: w.Forgotten, Unreadable: unreadable,
		Incarnation: h.Incarnation, Sequence: h.Sequence, Highest: h.Highest,
		MachineID: hex.EncodeToString(h.MachineID[:]), BootID: hex.EncodeToString(h.BootID[:]),
		WatchdogArmed: h.WatchdogArmed, WatchdogSeconds: int(h.WatchdogSeconds), PRKey: h.PRKey,
		Verdicts: []VerdictReport{},
	}
	for _, v := range h.Verdicts {
		r.Verdicts = append(r.Verdicts, VerdictReport(v))
	}
	switch {
	case h.State == layout.StateLeft:
		r.Health = HealthLeft
	case w.Dead:
		r.Health = HealthDead
	case h.State == layout.StateJoining:
		r.Health = HealthJoining
	}
	r.AskedToLeave = w.Wish && r.Health != HealthLeft && r.Health != HealthDead
	r.watched(k, s.Superblock.Policy)
	return r
}

// watched adds for how long a host has not been seen to renew, and what comes of it.
func (r *HostReport) watched(k *knowledge, policy layout.Policy) {
	h, ok := k.of(r.ID, r.Incarnation)
	if !ok || h.Gone || r.Health == HealthLeft || r.Health == HealthDead {
		return
	}
	since := h.Since
	if r.Sequence > h.Sequence {
		since = k.now // a renewal that only this read has seen
	}
	r.SilentMS = new(max(0, k.now-since).Milliseconds())
	overdue := since == h.Since && h.Overdue(k.times) || r.Unreadable && k.now-since > k.times.Alive()
	if r.Health != HealthLive || !overdue {
		return
	}
	r.Health = HealthSilent
	// What cannot be read is not judged by time.
	if policy != layout.PolicyManual && !r.Unreadable {
		r.DeadInMS = new(max(0, h.DeadAt(k.times)-k.now).Milliseconds())
	}
}

// of returns what is known of an incarnation. The device may have been formatted anew, for more hosts.
func (k *knowledge) of(id int, incarnation uint64) (lease.Host, bool) {
	if k == nil || id > len(k.hosts) || k.hosts[id-1].Incarnation != incarnation {
		return lease.Host{}, false
	}
	return k.hosts[id-1], true
}

// remembered returns the record of a host as it was when it could be read.
func (k *knowledge) remembered(r lockspace.Record) (layout.HostRecord, bool) {
	if k == nil || r.Kind != lockspace.KindHost || r.Host > len(k.hosts) || k.hosts[r.Host-1].Incarnation == 0 {
		return layout.HostRecord{}, false
	}
	h := k.hosts[r.Host-1]
	return layout.HostRecord{
		ID: r.Host, Name: h.Name, Incarnation: h.Incarnation, State: h.State, Sequence: h.Sequence, Highest: h.Highest,
		PRKey: h.PRKey, WatchdogArmed: h.Watchdog > 0, WatchdogSeconds: uint16(h.Watchdog / time.Second),
	}, true
}
