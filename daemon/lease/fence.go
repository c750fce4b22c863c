package lease

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Under the policy fence a death that is due is not declared before an agent has cut the host off. So that one host
// at a time tries, and another takes over where it cannot: the time since the death was due is cut into windows, and
// the host with rank r of the n that seem to live, by id, has the windows k with k mod n = r. Hosts may be of
// different opinion on who lives; then two may try at once, which does no harm.

// turnAt returns when the next window for fencing a host begins that is this host's and was not told yet.
func (m *Machine) turnAt(h *Host, e electorate) time.Duration {
	window, n, rank := int64(m.t.FenceWindow()), e.n, e.rank
	k := h.turns
	if passed := m.now - h.DeadAt(m.t); passed > 0 {
		k = max(k, int64(passed)/window)
		if k == int64(passed)/window && int64(passed)%window >= int64(m.t.FenceTime()) {
			k++ // what is left of it is for the next one to be sure
		}
	}
	k += ((rank-k)%n + n) % n
	return h.DeadAt(m.t) + time.Duration(k*window)
}

// electorate is how many hosts seem to live, this one included, and how many of them have a lower id.
type electorate struct{ n, rank int64 }

// electorate counts it, once for all whose turns are looked for.
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

// turn tells that a host is to be fenced, if it is this host's turn.
func (m *Machine) turn(id int, e electorate) {
	h := &m.hosts[id-1]
	at := m.turnAt(h, e)
	if m.now < at {
		return
	}
	h.turns = int64((at-h.DeadAt(m.t))/m.t.FenceWindow()) + 1
	m.tell(Fence{Host: id, Incarnation: h.Incarnation, Name: h.Name, PRKey: h.PRKey, Until: at + m.t.FenceTime()})
}

// Fenced reports that a host of [Fence] is cut off from the device. Its verdict is published at once.
func (m *Machine) Fenced(now time.Duration, host int, incarnation uint64) []Action {
	m.begin(now)
	if m.phase == live && host >= 1 && host <= len(m.hosts) {
		m.say(layout.Verdict{Host: host, Incarnation: incarnation}, false)
	}
	return m.end()
}

// FenceFailed reports that a host of [Fence] could not be cut off. The next host tries, and this one when it is its
// turn again.
func (m *Machine) FenceFailed(now time.Duration, host int, incarnation uint64) []Action {
	m.begin(now)
	return m.end()
}
