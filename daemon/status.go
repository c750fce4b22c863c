package daemon

import (
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/report"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// Status reads the disk and adds what only this host knows: its lease, the hosts that it has not
// seen renew, and its local holders and waiters. It returns an error if the device hangs.
func (h *Host) Status() (*report.Report, error) {
	in, err := h.inspect()
	if err != nil {
		return nil, err
	}
	return h.tell(in), nil
}

// tell adds what this host knows now to the snapshot of an inspection.
func (h *Host) tell(in *inspection) *report.Report {
	snapshot := *in.snapshot
	h.addKnown(&snapshot, in.began+in.took)
	hosts, _ := h.mem.Known()
	times := h.cfg.Tally.Renewals.Times()
	r := report.Build(&snapshot, &report.Knowledge{Now: h.clock.Now(), Times: h.times(), Hosts: hosts, Began: h.began, Taken: in.began, FailedFences: h.mem.FailedFences()})
	r.ThisHost = &report.ThisHost{
		ID: h.mem.ID(), Name: h.ids.Name, Incarnation: text.Hex(h.mem.Incarnation()), State: h.state(), LeaseLeftMS: h.leaseLeft().Milliseconds(),
		IO: report.IOOf(h.devices.Opened.Stats()), Renewals: &report.Latency{Count: uint64(times.Count()), Errors: h.cfg.Tally.RenewalFailures.Load(),
			P50US: times.At(50).Microseconds(), P99US: times.At(99).Microseconds(), MaxUS: times.Max().Microseconds()},
	}
	if own := r.HostByID(h.mem.ID()); own != nil && own.SilentMS != nil { // its record shows when the renewal was seen
		own.SilentMS = new(max(0, r.Lockspace.LeaseMS-r.ThisHost.LeaseLeftMS))
	}
	r.AddDisks(lockspace.MemberDisks(h.devices.Opened))
	if set, several := h.devices.Opened.(lockspace.Set); several {
		r.WarnOfList(set.Superblock().Members.Epoch, snapshot.Hosts)
	}
	for i := range r.Locks {
		h.Describe(&r.Locks[i], r.ThisHost)
	}
	r.Judge()
	return r
}

func (h *Host) state() string {
	switch {
	case h.mem.Moments().Lost:
		return report.StateLost
	case h.Stopping():
		return report.StateLeaving
	}
	return report.StateLive
}
