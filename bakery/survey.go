package bakery

import "github.com/bakeryd/bakeryd/layout"

const (
	phaseIdle     = layout.Idle
	phaseChoosing = layout.Choosing
	phaseWaiting  = layout.Waiting
	phaseHeld     = layout.Held
)

// tally counts slots that stand before a host.
type tally struct{ exclusive, shared, blocked int }

func (t *tally) add(mode layout.Mode) {
	if mode == layout.Shared {
		t.shared++
	} else {
		t.exclusive++
	}
}

// admits tells whether a host may enter in a mode with t before it: EXCLUSION
// and ORDER rest on this and on who is counted in t. Shared and exclusive
// exclude each other whatever the number of permits: counting "fewer than k in
// conflict" over both would let a reader in beside a writer.
func (t tally) admits(mode layout.Mode, permits int) bool {
	if t.blocked > 0 || t.exclusive > 0 && mode == layout.Shared {
		return false
	}
	return mode == layout.Shared || t.shared == 0 && t.exclusive < permits
}

// survey is the sum of one read of all slots.
type survey struct {
	highest uint64 // number in any other slot, idle and stale ones included
	ahead   tally  // who stands before us
	firm    tally  // of those, who is not merely choosing
	unsure  bool   // the host table must be read first
	newer   int    // a host whose slot tells of a newer directory entry, or 0
	lost    int    // a dead host whose unreadable slot may have told of one, or 0

	front       int // the slot directly ahead: the greatest ticket of those in conflict
	frontTicket layout.Ticket
	unsettled   int // a host in conflict that is choosing, or unreadable

	doubt bool // a host record could not be read
}

// survey judges the views; fresh as for standing. In the doorway everybody
// who is not idle stands before us; after it, who has a smaller ticket. That of
// who is choosing is reserved only: the final one is not below it, so whoever
// has reserved one above ours comes after us (RESERVED).
func (m *Machine) survey(fresh []Host, doorway bool) survey {
	var s survey
	for i, v := range m.views {
		if v.Readable && i != m.cfg.Host-1 {
			s.highest = max(s.highest, v.Slot.Ticket.Number())
		}
	}
	for i, v := range m.views {
		if i == m.cfg.Host-1 {
			continue
		}
		switch st := m.standing(i, fresh); st {
		case idle:
			if !v.Readable {
				s.lost = i + 1
			}
		case active:
			if doorway || v.Slot.Ticket < m.mine.Ticket {
				s.count(i+1, v.Slot, m.mine.Mode)
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

// count adds a slot that stands before one that wants the given mode.
func (s *survey) count(host int, o Slot, mode layout.Mode) {
	conflict := o.Mode == layout.Exclusive || mode == layout.Exclusive
	s.ahead.add(o.Mode)
	if o.Phase == phaseChoosing {
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

// hidden is the bound on what the unreadable slots of dead hosts may hide, all
// others having been read. Such a slot no longer changes, unless a later
// incarnation came, or went live that was joining, and died in its turn (TOKENS).
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

// rank is how many stand ahead, at least 1.
func (s *survey) rank() int {
	return max(1, s.ahead.exclusive+s.ahead.shared+s.ahead.blocked)
}

// poll waits for the slot directly ahead; whoever it is must go before us.
// With several permits anybody's going may let us in, so all are read.
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
	a := m.pollFor(host, s.rank(), s.doubt)
	a.Enters = true
	m.polling = a
	return a
}

// pollFor polls a host's slot. With doubt, everything is read again even if
// that slot stays as it is: what is missing comes by no slot and no Over.
func (m *Machine) pollFor(host, rank int, doubt bool) Action {
	m.polling, m.doubt = Action{Kind: Poll, Host: host, Rank: rank}, doubt
	return m.polling
}

// Others counts, from a read of the slots under a hold, who else takes part:
// who asks for or holds the lock in either mode. What cannot be told counts:
// as both modes, if the mode cannot be told either.
func (m *Machine) Others(views []View) (exclusive, shared int) {
	m.expect("Others", stepEntered)
	m.see(views)
	for i, v := range m.views {
		if i == m.cfg.Host-1 {
			continue
		}
		st := m.standing(i, nil)
		switch {
		case st == idle:
		case st == active || st == unsure && v.Readable:
			if v.Slot.Mode == layout.Shared {
				shared++
			} else {
				exclusive++
			}
		default:
			exclusive++
			shared++
		}
	}
	return exclusive, shared
}

// Forget gives back the memory of what was last read, of an idle machine that may not be used for long.
func (m *Machine) Forget() {
	m.expect("Forget", stepIdle)
	m.views, m.hosts = nil, nil
}

// see takes in a read of the slots of hosts 1..len(views).
func (m *Machine) see(views []View) {
	m.grow(len(views))
	m.views = append(m.views[:0], views...)
}
