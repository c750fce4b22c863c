package bakery

import "github.com/bakeryd/bakeryd/layout"

// Request is one attempt to enter.
type Request struct {
	Mode  layout.Mode
	Clock uint64 // a number from the wall clock ([ClockNumber]), or 0
	Try   bool   // give up with Busy rather than wait for a holder or waiter
}

// Acquire begins an attempt. It ends in [Granted], or in [Done] with the
// outcome Cancelled, Busy (only with Try), Superseded or Exhausted.
func (m *Machine) Acquire(r Request) Action {
	m.expect("Acquire", stepIdle)
	m.request = r
	if !m.attached {
		return m.read(stepAttach)
	}
	return m.claim()
}

// Attach reads the own slot and rewrites it if it is unreadable, or if a driver
// before this one has left it as if it took part, so that nobody has to wait for
// it. It ends in [Done] with the outcome Attached or
// Exhausted.
func (m *Machine) Attach() Action {
	m.expect("Attach", stepIdle)
	m.healing = true
	return m.read(stepAttach)
}

// Attached tells whether the own last ticket is known, so that Mine may be written.
func (m *Machine) Attached() bool { return m.attached }

// attach learns the own last ticket, which the claim is about to overwrite
// (TOKENS).
// An unreadable own slot may hide one that nobody else has seen. A creation
// above ours there is what an incarnation before this one left of a removal
// that, by the directory as this incarnation read it, did not come about.
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
	healing := m.healing
	m.healing = false
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
		// Kept even if no claim follows: the slot may be rewritten as it is.
		m.mine.Ticket, m.attached = ticket, true
	}
	switch {
	case !healing:
		return m.claim()
	case own.Readable && (own.Slot.Phase == phaseIdle || own.Slot.Incarnation != m.cfg.Incarnation):
		return m.done(Attached)
	}
	return m.withdraw(Attached)
}

// claim is step 1: announce the attempt, with a number reserved for it.
func (m *Machine) claim() Action {
	if m.cancel {
		return m.done(Cancelled)
	}
	number := max(m.last+1, m.request.Clock)
	if number > layout.MaxNumber {
		return m.done(Exhausted)
	}
	m.last = number
	m.mine.Ticket = layout.MakeTicket(number, m.cfg.Host)
	m.mine.Mode = m.request.Mode
	return m.write(stepClaim, phaseChoosing)
}

// look is steps 2 and 3: enter at once if nobody is in conflict and the
// reserved number is above every other; else take a number above all, once
// every slot that counts could be read (READABLE-LOOK):
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
	mode, k := m.mine.Mode, m.cfg.Permits
	switch {
	case s.ahead.admits(mode, k) && m.mine.Ticket.Number() > s.highest:
		return m.enter()
	case m.request.Try && !s.firm.admits(mode, k):
		return m.withdraw(Busy)
	case s.ahead.blocked > 0:
		return m.poll(s)
	case m.last >= layout.MaxNumber:
		return m.withdraw(Exhausted)
	}
	m.last++
	m.mine.Ticket = layout.MakeTicket(m.last, m.cfg.Host)
	return m.write(stepNumber, phaseWaiting)
}

// wait is step 4: enter when those ahead leave room.
func (m *Machine) wait(fresh []Host) Action {
	s := m.survey(fresh, false)
	if a, ok := m.interrupted(s, fresh); ok {
		return a
	}
	m.last = max(m.last, s.highest)
	mode, k := m.mine.Mode, m.cfg.Permits
	switch {
	case s.ahead.admits(mode, k):
		return m.enter()
	case m.request.Try && !s.firm.admits(mode, k):
		return m.withdraw(Busy)
	}
	return m.poll(s)
}

// interrupted gives what comes before any judgement of the others: a cancel,
// a newer directory entry (NEWEST), a host table to be read. The slot of a
// dead host that cannot be read may have told of a newer entry: so the entry
// itself is read, after the claim and after the death.
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

// withdraw leaves the doorway or the queue; the ticket stays in the slot.
func (m *Machine) withdraw(o Outcome) Action {
	m.after = o
	return m.write(stepWithdraw, phaseIdle)
}

// withdrawn ends the attempt, or asks whether the newer entry that was met is
// really there.
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

// Cancel gives the attempt up as soon as the action under way has been
// reported; a machine that polls takes note by [Machine.Recheck]. It has no
// effect on a hold, other than to break off a removal.
func (m *Machine) Cancel() {
	if m.step != stepIdle && m.step != stepEntered {
		m.cancel = true
	}
}
