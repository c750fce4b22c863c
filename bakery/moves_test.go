package bakery

import (
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/layout"
)

// mutation is a rule left out or turned round, to show that its loss is seen.
type mutation struct {
	rule       string                                // whose loss it shows
	splitWrite bool                                  // a number is written after the flag that goes with it
	staleHosts bool                                  // host records are those from before the slots were read
	views      func(m *Machine, views []View)        // changes what a read shows
	read       func(m *Machine, views []View) Action // judges a read in the machine's place
	joined     func(m *Machine)                      // changes a machine that comes back
	remove     func(m *Machine) Action               // removes in the machine's place
}

// visit is called with every world that one event can lead to.
type visit func(w *world, host int, what string)

// say words an event, for a trace only: searches have no time for words.
func (w *world) say(format string, args ...any) string {
	if !w.telling {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// moves finds every event that may come next.
func (w *world) moves(to visit) {
	for i := range w.sc.hosts {
		ac := &w.actors[i]
		if ac.crashed {
			w.deadMoves(i, to)
			continue
		}
		w.faultMoves(i, to)
		if ac.healing {
			w.landing(i, to, func(c *world) { c.actors[i].healing = false })
			continue
		}
		switch {
		case ac.act.Kind == 0:
			w.restMoves(i, to)
		case ac.act.Kind == Granted:
			w.holdMoves(i, to)
		default:
			w.tryMoves(i, to)
		}
	}
}

func (w *world) restMoves(i int, to visit) {
	if w.actors[i].rounds == 0 {
		return
	}
	for _, mode := range w.sc.modes {
		for _, clock := range w.sc.clocks {
			for _, try := range []bool{false, true}[:1+bit(w.sc.try)] {
				c := w.clone(i)
				c.actors[i].rounds--
				c.took(i, c.actors[i].m.Acquire(Request{Mode: mode, Clock: clock, Try: try}))
				to(c, i, w.say("acquires %v, clock %d", mode, clock))
			}
		}
	}
}

func (w *world) holdMoves(i int, to visit) {
	ac := &w.actors[i]
	do := func(what string, budget func(*world) *int, f func(*Machine) Action) {
		if budget != nil && *budget(w) == 0 {
			return
		}
		c := w.clone(i)
		if budget != nil {
			*budget(c)--
		}
		c.took(i, f(c.actors[i].m))
		to(c, i, what)
	}
	changes := func(w *world) *int { return &w.actors[i].changes }
	do("releases", nil, (*Machine).Release)
	do("settles", func(w *world) *int { return &w.actors[i].settles }, (*Machine).Settle)
	if ac.m.Mode() == layout.Shared {
		do("upgrades", changes, (*Machine).Upgrade)
		return
	}
	do("downgrades", changes, (*Machine).Downgrade)
	remove := (*Machine).Remove
	if mu := w.sc.mutate; mu != nil && mu.remove != nil {
		remove = mu.remove
	}
	do("removes", func(w *world) *int { return &w.removes }, remove)
}

func (w *world) tryMoves(i int, to visit) {
	ac := &w.actors[i]
	if ac.cancels > 0 && !ac.m.cancel && (ac.where != inside || ac.m.step == stepDrain) {
		c := w.clone(i)
		c.actors[i].cancels--
		c.actors[i].m.Cancel()
		if ac.act.Kind == Poll {
			c.took(i, c.actors[i].m.Recheck())
		}
		to(c, i, "cancels")
	}
	switch ac.act.Kind {
	case Write:
		w.landing(i, to, func(c *world) {
			if c.actors[i].split {
				c.write(i, c.actors[i].act.Slot)
				return
			}
			c.took(i, c.actors[i].m.Written())
		})
	case Read:
		w.readMoves(i, to)
	case Poll:
		w.pollMoves(i, to)
	case ReadHosts:
		c := w.clone(i)
		hosts := w.hosts[:w.sc.hosts]
		if mu := w.sc.mutate; mu != nil && mu.staleHosts {
			hosts = slices.Clone(hosts)
			for h := range hosts {
				hosts[h] = Host{Readable: true, Incarnation: uint64(h + 1)}
			}
		}
		c.took(i, c.actors[i].m.HostsRead(hosts))
		to(c, i, "reads the hosts")
	case ReadDirectory:
		c := w.clone(i)
		creation := uint64(0)
		if w.dir == ac.entry {
			creation = w.dir.creation
		}
		c.took(i, c.actors[i].m.DirectoryRead(creation))
		to(c, i, "reads the directory")
	case ClearDirectory:
		c := w.clone(i)
		if c.dir == ac.entry {
			c.dir = entry{area: c.dir.area}
			c.lastDir = max(c.lastDir, ac.act.Slot.Creation)
			c.areas[c.dir.area] = ac.act.Slot.Creation
		} else {
			c.failf("host %d clears an entry that is not its own", i+1)
		}
		c.took(i, c.actors[i].m.DirectoryCleared())
		to(c, i, "clears the entry")
	}
}

// landing ends host i's write.
func (w *world) landing(i int, to visit, then func(*world)) {
	c := w.clone(i)
	s := &c.disk[c.actors[i].entry.area][i]
	s.now, s.next, s.writing = s.next, View{}, false
	then(c)
	to(c, i, "write lands")
}

// outcomes are what a read of a sector may return now.
func (s *sector) outcomes() []View {
	if !s.writing {
		return []View{s.now}
	}
	out := []View{{}}
	if s.now.Readable {
		out = append(out, s.now)
	}
	if s.next != s.now {
		out = append(out, s.next)
	}
	return out
}

// readMoves reads one more sector, of any host, in any order.
func (w *world) readMoves(i int, to visit) {
	ac := &w.actors[i]
	for j := range w.sc.hosts {
		if ac.mask&(1<<j) != 0 {
			continue
		}
		for _, v := range w.disk[ac.entry.area][j].outcomes() {
			c := w.clone(i)
			n := &c.actors[i]
			n.got[j] = v
			n.mask |= 1 << j
			if n.mask == 1<<w.sc.hosts-1 {
				c.took(i, c.slotsRead(i))
			}
			to(c, i, w.say("reads slot %d: %v", j+1, v))
		}
	}
}

func (w *world) slotsRead(i int) Action {
	n := &w.actors[i]
	views := append([]View(nil), n.got[:w.sc.hosts]...)
	if mu := w.sc.mutate; mu != nil && mu.views != nil {
		mu.views(n.m, views)
	}
	if mu := w.sc.mutate; mu != nil && mu.read != nil {
		return mu.read(n.m, views)
	}
	return n.m.SlotsRead(views)
}

// pollMoves reads the polled slot where that shows something new.
func (w *world) pollMoves(i int, to visit) {
	ac := &w.actors[i]
	if ac.act.Host == 0 {
		c := w.clone(i)
		c.took(i, Action{Kind: Read})
		to(c, i, "reads all again")
	}
	var outcomes []View
	j := ac.act.Host - 1
	if j >= 0 {
		outcomes = w.disk[ac.entry.area][j].outcomes()
	}
	for _, v := range outcomes {
		c := w.clone(i)
		a := c.actors[i].m.Polled(v)
		if a.Kind == Poll {
			continue
		}
		c.took(i, a)
		to(c, i, w.say("polls slot %d: %v", j+1, v))
	}
	// A lease that read the host table tells of what is over.
	for h := range w.sc.hosts {
		p, now := ac.m.peers[h], w.hosts[h]
		for _, inc := range []uint64{ac.m.views[h].Slot.Incarnation, p.live} {
			if inc == 0 || inc == p.over || inc == now.Incarnation && !now.Gone {
				continue
			}
			c := w.clone(i)
			c.actors[i].m.Over(h+1, inc)
			c.took(i, c.actors[i].m.Recheck())
			to(c, i, w.say("learns that host %d, incarnation %d is over", h+1, inc))
		}
	}
}

// faultMoves are what may befall a living host.
func (w *world) faultMoves(i int, to visit) {
	ac := &w.actors[i]
	sec := &w.disk[ac.entry.area][i]
	if w.crashes > 0 {
		c := w.clone(i)
		c.crashes--
		n := &c.actors[i]
		n.crashed, n.act = true, Action{}
		c.forget(i)
		to(c, i, "dies")
	}
	if w.corrupt > 0 && !sec.writing && sec.now.Readable {
		c := w.clone(i)
		c.corrupt--
		c.disk[ac.entry.area][i].now = View{}
		to(c, i, "slot goes bad")
	}
	quiet := ac.m.attached && ac.act.Kind == 0 || ac.act.Kind == Poll || ac.act.Kind == Granted
	if ac.act.Kind == 0 && !ac.m.attached && !sec.writing && !sec.now.Readable {
		c := w.clone(i)
		c.took(i, c.actors[i].m.Attach())
		to(c, i, "attaches")
	}
	other := 1 - ac.entry.area
	if s := &w.disk[other][i]; ac.act.Kind == 0 && !s.now.Readable && !s.writing {
		c := w.clone(i)
		s := &c.disk[other][i]
		s.now = View{Readable: true, Slot: Slot{Incarnation: ac.inc, Creation: w.areas[other], Ticket: s.next.Slot.Ticket}}
		to(c, i, "rewrites its slot of the other entry")
	}
	if quiet && !ac.healing && !sec.writing && (!sec.now.Readable || ac.heals > 0) {
		c := w.clone(i)
		n := &c.actors[i]
		if sec.now.Readable {
			n.heals--
		}
		n.healing = true
		s := &c.disk[ac.entry.area][i]
		s.next, s.writing = View{Slot: n.m.Mine(), Readable: true}, true
		to(c, i, "rewrites its slot")
	}
}

// deadMoves: its last write lands late, or never, or half; its death becomes
// known; it comes back.
func (w *world) deadMoves(i int, to visit) {
	ac := &w.actors[i]
	if s := w.disk[ac.entry.area][i]; s.writing {
		for _, v := range []View{s.next, s.now, {}} {
			c := w.clone(i)
			c.disk[ac.entry.area][i] = sector{now: v}
			to(c, i, w.say("last write ends as %v", v))
		}
	}
	if s := w.disk[ac.entry.area][i]; w.corrupt > 0 && !s.writing && s.now.Readable {
		c := w.clone(i)
		c.corrupt--
		c.disk[ac.entry.area][i].now = View{}
		to(c, i, "slot goes bad")
	}
	if !w.hosts[i].Gone {
		c := w.clone(i)
		c.hosts[i].Gone = true
		to(c, i, "is declared dead")
	}
	if w.sc.rejoin && !w.disk[ac.entry.area][i].writing {
		c := w.clone(i)
		n := &c.actors[i]
		n.crashed, n.healing, n.split = false, false, false
		n.inc += worldHosts
		n.m = c.machine(i)
		c.hosts[i] = Host{Readable: true, Incarnation: n.inc}
		if c.dir != n.entry {
			c.lookup(i)
		}
		if mu := w.sc.mutate; mu != nil && mu.joined != nil {
			mu.joined(n.m)
		}
		to(c, i, "comes back")
	}
}

// beyond tells whether the scenario stops here: who withdraws and claims
// again while another's write is under way may draw numbers without end.
func (w *world) beyond() bool {
	for i := range w.sc.hosts {
		if w.sc.highest > 0 && w.actors[i].m.last > w.sc.highest {
			return true
		}
	}
	return false
}

// final tells whether everybody has done what there was to do.
func (w *world) final() bool {
	for i := range w.sc.hosts {
		if ac := &w.actors[i]; !ac.crashed && (ac.rounds > 0 || ac.act.Kind != 0) {
			return false
		}
	}
	return true
}
