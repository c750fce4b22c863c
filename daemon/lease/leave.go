package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Leave ends the membership. Call it when everything is released. A live host writes left. A
// joining one does so only where its own record stands, because that record is not protected. It
// ends with [Left], at the latest when the lease ends, or after a lease's grace if there is none.
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

// lastMoment returns when leaving ends without success.
func (m *Machine) lastMoment() time.Duration {
	if m.held {
		return m.Deadline()
	}
	return m.giveUp
}

// checkOut handles a read while leaving. A record that is not the own stays unchanged.
func (m *Machine) checkOut(records []Record) {
	r := records[m.id-1]
	switch {
	case m.held:
		if m.disowned(records) != nil {
			m.finish(Left{})
		}
	case r.Err != nil:
		m.timer = m.now + m.t.Retry()
	case !m.ownIncarnation(r):
		m.finish(Left{})
	default:
		m.own.Incarnation = r.Incarnation
		m.write(layout.StateLeft, max(m.own.Sequence, r.Sequence)+1)
	}
}

// checkedOut handles an acknowledgement while leaving.
//
// The next incarnation may take the short claim only if left cannot have landed over a live
// host's record. Three conditions ensure that. This host must have been live: only then is each
// host over that its own claim overwrote. No failed write of it may still land. And left must
// have returned before a host that saw it earlier could go live by the long claim.
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
