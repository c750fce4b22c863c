package lease

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// mortal configures what may happen to hosts in addition to delays. A crash ends the process: its
// write under way has landed or never will, and its holders stay up until the deadline that they
// know.
type mortal struct {
	deaths  bool          // hosts watch one another: more of their state makes a difference
	whole   bool          // the records of a read are sampled at one moment
	spared  uint32        // items that are never stalled
	mayDie  int           // a bit for each node that may crash, or whose writes may fail
	crashes int           // number of crashes left
	by      time.Duration // end of the time in which they may happen; 0: no end
	rejoins int           // number of times that a node which lost its lease may join again
	fails   int           // number of writes that may still fail, to land later or not
	leaves  int           // number of times that a node which may die leaves
	evicts  int           // number of evictions left, by the last node

	fences []Fence  // with fence-after: fences that agents have begun
	cut    []uint64 // incarnations whose writes are refused

	ended  [][]uint64 // by node: the incarnations that ended cleanly
	broken string     // the broken rule
}

// errRefused is the driver's reason for the loss of a lease when the device refuses a write.
var errRefused = errors.New("reservation conflict")

// mishaps returns the faults that may happen to a node at any time.
func (w *world) mishaps(i int) (moves []move) {
	n := &w.nodes[i]
	if w.crashes > 0 && (w.by == 0 || w.now <= w.by) && w.mayDie>>i&1 == 1 && !n.down && n.m.Live(w.now) {
		moves = append(moves, doCrash)
	}
	if n.down {
		moves = append(moves, doResume)
		if n.terms[0] != n.terms[1] {
			moves = append(moves, doResumeOld)
		}
	}
	if w.rejoins > 0 && !n.down && n.m.Over() && !n.writing {
		moves = append(moves, doRejoin)
	}
	if w.fails > 0 && (w.by == 0 || w.now <= w.by) && w.mayDie>>i&1 == 1 && n.writing && !n.down {
		moves = append(moves, doFail)
	}
	moves = append(moves, w.choices(n)...)
	if w.leaves > 0 && w.mayDie>>i&1 == 1 && !n.down && n.m.phase == live {
		moves = append(moves, doLeave)
	}
	if w.evicts > 0 && i == len(w.nodes)-1 && n.m.Live(w.now) {
		moves = append(moves, doEvict)
	}
	if len(w.fences) > 0 && w.fences[0].PRKey == uint64(n.id) && !n.down {
		moves = append(moves, doCut)
	}
	return moves
}

func (w *world) doMortal(n *node, mv move) {
	switch mv {
	case doCrash:
		w.crashes = max(w.crashes-1, 0)
		n.down, n.reading, n.writing, n.wake, n.view, n.sampled = true, false, false, 0, nil, 0
	case doResume, doResumeOld:
		term := n.terms[1]
		if mv == doResumeOld {
			term = n.terms[0]
		}
		term.Clean, term.ReadHorizon = n.terms[1].Clean, n.terms[1].ReadHorizon // stored whenever they change
		if n.m.own.State != layout.StateLeft {                                  // its holders were stopped first
			n.holds = append(slices.Clone(n.holds), w.holdOf(n))
		}
		n.down = false
		w.again(n, func(cfg *Config) {
			if cfg.Resume = &term; term.Incarnation == 0 { // void
				cfg.Resume = nil
			}
		})
	case doRejoin:
		w.rejoins--
		w.again(n, func(cfg *Config) {
			if w.ended != nil {
				cfg.Left = w.ended[n.id-1]
			}
		})
	case doFail:
		w.fails--
		n.writing = false
		if !n.landed && w.copies == nil {
			w.ghost = append(slices.Clone(w.ghost), n.record)
		}
		w.carry(n, n.m.WriteFailed(w.now))
	case doLeave:
		w.leaves--
		n.holds = nil // released first
		w.carry(n, n.m.Leave(w.now))
	case doEvict:
		w.evicts--
		host := w.nodes[0].m
		actions, _ := n.m.Evict(w.now, host.ID(), host.Incarnation(), false)
		w.carry(n, actions)
	case doCut:
		f := w.fences[0]
		w.fences, w.cut = w.fences[1:], append(slices.Clone(w.cut), f.Incarnation)
		w.carry(n, n.m.Fenced(w.now, f.Host, f.Incarnation))
	}
}

