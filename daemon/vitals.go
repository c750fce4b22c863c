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

// The states of a host as its own bakeryd sees them.
const (
	StateJoining = "joining"
	StateLive    = "live"
	StateLeaving = "leaving"
	StateLost    = "lost" // its lease; holders may yet have to stop
)

// Vitals are how a host stands at the moment, by what its bakeryd knows without asking the device.
type Vitals struct {
	State       string
	Descriptors int // that clients have
	MostClients int // descriptors that there are for them

	Term *TermVitals // nil while it is joining
}

// TermVitals are of a host in a lockspace.
type TermVitals struct {
	HostID    int
	HostName  string
	Lockspace string // its name; empty: it has none
	UUID      layout.UUID
	Device    string

	Lease     time.Duration // as it was formatted
	LeaseLeft time.Duration // 0: it is over
	Hosts     map[report.Health]int
	Sessions  int
	IO        blockdev.Stats
	Locks     []LockVitals // those that somebody holds or waits for, by name
}

// LockVitals are of the clients that a lock has on this host.
type LockVitals struct {
	Name    string
	Holding int
	Waiting int
	Longest time.Duration // for which one of them waits
}

// Vitals returns how the host stands.
func (s *Service) Vitals() Vitals {
	c := fdlimit.Clients()
	v := Vitals{State: StateJoining, Descriptors: c.InUse(), MostClients: c.Limit}
	if d, err := s.Joined(); err == nil {
		v.State, v.Term = d.state(), d.vitals()
	}
	return v
}

func (d *Daemon) vitals() *TermVitals {
	hosts, _ := d.mem.known()
	return &TermVitals{
		HostID: d.mem.id(), HostName: d.mem.ids.Name, Lockspace: d.sb.Name, UUID: d.sb.UUID, Device: d.cfg.Device,
		Lease: d.sb.Lease, LeaseLeft: max(0, d.mem.moments().deadline-d.clock.Now()),
		Hosts: countHealth(hosts, d.mem.id(), d.times()), Sessions: d.sessions.count(), IO: blockdev.StatsOf(d.opened), Locks: d.lockVitals(),
	}
}

// countHealth counts the hosts that ever joined. Of itself a host has its record as it was before it was live.
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
		if v := lk.vitals(now); v.Holding+v.Waiting > 0 && lk.counts() {
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

// count is how many sessions there are.
func (ss *sessions) count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.byID)
}
