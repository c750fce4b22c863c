// Package complaints keeps the complaints of one host about records that it cannot read, and those of
// other hosts until they are reported. It knows no table and no lease.
//
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
package complaints

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// Room bounds the complaints kept: own ones that wait for room in the record, and received ones that
// were not reported yet. A complaint without room is repeated, because its host stays blocked.
const Room = 64

// List is the complaints by this host, and those of other hosts. Its zero value is empty.
type List struct {
	own      []complaint
	Received []layout.Complaint // by other hosts, not reported yet
	ReportAt time.Duration      // time of the next report
}

// complaint is an unreadable record that blocks a client of this host.
type complaint struct {
	layout.Complaint
	since, last time.Duration // time of the first and of the last HeldUp
	due         bool          // it is to be published
	shown       bool          // it was published since it is due
}

// Len returns the number of complaints by this host.
func (l *List) Len() int { return len(l.own) }

// HeldUp adds or repeats a complaint, and reports whether it has become due.
func (l *List) HeldUp(now time.Duration, t timing.Times, by layout.Complaint, certain bool) bool {
	l.own = slices.DeleteFunc(l.own, func(c complaint) bool { return expired(c, now, t) })
	i := slices.IndexFunc(l.own, func(c complaint) bool { return c.Complaint == by })
	if i < 0 {
		if len(l.own) == Room {
			return false
		}
		i = len(l.own)
		l.own = append(l.own, complaint{Complaint: by, since: now})
	}
	c := &l.own[i]
	c.last = now
	if c.due || !certain && now < c.since+t.Retry() {
		return false
	}
	c.due = true
	return true
}

// expired reports whether a complaint ends because it was not repeated. A published one stays
// until all hosts have read it, even if the blocked client has given up.
func expired(c complaint, now time.Duration, t timing.Times) bool {
	stay := t.Renew()
	if c.due {
		stay = 2 * t.Alive()
	}
	return now > c.last+stay
}

// Waiting reports whether a due complaint was not published yet.
func (l *List) Waiting() bool {
	return slices.ContainsFunc(l.own, func(c complaint) bool { return c.due && !c.shown })
}

// Next returns the complaints of the next write of the own record: first those that were not
// published yet, then the others in rotation.
func (l *List) Next(now time.Duration, t timing.Times) (all []layout.Complaint) {
	var chosen, rest []complaint
	for _, shown := range []bool{false, true} {
		for _, c := range l.own {
			switch {
			case c.shown != shown, expired(c, now, t):
			case c.due && len(chosen) < layout.MaxComplaints:
				c.shown = true
				chosen, all = append(chosen, c), append(all, c.Complaint)
			default:
				rest = append(rest, c)
			}
		}
	}
	l.own = append(rest, chosen...)
	return all
}

// Failed marks the complaints as not published, after the write with them has failed.
func (l *List) Failed() {
	for i := range l.own {
		l.own[i].shown = false
	}
}

// Receive stores the complaints to a host in a record of another host that was written since the last
// read.
func (l *List) Receive(id int, r layout.HostRecord) {
	if r.State != layout.StateLive {
		return
	}
	for _, c := range r.Complaints {
		if (c.Host == id || c.Host == 0) && len(l.Received) < Room && !slices.Contains(l.Received, c) {
			l.Received = append(l.Received, c)
		}
	}
}

// Report returns the complaints of other hosts that are to be reported now, at most once every
// [timing.Times.Renew].
func (l *List) Report(now time.Duration, t timing.Times) (of []layout.Complaint) {
	if len(l.Received) > 0 && now >= l.ReportAt {
		of, l.Received, l.ReportAt = l.Received, nil, now+t.Renew()
	}
	return of
}
