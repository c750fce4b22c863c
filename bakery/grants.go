package bakery

import "github.com/bakeryd/bakeryd/layout"

// Grants are the local grants of one hold on the disk: the clients of this host that it serves, each
// with the next token of the ticket and without IO. After the last of them has released, the host may
// keep an exclusive hold for the next one (MayLinger). Nothing of this changes the slot, so other
// hosts cannot distinguish it from one long hold. PROTOCOL.md, "Local grants", has the rules.
//
// The driver looks for other hosts while clients come and go: it reads the slots, and no grant waits
// for that if the disk is fast. The grants that another host waits for are counted from the begin of
// the last look that found none (BOUND).
type Grants struct {
	bound  int // grants after the begin of such a look
	made   int
	clean  int  // grants made when that look began
	wanted bool // a look has found another host: the hold does not linger, and no look counts any more
	closed bool // no more grants are made from the ticket
	used   bool // nor after a change of mode
}

// NewGrants returns the grants of a hold that has begun. A used ticket serves none: it may have served
// grants of an earlier driver, and their number is not known.
func NewGrants(bound int, used bool) Grants { return Grants{bound: bound, closed: used, used: used} }

// Made returns the number of grants made.
func (g *Grants) Made() int { return g.made }

// Open reports whether the ticket may serve another grant, after a look if MustLook. While another
// host waits it serves those that the bound has left.
func (g *Grants) Open() bool {
	return !g.closed && g.made < layout.MaxGrants && !(g.wanted && g.MustLook())
}

// Left returns the number of grants that need no other look than those reported; less than 1 if none.
func (g *Grants) Left() int { return g.bound - (g.made - g.clean) }

// MustLook reports whether the next grant has to wait for a look.
func (g *Grants) MustLook() bool { return g.made > 0 && g.Left() <= 0 }

// LookSoon reports whether to begin a look: early grants are left before one would wait for it.
func (g *Grants) LookSoon(early int) bool { return !g.wanted && g.Left() <= early }

// Next makes the next grant of a ticket and returns its token.
func (g *Grants) Next(ticket layout.Ticket) layout.Ticket {
	g.made++
	return ticket.Grant(g.made - 1)
}

// Looked reports the end of a look that began when made grants had been made: whether another host
// requests the lock in conflict with this hold.
func (g *Grants) Looked(made int, others bool) {
	g.wanted = g.wanted || others
	if !others && !g.wanted {
		g.clean = max(g.clean, made)
	}
}

// Close ends the grants of the ticket.
func (g *Grants) Close() { g.closed = true }

// Closed reports whether they were ended.
func (g *Grants) Closed() bool { return g.closed }

// Wanted reports whether a look has found another host.
func (g *Grants) Wanted() bool { return g.wanted }

// Reopen permits grants again, after a change of mode, unless the ticket is used.
func (g *Grants) Reopen() { g.closed, g.wanted = g.used, false }

// MayLinger reports whether the host may keep its hold although no client has the lock. Its slot must
// not show waiting: a driver that continues after a restart would find no grant that is noted, would
// enter by the same ticket, and grant its tokens again (Resume). With several permits another host could
// hold the lock meanwhile and release it, with a greater token than that of the next client here.
func (m *Machine) MayLinger(g *Grants) bool {
	return m.step == stepEntered && m.cfg.Permits == 1 && m.ownSlot.Mode == layout.Exclusive && m.ownSlot.Phase != layout.Waiting &&
		g.made > 0 && g.Open() && !g.wanted
}
