package lease

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// A record that cannot be read holds others up until whoever may write it does so again. Nobody looks for that on his
// own: who is held up complains in his host record, which all read anyway.
//
//	host A                        host B                        A's slot in lock 7
//	                                                            damaged
//	                              wants lock 7; polls           damaged
//	                              renews: "A's slot in 7"
//	reads the host table: looks
//	rewrites it                                                 idle
//	                              enters
//
// A complaint counts once for each write of the record that makes it: one that a dead host has left is heeded once.

// roomForComplaints is how many complaints are kept: own ones that wait for their turn in the record, and heard ones
// that are yet to be told. What finds no room is made again, for it holds somebody up.
const roomForComplaints = 64

// complaint is what somebody on this host is held up by.
type complaint struct {
	layout.Complaint
	since, last time.Duration // when it was first made, and last
	due         bool          // it is to be published
	shown       bool          // it was, since it is due
}

// HeldUp says that somebody on this host is held up by a record that cannot be read, and which others are to look at.
// It is to be said over and over for as long as that is so. What may be a write under way is published only when it
// was said for a little while; what is certain not to be one, at once. Most often nothing is to be done.
func (m *Machine) HeldUp(now time.Duration, by layout.Complaint, certain bool) []Action {
	now = max(now, m.now)
	if m.phase != live || by.Host == m.id {
		return nil
	}
	c := m.complaint(by, now)
	if c == nil {
		return nil
	}
	c.last = now
	if c.due || !certain && now < c.since+m.t.Retry() {
		return nil
	}
	c.due = true
	m.begin(now)
	return m.end()
}

// complaint returns the one that stands, or a new one; nil if there is no room.
func (m *Machine) complaint(by layout.Complaint, now time.Duration) *complaint {
	m.complaints = slices.DeleteFunc(m.complaints, func(c complaint) bool { return m.past(c, now) })
	i := slices.IndexFunc(m.complaints, func(c complaint) bool { return c.Complaint == by })
	if i < 0 {
		if len(m.complaints) == roomForComplaints {
			return nil
		}
		i = len(m.complaints)
		m.complaints = append(m.complaints, complaint{Complaint: by, since: now})
	}
	return &m.complaints[i]
}

// past says whether a complaint is to be withdrawn, for it was not made again. One that was published stays until all
// have read it, though who made it may not wait any more.
func (m *Machine) past(c complaint, now time.Duration) bool {
	stay := m.t.Renew()
	if c.due {
		stay = 2 * m.t.Alive()
	}
	return now > c.last+stay
}

// complainAt returns when the lease is to be renewed early for a complaint that was not published yet.
func (m *Machine) complainAt() time.Duration {
	if slices.ContainsFunc(m.complaints, func(c complaint) bool { return c.due && !c.shown }) {
		return m.writeAt + m.t.Watch()
	}
	return never
}

// complain returns what a write of the own record is to say: what was not said yet, then the rest by turns.
func (m *Machine) complain() (all []layout.Complaint) {
	var said, rest []complaint
	slices.SortStableFunc(m.complaints, func(a, b complaint) int { return order(a.shown, b.shown) })
	for _, c := range m.complaints {
		switch {
		case m.past(c, m.now):
		case c.due && len(said) < layout.MaxComplaints:
			c.shown = true
			said, all = append(said, c), append(all, c.Complaint)
		default:
			rest = append(rest, c)
		}
	}
	m.complaints = append(rest, said...)
	return all
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// unsaid notes that the write which was to publish the complaints has failed.
func (m *Machine) unsaid() {
	for i := range m.complaints {
		m.complaints[i].shown = false
	}
}

// overhear takes in the complaints of another host's record that was written since the last read.
func (m *Machine) overhear(r Record) {
	if r.State != layout.StateLive {
		return
	}
	for _, c := range r.Complaints {
		if (c.Host == m.id || c.Host == 0) && len(m.heeded) < roomForComplaints && !slices.Contains(m.heeded, c) {
			m.heeded = append(m.heeded, c)
		}
	}
}

// heed tells of what others complain, no more often than they renew.
func (m *Machine) heed() {
	if len(m.heeded) > 0 && m.now >= m.heedAt {
		m.tell(Complained{Of: m.heeded})
		m.heeded, m.heedAt = nil, m.now+m.t.Renew()
	}
}
