package bakery

import "github.com/bakeryd/bakeryd/layout"

// Request describes one attempt to enter.
type Request struct {
	Mode  layout.Mode
	Clock uint64 // a number from the wall clock ([ClockNumber]), or 0
	Try   bool   // give up with Busy instead of waiting for a holder or waiter
}

// Acquire begins an attempt. It ends in [Granted], or in [Done] with the outcome Cancelled, Busy
// (only with Try), Superseded or Exhausted.
func (m *Machine) Acquire(r Request) Action {
	m.expect("Acquire", stepIdle)
	m.request = r
	if !m.attached {
		return m.read(stepAttach)
	}
	return m.claim()
}

// Attach reads the own slot and rewrites it, so that it blocks no other host, if it is unreadable
// or shows an attempt or hold that an earlier driver left. It ends in [Done] with the outcome
// Attached or Exhausted.
func (m *Machine) Attach() Action {
	m.expect("Attach", stepIdle)
	m.attachOnly = true
	return m.read(stepAttach)
}

// Attached reports whether the last ticket in the own slot is known, so that OwnSlot may be
// written.
func (m *Machine) Attached() bool { return m.attached }

// attach reads the last ticket in the own slot, which the claim is about to overwrite (TOKENS).
// An unreadable own slot may hide a ticket that no other host has seen. If the own slot shows a
// creation id above that of this machine, an earlier incarnation began a removal that, according
// to the directory as read by this incarnation, did not take effect.
func (m *Machine) attach() Action {
	own := View{}
	for i, v := range m.views {
		if v.Readable {
			m.last = max(m.last, v.Slot.Ticket.Number())
		}
		if i == m.cfg.Host-1 {
			own = v
		}
	}
	attachOnly := m.attachOnly
	m.attachOnly = false
	if !m.attached {
		ticket := own.Slot.Ticket
		if !own.Readable {
			m.last += ownSpan
			m.torn = true
			if m.last > layout.MaxNumber {
				return m.done(Exhausted)
			}
			ticket = layout.MakeTicket(m.last, m.cfg.Host)
		}
		// This is kept even if no claim follows: the slot may be rewritten unchanged.
		m.ownSlot.Ticket, m.attached = ticket, true
	}
	switch {
	case !attachOnly:
		return m.claim()
	case own.Readable && (own.Slot.Phase == layout.Idle || own.Slot.Incarnation != m.cfg.Incarnation):
		return m.done(Attached)
	}
	return m.withdraw(Attached)
}

// claim is step 1: it announces the attempt, with a number reserved for it.
func (m *Machine) claim() Action {
	if m.cancel {
		return m.done(Cancelled)
	}
	number := max(m.last+1, m.request.Clock)
	if number > layout.MaxNumber {
		return m.done(Exhausted)
	}
	m.last = number
	m.ownSlot.Ticket = layout.MakeTicket(number, m.cfg.Host)
	m.ownSlot.Mode = m.request.Mode
	return m.write(stepClaim, layout.Choosing)
}

// look is steps 2 and 3. It enters immediately if no slot conflicts and the reserved number is
// above every other. Otherwise it takes a number above all others, once every slot that counts
// was readable (READABLE-LOOK):
//
//	holder H (ticket 5, held)        B
//	settles: write {held, 5} begins
//	                                 claim {choosing, 3}; look: H torn
//	                                 if taken as "no number": number 4
//	write ends
//	                                 wait: 5 > 4, so H is not ahead: enters
func (m *Machine) look(fresh []Host) Action {
	s := m.survey(fresh, true)
	if a, ok := m.interrupted(s, fresh); ok {
		return a
	}
	if m.torn && s.ahead.blocked == 0 {
		s.highest += ownSpan
		m.torn = false
	}
	m.last = max(m.last, s.highest)
	mode, k := m.ownSlot.Mode, m.cfg.Permits
	switch {
	case s.ahead.admits(mode, k) && m.ownSlot.Ticket.Number() > s.highest:
		return m.enter()
	case m.request.Try && !s.firm.admits(mode, k):
		return m.withdraw(Busy)
	case s.ahead.blocked > 0:
		return m.poll(s)
	case m.last >= layout.MaxNumber:
		return m.withdraw(Exhausted)
	}
	m.last++
	m.ownSlot.Ticket = layout.MakeTicket(m.last, m.cfg.Host)
	return m.write(stepNumber, layout.Waiting)
}

// wait is step 4: it enters when the hosts ahead admit this one.
func (m *Machine) wait(fresh []Host) Action {
	s := m.survey(fresh, false)
	if a, ok := m.interrupted(s, fresh); ok {
		return a
	}
	m.last = max(m.last, s.highest)
	mode, k := m.ownSlot.Mode, m.cfg.Permits
	switch {
	case s.ahead.admits(mode, k):
		return m.enter()
	case m.request.Try && !s.firm.admits(mode, k):
		return m.withdraw(Busy)
	}
	return m.poll(s)
}

// interrupted returns the action that precedes any judgement of the other slots: for a cancel,
// for a newer directory entry (NEWEST), or to read the host table. An unreadable slot of a dead
// host may have shown a newer entry. The entry itself is therefore read, after the claim and
// after the death.
func (m *Machine) interrupted(s survey, fresh []Host) (Action, bool) {
	switch {
	case m.cancel:
		return m.withdraw(Cancelled), true
	case s.newer != 0:
		m.met = s.newer
		return m.withdraw(Superseded), true
	case s.unsure && fresh == nil:
		m.unsure = true
		return Action{Kind: ReadHosts}, true
	case s.lost != 0 && !m.clear:
		m.lost = s.lost
		return Action{Kind: ReadDirectory}, true
	}
	return Action{}, false
}

func (m *Machine) enter() Action {
	m.step = stepEntered
	m.cancel = false
	return Action{Kind: Granted}
}

// withdraw leaves the doorway or the queue. The ticket stays in the slot.
func (m *Machine) withdraw(o Outcome) Action {
	m.after = o
	return m.write(stepWithdraw, layout.Idle)
}

// withdrawn ends the attempt. If a slot showed a newer entry, it first checks that the entry
// exists.
func (m *Machine) withdrawn() Action {
	switch {
	case m.after != Superseded:
		return m.done(m.after)
	case m.cancel:
		return m.done(Cancelled)
	}
	m.step, m.unsure = stepSuperseded, true
	return Action{Kind: ReadHosts}
}

// Cancel ends the attempt when the next event is reported. A machine that polls needs
// [Machine.Recheck] to notice it. Cancel has no effect on a hold, except that it aborts a
// removal.
func (m *Machine) Cancel() {
	if m.step != stepIdle && m.step != stepEntered {
		m.cancel = true
	}
}
