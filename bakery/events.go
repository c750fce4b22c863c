package bakery

// Written reports that the slot of the last Write is durable.
func (m *Machine) Written() Action {
	switch m.step {
	case stepClaim:
		return m.read(stepLook) // CLAIM-FIRST
	case stepNumber:
		return m.read(stepWait)
	case stepSettle, stepDowngrade, stepBack:
		return m.enter()
	case stepWithdraw:
		return m.withdrawn()
	case stepRelease:
		return m.done(Released)
	case stepUpgrade:
		return m.read(stepAlone)
	case stepMark:
		return m.read(stepDrain)
	case stepUnmark:
		m.step = stepRemoved
		return Action{Kind: Done, Outcome: Removed}
	}
	m.expect("Written")
	return Action{}
}

// SlotsRead reports a read of the slots of hosts 1..len(views), which must cover every host that
// may take part. Each slot may have been read at any time since the action was given.
func (m *Machine) SlotsRead(views []View) Action {
	m.see(views)
	m.unsure = false
	return m.judge(nil)
}

// HostsRead reports a read of the host table begun after ReadHosts was given.
// Records beyond the end of the slice count as unreadable.
func (m *Machine) HostsRead(hosts []Host) Action {
	if !m.unsure {
		m.expect("HostsRead")
	}
	m.unsure = false
	if m.hosts == nil {
		m.hosts = make([]Host, 0, len(hosts))
	}
	m.applyHostTable(hosts)
	m.hosts = append(m.hosts[:0], hosts...)
	return m.judge(m.hosts)
}

// Polled reports a read of the one slot that a Poll asked for.
func (m *Machine) Polled(v View) Action {
	m.expect("Polled", stepLook, stepWait, stepSuperseded)
	if m.polling.Host < 1 || m.polling.Host > len(m.views) {
		m.expect("Polled")
	}
	if m.cancel || m.doubt || m.views[m.polling.Host-1] != v {
		return m.Recheck()
	}
	return m.polling
}

// Recheck ends a Poll early, after an event that the polled slot does not show or after a cancel.
func (m *Machine) Recheck() Action {
	m.expect("Recheck", stepLook, stepWait, stepSuperseded, stepDrain)
	if m.cancel {
		return m.broken()
	}
	return m.read(m.step)
}

// broken cancels a step that polls.
func (m *Machine) broken() Action {
	switch m.step {
	case stepSuperseded:
		return m.done(Cancelled)
	case stepDrain:
		return m.unmark(m.cfg.Creation, Cancelled)
	}
	return m.withdraw(Cancelled)
}

// judge makes the decision that the last read was for.
func (m *Machine) judge(fresh []Host) Action {
	switch m.step {
	case stepAttach:
		return m.attach()
	case stepLook:
		return m.look(fresh)
	case stepWait:
		return m.wait(fresh)
	case stepAlone:
		return m.alone(fresh)
	case stepDrain:
		return m.drain(fresh)
	case stepSuperseded:
		return m.superseded(fresh)
	}
	m.expect("SlotsRead")
	return Action{}
}
