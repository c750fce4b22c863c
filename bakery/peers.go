package bakery

import "slices"

// peer is what a machine knows of another host. Incarnations are random and
// never reused, so only their identity counts, never their order.
type peer struct {
	live   uint64 // the incarnation that its record showed when last read; 0: none, or not known
	over   uint64 // an incarnation known to be over: what it wrote counts as idle
	spared uint64 // an incarnation that died before the removal it had begun came about
	hidden uint64 // the highest number that its unreadable slot may hide
	hider  uint64 // the incarnation that its record showed then,
	early  bool   // as joining: it may have written slots since
}

// hiddenSpan is how far a number may lie above all others on the lock without
// having been seen: about 71 minutes of clock. It is granted once per
// unreadable slot of a dead incarnation; granting it at every attempt would
// use the numbers up.
const hiddenSpan = 1 << 24

// ownSpan is the same for a host that comes back and finds its own slot
// unreadable. It is less by a second of clock: what the host draws then, and
// dies with, stays within what others grant it; and more than that passes
// before one who drew above a hiddenSpan can die, come back and need this.
const ownSpan = hiddenSpan - 1<<12

// standing is what a slot means for the host that read it.
type standing uint8

const (
	idle    standing = iota // not in the way
	active                  // choosing, waiting or held, by an incarnation not known to be over
	blocked                 // unreadable, and its host not dead: may be anything
	unsure                  // the host table must be read to tell
	unknown                 // in the way, for the host table was read and did not tell
	newer                   // tells of a directory entry newer than ours
)

// standing judges host i+1's slot. fresh is the host table if it was read
// after the slot, else nil: only then can it show that an incarnation is over
// (VOID), for a slot read after the record may be by a later incarnation.
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
	if s.Phase == phaseIdle || s.Creation != m.cfg.Creation || s.Incarnation == p.over {
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

// Dead reports whether whoever wrote a slot of the host is over, if the slot was read before the record: no
// incarnation is up but one that was joining, which writes slots only once it is live.
func (h Host) Dead() bool { return h.Readable && (h.Gone || h.Joining) && !h.Unsettled }

// ended reports whether an incarnation is over whenever the record was read.
func (h Host) ended(incarnation uint64) bool {
	return incarnation == h.Incarnation && h.Gone || slices.Contains(h.Ended, incarnation)
}

// learn takes in a host table read after the views.
func (m *Machine) learn(hosts []Host) {
	for i := range min(len(m.views), len(hosts)) {
		h, p, s := hosts[i], &m.peers[i], m.views[i]
		if h.Readable {
			p.live = 0
			// A joiner may stay one for ever. The table may be older than an Over.
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

// Over tells the machine that an incarnation of a host has ended: its record
// shows left or a newer one, or a verdict on it was read. It may come at any
// time between two actions; a machine that polls should then be given
// [Machine.Recheck].
func (m *Machine) Over(host int, incarnation uint64) {
	m.grow(host)
	p := &m.peers[host-1]
	p.over = incarnation
	if p.live == incarnation {
		p.live = 0
	}
}

// IsOver reports whether the machine has an incarnation of a host down as over.
func (m *Machine) IsOver(host int, incarnation uint64) bool {
	return host <= len(m.peers) && incarnation != 0 && m.peers[host-1].over == incarnation
}

// Current is the incarnation of a host that the machine takes for current, or
// 0: what [Machine.Over] may be told of beside those that slots show.
func (m *Machine) Current(host int) uint64 {
	if host > len(m.peers) {
		return 0
	}
	return m.peers[host-1].live
}

// grow makes room for what is known of hosts 1..n.
func (m *Machine) grow(n int) {
	for len(m.peers) < n {
		m.peers = append(m.peers, peer{})
	}
}
