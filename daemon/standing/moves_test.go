package standing_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/standing"
	"github.com/bakeryd/bakeryd/layout"
)

// visit is called with a world after a move of a host.
type visit func(c *world, host int, what string)

// mover makes every move of a world.
type mover struct {
	*world
	to      visit
	urgent  bool   // an item that is not stalled is due: time does not pass
	offered uint32 // items whose stall was visited
}

var errBad = errors.New("the sector is unreadable")

// expand visits every next state.
func (w *world) expand(to visit) {
	m := &mover{world: w, to: to}
	for i := range w.hosts {
		m.leaseMoves(i)
		m.lockMoves(i)
	}
	for i := range w.hosts {
		m.mishaps(i)
	}
	for bit := range both * items {
		if w.stalled>>bit&1 == 1 {
			c := w.clone()
			c.stalled &^= 1 << bit
			to(c, bit/items, "continues:  "+itemNames[bit%items])
		}
	}
	if !m.urgent {
		m.timePasses()
	}
}

// timePasses runs the leases at the next tick, immediately unless an item of them is stalled
// there: items that are not stalled take no time.
func (m *mover) timePasses() {
	pass := func(stalled uint32) *world {
		c := m.clone(0, 1)
		c.advance()
		c.stalled |= stalled
		for i := range c.hosts {
			c.runLease(i)
		}
		return c
	}
	m.to(pass(0), 0, "time passes")
	for i := range m.hosts {
		for item := range itemReadSlot {
			if !m.mayStall(i, item) {
				continue
			}
			mask := uint32(1) << (i*items + item)
			c := pass(mask)
			c.stalled &^= mask
			if c.leaseStep(i) != nil { // it waits for that item
				c.stalled |= mask
				c.stalls--
				m.to(c, i, "time passes; stalls: "+itemNames[item])
			}
		}
	}
}

// due makes a move that is due, unless its item is stalled.
func (m *mover) due(i, item int, what string, do func(c *world, h *host)) {
	if m.isStalled(i, item) {
		return
	}
	m.urgent = true
	m.may(i, what, do)
	m.stall(i, item)
}

// mayStall reports whether an item may be stalled now.
func (m *mover) mayStall(i, item int) bool {
	mask := uint32(1) << (i*items + item)
	if m.sc.looks > 0 && !m.hosts[i].looking {
		return false
	}
	return m.stalls > 0 && m.stalled&mask == 0 && m.offered&mask == 0 && (m.sc.items == 0 || m.sc.items&uint(mask) != 0)
}

// stall stalls an item that is due.
func (m *mover) stall(i, item int) {
	if m.mayStall(i, item) {
		mask := uint32(1) << (i*items + item)
		m.offered |= mask
		c := m.clone()
		c.stalled |= mask
		c.stalls--
		m.to(c, i, "stalls: "+itemNames[item])
	}
}

var itemNames = []string{"process", "read of the host table", "return of the host table", "write of the host record",
	"return of that write", "read of the slots", "write of the slot"}

// may makes a move that may also come later.
func (m *mover) may(i int, what string, do func(c *world, h *host)) {
	c := m.clone(i)
	do(c, &c.hosts[i])
	m.to(c, i, what)
}

func (m *mover) paused(i int) bool { return m.isStalled(i, itemProcess) }

// leaseMoves runs the lease and its IO, up to a stalled item.
func (m *mover) leaseMoves(i int) {
	if m.leaseStep(i) == nil {
		return
	}
	m.urgent = true
	m.may(i, "lease", func(c *world, h *host) { c.runLease(i) })
	m.stall(i, itemProcess)
	for item := itemReadTable; item <= itemKnowRecord; item++ {
		if !m.mayStall(i, item) {
			continue
		}
		c := m.clone(i)
		c.stalled |= 1 << (i*items + item)
		c.stalls--
		c.runLease(i)
		c.stalled &^= 1 << (i*items + item)
		if c.leaseStep(i) != nil { // it waits for that item
			c.stalled |= 1 << (i*items + item)
			m.to(c, i, "lease, stalled: "+itemNames[item])
		}
	}
}

func (w *world) runLease(i int) {
	for step := w.leaseStep(i); step != nil; step = w.leaseStep(i) {
		step(w, i)
	}
}

