package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Under the policy fence, a due death is declared only after an agent has cut the host off. One
// host at a time should try, and another should take over if it fails. The time since the death
// was due is therefore divided into windows. Of the n hosts that seem to live, the one with rank
// r by id has the windows k with k mod n = r. Hosts may disagree on which hosts live; two may
// then try at the same time, which does no harm.

// turnAt returns when this host's next window for fencing a host begins, of those not reported yet.
func (m *Machine) turnAt(h *Host, e electorate) time.Duration {
	return m.t.NextWindow(h.DeadAt(m.t), m.now, h.turns, e.n, e.rank)
}

// electorate is the number of hosts that seem to live, including this one, and the number of them
// with a lower id.
type electorate struct{ n, rank int64 }

// electorate computes it, once for all hosts that are to be fenced.
func (m *Machine) electorate() (e electorate) {
	for i := range m.found() {
		h := &m.hosts[i]
		if i+1 != m.id && (h.State != layout.StateLive || h.Gone || h.Overdue(m.t)) {
			continue
		}
		e.n++
		if i+1 < m.id {
			e.rank++
		}
	}
	return e
}

// turn requests the fencing of a host, if this is a window of this host.
func (m *Machine) turn(id int, e electorate) {
	h := &m.hosts[id-1]
	if at := m.turnAt(h, e); m.now >= at {
		h.turns = int64((at-h.DeadAt(m.t))/m.t.FenceWindow()) + 1
		m.emit(Fence{Host: id, Incarnation: h.Incarnation, Name: h.Name, PRKey: h.PRKey, Until: at + m.t.FenceTime()})
	}
}

// Fenced reports that a host of [Fence] is cut off from the device. Its verdict is published
// immediately, unless the host has renewed its lease since [Fence].
func (m *Machine) Fenced(now time.Duration, host int, incarnation uint64) []Action {
	m.begin(now)
	if m.phase == live && host >= 1 && host <= len(m.hosts) {
		m.state(layout.Verdict{Host: host, Incarnation: incarnation}, false)
	}
	return m.end()
}
