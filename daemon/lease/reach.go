package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// A live host reads the records of hosts 1..Highest, however many the lockspace was formatted for. All records beyond
// were virgin when it joined, in a read made after its own record was written. So who has joined there since is new, and
// until this host is seen to cover it takes no tickets (COVERED) and says nothing of others (HEARD): nothing depends on
// reading its record, but that it would wait for ever. Therefore the host with the lowest id of those that seem to live
// reads the whole table once a lease. It raises its highest over what it finds, publishes that, and whoever reads it
// raises its own likewise: all who live do, for their reads cover all lower ids.
//
//	host 1 (highest 5)      host 3 (highest 5)      host 900
//	                                                claims, looks: 1 and 3 show 5
//	sweeps: finds 900
//	writes: highest 902
//	                        reads 1..5: 902
//	                        writes: highest 902
//	                                                reads: 902, 902: ready
//
// Whoever joins or goes on with a lease reads the whole table until it is live: it may be given any id, chooses among
// all, and has to find whoever was there before.

// headroom is by how many ids reads cover more than is found: the next joiners need not wait for a renewal. It is the same
// for all, so that who finds more shows more: see covered.
const headroom = 2

// Highest returns the host id up to which every read of a lock's slots must go that begins from now on. It only
// grows.
func (m *Machine) Highest() int { return m.highest }

// raise makes reads cover an id and some above it (RAISED: it precedes the write that publishes it).
func (m *Machine) raise(id int) { m.cover(id + headroom) }

func (m *Machine) cover(highest int) {
	highest = min(highest, m.cfg.Hosts)
	m.proven = max(m.proven, highest)
	if highest > m.highest {
		m.highest = highest
		m.expect()
	}
}

// raised says whether more was found than is published: somebody may be waiting for that.
func (m *Machine) raised() bool { return m.proven > m.shown }

// expect has the table read more often than for renewals, for as long as it takes from one to the next: where one host
// joins others may follow, and wait for this one to cover them.
func (m *Machine) expect() {
	if m.phase == live {
		m.newsUntil = m.now + m.t.Alive()
	}
}

// newsAt returns when to read because others may be joining.
func (m *Machine) newsAt() time.Duration {
	if m.highest == m.cfg.Hosts || m.now >= m.newsUntil {
		return never
	}
	return m.readAt + m.t.Watch()
}

// found returns the hosts that reads cover. Nobody is known beyond.
func (m *Machine) found() []Host { return m.hosts[:m.highest] }

// find raises highest over what a read found, and over what others have found that live.
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
			if m.phase == live && r.State == layout.StateLive && m.mutation != unheeded {
				m.cover(r.ReadHorizon)
			}
		}
	}
	if top > 0 && (m.mutation != earlyCover || m.phase == looking) {
		m.raise(top)
	}
	m.highest = max(m.highest, min(unread, m.cfg.Hosts)) // read, not published: who looks later may find it virgin
	if len(records) == m.cfg.Hosts {
		m.sweptAt = m.readAt
	}
}

// reach returns how many records a read has to cover that is asked for now.
func (m *Machine) reach() int {
	switch {
	case m.phase == claiming && m.mutation == narrowLook:
		return m.highest
	case m.phase == live && m.mutation == nearsighted:
		return m.id
	case m.phase == leaving, m.phase == live && !m.sweeps():
		return m.highest
	}
	return m.cfg.Hosts
}

// sweeps says whether a read that is asked for now is to be of the whole table: with a renewal if there is one in time,
// and sooner while others are joining.
func (m *Machine) sweeps() bool {
	due := m.sweptAt + m.t.Lease
	switch {
	case m.now < m.newsUntil:
		due = m.sweptAt + m.t.Renew()
	case m.now < m.renewAt():
		due += m.t.Renew()
	}
	return m.now >= due && !m.company(m.id-1, false) && m.mutation != noSweep
}

// far says whether this host must wait until it is looked for.
func (m *Machine) far() bool {
	for _, h := range m.found() {
		if h.State == layout.StateLive && !h.Gone && h.Highest+headroom < m.id {
			return true
		}
	}
	return false
}

// company says whether another host up to an id seems to live, or is joining.
func (m *Machine) company(highest int, joining bool) bool {
	for i, h := range m.hosts[:highest] {
		up := h.State == layout.StateLive || joining && h.State == layout.StateJoining
		if i+1 != m.id && up && !h.Gone && !h.Overdue(m.t) && h.damagedFor() <= m.t.Alive() {
			return true
		}
	}
	return false
}

// heard says whether whoever is live reads this host's record (HEARD): it covers this host since that is ready, or came
// after it and found it.
func (m *Machine) heard() bool { return m.ready || m.mutation == unheard }
