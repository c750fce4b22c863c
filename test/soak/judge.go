package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// judge decides from the records of sections whether the locks keep their promises. It does no IO:
// all times are those of the records, on one clock.
//
// A section is over when its holder's deadline has passed. A command does not know a deadline; its
// section is over when its host was paused for long enough that its wrapper is about to kill it.
// The holder may not know yet, because it was paused between its check of the deadline and its
// write. Records begun later are refused, which is expected.
//
// A section c that conflicts with a later one, e, is over once e was granted. Later records of c
// are refused, as a storage that compares tokens would do. But a record of c that was begun after
// the grant of e, and before c's deadline, is a violation: two hold the lock at once.
//
//	c: enter ... beat          | deadline passes |  write: late, refused
//	e:                                 granted  enter
//
//	c: enter ... beat                    write: a violation
//	e:                        granted  enter
//
// # Checks
//
//   - EXCLUSION: no section writes a record before its deadline after a conflicting one was granted.
//   - PERMITS: nor do as many exclusive sections as the lock has permits after one more was granted.
//   - TOKENS: the token of an exclusive grant is greater than all before. With several permits it
//     only differs: either of two concurrent grants may be noticed first.
//   - COUNTER: a valid write increments the counter by one, and the counter does not change during
//     a shared section.
//   - VALUE: a value read under a lock is not older than the last one acknowledged before the grant.
type judge struct {
	lease  time.Duration
	locks  map[string]*judged
	pauses map[int][]pause // by host

	sections int            // number of sections that entered
	refusals map[string]int // refused records, by reason
	found    []string       // violations
}

// pause is an interval in which all processes of a host were paused.
type pause struct{ from, to time.Duration }

// everyHost stands for all hosts: the machine was paused.
const everyHost = 0

// judged is the state of one lock.
type judged struct {
	lock
	n        uint64
	members  []*member // granted, and neither left nor displaced by a conflicting grant
	over     map[string]*member
	excess   []*concurrentHolders
	latest   [2]*member    // latest grant, by mode
	granted  []grant       // recent exclusive grants, in the order of their entry
	greatest layout.Ticket // of the exclusive grants
	valued   []grant       // acknowledged values, and when
	sections int
}

type grant struct {
	token layout.Ticket
	at    time.Duration
}

// member is a section.
type member struct {
	record         // as it entered, or last changed its mode
	last   record  // latest accepted record
	by     *member // first conflicting later grant; nil if none
	reader uint64  // counter seen by a shared section
	read   bool
}

// concurrentHolders is a grant beyond the permits, unless some of the other holders were over.
type concurrentHolders struct {
	late  *member
	sure  map[string]bool // others that wrote a valid record since
	ahead []*member
}

func newJudge(lease time.Duration) *judge {
	j := &judge{lease: lease, locks: map[string]*judged{}, pauses: map[int][]pause{}, refusals: map[string]int{}}
	for _, l := range locks {
		j.locks[l.name] = &judged{lock: l, over: map[string]*member{}}
	}
	return j
}

func (j *judge) violate(format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf(format, args...))
}

// paused records a pause, at its begin with to 0, and at its end.
func (j *judge) paused(host int, p pause) {
	j.pauses[host] = slices.DeleteFunc(j.pauses[host], func(q pause) bool { return q.from == p.from })
	j.pauses[host] = append(j.pauses[host], p)
}

// dead records that all processes of a host have ended.
func (j *judge) dead(host int) {
	for _, l := range j.locks {
		for _, m := range slices.Clone(l.members) {
			if m.Host == host {
				j.leaves(l, m)
			}
		}
		for name, m := range l.over {
			if m.Host == host {
				delete(l.over, name)
			}
		}
	}
}

// take processes a record, and reports whether it is accepted.
func (j *judge) take(a record) bool {
	l := j.locks[a.Lock]
	if a.Kind == recordWrong {
		j.violate("a client complains: %s: %s", a.Section, a.Text)
		return false
	}
	if a.Kind == recordEnter {
		return j.enter(l, a)
	}
	if m := l.over[a.Section]; m != nil {
		j.tooLate(l, m, a)
		return false
	}
	i := slices.IndexFunc(l.members, func(m *member) bool { return m.Section == a.Section })
	if i < 0 {
		j.refusals["of a section not known"]++
		return false
	}
	m := l.members[i]
	if why := j.excuse(m, a); why != "" {
		j.refusals[why]++
		j.leaves(l, m)
		l.over[a.Section] = m
		return false
	}
	m.last = a
	j.confirm(l, m)
	j.does(l, m, a)
	return true
}

