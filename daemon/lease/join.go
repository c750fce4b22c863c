package lease

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// look decides, by a read of the table, whether an id may be claimed.
func (m *Machine) look(records []Record) {
	if m.awaitList(m.listed) {
		return
	}
	if m.cfg.ID == 0 && m.id == 0 {
		m.id = m.choose(records)
		if m.id == 0 {
			m.finish(Refused{Reason: fmt.Errorf("choose one of %d host ids: %w", m.cfg.Hosts, ErrFull)})
			return
		}
	}
	r := records[m.id-1]
	if r.Err != nil {
		m.unreadable(r.Err)
		return
	}
	m.blind = -1
	switch {
	case r.Blank(), m.known(r):
		m.claim(r)
	case r.State == layout.StateLeft, m.ownIncarnation(r), m.hosts[m.id-1].Forgotten:
		m.long = true
		m.claim(r)
	default:
		m.taken(r)
	}
}

// taken handles an id whose record says joining or live (KEEP-OUT).
func (m *Machine) taken(r Record) {
	same := r.MachineID == m.cfg.Self.MachineID
	if m.watch < 0 {
		m.watch = m.now
	}
	h := m.hosts[m.id-1]
	stood, dead := m.readAt-h.still(), m.t.Dead()+h.maxWatchdog
	if r.State == layout.StateJoining { // so that other hosts see it settled: see startOver
		dead = m.restless(h)
	}
	if m.members != nil && h.Since > m.watch && !m.stirred {
		m.stirred, m.watch = true, h.Since
	}
	switch {
	case m.cfg.ID == 0 && (!same || h.Since > m.watch):
		m.another()
	case h.Since > m.watch:
		m.finish(Refused{Reason: m.conflict(r, ErrInUse)})
	case same && (h.Gone || stood >= dead):
		m.long = m.long || h.Gone || r.State == layout.StateJoining
		m.claim(r)
	case !same && stood >= m.t.Alive():
		m.finish(Refused{Reason: m.conflict(r, ErrNotLeft)})
	default:
		if same && stood >= m.t.Alive() {
			m.delay(m.conflict(r, ErrNotLeft), h.still()+dead)
		}
		m.timer = m.now + m.t.Retry()
	}
}

// unreadable waits until the owner of the record repairs it, which it does by its next renewal.
// If the id is abandoned, a machine that may have it claims it the long way. SINGLE then holds
// even if a host is live behind the record.
func (m *Machine) unreadable(reason error) {
	if m.blind < 0 {
		m.blind = m.now
	}
	h, may := &m.hosts[m.id-1], m.mayReclaim()
	switch {
	case may && h.Abandoned:
		m.long, m.rewrote = true, true
		m.claim(Record{})
	case m.now-m.blind < m.t.Alive():
		m.timer = m.now + m.t.Retry()
	case may:
		m.delay(fmt.Errorf("host id %d: %w: %w", m.id, ErrUnreadable, reason), h.Damaged+m.abandonedAfter(h))
		m.timer = m.now + m.t.Retry()
	case m.cfg.ID == 0:
		m.another()
	case m.rewrote:
		m.finish(Refused{Reason: fmt.Errorf("join as host %d: %w although it was written again: %w: choose another host id",
			m.id, ErrUnreadable, reason)})
	default:
		m.finish(Refused{Reason: fmt.Errorf("join as host %d: %w: %w: run bakeryctl check --repair on the device, or choose another host id",
			m.id, ErrUnreadable, reason)})
	}
}

// mayReclaim reports whether this machine may take the id from an abandoned record, once
// (KEEP-OUT). That it had the id before does not prove that no other machine had it later. Under
// the policies fence and manual the holders of that machine may outlive its lease, and only an
// operator can decide.
//
//	machine a               machine b               operator        record of 5
//	host 5, leaves                                                  left
//	                        host 5: live                            b
//	                        (cut off; its holder
//	                        continues: manual)
//	                                                                damaged
//	starts as host 5:
//	abandoned, had it:
//	must not claim
func (m *Machine) mayReclaim() bool {
	had := slices.Contains(m.cfg.Had, m.id) || m.cfg.ID != 0 && len(m.spent) > 0
	return !m.rewrote && (m.cfg.Reclaim || had && m.cfg.Policy == layout.PolicyLease)
}

// conflict names the host that has the requested id.
func (m *Machine) conflict(r Record, reason error) error {
	return fmt.Errorf("host id %d, host %q: %w: wait for that host to leave, or choose another id", m.id, r.Name, reason)
}

// another abandons the present id for another one.
func (m *Machine) another() {
	m.tried[m.id-1] = true
	m.id, m.long, m.watch, m.blind, m.trodden, m.spent, m.wrote, m.rewrote = 0, false, -1, -1, false, nil, -1, false
	m.phase, m.timer, m.counted = looking, m.now, nil
}

// known reports whether a record shows an incarnation of this machine that has ended cleanly. No
// host that may still be live has had the id since.
func (m *Machine) known(r Record) bool {
	return (r.State == layout.StateLeft || r.State == layout.StateLive) && slices.Contains(m.cfg.Left, r.Incarnation)
}

// choose returns the id to claim, of each kind the lowest, or 0 if there is none. The order is:
// an id where this machine ended cleanly, because it needs only the short claim; one that it left
// otherwise; a blank one; one that another machine left; a forgotten one; a dead one of this
// machine; an unreadable one that this machine had. A dead host's id is not free, because a write
// of it still under way would land in the slots of its successor. That of another machine is
// therefore never chosen.
func (m *Machine) choose(records []Record) int {
	var own, blank, left, forgotten, dead, damaged int
	for i, r := range records {
		same := r.MachineID == m.cfg.Self.MachineID
		switch {
		case m.tried[i]:
		case r.Err != nil:
			if slices.Contains(m.cfg.Had, i+1) && (m.cfg.Policy == layout.PolicyLease || m.cfg.Reclaim) {
				damaged = cmp.Or(damaged, i+1)
			}
		case m.known(r):
			return i + 1
		case r.State == layout.StateLeft && same:
			own = cmp.Or(own, i+1)
		case r.Blank():
			blank = cmp.Or(blank, i+1)
		case r.State == layout.StateLeft:
			left = cmp.Or(left, i+1)
		case m.hosts[i].Forgotten:
			forgotten = cmp.Or(forgotten, i+1)
		case same:
			dead = cmp.Or(dead, i+1)
		}
	}
	return cmp.Or(own, blank, left, forgotten, dead, damaged)
}

// ownIncarnation reports whether this machine wrote a record in this or an earlier attempt.
func (m *Machine) ownIncarnation(r Record) bool { return slices.Contains(m.spent, r.Incarnation) }

// delay reports once that joining takes long.
func (m *Machine) delay(reason error, until time.Duration) {
	if !m.delayed {
		m.delayed = true
		m.emit(Delayed{Reason: reason, Until: until})
	}
}
