package bakery

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/bakeryd/bakeryd/layout"
)

// code encodes a part of the world for a key. It leaves out only fields that no longer matter:
// those that the next event overwrites, and sums that this scenario does not check. Every part
// has a fixed length or encodes its length, so that no two states have one code.
type code struct {
	b []byte
	n []uint64 // numbers and creation ids, which matter only relative to each other
}

func (c *code) ticket(t layout.Ticket) {
	c.b = append(c.b, byte(t.Host()))
	c.n = append(c.n, t.Number())
}

func (c *code) table(hosts []Host) {
	for _, h := range hosts {
		c.host(h)
	}
}

func (c *code) host(h Host) {
	c.b = append(c.b, byte(h.Incarnation), bit(h.Gone)|bit(h.Readable)<<1|bit(h.Unsettled)<<2|bit(h.Joining)<<3, byte(len(h.Ended)))
	for _, inc := range h.Ended {
		c.b = append(c.b, byte(inc))
	}
}

func (c *code) view(v *View) {
	if !v.Readable {
		c.b = append(c.b, 0xff)
		return
	}
	s := &v.Slot
	c.b = append(c.b, byte(s.Phase)<<1|byte(s.Mode), byte(s.Incarnation))
	c.n = append(c.n, s.Creation)
	c.ticket(s.Ticket)
}

// encode updates the actor's code.
func (ac *actor) encode(sc *scenario) {
	c := &ac.code
	c.n = append(c.n[:0], ac.entry.creation)
	c.b = append(c.b[:0], bit(ac.crashed), byte(ac.inc), byte(ac.entry.area), byte(ac.rounds), byte(ac.settles), byte(ac.cancels), byte(ac.changes), byte(ac.rewrites))
	if ac.crashed {
		return // what it knew is lost
	}
	m, kind := ac.m, ac.act.Kind
	c.b = append(c.b, byte(m.step), byte(kind), bit(m.cancel)|bit(m.attached)<<1|bit(m.attachOnly)<<2|bit(ac.rewriting)<<3|bit(ac.split)<<4|
		bit(ac.doored)<<5|bit(ac.sampled)<<6|bit(m.torn)<<7, ac.where, byte(ac.held)|bit(ac.noted)<<4|bit(ac.resumed)<<5|bit(ac.repeating)<<6)
	c.view(&View{Slot: m.ownSlot, Readable: true})
	c.n = append(c.n, m.last)
	if sc.permits > 1 {
		c.ticket(ac.endedMax)
	}
	if sc.locals > 0 {
		ac.encodeLocals(sc)
	}
	moot := m.step == stepWithdraw && m.after == Superseded // the attempt goes on
	if moot || m.step == stepAttach && !m.attachOnly || m.step >= stepClaim && m.step <= stepWait || m.step == stepSuperseded {
		c.b = append(c.b, byte(m.request.Mode), byte(m.request.Clock), bit(m.request.Try))
	}
	if m.step == stepWithdraw {
		c.b = append(c.b, byte(m.after))
	}
	if moot || m.step == stepSuperseded {
		c.b = append(c.b, byte(m.met))
	}
	for i := range ac.early {
		c.view(&ac.early[i])
	}
	switch kind {
	case Read:
		c.b = append(c.b, ac.mask)
		for i := range sc.hosts {
			if ac.mask&(1<<i) != 0 {
				c.view(&ac.got[i])
			}
		}
		if sc.mutate != nil && sc.mutate.staleHosts {
			c.table(ac.table)
		}
	case Poll:
		c.b = append(c.b, byte(ac.act.Host), bit(m.doubt))
		if ac.act.Host > 0 {
			c.view(&m.views[ac.act.Host-1])
		}
	case ReadHosts:
		c.table(ac.table)
	case ReadDirectory:
		c.b = append(c.b, byte(m.lost), byte(m.metOver))
		c.n = append(c.n, ac.found)
		c.table(m.hosts)
	}
	if moot || kind == ReadHosts || kind == ReadDirectory {
		for i := range m.views {
			c.view(&m.views[i])
		}
	}
	for _, p := range m.peers {
		c.b = append(c.b, byte(p.live), byte(p.over), byte(p.spared), byte(p.hider), bit(p.early))
		c.n = append(c.n, p.hidden)
	}
}

