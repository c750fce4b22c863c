package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Leave ends the membership, and is to be called when everything is released. A live host writes left; one that
// still joins does so only where its own record stands, for nobody guards it. It ends with [Left], at the latest
// when the lease ends, or after a lease's grace if there is none.
func (m *Machine) Leave(now time.Duration) []Action {
	m.begin(now)
	switch m.phase {
	case idle, looking, claiming, entering:
		if len(m.spent) == 0 {
			m.finish(Left{})
			break
		}
		m.phase, m.timer, m.giveUp = leaving, m.now, m.now+m.t.Grace()
	case live:
		m.phase, m.timer = leaving, m.now
	}
	return m.end()
}

// stepLeaving writes left, or reads the table first if there is no lease.
func (m *Machine) stepLeaving() {
	if m.now >= m.lastMoment() {
		m.finish(Left{})
		return
	}
	if m.writing || m.now < m.timer {
		return
	}
	switch {
	case m.held && m.room(): // LAST-CALL
		m.write(layout.StateLeft, m.own.Sequence+1)
	case !m.held && !m.reading:
		m.read()
	}
}

// lastMoment returns when leaving is given up.
func (m *Machine) lastMoment() time.Duration {
	if m.held {
		return m.Deadline()
	}
	return m.giveUp
}

// checkOut takes in a read while leaving: a record that is not the own is let alone.
func (m *Machine) checkOut(records []Record) {
	r := records[m.id-1]
	switch {
	case m.held:
		if m.disowned(records) != nil {
			m.finish(Left{})
		}
	case r.Err != nil:
		m.timer = m.now + m.t.Retry()
	case !m.mine(r):
		m.finish(Left{})
	default:
		m.own.Incarnation = r.Incarnation
		m.write(layout.StateLeft, max(m.own.Sequence, r.Sequence)+1)
	}
}

// checkedOut takes in an acknowledgement while leaving.
//
// Its successor may take the short claim only if left cannot have landed on top of a live host's record. So this
// host must have been live, for only then is over whom its own claim overwrote; no write of it that failed may be
// about to land; and left must have returned sooner than anybody who saw it before could go live by the long claim.
func (m *Machine) checkedOut() {
	if m.own.State != layout.StateLeft {
		return
	}
	var left Left
	if m.held && m.clean && m.now-m.writeAt <= m.t.Budget() {
		left.Incarnation = m.own.Incarnation
	}
	m.finish(left)
}
