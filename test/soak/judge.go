package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// judge decides from what sections tell of themselves whether the locks keep
// their promises. It is pure: all times are those of the acts, of one clock.
//
// A section is over when its holder's deadline has passed, and one of a command, which is not told of a deadline,
// when its host has stood still for a while: it is about to be killed by its wrapper, which stood still as well. It may
// not know yet: it was paused, or its process stood still between its look at the deadline and its
// write. So what is begun later than that is refused; such a late act is to be expected.
//
// A section c that conflicts with a later one, e, is over once e was granted. What c does after that is refused too, as
// by a storage that knows of tokens. But if it was begun after the grant of e, and is not late, it is a violation: two
// have the lock at once.
//
//	c: enter ... beat          | deadline passes |  write: late, refused
//	e:                                 granted  enter
//
//	c: enter ... beat                    write: a violation
//	e:                        granted  enter
//
// # What is checked
//
//   - EXCLUSION: of conflicting sections none does anything in time after another was granted.
//   - PERMITS: nor do as many exclusive ones as the lock has permits after one more was granted.
//   - TOKENS: an exclusive grant's token is above that of every one before; of a lock with several permits it is
//     merely another one, as of two who are admitted at once either may be the first to notice.
//   - COUNTER: what a section writes in time is one more than what was there, and what shares a lock sees the counter stand still.
//   - VALUE: the value read under a lock is never older than the last one whose writing was acknowledged before the grant.
type judge struct {
	lease  time.Duration
	locks  map[string]*judged
	pauses map[int][]pause // by host

	sections int            // entered
	refusals map[string]int // late acts, by why they are to be expected
	found    []string       // violations
}

// pause is an interval in which every process of a host stood still.
type pause struct{ from, to time.Duration }

// everyHost stands for all hosts at once: the machine stood still.
const everyHost = 0

// judged is one lock.
type judged struct {
	lock
	n        uint64
	members  []*member // granted, not left, none granted since that conflicts
	over     map[string]*member
	crowds   []*crowd
	latest   [2]*member    // granted last, by mode
	granted  []grant       // the last exclusive ones, in the order in which they entered
	greatest layout.Ticket // of the exclusive ones
	valued   []grant       // values whose writing was acknowledged, and when
	sections int
}

type grant struct {
	token layout.Ticket
	at    time.Duration
}

// member is a section.
type member struct {
	act            // as it entered, or last changed its mode
	last   act     // the last one that was not refused
	by     *member // the first one that was granted since and conflicts; nil: none
	reader uint64  // what a shared section saw
	read   bool
}

