package report

import (
	"encoding/hex"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/layout"
)

// Health is the health of a host.
type Health string

// The kinds of health. Only a daemon that watches the hosts reports HealthSilent, HealthLost and
// HealthUnknown.
const (
	HealthLive    Health = "live"
	HealthJoining Health = "joining"
	HealthLeft    Health = "left"
	HealthSilent  Health = "silent" // no renewal for longer than a live host needs
	HealthDead    Health = "dead"   // declared dead: its locks are free
	// HealthLost is the health of the host that made the report when it has lost its lease: it holds
	// nothing any more. Its locks are free when others declare it dead, or when it has joined again.
	HealthLost Health = "lost"
	// HealthUnknown is the health of a host that was live when its record was last read. It may have
	// lost its lease since then: the disk does not answer, or this host is not in the lockspace.
	HealthUnknown Health = "unknown"
)

// Knowledge is what a daemon knows about the hosts from watching them. A nil Knowledge knows
// nothing.
type Knowledge struct {
	Now   time.Duration
	Times timing.Times
	Hosts []lease.Host  // 1..N
	Began time.Duration // when the daemon had read all of them
	Taken time.Duration // when the read of the host records in the snapshot began; Now if they are from Hosts

	// FailedFences has the time at which the daemon's last attempt to fence a host failed, by id.
	FailedFences map[int]time.Duration
}

// verdicts returns the published verdicts, and those that a daemon read before their authors
// withdrew them.
func verdicts(s *lockspace.Snapshot, k *Knowledge) lockspace.VerdictTable {
	all := s.PublishedVerdicts()
	if k == nil {
		return all
	}
	for i, h := range k.Hosts {
		if h.Gone && h.Incarnation != 0 && h.State != layout.StateLeft {
			of := lockspace.HostIncarnation{Host: i + 1, Incarnation: h.Incarnation}
			all[of] = lockspace.Verdicts{Dead: true, Forgotten: h.Forgotten || all[of].Forgotten, Wish: all[of].Wish}
		}
	}
	return all
}

func hostReport(s *lockspace.Snapshot, h layout.HostRecord, unreadable bool, said lockspace.VerdictTable, k *Knowledge) Host {
	w := said[lockspace.HostIncarnation{Host: h.ID, Incarnation: h.Incarnation}]
	r := Host{
		ID: h.ID, Name: h.Name, State: h.State, Health: HealthLive, Dead: w.Dead, Forgotten: w.Forgotten, Unreadable: unreadable,
		Incarnation: text.Hex(h.Incarnation), Sequence: h.Sequence, ReadHorizon: h.ReadHorizon,
		MachineID: hexOf(h.MachineID), BootID: hexOf(h.BootID),
		WatchdogArmed: h.WatchdogArmed, WatchdogMS: int64(h.WatchdogSeconds) * 1000, PRKey: text.Hex(h.PRKey),
		Verdicts: []Verdict{},
	}
	for _, v := range h.Verdicts {
		r.Verdicts = append(r.Verdicts, Verdict{Host: v.Host, Incarnation: text.Hex(v.Incarnation), Kind: v.Kind})
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
	r.addSilence(k, s.Superblock.Policy)
	return r
}

// hexOf returns an id in hexadecimal digits; "" if it is not known.
func hexOf(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// addSilence adds the time since the last change of a host's record, and the time until a silent host
// is declared dead.
func (r *Host) addSilence(k *Knowledge, policy layout.Policy) {
	h := k.host(r.ID)
	switch {
	case k == nil:
		return
	case h.Incarnation == 0 || text.Hex(h.Incarnation) != r.Incarnation:
		if r.Health == HealthLive && k.Now-k.Taken > k.Times.Lease { // only the snapshot shows it, and is old
			r.Health, r.SilentMS = HealthUnknown, new((k.Now - k.Taken).Milliseconds())
		}
		return
	case h.Gone || r.Health == HealthLeft || r.Health == HealthDead:
		if h.Since > k.Began { // else the change was before
			r.SilentMS = new(max(0, k.Now-h.Since).Milliseconds())
		}
		return
	}
	since := h.Since
	if r.Sequence > h.Sequence {
		since = max(since, k.Taken) // the snapshot shows a renewal
	}
	r.SilentMS = new(max(0, k.Now-since).Milliseconds())
	overdue := since == h.Since && h.Overdue(k.Times) || r.Unreadable && k.Now-since > k.Times.Alive()
	if r.Health == HealthLive && !overdue && k.Now-since > k.Times.Lease {
		r.Health = HealthUnknown
	}
	if r.Health != HealthLive || !overdue {
		return
	}
	r.Health = HealthSilent
	if policy != layout.PolicyManual {
		r.DeadInMS = new(max(0, h.DeadAt(k.Times)-k.Now).Milliseconds())
		if policy == layout.PolicyFence {
			r.addFences(k, h.DeadAt(k.Times))
		}
	}
}

// addFences adds the failed attempts to fence a host since it was due. An attempt of another host
// is over with its window; see NextWindow in package timing.
func (r *Host) addFences(k *Knowledge, due time.Duration) {
	if k.Now < due {
		return
	}
	window := k.Times.FenceWindow()
	r.FailedFences = int((k.Now - due) / window)
	next := due + time.Duration(r.FailedFences+1)*window
	if at, failed := k.FailedFences[r.ID]; failed && at >= next-window {
		r.FailedFences++
	}
	if r.FailedFences > 0 {
		r.NextFenceMS = new((next - k.Now).Milliseconds())
	}
}

// host returns what is known about a host; no incarnation: nothing. The device may have been
// reformatted for more hosts.
func (k *Knowledge) host(id int) lease.Host {
	if k == nil || id > len(k.Hosts) {
		return lease.Host{}
	}
	return k.Hosts[id-1]
}

// remembered returns the record of a host as of its last successful read; no incarnation: none.
func (k *Knowledge) remembered(id int) layout.HostRecord { return Remembered(id, k.host(id)) }

// Remembered returns the record of a host as it was last read, without machine, boot and verdicts.
func Remembered(id int, h lease.Host) layout.HostRecord {
	return layout.HostRecord{
		ID: id, Name: h.Name, Incarnation: h.Incarnation, State: h.State, Sequence: h.Sequence, ReadHorizon: h.ReadHorizon,
		PRKey: h.PRKey, WatchdogArmed: h.Watchdog > 0, WatchdogSeconds: uint16(h.Watchdog / time.Second),
	}
}

// HostHealth is the health of one host.
type HostHealth struct {
	ID     int
	Name   string // empty if it has none
	Health Health
	// Forgotten reports that the host is dead, and that another machine may take its id.
	Forgotten bool
}

// HealthOf returns the health of the hosts that ever joined, by id. A host's own record in the table
// is the one from before it was live.
func HealthOf(hosts []lease.Host, self int, t timing.Times) (all []HostHealth) {
	for i, h := range hosts {
		health := HealthLive
		switch {
		case i+1 == self:
		case h.Incarnation == 0:
			continue
		case h.State == layout.StateLeft:
			health = HealthLeft
		case h.Gone:
			health = HealthDead
		case h.State == layout.StateJoining:
			health = HealthJoining
		case h.Overdue(t):
			health = HealthSilent
		}
		all = append(all, HostHealth{i + 1, h.Name, health, h.Forgotten && health == HealthDead})
	}
	return all
}