// key sets c to the code of the world. The codes of the actors must be current.
func (w *world) key(c *code) {
	c.b, c.n = c.b[:0], c.n[:0]
	for i := range w.disk {
		s := &w.disk[i]
		c.b = append(c.b, bit(s.writing)|bit(s.seen)<<1)
		c.view(&s.now)
		for k := range s.newer[:w.sc.minority] {
			c.view(&s.newer[k])
		}
		if s.writing {
			c.view(&s.next)
		}
	}
	for i := range w.sc.hosts {
		ac := w.actors[i]
		c.b = append(append(c.b, ac.code.b...), w.before[i])
		c.n = append(c.n, ac.code.n...)
		if w.sc.records() {
			c.host(w.hosts[i])
			if w.sc.halfClaims() {
				c.host(w.claim(i))
			}
		}
	}
	c.b = append(c.b, byte(w.dir.area), byte(w.removes), byte(w.crashes), byte(w.corrupt), byte(w.fails), byte(w.blind), byte(w.joins), byte(w.resumes), byte(w.losses), byte(w.spans), bit(w.fault != ""))
	c.n = append(c.n, w.dir.creation, w.lastDir, w.areas[0], w.areas[1])
	if w.sc.locals > 0 {
		c.b = append(c.b, byte(w.granted), byte(w.ended))
		for _, n := range w.passed[:w.sc.hosts] {
			c.b = append(c.b, byte(n))
		}
	}
	if w.sc.permits == 1 {
		c.ticket(w.granted)
	} else {
		c.ticket(w.ended)
	}
	c.numbers(c.n, w.sc.gap)
}

// numbers adds the numbers to the code. With a gap only their order and small distances count:
// each is renumbered to at most gap above the next smaller one. The protocol compares numbers,
// draws the one above the greatest seen, and adds spans, which are kept. A world and its
// renumbered one therefore have the same future, with one exception: a host draws, one by one,
// more numbers than the gap has room for, without seeing a greater one that exists. Two hosts
// that do that forever are found.
func (c *code) numbers(all []uint64, gap uint64) {
	used, below := uint64(1), uint64(1) // bits: the numbers without spans, and those close above one
	greatest := uint64(0)
	for _, n := range all {
		greatest = max(greatest, n)
		used |= 1 << (n % smalls)
	}
	if greatest >= smalls && gap > 0 {
		used = 1
		for _, n := range all {
			used |= 1 << small(n)
		}
	}
	for g := range gap {
		below |= used << (g + 1)
	}
	switch near := gap == 0 || used&^below == 0; {
	case near && greatest < smalls:
		b := slices.Grow(c.b, len(all))
		for _, n := range all {
			b = append(b, byte(n))
		}
		c.b = b
		return
	case near:
		for _, n := range all {
			c.b = binary.AppendUvarint(c.b, n)
		}
		return
	}
	var rank [smalls]uint8
	for last, to := uint64(0), uint64(0); used != 0; used &= used - 1 {
		s := uint64(bits.TrailingZeros64(used))
		to += min(s-last, gap)
		last, rank[s] = s, uint8(to)
	}
	for _, n := range all {
		s := small(n)
		c.b = binary.AppendUvarint(c.b, n-s+uint64(rank[s]))
	}
}

const smalls = 64

// small returns a number without the spans in it.
func small(n uint64) uint64 {
	if n < smalls {
		return n
	}
	return withoutSpans(n)
}

func withoutSpans(n uint64) uint64 {
	for n >= ownSpan {
		n -= ownSpan
	}
	if n %= hiddenSpan - ownSpan; n >= smalls {
		panic("bakery: the explorer counts on smaller numbers")
	}
	return n
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}
