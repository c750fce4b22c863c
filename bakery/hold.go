package bakery

import "github.com/bakeryd/bakeryd/layout"

// Release ends the hold. The slot keeps its ticket, so that tokens grow.
func (m *Machine) Release() Action {
	m.expect("Release", stepEntered)
	return m.write(stepRelease, layout.Idle)
}

// Settle writes the hold to the disk as held. Other hosts order a held slot like a waiting one,
// so it changes nothing for them.
func (m *Machine) Settle() Action {
	m.expect("Settle", stepEntered)
	return m.write(stepSettle, layout.Held)
}

// Downgrade turns an exclusive hold into a shared one with the same ticket. It ends in Granted;
// [Machine.Mode] is the resulting mode. With several permits the hold stays exclusive, because
// there may be other exclusive holders.
func (m *Machine) Downgrade() Action {
	m.expect("Downgrade", stepEntered)
	if m.cfg.Permits > 1 {
		return m.enter()
	}
	m.ownSlot.Mode = layout.Shared
	return m.write(stepDowngrade, layout.Held)
}

// Upgrade turns a shared hold into an exclusive one if no other host takes part in the lock. It
// ends in Granted; [Machine.Mode] is the resulting mode. If two hosts upgrade at the same time
// both see the other, and both stay shared. The ticket stays: with a greater one, hosts that
// arrived in the meantime would pass. With several permits the hold stays shared, because one
// exclusive claim does not exclude another one.
func (m *Machine) Upgrade() Action {
	m.expect("Upgrade", stepEntered)
	if m.cfg.Permits > 1 {
		return m.enter()
	}
	m.ownSlot.Mode = layout.Exclusive
	return m.write(stepUpgrade, layout.Choosing)
}

// alone ends an upgrade. This read shows each host that arrived before the claim was written;
// each later host sees the claim.
func (m *Machine) alone(fresh []Host) Action {
	s := m.survey(fresh, true)
	if s.unsure && fresh == nil {
		m.unsure = true
		return Action{Kind: ReadHosts}
	}
	if s.newer == 0 && s.ahead == (tally{}) {
		return m.enter()
	}
	m.ownSlot.Mode = layout.Shared
	return m.write(stepBack, layout.Held)
}
