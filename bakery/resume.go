package bakery

import "github.com/bakeryd/bakeryd/layout"

// Resume continues the work of an earlier machine of the same incarnation after its driver ended.
// It is called on a new machine, instead of the first Acquire or Attach. slot is the own slot as
// it is on the disk now, durable, with no write under way. entered is true if its ticket was ever
// granted to a client.
//
//	slot                                    continues
//	of another incarnation, or idle         Done: Attached
//	entered, or held                        Granted, in the slot's Mode
//	choosing                                Done: Attached, with the slot idle
//	waiting                                 in the queue, by the same ticket
//	of a creation above the machine's       a removal: Done, Removed or Cancelled (returned)
//	of one below, not idle                  by an entry that is gone: Done: Attached
//
// The resumed attempt can be cancelled and ends as Acquire does. It waits, even if the request
// had Try set. The hold may be released, settled or changed. Its ticket serves no more grants,
// because the number of earlier grants is not known. PROTOCOL.md, "Restart of the driver", proves
// this and says which notes the driver has to keep. In short:
//
//   - A ticket is noted as entered before any client is notified of its grant. A note
//     applies to no other ticket: it is compared with the slot's, or
//     removed before the next claim's write begins.
//   - If a hold was noted as shared and its slot shows exclusive, a change of mode was under way:
//     [Machine.Downgrade] must come first. The driver therefore notes shared before it calls
//     Downgrade, and exclusive after Upgrade has ended.
//   - If the slot is unreadable, there is a note of an entered ticket, and the entry is still the
//     lock's, Resume is given {held} with the noted ticket and mode; then [Machine.Settle] makes
//     the slot readable. Without a note the ticket is not known, and the place in the queue is
//     lost: [Machine.Attach].
func (m *Machine) Resume(slot Slot, entered bool) Action {
	m.expect("Resume", stepIdle)
	own := slot.Incarnation == m.cfg.Incarnation
	// A ticket that attach guessed lies an ownSpan above the clock and the creation id. It stays
	// a guess until a look could read all other slots. A host that waits or holds has had that
	// look.
	m.torn = own && slot.Phase < layout.Waiting && slot.Ticket.Number() > m.last+ownSpan/2
	m.last = max(m.last, slot.Ticket.Number())
	m.ownSlot.Ticket, m.ownSlot.Mode, m.attached = slot.Ticket, slot.Mode, true
	m.request = Request{Mode: slot.Mode}
	switch {
	case own && slot.Creation > m.cfg.Creation:
		m.ownSlot = slot
		m.step = stepReturn
		return Action{Kind: ReadDirectory}
	case !own || slot.Phase == layout.Idle:
		return m.done(Attached)
	case slot.Creation < m.cfg.Creation:
		return m.withdraw(Attached)
	}
	m.ownSlot.Phase = slot.Phase
	switch {
	case entered || slot.Phase == layout.Held: // a slot that shows held was granted
		return m.enter()
	case slot.Phase == layout.Choosing: // its doorway was not done, so no host has to let it go first
		return m.withdraw(Attached)
	}
	return m.read(stepWait)
}

// returned ends the removal of the previous driver, whose slot shows a creation id above the
// machine's. While that mark stands no other host clears the entry, and the previous driver no
// longer can. If the entry is still this lock's, the removal did not take effect and is undone.
// Otherwise it did, and the slot continues to show it.
func (m *Machine) returned(creation uint64) Action {
	if creation == m.cfg.Creation {
		return m.unmark(creation, Cancelled)
	}
	return m.write(stepUnmark, layout.Idle)
}