// does processes a record of a member that is neither late nor its first.
func (j *judge) does(l *judged, m *member, a record) {
	switch a.Kind {
	case recordBeat:
		j.sees(l, m, a)
	case recordWrite:
		if l.permits == 1 && a.N != l.n+1 {
			j.violate("an update was lost: %v writes %d, the counter is %d", a, a.N, l.n)
		}
		l.n = a.N
	case recordMode:
		j.changes(l, m, a)
	case recordValued:
		l.valued = append(l.valued, grant{a.Token, a.At})
	case recordValue:
		j.reads(l, m, a)
	case recordLeave:
		j.sees(l, m, a)
		j.leaves(l, m)
	}
}

// sees checks that readers see the same counter.
func (j *judge) sees(l *judged, m *member, a record) {
	if m.Mode != layout.Shared || l.permits > 1 {
		return
	}
	if m.read && a.N != m.reader {
		j.violate("the counter moved under a reader: %v saw %d, and then %d", a, m.reader, a.N)
	}
	m.reader, m.read = a.N, true
}

func (j *judge) enter(l *judged, a record) bool {
	m := &member{record: a, last: a}
	m.last.At = a.Asked
	l.sections++
	j.sections++
	l.forget(a.At)
	if why := j.excuse(m, a); why != "" {
		j.refusals[why]++
		l.over[a.Section] = m
		return false
	}
	m.last = a
	if m.by = l.later(m); m.by != nil {
		l.over[a.Section] = m
		j.tooLate(l, m, a)
		return false
	}
	j.displace(l, m)
	j.compareToken(l, m)
	l.members = append(l.members, m)
	l.latest[a.Mode] = m
	return true
}

// later returns a section that was granted the lock after m and conflicts with it; nil if none.
func (l *judged) later(m *member) *member {
	for mode, o := range l.latest {
		if o == nil || o.Granted <= m.Granted || m.Mode == layout.Shared && layout.Mode(mode) == layout.Shared {
			continue
		}
		if l.compatible(m, o) {
			continue
		}
		return o
	}
	return nil
}

// compatible reports whether the permits let two sections hold the lock at once.
func (l *judged) compatible(a, b *member) bool {
	return l.permits > 1 && a.Mode == layout.Exclusive && b.Mode == layout.Exclusive && a.Host != b.Host
}

// forget drops sections that ended ten minutes ago.
func (l *judged) forget(now time.Duration) {
	if len(l.over) < keepGrants {
		return
	}
	for name, m := range l.over {
		if now-m.At > 10*time.Minute {
			delete(l.over, name)
		}
	}
}

// displace ends the sections that conflict with a new grant.
func (j *judge) displace(l *judged, m *member) {
	var others []*member
	for _, c := range slices.Clone(l.members) {
		switch {
		case c == m || c.Mode == layout.Shared && m.Mode == layout.Shared:
		case l.compatible(c, m):
			if c.Granted < m.Granted { // otherwise c's own entry covers it
				others = append(others, c)
			}
		default:
			j.ends(l, c, m)
		}
	}
	if l.permits > 1 && m.Mode == layout.Exclusive && len(others) >= l.permits {
		l.excess = append(l.excess, &concurrentHolders{late: m, sure: map[string]bool{}, ahead: others})
		for _, c := range others {
			if c.last.At > m.Granted {
				j.confirm(l, c)
			}
		}
	}
}

// ends ends c because of the grant to by.
func (j *judge) ends(l *judged, c, by *member) {
	if c.last.At > by.Granted {
		j.violate("two have %q at once: %v, granted at %v, while %v", l.name, by.record, by.Granted, c.last)
	}
	j.leaves(l, c)
	c.by = by
	l.over[c.Section] = c
}

