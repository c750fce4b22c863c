package lease

import (
	"encoding/binary"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

func init() { debug.SetGCPercent(400) } // a search makes much garbage, and keeps little

// explorer searches every run of a world up to a horizon. Everything that is not stalled takes no
// time, in every order. A stalled process, read or write takes any time. Time advances in units.
type explorer struct {
	seed     maphash.Seed
	seen     map[uint64]struct{}
	buf      []byte
	now      []*world // to be explored at this time
	later    map[time.Duration][]*world
	wentLive bool     // some host did
	hidden   bool     // a live host's record showed another incarnation
	found    string   // the broken invariant
	at       *world   // where
	ends     []*world // of calm worlds: states in which no fault is possible any more
}

func explore(w *world, horizon time.Duration) *explorer {
	e := &explorer{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{}), later: make(map[time.Duration][]*world)}
	e.add(w, &e.now)
	for e.found == "" {
		if len(e.now) > 0 {
			w := e.now[len(e.now)-1]
			if *shortest {
				w, e.now = e.now[0], e.now[1:]
			} else {
				e.now = e.now[:len(e.now)-1]
			}
			e.expand(w)
			if w.trace != nil { // not the caller's
				w.moved = nil // other worlds share its machine now
				w.drop()
			}
			continue
		}
		next := never
		for t := range e.later {
			next = min(next, t)
		}
		if next > horizon {
			break
		}
		for _, w := range e.later[next] {
			e.add(w, &e.now)
		}
		delete(e.later, next)
	}
	return e
}

// add adds a world to a list, unless it was seen before or no fault is possible in it any more.
func (e *explorer) add(w *world, list *[]*world) {
	if e.found != "" {
		return
	}
	for i := range w.nodes {
		m := w.nodes[i].m
		e.wentLive = e.wentLive || m.held
		e.hidden = e.hidden || m.Live(w.now) && w.shown(m.id)[0].Incarnation != m.own.Incarnation
	}
	if e.found = w.wrong(); e.found != "" {
		e.at = w
		return
	}
	e.buf = w.key(e.buf[:0])
	h := maphash.Bytes(e.seed, e.buf)
	if _, ok := e.seen[h]; ok {
		w.drop()
		return
	}
	e.seen[h] = struct{}{}
	if w.settled() {
		if w.calm {
			e.ends = append(e.ends, w)
		} else {
			w.drop()
		}
		return
	}
	*list = append(*list, w)
}

// expand makes every move of a world.
func (e *explorer) expand(w *world) {
	urgent := false
	var offered uint32 // items whose stalling or release was explored
	for i := range w.nodes {
		for _, mv := range w.enabled(i) {
			item := uint32(1) << itemOf(i, mv)
			if w.stalled&item != 0 {
				if offered&item != 0 {
					continue
				}
				offered |= item
				c := w.clone()
				c.stalled &^= item
				c.trace = &step{before: w.trace, node: i, what: doRelease, now: w.now}
				e.add(c, &e.now)
				continue
			}
			urgent = true
			c := w.clone(i)
			c.do(i, mv)
			e.add(c, &e.now)
			if w.stalls > 0 && offered&item == 0 && w.spared&item == 0 {
				offered |= item
				c := w.clone()
				c.stalled |= item
				c.stalls--
				c.trace = &step{before: w.trace, node: i, what: doStall, now: w.now}
				e.add(c, &e.now)
			}
		}
	}
	for i := range w.nodes {
		for _, mv := range w.mishaps(i) {
			c := w.clone(i)
			c.do(i, mv)
			e.add(c, &e.now)
		}
	}
	for g := range w.late {
		c := w.clone()
		c.do(g, doLandLate)
		e.add(c, &e.now)
	}
	for g := range w.ghost {
		c := w.clone()
		c.do(g, doGhost)
		e.add(c, &e.now)
	}
	if next, ok := w.nextMoment(); ok && !urgent {
		c := w.clone()
		c.now = next
		e.later[next] = append(e.later[next], c)
	}
}

