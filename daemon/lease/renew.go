package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// stepLive reads the table when a renewal, a verdict or a complaint is due, when the host waits
// to be covered, or after Refresh.
func (m *Machine) stepLive() {
	m.reportComplaints()
	if m.reading || !m.room() {
		return
	}
	if m.again || !m.writing && m.now >= m.nextRead() {
		m.read()
	}
}

// nextRead returns when to read the table next. timer delays it after a failure, and paces the
// polling.
func (m *Machine) nextRead() time.Duration {
	if !m.ready {
		return m.timer
	}
	return max(m.timer, min(m.renewAt(), m.due(), m.complainAt(), m.joinersAt(), m.damagedAt()))
}

func (m *Machine) renewAt() time.Duration { return m.t0 + m.t.Renew() }

// keep checks a read of the table, and renews the lease if that is due (OWN).
//
// A renewal repairs an unreadable own record. Either the sector was damaged, or it hides the
// write of a claim, which then finds this renewal when it looks. That renewal counts only when a
// later read shows the record (OWN-READABLE). Otherwise other hosts, for which it is unreadable
// too, could not conclude that this one is dead.
//
//	host j                          others                      record of j
//	                                                            damaged
//	                                read: Damaged
//	reads: unreadable; renews                                   unreadable
//	reads: unreadable; renews                                   unreadable
//	(its last term ends: Lost)
//	                                abandoned
func (m *Machine) keep(records []Record) {
	if reason := m.disowned(records); reason != nil {
		m.lose(reason)
		return
	}
	if records[m.id-1].Err == nil && m.unseen {
		m.unseen = false
		if !m.writing && m.acked == m.own.Sequence {
			m.renewed()
		}
	}
	if !m.ready && m.covered(records) {
		m.ready = true
		m.emit(Ready{})
	}
	m.reportComplaints()
	m.pace()
	if m.t.FenceAfter > 0 && (m.failed || m.now-m.t0 > m.t.Alive()) {
		for i := range m.hosts {
			if h := &m.hosts[i]; m.now < h.Since+m.t.Dead() { // longer silence has ended its lease
				h.steady, h.turns = m.now, 0
			}
		}
	}
	m.failed = false
	if m.writing || !m.room() {
		return
	}
	m.judge()
	if m.unpublished || m.own.Epoch < m.cfg.Self.Epoch || m.raised() || m.now >= min(m.renewAt(), m.complainAt()) {
		m.unseen = records[m.id-1].Err != nil
		m.write(layout.StateLive, m.own.Sequence+1)
		m.term0 = min(m.now, m.readAt+m.t.Budget())
	}
}

// disowned returns the reason for which a read of the table ends the lease: ErrForeign,
// ErrVerdict or nil.
func (m *Machine) disowned(records []Record) error {
	own := records[m.id-1]
	if own.Err == nil {
		// A failed write may have landed or not, and one may be under way.
		if own.Incarnation != m.own.Incarnation || own.Sequence < m.floor || own.Sequence > m.own.Sequence {
			return ErrForeign
		}
	}
	if m.hosts[m.id-1].Gone {
		return ErrVerdict
	}
	return nil
}

// renewed starts the next term of the lease, unless the own record must be seen first.
func (m *Machine) renewed() {
	if m.unseen {
		m.timer = m.now + m.t.Retry()
		return
	}
	m.t0 = m.term0 // T0-FIRST
	m.takenOver = false
	m.pace()
	m.published()
	m.emit(Renewed{Deadline: m.Deadline()})
}

// pace lets the next read begin when it is due, or after a pause while this host is not covered.
func (m *Machine) pace() {
	m.timer = m.now
	if !m.ready {
		m.timer = m.now + m.t.Poll()
	}
}

// HeldUp reports that an unreadable record blocks a client of this host, so that other hosts repair it. The
// driver repeats the call while that is so. Unless it is certain that no write is under way, the complaint
// is published after it was repeated for [timing.Times.Retry]. Most calls return no action.
func (m *Machine) HeldUp(now time.Duration, by layout.Complaint, certain bool) []Action {
	now = max(now, m.now)
	if m.phase != live || by.Host == m.id || !m.complaints.HeldUp(now, m.t, by, certain) {
		return nil
	}
	m.begin(now)
	return m.end()
}

// complainAt returns when to renew the lease early for a complaint that was not published yet.
func (m *Machine) complainAt() time.Duration {
	if m.complaints.Waiting() {
		return m.writeAt + m.t.Watch()
	}
	return never
}

func (m *Machine) reportComplaints() {
	if of := m.complaints.Report(m.now, m.t); of != nil {
		m.emit(Complained{Of: of})
	}
}
