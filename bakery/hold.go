package bakery

import "github.com/bakeryd/bakeryd/layout"

// Release ends the hold. The slot keeps its ticket: that is what makes tokens
// grow.
func (m *Machine) Release() Action {
	m.expect("Release", stepEntered)
	return m.write(stepRelease, phaseIdle)
}

// Settle shows the hold on the disk, for whoever reads it there. A held slot
// is ordered as a waiting one, so it changes nothing for the others.
func (m *Machine) Settle() Action {
	m.expect("Settle", stepEntered)
	return m.write(stepSettle, phaseHeld)
}

// Downgrade turns an exclusive hold into a shared one, ticket unchanged; it
// ends in Granted with the [Machine.Mode] that holds then. With several
// permits it stays exclusive, for other exclusive holders may be inside.
func (m *Machine) Downgrade() Action {
	m.expect("Downgrade", stepEntered)
	if m.cfg.Permits > 1 {
		return m.enter()
	}
	m.mine.Mode = layout.Shared
	return m.write(stepDowngrade, phaseHeld)
}

// Upgrade turns a shared hold into an exclusive one, if nobody else takes
// part in the lock; it ends in Granted with the [Machine.Mode] that holds
// then. Two who try at once both see the other, and both stay shared. The
// ticket stays: a greater one would let those pass who came meanwhile. With
// several permits it stays shared, for one exclusive claim does not keep
// another one out.
func (m *Machine) Upgrade() Action {
	m.expect("Upgrade", stepEntered)
	if m.cfg.Permits > 1 {
		return m.enter()
	}
	m.mine.Mode = layout.Exclusive
	return m.write(stepUpgrade, phaseChoosing)
}

// alone ends an upgrade: whoever came before the claim was written is seen
// here, whoever comes after it sees the claim.
func (m *Machine) alone(fresh []Host) Action {
	s := m.survey(fresh, true)
	if s.unsure && fresh == nil {
		m.unsure = true
		return Action{Kind: ReadHosts}
	}
	if s.newer == 0 && s.ahead == (tally{}) {
		return m.enter()
	}
	m.mine.Mode = layout.Shared
	return m.write(stepBack, phaseHeld)
}