// nextMoment returns the next time that makes a difference: a wake-up, the end of a budget or of
// a lease, and the unit after each.
func (w *world) nextMoment() (time.Duration, bool) {
	next := never
	at := func(t time.Duration) {
		t = (t + unit - 1) / unit * unit
		if t > w.now {
			next = min(next, t)
		} else if t == w.now {
			next = w.now + unit
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		m := n.m
		if n.wake != 0 {
			at(n.wake)
		}
		for _, h := range n.holds {
			at(h.until)
		}
		if m.phase == over {
			continue
		}
		if n.reading && !m.held {
			at(m.readAt + m.t.ClaimBudget())
			at(m.readAt + m.t.Budget())
		}
		if n.writing && !m.held {
			at(m.looked + m.t.ClaimBudget())
			at(m.looked + m.t.Budget())
		}
		if m.held {
			at(m.Deadline() - m.t.Budget())
			at(m.Deadline())
			at(m.SureUntil())
		}
	}
	return next, next != never
}

// settled reports whether no fault is possible any more: of the hosts with one id all but one are
// over, with no IO under way, and each host that is alone with its id takes tickets.
func (w *world) settled() bool {
	if len(w.ghost) > 0 || len(w.late) > 0 {
		return false
	}
	if w.deaths {
		return !slices.ContainsFunc(w.nodes, func(n node) bool { return !n.m.Over() })
	}
	up := 0
	for i := range w.nodes {
		n := &w.nodes[i]
		switch {
		case n.m.Over() && !n.writing, w.apart() && n.m.Ready():
		case w.calm && !n.m.held:
			return false
		default:
			up++
		}
	}
	return up == 0 || up == 1 && !w.apart()
}

// apart reports whether the hosts were given different ids.
func (w *world) apart() bool {
	return len(w.nodes) < 2 || w.nodes[0].m.cfg.ID != w.nodes[1].m.cfg.ID
}

// key appends everything that the world's future depends on, with times relative to now.
func (w *world) key(b []byte) []byte {
	b = append(b, byte(w.stalls), byte(len(w.ghost)))
	b = binary.LittleEndian.AppendUint32(b, w.stalled)
	for _, g := range w.ghost {
		b = w.keyRecord(b, g)
	}
	for _, id := range w.ids {
		b = w.keyRecord(b, w.disk[id-1])
	}
	for i := range w.nodes {
		b = w.keyNode(b, &w.nodes[i])
		b = w.keyMortal(b, &w.nodes[i])
	}
	b = w.keySeveral(b)
	for _, f := range w.fences {
		b = append(b, byte(f.PRKey), byte(f.Incarnation), 0xfa)
	}
	for _, x := range w.cut {
		b = append(b, byte(x), 0xf9)
	}
	return append(b, byte(w.crashes), byte(w.fails), byte(w.rejoins), byte(w.evicts), byte(w.leaves), keyBits(w.broken != ""))
}

func (w *world) keyNode(b []byte, n *node) []byte {
	m := n.m
	if m.Over() {
		b = append(b, 0xfe, keyBits(n.writing, n.landed))
		if n.writing {
			b = w.keyRecord(b, n.record)
		}
		return b
	}
	b = append(b, keyBits(n.started, n.reading, n.writing, n.landed, m.long, m.held, m.ready),
		byte(m.phase), byte(n.sampled), byte(len(m.spent)), byte(m.id), byte(m.readHorizon))
	b = w.keyReach(b, n)
	if m.held {
		b = append(b, byte(m.own.Sequence-m.acked), byte(m.own.Sequence-m.floor))
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(n.ended))
	b = append(b, byte(m.own.Incarnation), byte(m.own.State))
	t := m.t
	b = w.keyTime(b, n.wake, 0, n.wake != 0)
	b = w.keyTime(b, m.timer, 0, true)
	b = w.keyTime(b, m.readAt, t.Budget(), m.reading && !m.held)
	b = w.keyTime(b, m.looked, t.Budget(), m.writing && !m.held)
	b = w.keyTime(b, m.writeAt, t.Lease, m.writing)
	b = w.keyTime(b, m.t0, t.Lease, m.held)
	if m.held {
		b = append(b, keyBits(m.t0 > n.proven))
	} else {
		b = w.keyTime(b, m.wrote, m.restless(m.hosts[max(m.id, 1)-1]), m.wrote >= 0)
	}
	if m.phase == looking || m.phase == claiming {
		h := m.hosts[m.id-1]
		b = w.keyTime(b, h.Since, m.restless(h), m.phase == looking)
		b = w.keyTime(b, w.now-max(m.readAt-h.Since, 0), m.restless(h), m.phase == looking && m.reading)
		b = append(b, keyBits(m.watch >= 0, h.Since > m.watch))
		b = w.keyRecord(b, layout.HostRecord{Incarnation: h.Incarnation, Sequence: h.Sequence, State: h.State})
	}
	b = w.keyCopies(b, n)
	for k := range n.sampled {
		b = w.keyRecord(b, n.view[w.sampleAt(n.id-1, k)].HostRecord)
	}
	if n.writing {
		b = w.keyRecord(b, n.record)
	}
	return b
}

// keyReach appends what makes a difference where reads are partial.
func (w *world) keyReach(b []byte, n *node) []byte {
	m := n.m
	if n.reading {
		b = append(b, byte(n.extent))
	}
	if m.phase == looking || m.readHorizon == m.cfg.Hosts {
		return b
	}
	b = w.keyTime(b, m.sweptAt, m.t.Lease+m.t.Renew(), true)
	b = w.keyTime(b, m.joinersUntil, 0, m.phase == live)
	b = w.keyTime(b, m.readAt, m.t.Renew(), m.phase == live)
	return append(b, keyBits(m.company(m.id-1, false)), byte(m.own.ReadHorizon))
}

// keyRecord appends a record. Its sequence counts relative to the last write of its host.
func (w *world) keyRecord(b []byte, r layout.HostRecord) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(r.Incarnation))
	sequence := uint64(0)
	if w.deaths {
		sequence = r.Sequence<<4&0xf0 | 15
	}
	for i := range w.nodes {
		if own := &w.nodes[i].m.own; own.Incarnation == r.Incarnation {
			sequence = min(own.Sequence-r.Sequence, 15)
		}
	}
	b = append(b, byte(r.State), byte(sequence), byte(r.ReadHorizon))
	for _, v := range r.Verdicts {
		b = append(b, byte(v.Host), byte(v.Incarnation), byte(v.Kind), 0xfd)
	}
	return b
}

// keyTime appends a time if it counts. Times longer ago than that are equal.
func (w *world) keyTime(b []byte, t, ago time.Duration, counts bool) []byte {
	if !counts {
		return append(b, 0xff, 0x7f)
	}
	rel := max(t-w.now, -ago-unit) / unit
	return binary.LittleEndian.AppendUint16(b, uint16(rel))
}

func keyBits(bits ...bool) (b byte) {
	for i, bit := range bits {
		if bit {
			b |= 1 << i
		}
	}
	return b
}