// leaseStep returns the next step of the lease or its IO, nil if none is due.
func (w *world) leaseStep(i int) func(w *world, i int) {
	h := &w.hosts[i]
	runs := !h.down && !w.isStalled(i, itemProcess)
	switch {
	case runs && h.wake != 0 && h.wake <= w.now:
		return (*world).tick
	case h.reading && !h.sampled && !w.isStalled(i, itemReadTable):
		return (*world).sample
	case h.reading && h.sampled && runs && !w.isStalled(i, itemKnowTable):
		return (*world).tableRead
	case h.writing && !h.landed && !w.isStalled(i, itemWriteRecord):
		return (*world).land
	case h.writing && h.landed && runs && !w.isStalled(i, itemKnowRecord):
		return (*world).written
	}
	return nil
}

func (w *world) tick(i int) { w.tell(i, w.hosts[i].lm.Tick) }

func (w *world) sample(i int) {
	h := &w.hosts[i]
	h.sampled = true
	for j, r := range w.records {
		h.view[j] = lease.Record{HostRecord: r}
		if w.bad[j] {
			h.view[j] = lease.Record{Err: errBad}
		}
	}
}

func (w *world) land(i int) {
	h := &w.hosts[i]
	h.landed, h.refused = true, w.cut[i]
	if !h.refused {
		w.records[i] = h.record
	}
}

func (w *world) written(i int) {
	h := &w.hosts[i]
	h.writing = false
	if h.refused {
		w.tell(i, h.lm.WriteFailed)
		w.refused(i)
		return
	}
	w.tell(i, h.lm.Written)
}

// refused ends the lease of a host that learns that it was fenced.
func (w *world) refused(i int) {
	w.tell(i, func(now time.Duration) []lease.Action { return w.hosts[i].lm.Lose(now, errBad) })
}

func (w *world) tableRead(i int) {
	h := &w.hosts[i]
	asked, view := h.asked, h.view
	h.reading, h.sampled, h.view = false, false, [both]lease.Record{}
	w.tell(i, func(now time.Duration) []lease.Action {
		actions := h.lm.TableRead(now, view[:])
		for j := range h.read {
			if (*leaseHosts(h.lm))[j].Readable {
				h.read[j] = asked
			}
		}
		return actions
	})
}

// lockMoves visits the moves of the lock and its IO.
func (m *mover) lockMoves(i int) {
	h := &m.hosts[i]
	if s := &m.slots[i]; s.writing {
		m.due(i, itemWriteSlot, fmt.Sprintf("slot is written: %s", show(s.next)), func(c *world, h *host) {
			c.slots[i] = sector{now: c.slots[i].next}
			if h.begun && h.act.Kind == bakery.Write {
				c.took(i, h.bm.Written())
			}
		})
	}
	if h.down || h.bm == nil {
		return
	}
	if m.cut[i] && h.begun && h.act.Kind == bakery.Write {
		m.due(i, itemProcess, "the write of its slot is refused", func(c *world, h *host) { c.refused(i) })
		return
	}
	switch h.act.Kind {
	case 0:
		if h.rounds > 0 && ready(h.lm) && !m.paused(i) {
			m.may(i, "asks for the lock", func(c *world, h *host) {
				c.learn(i)
				c.took(i, h.bm.Acquire(bakery.Request{Mode: layout.Exclusive}))
			})
		}
	case bakery.Read:
		if h.begun {
			m.readMoves(i)
		}
	case bakery.Poll:
		m.pollMoves(i)
	case bakery.ReadHosts:
		known := h.known()
		if max(h.read[0], h.read[1]) >= h.hostsAt {
			m.due(i, itemProcess, "judges by the host table", func(c *world, h *host) {
				if !c.g.judgesAgain {
					h.judgedAt = standing.TableRead(known)
				}
				a := h.bm.HostsRead(c.g.hosts(known, h.hostsAt))
				c.checkVoid(i)
				c.took(i, a)
			})
		}
	case bakery.Granted:
		m.holdMoves(i)
	}
	if h.unclaimed && h.act.Kind != bakery.Granted && h.act.Kind != 0 && !m.paused(i) {
		m.may(i, "gives up: its client has not come back", func(c *world, h *host) {
			h.unclaimed = false
			h.bm.Cancel()
			if h.act.Kind == bakery.Poll {
				c.took(i, h.bm.Recheck())
			}
		})
	}
}

