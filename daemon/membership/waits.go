package membership

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/text"
	"github.com/bakeryd/bakeryd/daemon/waiting"
	"github.com/bakeryd/bakeryd/layout"
)

// Waits returns what this host waits for until it may take locks: IO, its host id, or other hosts.
func (mb *Member) Waits() (r waiting.Reason) {
	id, io := mb.ID(), locked(mb, func(*lease.Machine) string {
		for _, of := range []underWay{mb.reading, mb.writing} {
			if of.reported {
				return of.what
			}
		}
		return ""
	})
	d, live := mb.delayed.Load(), mb.Moments().Deadline != 0
	switch {
	case io != "":
		return waiting.Reason{For: "the device, which does not answer: " + io, Do: waiting.CheckDisks}
	case live:
		hosts, _ := mb.Known()
		r = waiting.Readers(id, hosts, mb.times())
	case id != 0:
		r.For = fmt.Sprintf("the claim of host id %d", id)
	default:
		r.For = "a free host id"
	}
	if d != nil && !live {
		r.For += ": " + d.reason
	}
	if d != nil && live == d.live {
		r.Left = mb.secondsUntil(d.until)
	}
	return r
}

// delay is why joining takes longer.
type delay struct {
	reason string
	until  time.Duration // joining has ended then; 0: not known
	live   bool          // the host is live already
}

// delayOf returns the delay of which the machine reports the first part.
func (mb *Member) delayOf(a lease.Delayed) *delay {
	d := &delay{reason: a.Reason.Error(), until: a.Until, live: errors.Is(a.Reason, lease.ErrFar)}
	long := false // the long claim follows
	switch {
	case errors.Is(a.Reason, lease.ErrOldList):
		d.until = 0
	case errors.Is(a.Reason, lease.ErrSlowClaim):
		d.reason = "a write of an earlier claim of the host id may still land"
	case errors.Is(a.Reason, lease.ErrNotLeft):
		r := locked(mb, func(*lease.Machine) layout.HostRecord { return mb.found })
		d.reason = mb.describeEarlier(r)
		// other hosts may have declared it dead by then
		long = r.State == layout.StateJoining || mb.others(r.ID)
	default:
		long = errors.Is(a.Reason, lease.ErrSlowDevice) || errors.Is(a.Reason, lease.ErrUnreadable)
	}
	if long {
		d.until += mb.times().LongWait()
	}
	return d
}

// others reports whether another host than that with an id is live.
func (mb *Member) others(id int) bool {
	hosts, _ := mb.Known()
	for i := range hosts {
		if h := &hosts[i]; i+1 != id && h.State == layout.StateLive && !h.Gone {
			return true
		}
	}
	return false
}

// describeEarlier says whose the record is that keeps out this host although it has the machine id of this
// machine. One of this boot is that of this machine; a copy of the machine has the same machine id, and
// booted by itself.
func (mb *Member) describeEarlier(r layout.HostRecord) string {
	self, host := mb.cfg.Lease.Self, text.HostName(r.ID, r.Name)
	if r.Incarnation == mb.cfg.Earlier && r.Incarnation != 0 {
		return "this bakeryd was live as " + host + " until it lost its lease: nothing to do, it joins again by itself"
	}
	if r.BootID != self.BootID || r.BootID == [16]byte{} || r.MachineID == [16]byte{} {
		return host + " has the machine id of this machine, did not leave and is silent: nothing to do, this one joins by itself; " +
			"if that is another machine, a copy of this one, choose another host id"
	}
	did := "was live as "
	if r.State == layout.StateJoining {
		did = "had begun to join as "
	}
	return "an earlier bakeryd of this machine " + did + host + " and is silent: nothing to do, this one joins by itself"
}

// secondsUntil returns the time until t in whole seconds, rounded up; 0 if it is over.
func (mb *Member) secondsUntil(t time.Duration) time.Duration {
	return max(0, t-mb.cfg.Clock.Now()+time.Second-1).Truncate(time.Second)
}
