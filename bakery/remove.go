package bakery

import "github.com/bakeryd/bakeryd/layout"

// Remove removes the lock that is held exclusively. No two hosts may hold one name by different
// directory entries, so:
//
//	remover R (creation c)            any other host (creation c)
//	write {held, d}, d > c
//	read all; wait until no host      claim {choosing, c}; look: d > c, so
//	of creation c takes part          withdraw, and read the entry again
//	clear the entry
//	write {idle, e}, e >= d           entry gone: Superseded; start over
//
// A host whose claim landed before the first write is seen by the read after that write. A host
// that claims later sees d (NEWEST). A slot of a dead remover with a creation id above its own is
// passed over once the entry, read after the death, is unchanged: a dead host clears no entry.
//
// The cleared entry keeps a creation id above every number drawn on the lock. Later creation ids
// are above it, and numbers begin at the creation id. Tokens therefore grow when the name is
// created again, without a clock.
//
// It ends in Done: Removed; Cancelled, also if the entry is kept, or if an unreadable slot may
// hide a number above all creation ids; or Busy if another remover was seen.
func (m *Machine) Remove() Action {
	m.expect("Remove", stepEntered)
	if m.last >= layout.MaxCreation { // no creation is above it: no host made that entry
		return m.unmark(m.cfg.Creation, Cancelled)
	}
	m.ownSlot.Creation = m.last + 1
	return m.write(stepMark, layout.Held)
}

func (m *Machine) drain(fresh []Host) Action {
	s := m.survey(fresh, true)
	switch {
	case m.cancel:
		return m.broken()
	case s.newer != 0:
		return m.unmark(m.cfg.Creation, Busy)
	case s.unsure && fresh == nil:
		m.unsure = true
		return Action{Kind: ReadHosts}
	case s.ahead != (tally{}):
		return m.pollFor(0, s.rank(), false)
	}
	m.last = max(m.last, s.highest)
	if m.last >= layout.MaxCreation { // an unreadable slot may hide a number above all creations
		return m.unmark(m.cfg.Creation, Cancelled)
	}
	m.ownSlot.Creation = m.last + 1
	m.step = stepClear
	return Action{Kind: ClearDirectory, Slot: m.ownSlot}
}

// DirectoryCleared reports that the entry is cleared durably.
func (m *Machine) DirectoryCleared() Action {
	m.expect("DirectoryCleared", stepClear)
	return m.write(stepUnmark, layout.Idle)
}

// DirectoryKept reports that the entry is not cleared and will not be. The removal is undone.
func (m *Machine) DirectoryKept() Action {
	m.expect("DirectoryKept", stepClear)
	return m.unmark(m.cfg.Creation, Cancelled)
}

// unmark undoes a removal.
func (m *Machine) unmark(creation uint64, o Outcome) Action {
	m.ownSlot.Creation = creation
	return m.withdraw(o)
}

// superseded continues after a read of the slots or the host table while a slot shows a newer
// creation.
func (m *Machine) superseded(fresh []Host) Action {
	if fresh == nil {
		m.unsure = true
		return Action{Kind: ReadHosts}
	}
	// A death that becomes known during the read of the entry is too late.
	m.metOver = m.peers[m.met-1].over
	return Action{Kind: ReadDirectory}
}

// DirectoryRead reports the creation id of the lock's entry, read since the action was given; 0
// if the entry is no longer this lock's.
func (m *Machine) DirectoryRead(creation uint64) Action {
	switch {
	case m.step == stepReturn:
		return m.returned(creation)
	case m.lost != 0:
		return m.cleared(creation)
	}
	m.expect("DirectoryRead", stepSuperseded)
	switch {
	case creation != m.cfg.Creation:
		return m.done(Superseded)
	case m.cancel:
		return m.done(Cancelled)
	}
	v, p := m.views[m.met-1], &m.peers[m.met-1]
	switch {
	case v.Readable && v.Slot.Creation <= m.cfg.Creation:
		return m.claim() // the removal was undone
	case !v.Readable && m.met <= len(m.hosts) && m.hosts[m.met-1].Dead():
		return m.claim() // the look requests the entry again
	case v.Readable && v.Slot.Incarnation == m.metOver:
		p.spared = m.metOver
		return m.claim()
	case m.request.Try:
		return m.done(Busy)
	}
	// A death that became known while the hosts or the entry were read may be too late, and is
	// not reported again.
	known := v.Readable && m.met <= len(m.hosts) && m.hosts[m.met-1].Readable && !m.hosts[m.met-1].Unsettled
	return m.pollFor(m.met, 1, !known || p.over != m.metOver)
}

// cleared continues after a look or a wait found an unreadable slot of a dead host.
func (m *Machine) cleared(creation uint64) Action {
	m.met, m.lost = m.lost, 0
	if creation != m.cfg.Creation && !m.cancel {
		return m.withdraw(Superseded)
	}
	m.clear = true
	a := m.judge(m.hosts)
	m.clear = false
	return a
}