// refuse makes a write of an incarnation that is cut off fail, as its driver sees it.
func (w *world) refuse(n *node) {
	n.writing = false
	w.carry(n, n.m.WriteFailed(w.now))
	w.carry(n, n.m.Lose(w.now, errRefused))
}

// again gives a node a new machine, which starts immediately.
func (w *world) again(n *node, change func(*Config)) {
	cfg, mu := *n.cfg, n.m.mutated()
	change(&cfg)
	n.life++
	n.reading, n.view, n.sampled = false, nil, 0 // a hanging read belongs to the old machine
	w.stalled &^= 1 << itemOf(n.id-1, doSample)
	n.m = New(cfg)
	n.m.mutate(mu)
	n.adopt()
	w.carry(n, n.m.Start(w.now))
}

// keep stores what a driver stores of the lease.
func (n *node) keep() {
	term, ok := n.m.Term()
	if !ok && n.m.cfg.Members > 1 && n.m.phase == leaving { // LEFT-FIRST
		n.terms = [2]Term{}
	}
	if ok {
		if n.terms[0].Incarnation != term.Incarnation {
			n.terms[0] = term
		}
		n.terms[1] = term
	}
}

// told handles a notification of a machine.
func (w *world) told(n *node, a Action) {
	switch a := a.(type) {
	case Joined:
		if !a.Resumed {
			n.joined = w.now
		}
	case Lost:
		if w.rejoins > 0 && a.Incarnation != 0 {
			ended := make([][]uint64, len(w.nodes))
			copy(ended, w.ended)
			ended[n.id-1] = []uint64{a.Incarnation}
			w.ended = ended
		}
	case Asked:
		w.carry(n, n.m.Leave(w.now))
	case Fence:
		if n.m.t.FenceAfter > 0 {
			a.PRKey = uint64(n.id) // the node whose agent it is
			if !slices.ContainsFunc(w.fences, func(f Fence) bool { return f.PRKey == a.PRKey && f.Incarnation == a.Incarnation }) {
				w.fences = append(slices.Clone(w.fences), a)
			}
			return
		}
		for _, h := range w.living() {
			if h.incarnation == a.Incarnation {
				w.broken = "FENCE"
			}
		}
	}
}

func (w *world) holdOf(n *node) hold {
	until := n.m.Deadline()
	if n.m.own.WatchdogArmed {
		until += time.Duration(n.m.own.WatchdogSeconds) * time.Second
	}
	return hold{n.m.ID(), n.m.Incarnation(), n.joined, until}
}

// living returns the hosts that may have holders now.
func (w *world) living() (all []hold) {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.m.held && n.m.own.State != layout.StateLeft {
			if h := w.holdOf(n); h.until > w.now && (h.until > n.m.Deadline() || n.m.Live(w.now)) {
				all = append(all, h)
			}
		}
		for _, h := range n.holds {
			if h.until > w.now {
				all = append(all, h)
			}
		}
	}
	return all
}

// wrongDeath returns the broken rule about the death of other hosts, or "".
func (w *world) wrongDeath() string {
	if !w.deaths || w.broken != "" {
		return w.broken
	}
	living := w.living()
	for _, h := range living {
		if slices.Contains(w.evicted, h.incarnation) {
			continue
		}
		for id := range w.disk {
			if slices.ContainsFunc(w.shown(id+1), func(r layout.HostRecord) bool { return condemns(r, h.id, h.incarnation) }) && !slices.Contains(w.cut, h.incarnation) {
				return "VERDICT"
			}
		}
		for i := range w.nodes {
			n := &w.nodes[i]
			if n.m.Live(w.now) && n.m.ID() == h.id && n.m.Incarnation() != h.incarnation {
				return "SINGLE"
			}
			if seen := n.m.Host(h.id); n.m.phase == live && n.m.ID() != h.id && seen.Read > h.joined && seen.Void(h.incarnation) && !slices.Contains(w.cut, h.incarnation) {
				return "VOID"
			}
		}
	}
	for i := range w.nodes {
		m := w.nodes[i].m
		mayGrant := m.MayWrite(w.now) && w.now < min(m.WarnAt(), m.SureUntil()) && !w.nodes[i].down // as in package standing
		if m.t.FenceAfter > 0 && mayGrant && w.condemned(m.ID(), m.Incarnation()) {
			return "SURE"
		}
		for id, h := range w.nodes[i].m.hosts {
			if w.nodes[i].m.phase == live && h.Gone && h.State == layout.StateLive && !w.published(id+1, h.Incarnation) {
				return "PUBLISHED"
			}
		}
	}
	return ""
}

