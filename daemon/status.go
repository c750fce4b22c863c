package daemon

import (
	"slices"

	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/tally"
	"github.com/bakeryd/bakeryd/layout"
)

// Status reads the disk and adds what only this host knows: its lease, the hosts that it has not
// seen renew, and its local holders and waiters. It returns an error if the device hangs.
func (h *Host) Status() (*report.Report, error) {
	snapshot, err := h.inspect()
	if err != nil {
		return nil, err
	}
	return h.tell(snapshot), nil
}

// tell adds what this host knows now to a snapshot.
func (h *Host) tell(snapshot *lockspace.Snapshot) *report.Report {
	hosts, _ := h.mem.Known()
	r := report.Build(snapshot, &report.Knowledge{Now: h.clock.Now(), Times: h.times(), Hosts: hosts})
	r.ThisHost = &report.ThisHost{
		ID: h.mem.ID(), Name: h.ids.Name, Incarnation: h.mem.Incarnation(), State: h.state(), LeaseLeftMS: h.leaseLeft().Milliseconds(),
		IO: report.IOOf(h.devices.Opened.Stats()), Renewals: renewalsReport(h.cfg.Tally),
	}
	r.AddDisks(lockspace.MemberDisks(h.devices.Opened))
	if set, several := h.devices.Opened.(lockspace.Set); several {
		used := set.Superblock().Members.Epoch
		if slices.ContainsFunc(snapshot.Hosts, func(rec layout.HostRecord) bool {
			health := r.HostByID(rec.ID).Health
			return rec.Epoch > used && (health == report.HealthLive || health == report.HealthSilent)
		}) {
			r.Lockspace.Warnings = append(r.Lockspace.Warnings, "this host does not find the disks of the newest list of members: "+
				"add the paths of all member disks to BAKERYD_DEVICE, and restart bakeryd")
		}
	}
	for i := range r.Locks {
		h.Describe(&r.Locks[i], r.ThisHost)
	}
	r.Judge()
	return r
}

func renewalsReport(t *tally.Tally) *report.Latency {
	times := t.Renewals.Times()
	return &report.Latency{Count: uint64(times.Count()), Errors: t.RenewalFailures.Load(), P50US: times.At(50).Microseconds(),
		P99US: times.At(99).Microseconds(), MaxUS: times.Max().Microseconds()}
}

func (h *Host) state() string {
	switch {
	case h.mem.Moments().Lost:
		return StateLost
	case h.Stopping():
		return StateLeaving
	}
	return StateLive
}
