package lease

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/members"
	"github.com/bakeryd/bakeryd/layout"
)

// claim writes joining over a record that the last read showed as free.
func (m *Machine) claim(r Record) {
	if !m.within(m.readAt) {
		m.startOver(m.now)
		return
	}
	generation, sequence, err := m.members.Next(m.id, r.HostRecord, m.own)
	if err != nil {
		m.finish(Refused{Reason: err})
		return
	}
	m.own = m.cfg.Self
	m.own.ID, m.own.Generation = m.id, generation
	for m.own.Incarnation = 0; m.own.Incarnation == 0; {
		m.own.Incarnation = m.cfg.Incarnation()
	}
	m.spent = append(m.spent, m.own.Incarnation)
	m.acked, m.clean, m.stands = r.Sequence, true, -1
	m.inherit(r)
	m.trodden = m.trodden || r.State == layout.StateLeft && r.ReadHorizon >= m.id
	m.phase, m.looked = claiming, m.readAt
	m.cover(m.id + headroom)
	m.write(layout.StateJoining, sequence)
}

// claimed starts the wait after joining was written.
func (m *Machine) claimed() {
	if !m.within(m.looked) {
		m.startOver(m.now)
		return
	}
	m.stands = m.now
	wait := m.t.ShortWait()
	if m.long {
		wait = m.t.LongWait()
		m.delay(ErrSlowClaim, m.now+wait)
	}
	m.timer = m.now + wait
}

// confirm checks that the claim still stands, and then writes live (SINGLE: of all hosts that
// found the id free, only the one whose joining landed last sees its own).
func (m *Machine) confirm(records []Record) {
	r := records[m.id-1]
	if r.Err != nil { // a write of another host may be under way, or the record was damaged
		m.unreadable(r.Err)
		return
	}
	stands := r.Incarnation == m.own.Incarnation
	if m.members != nil { // COUNT
		shown, unread := members.Shown(r.Copies, m.counted, m.own.Incarnation)
		if stands = shown >= m.members.Quorum(); !stands && shown+unread >= m.members.Quorum() {
			m.undecided()
			return
		}
	}
	m.blind = -1
	switch {
	case !stands:
		m.giveWay(r)
	case m.hosts[m.id-1].Gone:
		m.finish(Refused{Reason: fmt.Errorf("join as host %d: %w", m.id, ErrVerdict)})
	case m.outdated(), !m.within(m.readAt):
		m.startOver(m.now)
	default:
		m.looked = m.readAt
		m.ready = m.trodden || m.covered(records)
		m.phase = entering
		m.write(layout.StateLive, m.own.Sequence+1)
	}
}

// undecided reads again, because members that count were not read; at last it repeats the claim.
func (m *Machine) undecided() {
	if m.blind < 0 {
		m.blind = m.now
	}
	if m.now-m.blind >= m.t.Alive() {
		m.startOver(m.now)
		return
	}
	m.timer = m.now + m.t.Poll()
}

// giveWay ends a claim that another host has overwritten.
func (m *Machine) giveWay(r Record) {
	switch {
	case m.ownIncarnation(r): // a write of an earlier attempt has landed late
		m.wrote = m.now
		m.startOver(m.now)
	case m.cfg.ID == 0:
		m.another()
	default:
		m.phase, m.timer, m.watch, m.long, m.wrote, m.counted = looking, m.now, -1, false, -1, nil
	}
}

// enter makes the host live: its record says live, and was written in time (BUDGET).
func (m *Machine) enter() {
	if !m.within(m.looked) {
		m.startOver(m.now)
		return
	}
	m.phase, m.held = live, true
	m.t0 = m.term0 // T0-FIRST
	m.emit(Joined{ID: m.id, Incarnation: m.own.Incarnation, Deadline: m.Deadline(), Generation: m.own.Generation})
	switch {
	case m.ready:
		m.emit(Ready{})
	case m.far():
		m.delay(ErrFar, m.now+m.t.Lease+m.t.Renew())
	}
	if m.company(m.readHorizon, true) {
		m.expectJoiners()
	}
	m.timer = m.now + m.t.Poll()
}

// within reports whether the claim's step that follows a read is within its budget.
func (m *Machine) within(readAt time.Duration) bool {
	budget := m.t.ClaimBudget()
	if m.long {
		budget = m.t.Budget()
	}
	return m.now-readAt <= budget
}

// startOver repeats the claim, the long way, with another incarnation: a write of the present one
// may have landed on a record that was not checked.
//
// If a long claim fails, the next one waits until other hosts have seen its record settled
// (QUIET). On a device that is too slow for claims they would otherwise see one incarnation after
// another, none of them settled, and wait for the slots of this id forever.
func (m *Machine) startOver(at time.Duration) {
	if m.long && m.wrote >= 0 {
		if at = max(at, m.wrote+m.restless(m.hosts[m.id-1])); at > m.now {
			m.delay(ErrSlowDevice, at)
		}
	}
	m.long, m.counted = true, nil
	m.phase, m.timer, m.watch, m.blind = looking, at, -1, -1
}

// restless returns how long a joining record must stand still until every other live host has
// seen it settled. Each sees it first within Alive, and again within Alive after it is settled.
func (m *Machine) restless(h Host) time.Duration {
	dog := h.maxWatchdog
	if s := m.cfg.Self; s.WatchdogArmed {
		dog = max(dog, time.Duration(s.WatchdogSeconds)*time.Second)
	}
	return m.t.Dead() + dog + 2*m.t.Alive()
}