// crowd is a grant that was one too many, unless some of the others were over.
type crowd struct {
	late  *member
	sure  map[string]bool // others that have done something since, in time
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

// paused tells of a pause, when it begins and, with its end, when that is over.
func (j *judge) paused(host int, p pause) {
	j.pauses[host] = slices.DeleteFunc(j.pauses[host], func(q pause) bool { return q.from == p.from })
	j.pauses[host] = append(j.pauses[host], p)
}

// dead tells that every process of a host that was there is gone.
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

// take takes an act, and says whether it may be done.
func (j *judge) take(a act) bool {
	l := j.locks[a.Lock]
	if a.Kind == actWrong {
		j.violate("a client complains: %s: %s", a.Section, a.Text)
		return false
	}
	if a.Kind == actEnter {
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

// does has a member do what is neither too late nor the beginning.
func (j *judge) does(l *judged, m *member, a act) {
	switch a.Kind {
	case actBeat:
		j.sees(l, m, a)
	case actWrite:
		if l.permits == 1 && a.N != l.n+1 {
			j.violate("an update was lost: %v writes %d, the counter is %d", a, a.N, l.n)
		}
		l.n = a.N
	case actMode:
		j.changes(l, m, a)
	case actValued:
		l.valued = append(l.valued, grant{a.Token, a.At})
	case actValue:
		j.reads(l, m, a)
	case actLeave:
		j.sees(l, m, a)
		j.leaves(l, m)
	}
}

// sees compares what readers see.
func (j *judge) sees(l *judged, m *member, a act) {
	if m.Mode != layout.Shared || l.permits > 1 {
		return
	}
	if m.read && a.N != m.reader {
		j.violate("the counter moved under a reader: %v saw %d, and then %d", a, m.reader, a.N)
	}
	m.reader, m.read = a.N, true
}

func (j *judge) enter(l *judged, a act) bool {
	m := &member{act: a, last: a}
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

// later returns who conflicts with a section that enters only now and was granted the lock after that; nil: nobody.
func (l *judged) later(m *member) *member {
	for mode, o := range l.latest {
		if o == nil || o.Granted <= m.Granted || m.Mode == layout.Shared && layout.Mode(mode) == layout.Shared {
			continue
		}
		if l.beside(m, o) {
			continue
		}
		return o
	}
	return nil
}

// beside tells whether two may be inside together by the number of permits.
func (l *judged) beside(a, b *member) bool {
	return l.permits > 1 && a.Mode == layout.Exclusive && b.Mode == layout.Exclusive && a.Host != b.Host
}

// forget drops sections that have been over for long, which nothing is heard of any more.
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

// displace ends the sections that a new grant shows to be over.
func (j *judge) displace(l *judged, m *member) {
	var others []*member
	for _, c := range slices.Clone(l.members) {
		switch {
		case c == m || c.Mode == layout.Shared && m.Mode == layout.Shared:
		case l.beside(c, m):
			if c.Granted < m.Granted { // else that one's own crowd would have told
				others = append(others, c)
			}
		default:
			j.ends(l, c, m)
		}
	}
	if l.permits > 1 && m.Mode == layout.Exclusive && len(others) >= l.permits {
		l.crowds = append(l.crowds, &crowd{late: m, sure: map[string]bool{}, ahead: others})
		for _, c := range others {
			if c.last.At > m.Granted {
				j.confirm(l, c)
			}
		}
	}
}

// ends has c be over, for by was granted.
func (j *judge) ends(l *judged, c, by *member) {
	if c.last.At > by.Granted {
		j.violate("two have %q at once: %v, granted at %v, while %v", l.name, by.act, by.Granted, c.last)
	}
	j.leaves(l, c)
	c.by = by
	l.over[c.Section] = c
}

// tooLate judges an act of a section that is over.
func (j *judge) tooLate(l *judged, m *member, a act) {
	switch why := j.excuse(m, a); {
	case why != "":
		j.refusals[why]++
	case m.by == nil:
		j.refusals["after it was refused"]++
	case a.At <= m.by.Granted:
		j.refusals["begun before the other's grant"]++ // of one that was killed; if it lives, it tries again
	default:
		j.violate("two have %q at once: %v, while %v was granted at %v", l.name, a, m.by.act, m.by.Granted)
	}
}

// excuse says why an act cannot be expected to be in time, if so.
func (j *judge) excuse(m *member, a act) string {
	switch {
	case a.Deadline != 0 && a.At > a.Deadline:
		return "past its deadline"
	case a.Deadline == 0 && j.stoodStill(m.Host, m.last.At, a.At):
		return "a command whose host stood still"
	}
	return ""
}

// stillStopping is how long after a pause a command may go on before it is stopped.
const stillStopping = 3 * time.Second

// stoodStill tells whether a host was paused within an interval, or just before its end, for so long that it may have
// lost its lease by that: it has renewed it a sixth of a lease before, or a little more.
func (j *judge) stoodStill(host int, from, to time.Duration) bool {
	return slices.ContainsFunc(slices.Concat(j.pauses[host], j.pauses[everyHost]), func(p pause) bool {
		return p.from <= to && (p.to == 0 || p.to-p.from >= j.lease*7/10 && p.to >= from && to <= p.to+stillStopping)
	})
}

// confirm counts a member as inside at the last moment, with those that were granted the lock beside it.
func (j *judge) confirm(l *judged, m *member) {
	for _, c := range l.crowds {
		if c.late == m || !slices.Contains(c.ahead, m) {
			continue
		}
		c.sure[m.Section] = true
		if len(c.sure) >= l.permits {
			j.violate("more than %d have %q at once: %v was granted at %v, while %v are in", l.permits, l.name, c.late.act, c.late.Granted, c.sure)
			c.ahead = nil
		}
	}
}

// compareToken holds a new exclusive grant against those before it.
func (j *judge) compareToken(l *judged, m *member) {
	if m.Mode != layout.Exclusive {
		return
	}
	for _, g := range l.granted {
		if m.Token == g.token || m.Token < g.token && l.permits == 1 {
			j.violate("a token went back: %v, granted at %v, after token %d, granted at %v", m.act, m.Granted, g.token, g.at)
			break
		}
	}
	l.granted = append(l.granted, grant{m.Token, m.Granted})
	if len(l.granted) > 2*keepGrants {
		l.granted = slices.Delete(l.granted, 0, keepGrants)
	}
	l.greatest = max(l.greatest, m.Token)
}

// keepGrants is with how many earlier ones a token is compared at least.
const keepGrants = 100

// changes takes a member's other mode.
func (j *judge) changes(l *judged, m *member, a act) {
	m.Mode, m.read = a.Mode, false
	if a.Mode == layout.Exclusive {
		m.Granted = a.Granted
		j.displace(l, m)
		l.latest[layout.Exclusive] = &member{act: m.act} // as it is now: m may share the lock again
		if a.Token < l.greatest {
			j.violate("a token went back: %v becomes exclusive after token %d", a, l.greatest)
		}
		l.greatest = max(l.greatest, a.Token)
	}
}

// reads judges the value that a member has read. What was acknowledged after the grant, by another one, it need not see.
func (j *judge) reads(l *judged, m *member, a act) {
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

// leaves takes a member out, as it leaves or as it is known to be over.
func (j *judge) leaves(l *judged, m *member) {
	l.members = slices.DeleteFunc(l.members, func(o *member) bool { return o == m })
	kept := l.crowds[:0]
	for _, c := range l.crowds {
		if c.late != m || len(c.ahead) > 0 {
			kept = append(kept, c)
		}
	}
	l.crowds = kept
	if len(l.crowds) > keepGrants {
		l.crowds = slices.Delete(l.crowds, 0, len(l.crowds)-keepGrants)
	}
}
