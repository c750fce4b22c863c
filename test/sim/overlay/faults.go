package main

import (
	"fmt"
	"slices"
)

// fault is a rule that is left out of the project's code, which the simulation must notice.
type fault struct {
	name, what string
	caughtAs   string // the rules of package sim that it breaks
	stays      bool   // found with a fault that stays
	patches    []patch
}

var faults = []fault{
	{"verdict", "a silent host counts as dead before the verdict is published", "VERDICT", false, []patch{
		{"daemon/lease/death.go", `			m.publish(layout.Verdict{Host: id, Incarnation: m.hosts[id-1].Incarnation})
`, `			m.hosts[id-1].Gone = true
`},
	}},
	{"judge", "a host is declared dead after half a lease", "EXCLUSION|ORDER|WORD", false, []patch{
		{"daemon/lease/death.go", `&& h.Looked >= h.DeadAt(m.t) {`, `&& h.Looked-h.Since >= m.t.Lease/2 {`},
	}},
	{"margin", "a host does not wait for the difference of clocks", "VERDICT|EXCLUSION|WORD|SINGLE", false, []patch{
		{"daemon/lease/timing/times.go", `func (t Times) Margin() time.Duration { return t.Lease / 5 }
`, `func (t Times) Margin() time.Duration { return t.Lease / 50 }
`},
	}},
	{"sure", "a host that may have been fenced grants locks", "SURE", false, []patch{
		{"daemon/standing/standing.go", `now < min(m.WarnAt(), m.SureUntil())`, `now < m.WarnAt()`},
	}},
	{"registered", "a host that was fenced registers a new key while its clients can still write", "EXCLUSION|WORD", false, []patch{
		{"daemon/join.go", `retry.Pause(ctx, p.ended+j.disk.SB.Lease-j.clock.Now())`, `retry.Pause(ctx, 0)`},
	}},
	{"deadline", "a hold lasts a lease longer than it may", "DEADLINE|EXCLUSION|WORD", false, []patch{
		{"daemon/lease/event.go", `	return m.t0 + m.t.Lease
`, `	return m.t0 + 2*m.t.Lease
`},
	}},
	{"t0", "the lease runs from the acknowledgement of its write", "DEADLINE|EXCLUSION|WORD", false, []patch{
		{"daemon/lease/event.go", `	m.acked, m.shown, m.wrote = m.own.Sequence, m.own.ReadHorizon, m.now
`, `	m.acked, m.shown, m.wrote, m.term0 = m.own.Sequence, m.own.ReadHorizon, m.now, m.now
`},
	}},
	{"flight", "a slow write of a slot is repeated", "WRITER", false, []patch{
		{"daemon/locks/store/slots.go", `	if err := a.Dev.Write(sector, a.At(a.host)); err != nil {
`, `	out, own := make(chan error, 1), bytes.Clone(sector)
	go func() {
		aligned := lockspace.Pool.Get(len(own))
		copy(aligned, own)
		out <- a.Dev.Write(aligned, a.At(a.host))
	}()
	var err error
	select {
	case err = <-out:
	case <-time.After(50 * time.Millisecond):
		err = fmt.Errorf("no answer in time")
	}
	if err != nil {
`},
	}},
	{"highest", "reads of slots cover the hosts up to the own id", "EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY", false, []patch{
		{"daemon/lease/reach.go", `func (m *Machine) ReadHorizon() int { return m.readHorizon }
`, `func (m *Machine) ReadHorizon() int { return m.id }
`},
	}},
	{"claim", "the short claim does not measure how long its steps take", "SINGLE|WRITER|EXCLUSION|VERDICT|DEADLINE", false, []patch{
		{"daemon/lease/claim.go", `	return m.now-readAt <= budget
`, `	return budget > 0
`},
	}},
	{"unreadable", "an unreadable slot counts as idle", "EXCLUSION|TOKEN|ORDER|VERDICT|HISTORY", false, []patch{
		{"daemon/locks/store/slots.go", `		a.last = layout.Slot{}
		return a.unreadable(host)
`, `		a.last = layout.Slot{}
		return bakery.View{Readable: true}
`},
	}},
	{"choosing", "a host does not wait for another that is choosing", "EXCLUSION|TOKEN|ORDER|HISTORY", false, []patch{
		{"bakery/survey.go", `	s.ahead.add(o.Mode)
	if o.Phase == layout.Choosing {
`, `	if o.Phase == layout.Choosing {
		return
	}
	s.ahead.add(o.Mode)
	if o.Phase == layout.Choosing {
`},
	}},
	{"upgrade", "a ticket serves further grants after it has become exclusive", "TOKEN", false, []patch{
		{"daemon/locks/driver/mode.go", `	t.grants.Close()
`, ``},
	}},
	{"bound", "a look that finds another host counts as one that finds none", "BOUND", false, []patch{
		{"bakery/grants.go", `	g.wanted = g.wanted || others
	if !others && !g.wanted {
`, `	if others || !others {
`},
	}},
	{"token", "a grant from a lingering hold has the token of the one before", "TOKEN", false, []patch{
		{"bakery/grants.go", `	return ticket.Grant(g.made - 1)
`, `	return ticket.Grant((g.made - 1) / 2)
`},
	}},
	{"entered", "after a restart no ticket counts as granted", "RESTART|EXCLUSION|TOKEN|WORD|HISTORY", false, []patch{
		{"daemon/locks/driver/takeup.go", `			p.entered = p.entered || entered
`, `			p.entered = p.entered && entered
`},
	}},
	{"unkept", "a grant is not recorded for the next process", "RESTART|EXCLUSION|TOKEN|WORD|HISTORY", false, []patch{
		{"daemon/session/record.go", `s.attached.confirms
		return handover.Granted
`, `s.attached.confirms
		return ""
`},
	}},
	{"backoff", "a failed claim is repeated immediately", "PROGRESS", true, []patch{
		{"daemon/lease/claim.go", `	if m.long && m.wrote >= 0 {
`, `	if m.long && m.wrote < 0 {
`},
	}},
	{"abandoned", "hosts wait for a host whose record stays unreadable", "PROGRESS", true, []patch{
		{"daemon/standing/standing.go", `	if h.Abandoned && policy == layout.PolicyLease {
`, `	if h.Abandoned && policy != layout.PolicyLease {
`},
	}},
	{"passes", "a joining host waits until every record is readable", "PROGRESS", true, []patch{
		{"daemon/lease/hosts.go", `	return m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen() && h.damagedFor() >= m.t.Blind()
`, `	return h.Readable
`},
	}},
	{"ended", "a dead host is forgotten if its record becomes unreadable", "PROGRESS", true, []patch{
		{"daemon/standing/standing.go", `(h.Over(incarnation) || h.Read`, `(h.Readable && h.Over(incarnation) || h.Read`},
		{"bakery/peers.go", `	return incarnation == h.Incarnation && h.Gone || slices.Contains(h.Ended, incarnation)
`, `	return h.Readable && (incarnation == h.Incarnation && h.Gone || slices.Contains(h.Ended, incarnation))
`},
	}},
	{"idle", "hosts wait for an unreadable slot of a host that has left or died", "PROGRESS", true, []patch{
		{"bakery/peers.go", `		case i < len(fresh) && fresh[i].Dead():
`, `		case i < len(fresh) && fresh[i].Dead() && fresh[i].Joining:
`},
	}},
	{"worn", "the lease continues while the own slot stays unreadable", "PROGRESS", true, []patch{
		{"daemon/locks/driver/poll.go", `			err = fmt.Errorf("own slot in lock %d: %w", lk.Entry.Lock, api.ErrUnreadable)
`, `			_ = fmt.Errorf("own slot in lock %d: %w", lk.Entry.Lock, api.ErrUnreadable)
`},
	}},
	{"away", "a host joins again while one of its slots stays unreadable", "PROGRESS", true, []patch{
		{"daemon/locks/store/disk.go", `		if err == nil && v.Readable {
			continue
`, `		if err == nil || v.Readable {
			continue
`},
	}},
	{"intent", "hosts wait for an unreadable intent of a host that has left or died", "PROGRESS", true, []patch{
		{"daemon/locks/intent.go", `		if !gone {
			return fmt.Errorf("%w: host %d has`, `		if gone || !gone {
			return fmt.Errorf("%w: host %d has`},
	}},
	{"stuck", "the lease continues while IO of a lock hangs", "PROGRESS", true, []patch{
		{"daemon/membership/stuck.go", `	io, ok := mb.cfg.Stalls.Oldest()
	if io != mb.suspect {
`, `	io, ok := mb.cfg.Stalls.Oldest()
	ok = false
	if io != mb.suspect {
`},
		{"daemon/membership/stuck.go", `	if len(ios) == 0 {
		return true
`, `	if len(ios) >= 0 {
		return true
`},
	}},
}

func faultNamed(name string) (fault, error) {
	for _, f := range slices.Concat(faults, memberFaults) {
		if f.name == name {
			return f, nil
		}
	}
	return fault{}, fmt.Errorf("no fault %q: -faults lists them", name)
}
