package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/fdlimit"
	"github.com/bakeryd/bakeryd/daemon/locks/queue"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/layout"
)

// Vitals are the gauges of a host, by what its bakeryd knows without reading the device.
type Vitals struct {
	State       string // report.StateJoining and the others
	Descriptors int    // in use by clients
	MostClients int    // limit for clients

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
	// FenceAfter is how long a host may be silent before others fence it; 0: until its lease is over.
	FenceAfter time.Duration
	Hosts      []report.HostHealth // that ever joined, by id
	Sessions   int
	IO         blockdev.Stats
	Disks      []report.Disk  // the member disks; none if the lockspace is on one disk
	Locks      []queue.Vitals // held or waited for, by name
}

// Vitals returns the current gauges.
func (s *Service) Vitals() Vitals {
	c := fdlimit.Clients()
	v := Vitals{State: report.StateJoining, Descriptors: c.InUse(), MostClients: c.Limit}
	if h, err := s.Joined(); err == nil {
		v.State, v.Term = h.state(), h.vitals()
	}
	return v
}

func (h *Host) vitals() *TermVitals {
	hosts, _ := h.mem.Known()
	return &TermVitals{
		HostID: h.mem.ID(), HostName: h.ids.Name, Lockspace: h.disk.SB.Name, UUID: h.disk.SB.UUID, Device: h.cfg.DeviceNames(),
		Lease: h.disk.SB.Lease, FenceAfter: h.disk.SB.FenceAfter, LeaseLeft: max(0, h.mem.Moments().Deadline-h.clock.Now()),
		Hosts: report.HealthOf(hosts, h.mem.ID(), h.times()), Sessions: h.sessions.Count(), IO: h.devices.Opened.Stats(), Locks: h.Vitals(),
		Disks: report.DisksOf(lockspace.MemberDisks(h.devices.Opened)),
	}
}