// published reports whether the disk shows a verdict on an incarnation, or none is needed any
// more.
func (w *world) published(id int, incarnation uint64) bool {
	if w.most(id, func(r layout.HostRecord) bool { return r.Incarnation != incarnation || r.State == layout.StateLeft }) {
		return true
	}
	return w.condemned(id, incarnation)
}

// condemned reports whether the disk shows a verdict on an incarnation.
func (w *world) condemned(id int, incarnation uint64) bool {
	for by := range w.disk {
		if w.most(by+1, func(r layout.HostRecord) bool { return condemns(r, id, incarnation) }) {
			return true
		}
	}
	return false
}

// condemns reports whether a record has a verdict on an incarnation.
func condemns(r layout.HostRecord, id int, incarnation uint64) bool {
	return slices.ContainsFunc(r.Verdicts, func(v layout.Verdict) bool {
		return v.Host == id && v.Incarnation == incarnation && v.Kind.Dead()
	})
}

// keyMortal appends what makes a difference where hosts watch one another.
func (w *world) keyMortal(b []byte, n *node) []byte {
	if !w.deaths {
		return b
	}
	m, t := n.m, n.m.t
	b = append(b, keyBits(n.down, m.unpublished, m.asked, m.term != nil, m.clean, n.terms[1].Ready, m.failed && t.FenceAfter > 0), byte(n.life))
	for _, h := range n.holds {
		b = binary.LittleEndian.AppendUint16(b, uint16(h.incarnation))
		b = w.keyTime(b, h.until, 0, true)
	}
	if n.down {
		b = w.keyTime(b, n.terms[0].T0, t.Lease, true)
		return w.keyTime(b, n.terms[1].T0, t.Lease, true)
	}
	if w.ended != nil {
		for _, x := range w.ended[n.id-1] {
			b = binary.LittleEndian.AppendUint16(b, uint16(x))
		}
	}
	if m.term != nil {
		b = w.keyTime(b, m.term.T0, t.Lease, true)
	}
	if m.Over() {
		return b
	}
	ago := t.Dead() + 10*time.Second
	b = w.keyTime(b, m.readAt, ago, m.reading)
	b = w.keyTime(b, m.stands, 2*t.Unseen(), m.stands >= 0 && !m.ready)
	for _, v := range m.verdicts {
		b = append(b, byte(v.Host), byte(v.Incarnation), byte(v.Kind), keyBits(v.durable >= 0), 0xfc)
	}
	for _, x := range m.statements {
		b = append(b, byte(x.Host), byte(x.Incarnation), byte(x.Kind), keyBits(x.fresh), 0xfb)
	}
	for _, id := range w.ids {
		h := m.hosts[id-1]
		if id == m.id {
			b = append(b, keyBits(h.Gone))
			continue
		}
		b = append(b, keyBits(h.Gone, h.Forgotten, h.Settled, h.Readable, h.Overdue(t)), byte(min(h.steps, 2)), byte(h.turns))
		b = w.keyRecord(b, layout.HostRecord{Incarnation: h.Incarnation, Sequence: h.Sequence, State: h.State, ReadHorizon: h.ReadHorizon})
		b = w.keyTime(b, max(h.Since, h.steady), ago, true)
		b = w.keyTime(b, h.Since, ago, h.steady > h.Since)
		b = w.keyTime(b, h.base, t.Lease, true)
		b = append(b, byte(h.Watchdog/unit))
		for i := range w.nodes {
			b = append(b, keyBits(h.Read > w.nodes[i].joined))
		}
	}
	return b
}
