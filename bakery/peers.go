package bakery

import (
	"slices"

	"github.com/bakeryd/bakeryd/layout"
)

// peer holds facts about another host. Incarnations are random and never reused, so only their
// identity counts, never their order.
type peer struct {
	live   uint64 // the incarnation that its record showed when last read; 0: none, or not known
	over   uint64 // an incarnation known to be over: what it wrote counts as idle
	spared uint64 // an incarnation that died before the removal it had begun came about
	hidden uint64 // the highest number that its unreadable slot may hide
	hider  uint64 // the incarnation in its record when hidden was set
	early  bool   // hider was joining then: it may have written slots since
}

// hiddenSpan bounds how far an unseen number may lie above all others on the lock: about 71
// minutes of clock. It is granted once per unreadable slot of a dead incarnation. Granting it at
// every attempt would use up the numbers.
const hiddenSpan = 1 << 24

// ownSpan is the same bound for a host that rejoins and finds its own slot unreadable. It is
// smaller by 1 s of clock for two reasons. The numbers that the host draws before it dies again
// stay within the bound that others grant it. A host that drew above a hiddenSpan needs more than
// that second to die, rejoin and use this span.
const ownSpan = hiddenSpan - 1<<12

// standing is how a slot counts for the host that read it.
type standing uint8

const (
	idle    standing = iota // not in the way
	active                  // choosing, waiting or held, by an incarnation not known to be over
	blocked                 // unreadable, and its host not dead: may hold anything
	unsure                  // undecided until the host table is read
	unknown                 // blocks, because the host table was read and did not decide
	newer                   // shows a directory entry newer than this machine's
)

// standing judges host i+1's slot. fresh is the host table if it was read after the slot, else
// nil. Only a fresh table can show that an incarnation is over (VOID): a later incarnation may
// have written a slot that was read after the record.
func (m *Machine) standing(i int, fresh []Host) standing {
	v, p := m.views[i], &m.peers[i]
	if !v.Readable {
		switch {
		case p.live != 0:
			return blocked
		case fresh == nil:
			return unsure
		case i < len(fresh) && fresh[i].Dead():
			return idle
		}
		return unknown
	}
	s := v.Slot
	if s.Creation > m.cfg.Creation && (s.Incarnation != p.spared || p.spared == 0) {
		return newer
	}
	if s.Phase == layout.Idle || s.Creation != m.cfg.Creation || s.Incarnation == p.over {
		return idle
	}
	if s.Incarnation == p.live {
		return active
	}
	if fresh == nil {
		return unsure
	}
	return unknown // the record could not be read, or is unsettled
}

// Dead reports whether the incarnation that wrote a slot of the host is over, if the slot was
// read before the record. The only incarnation that may be up was joining, and it writes slots
// only once it is live.
func (h Host) Dead() bool { return h.Readable && (h.Gone || h.Joining) && !h.Unsettled }

// ended reports whether the record shows that an incarnation is over, no matter when it was read.
func (h Host) ended(incarnation uint64) bool {
	return incarnation == h.Incarnation && h.Gone || slices.Contains(h.Ended, incarnation)
}

// applyHostTable updates the peers from a host table read after the views.
func (m *Machine) applyHostTable(hosts []Host) {
	for i := range min(len(m.views), len(hosts)) {
		h, p, s := hosts[i], &m.peers[i], m.views[i]
		if h.Readable {
			p.live = 0
			// A host may stay joining forever. The table may be older than an Over.
			if !h.Joining && h.Incarnation != p.over {
				p.live = h.Incarnation
			}
		}
		if h.ended(p.live) {
			p.live = 0
		}
		inc := s.Slot.Incarnation
		if s.Readable && inc != 0 && (h.ended(inc) || h.Readable && inc != h.Incarnation && !h.Unsettled) {
			p.over = inc
		}
	}
}

// Over notifies the machine that an incarnation of a host has ended: its record shows left or a
// newer incarnation, or a verdict on it was read. It may be called at any time between two
// actions. A machine that polls then needs [Machine.Recheck].
func (m *Machine) Over(host int, incarnation uint64) {
	m.grow(host)
	p := &m.peers[host-1]
	p.over = incarnation
	if p.live == incarnation {
		p.live = 0
	}
}

// IsOver reports whether the machine knows that an incarnation of a host is over.
func (m *Machine) IsOver(host int, incarnation uint64) bool {
	return host <= len(m.peers) && incarnation != 0 && m.peers[host-1].over == incarnation
}

// Current returns the incarnation of a host that the machine takes for current, or 0.
// [Machine.Over] has an effect for this incarnation and for those that slots show.
func (m *Machine) Current(host int) uint64 {
	if host > len(m.peers) {
		return 0
	}
	return m.peers[host-1].live
}

// grow makes room for the peers of hosts 1..n.
func (m *Machine) grow(n int) {
	for len(m.peers) < n {
		m.peers = append(m.peers, peer{})
	}
}
