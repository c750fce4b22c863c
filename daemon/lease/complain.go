package lease

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// An unreadable record blocks other hosts until a host that may write it writes it again. No host
// searches for that by itself. The blocked host publishes a complaint in its host record, which
// all hosts read anyway.
//
//	host A                        host B                        A's slot in lock 7
//	                                                            damaged
//	                              wants lock 7; polls           damaged
//	                              renews: "A's slot in 7"
//	reads the host table: looks
//	rewrites it                                                 idle
//	                              enters
//
// A complaint counts once for each write of the record that contains it. One that a dead host has
// left behind is therefore handled once.

// roomForComplaints bounds the complaints kept: own ones that wait for room in the record, and
// received ones that were not reported yet. A complaint without room is repeated, because its
// host stays blocked.
const roomForComplaints = 64

// complaint is an unreadable record that blocks a client of this host.
type complaint struct {
	layout.Complaint
	since, last time.Duration // time of the first and of the last HeldUp
	due         bool          // it is to be published
	shown       bool          // it was published since it is due
}

// HeldUp reports that an unreadable record blocks a client of this host, so that other hosts
// repair it. The driver repeats the call while that is so. If a write may be under way, the
// complaint is published after it was repeated for [timing.Times.Retry]; if that is certain not to be,
// immediately. Most calls return no action.
func (m *Machine) HeldUp(now time.Duration, by layout.Complaint, certain bool) []Action {
	now = max(now, m.now)
	if m.phase != live || by.Host == m.id {
		return nil
	}
	m.complaints = slices.DeleteFunc(m.complaints, func(c complaint) bool { return m.expired(c, now) })
	i := slices.IndexFunc(m.complaints, func(c complaint) bool { return c.Complaint == by })
	if i < 0 {
		if len(m.complaints) == roomForComplaints {
			return nil
		}
		i = len(m.complaints)
		m.complaints = append(m.complaints, complaint{Complaint: by, since: now})
	}
	c := &m.complaints[i]
	c.last = now
	if c.due || !certain && now < c.since+m.t.Retry() {
		return nil
	}
	c.due = true
	m.begin(now)
	return m.end()
}

// expired reports whether a complaint ends because it was not repeated. A published one stays
// until all hosts have read it, even if the blocked client has given up.
func (m *Machine) expired(c complaint, now time.Duration) bool {
	stay := m.t.Renew()
	if c.due {
		stay = 2 * m.t.Alive()
	}
	return now > c.last+stay
}

// complainAt returns when to renew the lease early for a complaint that was not published yet.
func (m *Machine) complainAt() time.Duration {
	if slices.ContainsFunc(m.complaints, func(c complaint) bool { return c.due && !c.shown }) {
		return m.writeAt + m.t.Watch()
	}
	return never
}

// nextComplaints returns the complaints of the next write of the own record: first those that
// were not published yet, then the others in rotation.
func (m *Machine) nextComplaints() (all []layout.Complaint) {
	var chosen, rest []complaint
	for _, shown := range []bool{false, true} {
		for _, c := range m.complaints {
			switch {
			case c.shown != shown, m.expired(c, m.now):
			case c.due && len(chosen) < layout.MaxComplaints:
				c.shown = true
				chosen, all = append(chosen, c), append(all, c.Complaint)
			default:
				rest = append(rest, c)
			}
		}
	}
	m.complaints = append(rest, chosen...)
	return all
}

// complaintsFailed marks the complaints as not published, after the write with them has failed.
func (m *Machine) complaintsFailed() {
	for i := range m.complaints {
		m.complaints[i].shown = false
	}
}

// receiveComplaints stores the complaints in a record of another host that was written since the
// last read.
func (m *Machine) receiveComplaints(r Record) {
	if r.State != layout.StateLive {
		return
	}
	for _, c := range r.Complaints {
		if (c.Host == m.id || c.Host == 0) && len(m.received) < roomForComplaints && !slices.Contains(m.received, c) {
			m.received = append(m.received, c)
		}
	}
}

// reportComplaints reports the complaints of other hosts, at most once every [timing.Times.Renew].
func (m *Machine) reportComplaints() {
	if len(m.received) > 0 && m.now >= m.reportAt {
		m.emit(Complained{Of: m.received})
		m.received, m.reportAt = nil, m.now+m.t.Renew()
	}
}
