package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// stepLive reads the table when a renewal, a verdict or a complaint is due, when the host waits to be covered, or when
// asked to.
func (m *Machine) stepLive() {
	m.heed()
	if m.reading || !m.room() {
		return
	}
	if m.again || !m.writing && m.now >= m.nextRead() {
		m.read()
	}
}

// nextRead returns when the table is to be read next. timer holds it back after a failure, and paces the polling.
func (m *Machine) nextRead() time.Duration {
	if !m.ready {
		return m.timer
	}
	return max(m.timer, min(m.renewAt(), m.due(), m.complainAt(), m.newsAt()))
}

func (m *Machine) renewAt() time.Duration { return m.t0 + m.t.Renew() }

// keep checks a read of the table, and renews the lease if that is due (OWN).
//
// An own record that is unreadable is written anew by the renewal: the sector was damaged, or it hides the write of
// a claim, which then finds this renewal when it looks.
func (m *Machine) keep(records []Record) {
	if reason := m.disowned(records); reason != nil {
		m.lose(reason)
		return
	}
	if !m.ready && m.covered(records) {
		m.ready = true
		m.tell(Ready{})
	}
	m.heed()
	m.timer = m.now
	if !m.ready {
		m.timer = m.now + m.t.Poll()
	}
	if m.writing || !m.room() {
		return
	}
	m.judge()
	if m.unpublished || m.raised() || m.now >= min(m.renewAt(), m.complainAt()) {
		m.write(layout.StateLive, m.own.Sequence+1)
	}
}

// disowned returns why, by a read of the table, the lease is over: ErrForeign, ErrVerdict or nil.
func (m *Machine) disowned(records []Record) error {
	own := records[m.id-1]
	if own.Err == nil {
		// A write that failed may have come about or not, and one may be under way.
		if own.Incarnation != m.own.Incarnation || own.Sequence < m.floor || own.Sequence > m.own.Sequence {
			return ErrForeign
		}
	}
	if m.hosts[m.id-1].Gone {
		return ErrVerdict
	}
	return nil
}

// renewed starts the next term of the lease.
func (m *Machine) renewed() {
	m.begun()
	m.takenOver = false
	m.timer = m.now
	if !m.ready {
		m.timer = m.now + m.t.Poll()
	}
	m.published()
	m.tell(Renewed{Deadline: m.Deadline()})
}