// tooLate judges a record of a section that is over.
func (j *judge) tooLate(l *judged, m *member, a record) {
	switch why := j.excuse(m, a); {
	case why != "":
		j.refusals[why]++
	case m.by == nil:
		j.refusals["after it was refused"]++
	case a.At <= m.by.Granted:
		j.refusals["begun before the other's grant"]++ // a client that still runs writes again
	default:
		j.violate("two have %q at once: %v, while %v was granted at %v", l.name, a, m.by.record, m.by.Granted)
	}
}

// excuse returns why a late record is expected, or "".
func (j *judge) excuse(m *member, a record) string {
	switch {
	case a.Deadline != 0 && a.At > a.Deadline:
		return "past its deadline"
	case a.Deadline == 0 && j.stoodStill(m.Host, m.last.At, a.At):
		return "a command whose host stood still"
	}
	return ""
}

// stillStopping is how long after a pause a command may run before it is stopped.
const stillStopping = 3 * time.Second

// stoodStill reports whether a host was paused within an interval, or just before its end, for so
// long that its lease may have ended: it last renewed a sixth of a lease before, or slightly more.
func (j *judge) stoodStill(host int, from, to time.Duration) bool {
	return slices.ContainsFunc(slices.Concat(j.pauses[host], j.pauses[everyHost]), func(p pause) bool {
		return p.from <= to && (p.to == 0 || p.to-p.from >= j.lease*7/10 && p.to >= from && to <= p.to+stillStopping)
	})
}

// confirm notes that a member held the lock at its latest record, and so together with the entries
// of excess.
func (j *judge) confirm(l *judged, m *member) {
	for _, c := range l.excess {
		if c.late == m || !slices.Contains(c.ahead, m) {
			continue
		}
		c.sure[m.Section] = true
		if len(c.sure) >= l.permits {
			j.violate("more than %d have %q at once: %v was granted at %v, while %v are in", l.permits, l.name, c.late.record, c.late.Granted, c.sure)
			c.ahead = nil
		}
	}
}

// compareToken compares a new exclusive grant with those before it.
func (j *judge) compareToken(l *judged, m *member) {
	if m.Mode != layout.Exclusive {
		return
	}
	for _, g := range l.granted {
		if m.Token == g.token || m.Token < g.token && l.permits == 1 {
			j.violate("a token went back: %v, granted at %v, after token %d, granted at %v", m.record, m.Granted, g.token, g.at)
			break
		}
	}
	l.granted = append(l.granted, grant{m.Token, m.Granted})
	if len(l.granted) > 2*keepGrants {
		l.granted = slices.Delete(l.granted, 0, keepGrants)
	}
	l.greatest = max(l.greatest, m.Token)
}

// keepGrants is the least number of earlier grants that a token is compared with.
const keepGrants = 100

// changes changes a member's mode.
func (j *judge) changes(l *judged, m *member, a record) {
	m.Mode, m.read = a.Mode, false
	if a.Mode == layout.Exclusive {
		m.Granted = a.Granted
		j.displace(l, m)
		l.latest[layout.Exclusive] = &member{record: m.record} // a copy: m may share the lock again
		if a.Token < l.greatest {
			j.violate("a token went back: %v becomes exclusive after token %d", a, l.greatest)
		}
		l.greatest = max(l.greatest, a.Token)
	}
}

// reads judges the value that a member has read. It need not see a value that another section set
// after the grant.
func (j *judge) reads(l *judged, m *member, a record) {
	for _, v := range l.valued {
		if v.at < m.Granted && a.ValueToken < v.token {
			j.violate("a value went back: %v reads that of token %d, that of %d was acknowledged at %v", a, a.ValueToken, v.token, v.at)
			break
		}
	}
	if len(l.valued) > keepGrants {
		l.valued = []grant{l.valued[len(l.valued)-1]}
	}
	if a.ValueToken > m.Token && m.Mode == layout.Exclusive {
		j.violate("a value comes from later: %v reads that of token %d", a, a.ValueToken)
	}
}

// leaves removes a member that leaves or is over.
func (j *judge) leaves(l *judged, m *member) {
	l.members = slices.DeleteFunc(l.members, func(o *member) bool { return o == m })
	kept := l.excess[:0]
	for _, c := range l.excess {
		if c.late != m || len(c.ahead) > 0 {
			kept = append(kept, c)
		}
	}
	l.excess = kept
	if len(l.excess) > keepGrants {
		l.excess = slices.Delete(l.excess, 0, len(l.excess)-keepGrants)
	}
}
