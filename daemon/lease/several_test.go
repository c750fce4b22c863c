package lease

import (
	"flag"
	"math/bits"
	"slices"

	"github.com/bakeryd/bakeryd/layout"
)

var shortest = flag.Bool("lease.shortest", false, "explore breadth-first: traces are short, and it takes more memory")

// several is the host table of a world on several members: one copy of each record on each. A
// write lands on the members one after another, in any order, and returns when a majority has it.
// A read samples whole members, one after another, until it has a majority.
type several struct {
	copies [][]Copy // by member, by host; nil: one disk
	reach  []uint8  // by node, the members that it reaches; nil: all
	strays int      // number of reads that may sample any majority: the others sample the first that they reach
	misses int      // number of copies that may be lost
	delays int      // number of copies that may land late, at any time
	late   []lateCopy
	// evicted has the incarnations that an operator declared dead: they may be up.
	evicted []uint64
}

// lateCopy is a copy that lands at any time, even after its process has ended.
type lateCopy struct {
	member, node, life int
	Copy
}

// spread puts the host table of a world on members.
func (w *world) spread(members int) {
	w.copies = make([][]Copy, members)
	for k := range w.copies {
		w.copies[k] = make([]Copy, len(w.disk))
		for i, r := range w.disk {
			w.copies[k][i] = Copy{HostRecord: r, Read: true}
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		mu := n.m.mutated()
		n.cfg.Members = members
		n.m = New(*n.cfg)
		n.m.mutate(mu)
		n.adopt()
	}
}

func cloneCopies(copies [][]Copy) [][]Copy { return copyRows(nil, copies) }

func copyRows[T any](to, from [][]T) [][]T {
	if from == nil {
		return nil
	}
	if len(to) != len(from) {
		to = make([][]T, len(from))
	}
	for i := range from {
		to[i] = append(to[i][:0], from[i]...)
	}
	return to
}

func (w *world) quorum() int { return len(w.copies)/2 + 1 }

// reached returns the members that a node reaches.
func (w *world) reached(n *node) uint8 {
	if w.reach != nil {
		return w.reach[n.id-1]
	}
	return 1<<len(w.copies) - 1
}

// delayed returns the members to which a node writes nothing, because an earlier write of its
// process is under way there (FIFO).
func (w *world) delayed(n *node) (members uint8) {
	for _, l := range w.late {
		if l.node == n.id-1 && l.life == n.life {
			members |= 1 << l.member
		}
	}
	return members
}

// sampled returns the members that the read of a node may sample.
func (w *world) sampled(n *node) uint8 {
	all := w.reached(n)
	for !n.strays && bits.OnesCount8(all) > w.quorum() {
		all &^= 1 << (bits.Len8(all) - 1)
	}
	return all
}

func (w *world) enabledOn(n *node) (moves []move) {
	if n.reading {
		if bits.OnesCount8(n.got) >= w.quorum() {
			moves = append(moves, doDeliver)
		} else {
			for k := range w.copies {
				upwards := n.got>>k == 0 && len(w.copies)-k >= w.quorum()-bits.OnesCount8(n.got)
				if w.sampled(n)&^n.got>>k&1 == 1 && (!w.whole || upwards) {
					moves = append(moves, doSampleOf+move(k))
					if w.whole && !n.strays {
						break
					}
				}
			}
		}
	}
	if n.writing {
		missing := w.reached(n) &^ n.landedOn &^ w.delayed(n)
		if w.whole && missing == w.reached(n) && !(w.crashes > 0 && w.mayDie>>(n.id-1)&1 == 1) {
			return append(moves, doLand)
		}
		for k := range w.copies {
			if missing>>k&1 == 1 {
				moves = append(moves, doLandOn+move(k))
			}
		}
		if bits.OnesCount8(n.landedOn) >= w.quorum() && (missing == 0 || w.misses > 0) {
			moves = append(moves, doAck)
		}
	}
	return moves
}

// choices returns the moves by which a read samples any majority, and a copy becomes late.
func (w *world) choices(n *node) (moves []move) {
	if w.strays > 0 && (w.by == 0 || w.now <= w.by) && n.reading && n.got == 0 && !n.strays && !n.down {
		moves = append(moves, doStray)
	}
	if w.delays == 0 || !n.writing || n.down {
		return moves
	}
	for k := range w.copies {
		if w.reached(n)&^n.landedOn&^w.delayed(n)>>k&1 == 1 {
			moves = append(moves, doDelay+move(k))
		}
	}
	return moves
}

func (w *world) doOn(n *node, mv move) {
	switch {
	case mv == doStray:
		w.strays--
		n.strays = true
	case mv >= doDelay:
		w.delays--
		w.late = append(slices.Clone(w.late), lateCopy{int(mv - doDelay), n.id - 1, n.life, Copy{HostRecord: n.record, Read: true}})
	case mv >= doLandOn:
		n.landedOn |= 1 << (mv - doLandOn)
		w.copies[mv-doLandOn][n.record.ID-1] = Copy{HostRecord: n.record, Read: true}
	default:
		w.sample(n, int(mv-doSampleOf))
		for k := range w.copies {
			if w.whole && !n.strays && bits.OnesCount8(n.got) < w.quorum() && w.sampled(n)&^n.got>>k&1 == 1 {
				w.sample(n, k)
			}
		}
	}
}

func (w *world) landAll(n *node) {
	n.landedOn = w.reached(n) &^ w.delayed(n)
	for k := range w.copies {
		if n.landedOn>>k&1 == 1 {
			w.copies[k][n.record.ID-1] = Copy{HostRecord: n.record, Read: true}
		}
	}
}

func (w *world) sample(n *node, member int) {
	n.got |= 1 << member
	for i := range n.view {
		n.view[i].Copies[member] = w.copies[member][i]
		n.view[i].Copies[member].Read = true
	}
}

func (w *world) landLate(i int) {
	l := w.late[i]
	w.copies[l.member][l.ID-1] = l.Copy
	w.late = slices.Delete(slices.Clone(w.late), i, i+1)
}

// acknowledge returns the write of a node.
func (w *world) acknowledge(n *node) {
	if w.reached(n)&^n.landedOn&^w.delayed(n) != 0 {
		w.misses--
	}
	var members []int
	for k := range w.copies {
		if n.landedOn>>k&1 == 1 {
			members = append(members, k)
		}
	}
	w.carry(n, n.m.WrittenOn(w.now, members))
}

// shown returns the copies of a record.
func (w *world) shown(id int) (copies []layout.HostRecord) {
	if w.copies == nil {
		return w.disk[id-1 : id]
	}
	for _, member := range w.copies {
		copies = append(copies, member[id-1].HostRecord)
	}
	return copies
}

// most reports whether a majority of the copies of a record satisfies a condition.
func (w *world) most(id int, is func(layout.HostRecord) bool) bool {
	n := 0
	for _, r := range w.shown(id) {
		if is(r) {
			n++
		}
	}
	return n > len(w.copies)/2
}

// keySeveral appends what makes a difference with several members.
func (w *world) keySeveral(b []byte) []byte {
	if w.copies == nil {
		return b
	}
	for _, member := range w.copies {
		for _, id := range w.ids {
			b = w.keyCopy(b, member[id-1])
		}
	}
	for _, l := range w.late {
		b = append(b, byte(l.member), byte(l.node), byte(l.life))
		b = w.keyCopy(b, l.Copy)
	}
	for _, x := range w.evicted {
		b = append(b, byte(x), 0xf8)
	}
	return append(b, byte(w.misses), byte(w.delays), byte(w.strays), byte(len(w.late)))
}

func (w *world) keyCopy(b []byte, c Copy) []byte {
	sequence := c.Sequence
	for i := range w.nodes {
		if own := &w.nodes[i].m.own; own.Incarnation == c.Incarnation { // relative, as in keyRecord
			sequence = min(own.Sequence-sequence, 255)
		}
	}
	return append(w.keyRecord(b, c.HostRecord), byte(c.Generation), byte(sequence))
}

// keyCopies appends what a node and its machine know about copies.
func (w *world) keyCopies(b []byte, n *node) []byte {
	if w.copies == nil {
		return b
	}
	m := n.m
	b = append(b, n.got, n.landedOn, byte(n.record.Generation), byte(m.own.Generation), keyBits(m.stirred, n.strays))
	for k := range w.copies {
		if n.reading && n.got>>k&1 == 1 {
			for _, id := range w.ids {
				b = w.keyCopy(b, n.view[id-1].Copies[k])
			}
		}
	}
	for _, k := range m.counted {
		b = append(b, byte(k), 0xf7)
	}
	ago := m.t.Dead()
	for _, id := range w.ids {
		b = w.keyCopy(b, m.members.Greatest[id-1])
		b = w.keyTime(b, m.hosts[id-1].window, ago, true)
		for _, s := range m.members.Sightings[id-1] {
			b = w.keyCopy(b, Copy{HostRecord: layout.HostRecord{Incarnation: s.Incarnation, Generation: s.Generation, Sequence: s.Sequence, State: s.State}})
			b = w.keyTime(b, s.Since, ago, true)
			if m.phase == live && id != m.id {
				b = append(b, byte(min(s.Steps, 2)))
				b = w.keyTime(b, s.Base, m.t.Lease, true)
			}
		}
	}
	return b
}
