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
	case r.Virgin():
		m.claim(r)
	case r.State == layout.StateLeft:
		if !m.knownLeft(r) && m.mutation != shortLeft {
			m.long = true
		}
		m.claim(r)
	case m.mine(r):
		m.long = true
		m.claim(r)
	default:
		m.taken(r)
	}
}

// taken judges an id whose record says joining or live (KEEP-OUT).
func (m *Machine) taken(r Record) {
	if m.cfg.ID == 0 {
		m.another()
		return
	}
	if m.watch < 0 {
		m.watch = m.now
	}
	h := m.hosts[m.id-1]
	stood := m.readAt - h.Since
	same := r.MachineID == m.cfg.Self.MachineID
	switch {
	case h.Since > m.watch:
		m.refuse(r, ErrInUse)
	case same && h.Gone:
		m.long = true
		m.claim(r)
	case same && m.mutation == rebooted && r.BootID != m.cfg.Self.BootID:
		m.claim(r)
	case same && stood >= m.deadAfter(r):
		if r.State == layout.StateJoining && m.mutation != shortStill {
			m.long = true
		}
		m.claim(r)
	case !same && stood >= m.t.Alive():
		m.refuse(r, ErrNotLeft)
	default:
		if same && stood >= m.t.Alive() {
			m.delay(&Conflict{ID: m.id, Name: r.Name, Reason: ErrNotLeft}, h.Since+m.deadAfter(r))
		}
		m.timer = m.now + m.t.Retry()
	}
}

// deadAfter is for how long a record must stand still for its incarnation to be over.
func (m *Machine) deadAfter(r Record) time.Duration {
	if r.WatchdogArmed {
		return m.t.Dead() + time.Duration(r.WatchdogSeconds)*time.Second
	}
	return m.t.Dead()
}

// unreadable waits for the record to be mended by its owner, which does so at its next renewal.
func (m *Machine) unreadable(reason error) {
	if m.blind < 0 {
		m.blind = m.now
	}
	if m.now-m.blind < m.t.Alive() {
		m.timer = m.now + m.t.Retry()
		return
	}
	if m.cfg.ID == 0 {
		m.another()
		return
	}
	m.finish(Refused{Reason: fmt.Errorf("join as host %d: %w: %w", m.id, ErrUnreadable, reason)})
}

func (m *Machine) refuse(r Record, reason error) {
	m.finish(Refused{Reason: &Conflict{ID: m.id, Name: r.Name, Reason: reason}})
}

// another gives an id up for another one.
func (m *Machine) another() {
	m.tried[m.id-1] = true
	m.id, m.long, m.blind, m.trodden, m.spent = 0, false, -1, false, nil
	m.phase, m.timer = looking, m.now
}

// knownLeft says whether this machine has seen the incarnation of a record leave in good time.
func (m *Machine) knownLeft(r Record) bool { return slices.Contains(m.cfg.Left, r.Incarnation) }

// choose returns the free id to claim: the lowest that this machine left, those before all that take the short
// claim, else the lowest that was never used, else the lowest that another machine left; 0 if there is none. A dead host's id is not free: a write of the dead
// one that is still under way would land in the slots of its successor.
func (m *Machine) choose(records []Record) int {
	var own, virgin, left int
	for i, r := range records {
		switch {
		case m.tried[i] || r.Err != nil:
		case r.State == layout.StateLeft && m.knownLeft(r):
			return i + 1
		case r.State == layout.StateLeft && r.MachineID == m.cfg.Self.MachineID:
			own = cmp.Or(own, i+1)
		case r.Virgin():
			virgin = cmp.Or(virgin, i+1)
		case r.State == layout.StateLeft:
			left = cmp.Or(left, i+1)
		}
	}
	return cmp.Or(own, virgin, left)
}

// mine says whether a record was written by this machine.
func (m *Machine) mine(r Record) bool {
	for _, x := range m.spent {
		if r.Incarnation == x {
			return true
		}
	}
	return false
}

// delay tells once that joining takes long.
func (m *Machine) delay(reason error, until time.Duration) {
	if !m.delayed {
		m.delayed = true
		m.tell(Delayed{Reason: reason, Until: until})
	}
}
