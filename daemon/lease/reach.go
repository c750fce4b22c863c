package lease

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// A live host reads the records of hosts 1..ReadHorizon, whatever the size of the lockspace. All
// records beyond were blank when it joined, in a read made after its own record was written. A
// host that has joined there since is new. Until it sees that this host covers it, it takes no
// tickets (COVERED) and publishes no verdicts (HEARD). Nothing depends on reading its record, but
// it would wait forever. Therefore the host with the lowest id of those that seem to live reads
// the whole table once a lease. It raises its read horizon over the records that it finds and
// publishes that. All live hosts read that record, because their reads cover all lower ids, and
// raise theirs too.
//
//	host 1 (horizon 5)      host 3 (horizon 5)      host 900
//	                                                claims, looks: 1 and 3 show 5
//	sweeps: finds 900
//	writes: horizon 902
//	                        reads 1..5: 902
//	                        writes: horizon 902
//	                                                reads: 902, 902: ready
//
// A host that joins or resumes a lease reads the whole table until it is live: it may be given
// any id, chooses among all, and has to find all earlier hosts.

// headroom is the distance of the read horizon above the highest id found, so that the next
// joiners need not wait for a renewal. It is the same for all hosts, so that one that finds more
// shows more: see covered.
const headroom = 2

// ReadHorizon returns the host id up to which every later read of a lock's slots must go. It only
// grows.
func (m *Machine) ReadHorizon() int { return m.readHorizon }

// cover extends reads to an id (RAISED: it precedes the write that publishes that).
func (m *Machine) cover(highest int) {
	highest = min(highest, m.cfg.Hosts)
	m.proven = max(m.proven, highest)
	if highest > m.readHorizon {
		m.readHorizon = highest
		m.expectJoiners()
	}
}

// raised reports whether the read horizon is higher than published: a host may be waiting for
// that.
func (m *Machine) raised() bool { return m.proven > m.shown }

// expectJoiners makes reads of the table more frequent until the time between two renewals has
// passed. Where one host joins others may follow, and wait until this one covers them.
func (m *Machine) expectJoiners() {
	if m.phase == live {
		m.joinersUntil = m.now + m.t.Alive()
	}
}

// joinersAt returns when to read because other hosts may be joining.
func (m *Machine) joinersAt() time.Duration {
	if m.readHorizon == m.cfg.Hosts || m.now >= m.joinersUntil {
		return never
	}
	return m.readAt + m.t.Watch()
}

// found returns the hosts that reads cover. No host beyond is known.
func (m *Machine) found() []Host { return m.hosts[:m.readHorizon] }

// find raises the read horizon over the records of a read, and over the read horizons of live
// hosts.
func (m *Machine) find(records []Record) {
	top, unread := 0, 0
	for i, r := range records {
		switch {
		case r.Err != nil && m.hosts[i].Incarnation == 0:
			unread = i + 1
		case r.Err != nil:
			top = i + 1
		case r.Blank():
		default:
			top = i + 1
			if m.phase == live && r.State == layout.StateLive {
				m.cover(r.ReadHorizon)
			}
		}
	}
	if top > 0 {
		m.cover(top + headroom)
	}
	m.readHorizon = max(m.readHorizon, min(unread, m.cfg.Hosts)) // read, not published: a later joiner may find it blank
	if len(records) == m.cfg.Hosts {
		m.sweptAt = m.readAt
	}
}

// reach returns the number of records for a read that is requested now.
func (m *Machine) reach() int {
	switch {
	case m.phase == leaving, m.phase == live && !m.sweeps():
		return m.readHorizon
	}
	return m.cfg.Hosts
}

// sweeps reports whether a read that is requested now covers the whole table: together with a
// renewal if one is due in time, and sooner while other hosts are joining.
func (m *Machine) sweeps() bool {
	due := m.sweptAt + m.t.Lease
	switch {
	case m.now < m.joinersUntil:
		due = m.sweptAt + m.t.Renew()
	case m.now < m.renewAt():
		due += m.t.Renew()
	}
	return m.now >= due && !m.company(m.id-1, false)
}

// far reports whether this host must wait until another one sweeps and finds it.
func (m *Machine) far() bool {
	return slices.ContainsFunc(m.found(), func(h Host) bool {
		return h.State == layout.StateLive && !h.Gone && h.ReadHorizon+headroom < m.id
	})
}

// company reports whether another host up to an id seems to live, or is joining.
func (m *Machine) company(highest int, joining bool) bool {
	for i, h := range m.hosts[:highest] {
		up := h.State == layout.StateLive || joining && h.State == layout.StateJoining
		if i+1 != m.id && up && !h.Gone && !h.Overdue(m.t) && h.damagedFor() <= m.t.Alive() {
			return true
		}
	}
	return false
}