func (m *mover) readMoves(i int) {
	j := 1 - i
	for _, v := range m.slots[j].outcomes() {
		m.due(i, itemReadSlot, fmt.Sprintf("reads slot %d: %s", j+1, show(v)), func(c *world, h *host) {
			c.slotsRead(i, v)
			if h.looking {
				h.looking = false
				c.learn(i)
				h.bm.Others(h.views[:])
				return
			}
			c.took(i, h.bm.SlotsRead(h.views[:]))
		})
	}
}

// beginRead begins a read of the slots.
func (w *world) beginRead(i int) {
	if w.g.fromRequest {
		w.hosts[i].slotsEnded = w.stamp()
	}
}

// slotsRead ends a read of the slots.
func (w *world) slotsRead(i int, other bakery.View) {
	h := &w.hosts[i]
	h.views[i], h.views[1-i] = w.slots[i].now, other
	if !w.g.fromRequest {
		h.slotsEnded = w.stamp()
	}
}

// would returns the result of a host's move, without making it.
func (m *mover) would(i int, do func(c *world) bool) bool {
	c := m.clone(i)
	defer c.drop(false)
	return do(c)
}

func (m *mover) pollMoves(i int) {
	h := &m.hosts[i]
	if m.would(i, func(c *world) bool { return c.learn(i) }) {
		m.due(i, itemProcess, "learns by the host table", func(c *world, h *host) {
			c.learn(i)
			c.took(i, h.bm.Recheck())
		})
	}
	if !m.g.mayWrite(h.lm, m.now) {
		return
	}
	j := 1 - i
	for _, v := range m.slots[j].outcomes() {
		same := v == h.views[j]
		if same && h.polls > 0 || m.would(i, func(c *world) bool { return c.hosts[i].bm.Polled(v).Kind == bakery.Poll }) {
			continue
		}
		poll := func(c *world, h *host) {
			h.polls = min(h.polls+1, 2)
			c.took(i, h.bm.Polled(v))
		}
		if what := fmt.Sprintf("polls slot %d: %s", j+1, show(v)); h.polls < 2 {
			m.due(i, itemReadSlot, what, poll)
		} else { // a stalled write lets every poll return another result
			m.may(i, what, poll)
		}
	}
}

// learn applies a host's lease to its lock, and reports whether the lock must read again.
func (w *world) learn(i int) bool {
	h := &w.hosts[i]
	known := h.known()
	ended, again := w.g.learn(h.bm, i+1, known, h.views[:], h.slotsEnded, h.judgedAt)
	for _, o := range ended {
		h.bm.Over(o.Host, o.Incarnation)
	}
	if again {
		h.judgedAt = standing.TableRead(known)
	}
	w.checkVoid(i)
	return again
}

// checkVoid checks what the lock machine of a host has learned: it is called when that changes, and
// when the other host goes live.
func (w *world) checkVoid(i int) {
	bm, o := w.hosts[i].bm, &w.hosts[1-i]
	if inc := o.lm.Incarnation(); bm != nil && bm.IsOver(2-i, inc) && o.lm.Live(w.now) && !w.cut[1-i] {
		w.failf("VOID: host %d takes incarnation %d of host %d for over, which is live", i+1, inc, 2-i)
	}
}

// holdMoves visits the moves of a host whose lock machine was granted the lock.
func (m *mover) holdMoves(i int) {
	h := &m.hosts[i]
	switch {
	case h.unclaimed && !h.inside:
		m.due(i, itemProcess, "lets go a hold without a holder", func(c *world, h *host) { c.took(i, h.bm.Release()) })
	case h.inside && (h.note != 0 || m.g.lateNote):
		if m.g.lateNote && h.note == 0 {
			m.due(i, itemProcess, "notes the grant", func(c *world, h *host) { h.note = h.token })
		}
		if h.looking {
			m.readMoves(i)
		} else if m.looks > 0 && !m.paused(i) {
			m.may(i, "looks for other hosts", func(c *world, h *host) {
				c.looks--
				h.looking = true
				c.beginRead(i)
			})
		}
		if !m.paused(i) {
			m.may(i, "releases", func(c *world, h *host) {
				h.inside, h.token, h.until, h.looking = false, 0, 0, false
				c.took(i, h.bm.Release())
			})
		}
	case h.note == 0 && !m.g.lateNote:
		if m.g.mayGrant(h.lm, m.now) {
			m.due(i, itemProcess, "notes the grant", func(c *world, h *host) {
				h.note = h.bm.Token()
				if (*leaseHosts(c.hosts[1-i].lm))[i].Over(h.lm.Incarnation()) {
					c.failf("SURE: host %d is granted the lock, and host %d has declared it dead", i+1, 2-i)
				}
			})
		}
	case h.note != 0 || m.g.mayGrant(h.lm, m.now):
		m.due(i, itemProcess, "ENTERS", func(c *world, h *host) { c.enter(i) })
	}
}

