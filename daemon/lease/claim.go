package lease

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// claim writes joining over a record that was found free by the last read.
func (m *Machine) claim(r Record) {
	if !m.within(m.readAt) {
		m.startOver(m.now)
		return
	}
	m.own = m.cfg.Self
	m.own.ID = m.id
	for m.own.Incarnation = 0; m.own.Incarnation == 0; {
		m.own.Incarnation = m.cfg.Incarnation()
	}
	m.spent = append(m.spent, m.own.Incarnation)
	m.acked, m.clean, m.stands = r.Sequence, true, -1
	m.inherit(r)
	m.trodden = m.trodden || r.State == layout.StateLeft && r.ReadHorizon >= m.id
	m.phase, m.looked = claiming, m.readAt
	m.raise(m.id)
	m.write(layout.StateJoining, r.Sequence+1)
}

// claimed waits after joining was written.
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
	if m.mutation == noWait {
		wait = 0
	}
	m.timer = m.now + wait
}

// confirm looks whether the claim still stands, and if so writes live (SINGLE: of all who found the id free, only
// the last whose joining landed sees its own).
func (m *Machine) confirm(records []Record) {
	r := records[m.id-1]
	if r.Err != nil { // a write of another may be under way, or the record was damaged
		m.unreadable(r.Err)
		return
	}
	m.blind = -1
	switch {
	case r.Incarnation != m.own.Incarnation:
		m.giveWay(r)
	case m.hosts[m.id-1].Gone && m.mutation != deaf:
		m.finish(Refused{Reason: fmt.Errorf("join as host %d: %w", m.id, ErrVerdict)})
	case !m.within(m.readAt):
		m.startOver(m.now)
	default:
		m.looked = m.readAt
		m.ready = m.trodden || m.covered(records)
		m.phase = entering
		m.write(layout.StateLive, m.own.Sequence+1)
	}
}

// giveWay ends a claim that another has overwritten.
func (m *Machine) giveWay(r Record) {
	switch {
	case m.mine(r): // a write of an earlier attempt has landed late
		m.wrote = m.now
		m.startOver(m.now)
	case m.cfg.ID == 0:
		m.another()
	default:
		m.phase, m.timer, m.watch, m.long, m.wrote = looking, m.now, -1, false, -1
	}
}

// enter makes the host live: its record says so, and was written in time (BUDGET).
func (m *Machine) enter() {
	if !m.within(m.looked) {
		m.startOver(m.now)
		return
	}
	m.phase, m.held = live, true
	m.begun()
	m.tell(Joined{ID: m.id, Incarnation: m.own.Incarnation, Deadline: m.Deadline()})
	switch {
	case m.ready:
		m.tell(Ready{})
	case m.far():
		m.delay(ErrFar, m.now+m.t.Lease+m.t.Renew())
	}
	if m.company(m.highest, true) {
		m.expect()
	}
	m.timer = m.now + m.t.Poll()
}

// begun starts a term of the lease, with the acknowledgement of a write (T0-FIRST).
func (m *Machine) begun() {
	m.t0 = m.term0
	if m.mutation == lateT0 {
		m.t0 = m.now
	}
}

// within says whether a step of the claim that follows a read is still within its budget.
func (m *Machine) within(readAt time.Duration) bool {
	budget := m.t.ClaimBudget()
	if m.long {
		budget = m.t.Budget()
	}
	return m.now-readAt <= budget || m.mutation == noBudget
}

// startOver makes the claim again, the long way, with another incarnation: a write of this one may have landed on
// top of a record that was not looked at.
//
// If a long claim fails, the next one waits until other hosts have seen its record settled (QUIET). On a device that is
// too slow for claims they otherwise see one incarnation after another, none of them settled, and wait for the slots of
// this id for ever.
func (m *Machine) startOver(at time.Duration) {
	if m.long && m.wrote >= 0 && m.mutation != noBackoff {
		if at = max(at, m.wrote+m.restless(m.hosts[m.id-1])); at > m.now {
			m.delay(ErrSlowDevice, at)
		}
	}
	m.long = true
	m.phase, m.timer, m.watch, m.blind = looking, at, -1, -1
}

// restless returns for how long a joining record stands still until every other host that lives has seen it settled:
// each sees it first within Alive, and again within Alive after it is settled.
func (m *Machine) restless(h Host) time.Duration {
	dog := h.dog
	if s := m.cfg.Self; s.WatchdogArmed {
		dog = max(dog, time.Duration(s.WatchdogSeconds)*time.Second)
	}
	return m.t.Dead() + dog + 2*m.t.Alive()
}
