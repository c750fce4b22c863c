package bakery

// Resume goes on where a machine of the same incarnation stood when its driver
// ended. It is called on a new machine, in the place of the first Acquire or
// Attach. slot is the own slot as it is on the disk now, durable, with no
// write of it under way; entered tells whether its ticket was ever granted to
// anybody.
//
//	slot                                    goes on
//	of another incarnation, or idle         Done: Attached
//	entered, or held                        Granted, in the slot's Mode
//	choosing                                in the doorway, by the same claim
//	waiting                                 in the queue, by the same ticket
//	of a creation above the machine's       a removal: Done, Removed or Cancelled (returned)
//	of one below, not idle                  by an entry that is gone: Done: Attached
//
// What goes on can be cancelled and ends as Acquire does; it waits, even if it
// was a try. A hold may be let go, settled or changed. No more grants are made
// from its ticket, for it is not known how many there were. PROTOCOL.md,
// "Restart of the driver", says why this is right, and what the driver has to
// note down, and when. In short:
//
//   - A ticket is noted as entered before anybody is told of its grant. A note
//     says nothing of any other ticket: it is compared with the slot's, or
//     removed before the next claim's write begins.
//   - A hold noted as shared whose slot shows exclusive was being upgraded or
//     downgraded: [Machine.Downgrade] comes before all else. So shared is noted
//     before Downgrade is called, exclusive after Upgrade has ended.
//   - If the slot is unreadable: with a note of an entered ticket, by the entry
//     that still is the lock's, Resume is given {held} with the noted ticket
//     and mode, and then [Machine.Settle] makes it readable. Without one the
//     ticket is not known, and the place in the queue is lost:
//     [Machine.Attach].
func (m *Machine) Resume(slot Slot, entered bool) Action {
	m.expect("Resume", stepIdle)
	own := slot.Incarnation == m.cfg.Incarnation
	// What attach guessed lies an ownSpan above the clock and the creation id
	// that it was guessed by. It stays a guess until all others were readable
	// in a look: who waits or is inside has had that look.
	m.torn = own && slot.Phase < phaseWaiting && slot.Ticket.Number() > m.last+ownSpan/2
	m.last = max(m.last, slot.Ticket.Number())
	m.mine.Ticket, m.mine.Mode, m.attached = slot.Ticket, slot.Mode, true
	m.request = Request{Mode: slot.Mode}
	switch {
	case own && slot.Creation > m.cfg.Creation:
		m.mine = slot
		m.step = stepReturn
		return Action{Kind: ReadDirectory}
	case !own || slot.Phase == phaseIdle:
		return m.done(Attached)
	case slot.Creation < m.cfg.Creation:
		return m.withdraw(Attached)
	}
	m.mine.Phase = slot.Phase
	switch {
	case entered || slot.Phase == phaseHeld: // nobody settles what was not granted
		return m.enter()
	case slot.Phase == phaseChoosing:
		return m.read(stepLook) // CLAIM-FIRST: what was read before is forgotten
	}
	return m.read(stepWait)
}

// returned ends the predecessor's removal, which showed a creation above that
// of the machine. While such a mark stands nobody else clears the entry, and
// the predecessor clears nothing any more. So if the entry is still ours the
// removal did not come about, and is taken back; else it did, and the slot
// goes on telling of it.
func (m *Machine) returned(creation uint64) Action {
	if creation == m.cfg.Creation {
		return m.unmark(creation, Cancelled)
	}
	return m.write(stepUnmark, phaseIdle)
}
