package daemon

import (
	"cmp"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// The states of a host as seen by its own bakeryd.
const (
	StateJoining = "joining"
	StateLive    = "live"
	StateLeaving = "leaving"
	StateLost    = "lost" // the lease; holders may still have to stop
)

// Vitals are the gauges of a host, by what its bakeryd knows without reading the device.
type Vitals struct {
	State       string
	Descriptors int // in use by clients
	MostClients int // limit for clients

	Term *TermVitals // nil while joining
}

// TermVitals are the gauges of a host in a lockspace.
type TermVitals struct {
	HostID    int
	HostName  string
	Lockspace string // name; empty if none
	UUID      layout.UUID
	Device    string

	Lease     time.Duration // as formatted
	LeaseLeft time.Duration // 0 if over
	Hosts     map[report.Health]int
	Sessions  int
	IO        blockdev.Stats
	Locks     []LockVitals // held or waited for, by name
}

// LockVitals are the gauges of a lock's clients on this host.
type LockVitals struct {
	Name    string
	Holding int
	Waiting int
	Longest time.Duration // wait of the waiting clients
}

// Vitals returns the current gauges.
func (s *Service) Vitals() Vitals {
	c := fdlimit.Clients()
	v := Vitals{State: StateJoining, Descriptors: c.InUse(), MostClients: c.Limit}
	if d, err := s.Joined(); err == nil {
		v.State, v.Term = d.state(), d.vitals()
	}
	return v
}

func (d *Daemon) vitals() *TermVitals {
	hosts, _ := d.mem.Known()
	return &TermVitals{
		HostID: d.mem.ID(), HostName: d.ids.Name, Lockspace: d.sb.Name, UUID: d.sb.UUID, Device: d.cfg.Device,
		Lease: d.sb.Lease, LeaseLeft: max(0, d.mem.Moments().Deadline-d.clock.Now()),
		Hosts: countHealth(hosts, d.mem.ID(), d.times()), Sessions: d.sessions.count(), IO: blockdev.StatsOf(d.opened), Locks: d.lockVitals(),
	}
}

// countHealth counts the hosts that ever joined. A host's own record in the table is the one from
// before it was live.
func countHealth(hosts []lease.Host, self int, t lease.Times) map[report.Health]int {
	n := map[report.Health]int{report.HealthLive: 0, report.HealthJoining: 0, report.HealthLeft: 0, report.HealthSilent: 0, report.HealthDead: 0}
	for i, h := range hosts {
		switch {
		case i+1 == self:
			n[report.HealthLive]++
		case h.Incarnation == 0:
		case h.State == layout.StateLeft:
			n[report.HealthLeft]++
		case h.Gone:
			n[report.HealthDead]++
		case h.State == layout.StateJoining:
			n[report.HealthJoining]++
		case h.Overdue(t):
			n[report.HealthSilent]++
		default:
			n[report.HealthLive]++
		}
	}
	return n
}

func (d *Daemon) lockVitals() (all []LockVitals) {
	d.mu.Lock()
	locks := make([]*lock, 0, len(d.locks))
	for _, lk := range d.locks {
		locks = append(locks, lk)
	}
	d.mu.Unlock()
	now := time.Now()
	for _, lk := range locks {
		if v := lk.vitals(now); v.Holding+v.Waiting > 0 && lk.observed() {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b LockVitals) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (lk *lock) vitals(now time.Time) LockVitals {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	v := LockVitals{Name: lk.entry.Name, Waiting: len(lk.queue)}
	for _, h := range lk.holds {
		if !h.joined {
			v.Holding++
		}
	}
	for _, w := range lk.queue {
		v.Longest = max(v.Longest, now.Sub(w.since))
	}
	return v
}

// count returns the number of sessions.
func (ss *sessions) count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.byID)
}
