package bakery

import "github.com/bakeryd/bakeryd/layout"

// tally counts slots that stand ahead of a host.
type tally struct{ exclusive, shared, blocked int }

func (t *tally) add(mode layout.Mode) {
	if mode == layout.Shared {
		t.shared++
	} else {
		t.exclusive++
	}
}

// admits reports whether a host may enter in a mode with t ahead of it. EXCLUSION and ORDER rest
// on this and on the slots counted in t. Shared and exclusive exclude each other whatever the
// number of permits. Counting "fewer than k in conflict" over both would let a reader enter next
// to a writer.
func (t tally) admits(mode layout.Mode, permits int) bool {
	if t.blocked > 0 || t.exclusive > 0 && mode == layout.Shared {
		return false
	}
	return mode == layout.Shared || t.shared == 0 && t.exclusive < permits
}

// survey sums up one read of all slots.
type survey struct {
	highest uint64 // highest number in any other slot, including idle and stale slots
	ahead   tally  // slots ahead of the own one
	firm    tally  // the same, without those that are choosing
	unsure  bool   // the host table must be read first
	newer   int    // a host whose slot shows a newer directory entry, or 0
	lost    int    // a dead host whose unreadable slot may hide one, or 0

	front       int // the slot directly ahead: the greatest ticket of those in conflict
	frontTicket layout.Ticket
	unsettled   int // a host in conflict that is choosing, or unreadable

	doubt bool // a host record could not be read
}

// survey judges the views; fresh as for standing. In the doorway each slot that is not idle is
// ahead; after it, each with a smaller ticket. The ticket of a choosing slot is only reserved and
// its final ticket is not smaller. A host that has reserved a greater ticket than this one is
// therefore behind (RESERVED).
func (m *Machine) survey(fresh []Host, doorway bool) survey {
	var s survey
	for i, v := range m.views {
		if i == m.cfg.Host-1 {
			continue
		}
		if v.Readable {
			s.highest = max(s.highest, v.Slot.Ticket.Number())
		}
		switch st := m.standing(i, fresh); st {
		case idle:
			if !v.Readable {
				s.lost = i + 1
			}
		case active:
			if doorway || v.Slot.Ticket < m.ownSlot.Ticket {
				s.count(i+1, v.Slot, m.ownSlot.Mode)
			}
		case blocked, unknown:
			s.ahead.blocked++
			s.unsettled = i + 1
			s.doubt = s.doubt || st == unknown
		case unsure:
			s.unsure = true
		case newer:
			s.newer = i + 1
		}
	}
	if s.lost != 0 && s.ahead.blocked == 0 {
		s.highest = max(s.highest, m.hidden(fresh, max(s.highest, m.last)))
	}
	return s
}

// count adds a slot ahead of one that requests the given mode.
func (s *survey) count(host int, o Slot, mode layout.Mode) {
	conflict := o.Mode == layout.Exclusive || mode == layout.Exclusive
	s.ahead.add(o.Mode)
	if o.Phase == layout.Choosing {
		if conflict && s.ahead.blocked == 0 {
			s.unsettled = host
		}
		return
	}
	s.firm.add(o.Mode)
	if conflict && o.Ticket > s.frontTicket {
		s.front, s.frontTicket = host, o.Ticket
	}
}

// hidden returns the bound on the numbers that unreadable slots of dead hosts may hide, if all
// other slots were readable. Such a slot changes only if a later incarnation joined, or a joining
// one went live, and then died too (TOKENS).
func (m *Machine) hidden(fresh []Host, highest uint64) uint64 {
	bound := highest
	for i := range m.views {
		p := &m.peers[i]
		if i == m.cfg.Host-1 || m.views[i].Readable || m.standing(i, fresh) != idle {
			continue
		}
		if h := fresh[i]; p.hidden == 0 || p.hider != h.Incarnation || p.early && !h.Joining {
			p.hidden, p.hider, p.early = highest+hiddenSpan, h.Incarnation, h.Joining
		}
		bound = max(bound, p.hidden)
	}
	return bound
}

// rank returns the number of hosts ahead, at least 1.
func (s *survey) rank() int {
	return max(1, s.ahead.exclusive+s.ahead.shared+s.ahead.blocked)
}

// poll waits for the slot directly ahead: in all cases it must go before this one. With several
// permits any release may admit this host, so all slots are read.
func (m *Machine) poll(s survey) Action {
	host := s.front
	switch {
	case s.ahead.blocked > 0:
		host = s.unsettled
	case m.cfg.Permits > 1:
		host = 0
	case host == 0:
		host = s.unsettled
	}
	m.pollFor(host, s.rank(), s.doubt)
	m.polling.Enters = true
	return m.polling
}

// pollFor polls a host's slot. With doubt, all slots are read again even if that slot is
// unchanged: neither a slot nor Over will supply the missing fact.
func (m *Machine) pollFor(host, rank int, doubt bool) Action {
	m.polling, m.doubt = Action{Kind: Poll, Host: host, Rank: rank}, doubt
	return m.polling
}

// Others counts the other hosts that request or hold the lock, by mode, from a read of the slots
// under a hold. An undecided slot counts, and in both modes if its mode is unknown.
func (m *Machine) Others(views []View) (exclusive, shared int) {
	m.expect("Others", stepEntered)
	m.see(views)
	var t tally
	for i, v := range m.views {
		if i == m.cfg.Host-1 {
			continue
		}
		st := m.standing(i, nil)
		switch {
		case st == idle:
		case st == active || st == unsure && v.Readable:
			t.add(v.Slot.Mode)
		default:
			t.add(layout.Exclusive)
			t.add(layout.Shared)
		}
	}
	return t.exclusive, t.shared
}

// Forget frees the memory of the last reads. The machine must be idle.
func (m *Machine) Forget() {
	m.expect("Forget", stepIdle)
	m.views, m.hosts = nil, nil
}

// see stores a read of the slots of hosts 1..len(views).
func (m *Machine) see(views []View) {
	m.grow(len(views))
	m.views = append(m.views[:0], views...)
}
