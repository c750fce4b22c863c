package lease

// Lists sets the epoch of the list of members in use, and that of the newest list that a majority of them showed
// in a read requested with that of the table. It comes before TableRead, or before Refresh to show it soon.
func (m *Machine) Lists(used, newest uint64) {
	m.cfg.Self.Epoch, m.listed = used, max(m.listed, newest)
}

// outdated reports whether a list that is newer than that of the claim is in use, or was read (BEFORE-LIVE).
func (m *Machine) outdated() bool { return m.own.Epoch < max(m.listed, m.cfg.Self.Epoch) }

// awaitList reads again if the list in use is older than one that is known of, and reports whether it is.
func (m *Machine) awaitList(epoch uint64) bool {
	if epoch <= m.cfg.Self.Epoch {
		return false
	}
	m.timer = m.now + m.t.Retry()
	m.delay(ErrOldList, m.timer)
	return true
}