// enter notifies a client that it holds the lock, with the deadline. If the process was stalled
// after its last check of the lease, the deadline may have passed. Then the client holds nothing,
// and its token is one of the past.
func (w *world) enter(i int) {
	h := &w.hosts[i]
	token, holds := h.bm.Token(), h.lm.Deadline() > w.now && !w.cut[i] // NOTIFICATION weakens once it is fenced
	for j := range w.hosts {
		if o := &w.hosts[j]; holds && o.inside && o.may() > w.now && !w.cut[j] {
			w.failf("EXCLUSION: host %d enters, and a holder of host %d is inside", i+1, j+1)
		}
	}
	if holds && token <= w.granted {
		w.failf("TOKENS: host %d is given %d.%d after %d.%d", i+1, token.Number(), token.Host(), w.granted.Number(), w.granted.Host())
	}
	w.granted = max(w.granted, token)
	h.inside, h.token, h.until, h.unclaimed = true, token, 0, false
	h.rounds--
}

// mishaps visits the faults of hosts and disk.
func (m *mover) mishaps(i int) {
	h := &m.hosts[i]
	if m.damage > 0 && !m.bad[i] && (m.sc.of == 0 || m.sc.of>>i&1 == 1) {
		c := m.clone()
		c.damage--
		c.bad[i] = true
		m.to(c, i, "host record becomes unreadable")
	}
	if i == 0 && m.crashes > 0 && !h.down && h.lm.Live(m.now) {
		m.crashMoves(i)
	}
	if h.down && m.resumes > 0 {
		for k, term := range h.terms {
			if k == 0 && term == h.terms[1] {
				continue
			}
			term.Clean = h.terms[1].Clean
			m.may(i, "is started again", func(c *world, h *host) {
				c.resumes--
				c.join(i, &term)
			})
		}
	}
	ended := h.down || h.lm.Over()
	if ended && m.rejoins > 0 && !h.writing && !m.slots[i].writing && !m.paused(i) && !(m.cut[i] && h.inside) {
		m.may(i, "joins again", func(c *world, h *host) {
			c.rejoins--
			h.note = 0
			c.join(i, nil)
		})
	}
}

// crashMoves ends a process. Its write under way has landed or never will.
func (m *mover) crashMoves(i int) {
	h, s := &m.hosts[i], m.slots[i]
	slots := []bakery.View{s.now}
	if s.writing {
		slots = append(slots, s.next)
	}
	if m.torn > 0 {
		slots = append(slots, bakery.View{})
	}
	records := []layout.HostRecord{m.records[i]}
	if h.writing && !h.landed {
		records = append(records, h.record)
	}
	for _, v := range slots {
		for _, r := range records {
			m.may(i, "CRASHES with "+show(v), func(c *world, h *host) {
				c.crashes--
				if !v.Readable {
					c.torn--
				}
				c.slots[i], c.records[i] = sector{now: v}, r
				c.ended(i)
				h.down, h.reading, h.sampled, h.writing, h.landed, h.wake = true, false, false, false, false, 0
				h.view = [both]lease.Record{}
				c.stalled &^= (1<<items - 1) << (i * items)
			})
		}
	}
}

func show(v bakery.View) string {
	if !v.Readable {
		return "unreadable"
	}
	return fmt.Sprintf("%v %d.%d of %d", v.Slot.Phase, v.Slot.Ticket.Number(), v.Slot.Ticket.Host(), v.Slot.Incarnation)
}
