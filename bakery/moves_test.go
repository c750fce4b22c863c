package bakery

import (
	"fmt"
	"slices"

	"github.com/bakeryd/bakeryd/layout"
)

// visit is called with each world that one event can lead to.
type visit func(w *world, host int, what string)

// say formats an event for a trace. Searches skip that to save time.
func (w *world) say(format string, args ...any) string {
	if !w.telling {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// moves visits every event that may come next.
func (w *world) moves(to visit) {
	for i := range w.sc.hosts {
		w.movesOf(i, to)
	}
}

func (w *world) movesOf(i int, to visit) {
	ac := w.actors[i]
	if h := w.hosts[i]; h.Readable && h.Unsettled && !w.sc.restive && (ac.crashed || ac.inc == h.Incarnation) {
		c := w.clone(i)
		c.setHost(i, h.settled())
		to(c, i, "is known to be the only one")
	}
	if ac.crashed {
		w.deadMoves(i, to)
		return
	}
	if h := w.hosts[i]; !h.Readable || h.Incarnation != ac.inc || w.claim(i).Readable {
		w.death(i, 0, to) // its lease cannot be renewed
	}
	if !w.calm {
		w.faultMoves(i, to)
		w.resumeMoves(i, to)
	}
	if ac.repeating {
		w.repetition(i, to)
		return
	}
	w.rewriteMoves(i, to)
	w.overMoves(i, to)
	w.lookMoves(i, to)
	if ac.rewriting {
		w.landing(i, to, func(c *world) { c.actors[i].rewriting = false })
		return
	}
	switch ac.act.Kind {
	case 0:
		w.restMoves(i, to)
	case Granted:
		w.holdMoves(i, to)
	default:
		w.tryMoves(i, to)
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
				clock = max(clock, w.now)
				c.took(i, c.actors[i].m.Acquire(Request{Mode: mode, Clock: clock, Try: try}))
				to(c, i, w.say("acquires %v, clock %d", mode, clock))
			}
		}
	}
}

func (w *world) holdMoves(i int, to visit) {
	ac, mu := w.actors[i], w.sc.mutate
	do := func(what string, budget func(*world) *int8, f func(*Machine) Action) {
		if budget != nil && (*budget(w) == 0 || w.calm) {
			return
		}
		c := w.clone(i)
		if budget != nil {
			*budget(c)--
		}
		c.took(i, f(c.actors[i].m))
		to(c, i, what)
	}
	changes := func(w *world) *int8 { return &w.actors[i].changes }
	switch {
	case w.sc.resumes == 0:
	case w.unnoted(i):
		if ac.cancels > 0 {
			do("releases unheard", nil, (*Machine).Release)
		}
		c := w.clone(i)
		c.note(i)
		to(c, i, "notes the grant")
		return
	case ac.where == inside && ac.m.Mode() != ac.held:
		do("takes the upgrade back", nil, (*Machine).Downgrade)
		return
	}
	do("releases", nil, (*Machine).Release)
	w.localMoves(i, to)
	if w.vacant(i) {
		return
	}
	if ac.where == kept {
		do("removes", func(w *world) *int8 { return &w.removes }, (*Machine).Remove)
		return
	}
	do("settles", func(w *world) *int8 { return &w.actors[i].settles }, (*Machine).Settle)
	if ac.m.Mode() == layout.Shared {
		upgrade := (*Machine).Upgrade
		if mu != nil && mu.upgrade != nil {
			upgrade = mu.upgrade
		}
		do("upgrades", changes, upgrade)
		return
	}
	downgrade := (*Machine).Downgrade
	if mu != nil && mu.downgrade != nil {
		downgrade = mu.downgrade
	}
	do("downgrades", changes, downgrade)
	remove := (*Machine).Remove
	if mu != nil && mu.remove != nil {
		remove = mu.remove
	}
	do("removes", func(w *world) *int8 { return &w.removes }, remove)
}

func (w *world) tryMoves(i int, to visit) {
	ac := w.actors[i]
	if ac.cancels > 0 && !w.calm && !ac.m.cancel && (ac.where != inside || ac.m.step == stepDrain) {
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
			c.report(i, (*Machine).Written)
		})
	case Read:
		w.readMoves(i, to)
	case Poll:
		w.pollMoves(i, to)
	case ReadHosts:
		w.hostMoves(i, to)
	case ReadDirectory:
		w.entryMoves(i, to)
	case ClearDirectory:
		k := w.clone(i)
		k.report(i, (*Machine).DirectoryKept)
		to(k, i, "keeps the entry")
		c := w.clone(i)
		if c.dir == ac.entry {
			c.dir = entry{area: c.dir.area}
			c.lastDir = max(c.lastDir, ac.act.Slot.Creation)
			c.areas[c.dir.area] = ac.act.Slot.Creation
		} else {
			c.failf("host %d clears an entry that is not its own", i+1)
		}
		c.report(i, (*Machine).DirectoryCleared)
		to(c, i, "clears the entry")
	}
}

// report gives host i's machine an event and carries out the action.
func (w *world) report(i int, event func(*Machine) Action) {
	m := w.actors[i].m
	before := m.spans()
	if mu := w.sc.mutate; mu != nil && mu.event != nil {
		w.took(i, mu.event(w, m, event))
	} else {
		w.took(i, event(m))
	}
	if w.sc.crashes+w.sc.blind+w.sc.joins > 1 && m.spans() > before {
		w.spans = min(w.spans+1, 2)
	}
}

// spans returns a sum that grows with each span granted for a lost ticket.
func (m *Machine) spans() uint64 {
	sum := uint64(bit(m.torn))
	for i := range m.peers {
		sum += m.peers[i].hidden + m.peers[i].hider
	}
	return sum
}

// hostMoves reads the host table and reports it in a later event, so that other events can come
// between.
func (w *world) hostMoves(i int, to visit) {
	if !w.actors[i].sampled {
		c := w.clone(i)
		c.sampleHosts(i)
		c.tell(i)
		to(c, i, "reads the hosts")
		for h := range w.sc.hosts {
			if w.fails == 0 || h == i || w.calm {
				continue
			}
			c := w.clone(i)
			c.fails--
			c.sampleHosts(i)
			c.actors[i].table = slices.Clone(w.hosts[:w.sc.hosts])
			c.actors[i].table[h] = Host{}
			c.tell(i)
			to(c, i, w.say("reads the hosts, but not host %d", h+1))
		}
		w.claimMoves(i, to)
		return
	}
	c := w.clone(i)
	n := c.actors[i]
	table := n.table
	n.table, n.sampled = nil, false
	if mu := w.sc.mutate; mu != nil && mu.hosts != nil {
		table = slices.Clone(table)
		for h := range table {
			if h != i {
				mu.hosts(n.m, &table[h], n.m.views[h])
			}
		}
	}
	c.report(i, func(m *Machine) Action { return m.HostsRead(table) })
	to(c, i, "knows the hosts")
}

func (w *world) sampleHosts(i int) {
	if mu := w.sc.mutate; mu == nil || !mu.staleHosts {
		w.actors[i].table = w.hosts[:w.sc.hosts]
	}
	w.actors[i].sampled = true
}

// tell reports to a host immediately if no event can come between.
func (w *world) tell(i int) {
	if w.sc.records() {
		return
	}
	n := w.actors[i]
	table := n.table
	n.table, n.sampled = nil, false
	w.report(i, func(m *Machine) Action { return m.HostsRead(table) })
}

// entryMoves reads the directory entry, in the same way as hostMoves.
func (w *world) entryMoves(i int, to visit) {
	c := w.clone(i)
	n := c.actors[i]
	if !n.sampled {
		n.sampled, n.found = true, 0
		if w.dir == n.entry {
			n.found = w.dir.creation
		}
		to(c, i, "reads the directory")
		return
	}
	found := n.found
	n.sampled, n.found = false, 0
	c.report(i, func(m *Machine) Action { return m.DirectoryRead(found) })
	to(c, i, "knows the directory")
}

// landing ends host i's write.
func (w *world) landing(i int, to visit, then func(*world)) {
	c := w.clone(i)
	s := c.own(i)
	*s = w.landed(s)
	then(c)
	to(c, i, "write lands")
}

// outcomes returns the possible results of a read of the sector now.
func (s *sector) outcomes() []View {
	if !s.writing {
		return s.contents()
	}
	out := []View{{}}
	for _, v := range append(s.contents(), s.next) {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// readMoves reads one more sector. Any host and any order is possible.
func (w *world) readMoves(i int, to visit) {
	ac := w.actors[i]
	for j := range w.sc.hosts {
		if ac.mask&(1<<j) != 0 {
			continue
		}
		for _, v := range w.slot(ac.entry.area, j).outcomes() {
			c := w.clone(i)
			n := c.actors[i]
			n.got[j] = v
			n.mask |= 1 << j
			c.saw(n.entry.area, j, v)
			if n.mask == 1<<w.sc.hosts-1 {
				c.slotsRead(i)
			}
			to(c, i, w.say("reads slot %d: %v", j+1, v))
		}
	}
}

func (w *world) slotsRead(i int) {
	n := w.actors[i]
	views := n.got[:w.sc.hosts]
	if mu := w.sc.mutate; mu != nil && mu.earlyLook && n.m.step == stepLook {
		views = n.early
	}
	if mu := w.sc.mutate; mu != nil && mu.views != nil {
		mu.views(w, n.m, views)
	}
	w.report(i, func(m *Machine) Action { return m.SlotsRead(views) })
}

// pollMoves reads the polled slot if that read returns something new.
func (w *world) pollMoves(i int, to visit) {
	ac := w.actors[i]
	if ac.act.Host == 0 {
		c := w.clone(i)
		c.took(i, Action{Kind: Read})
		to(c, i, "reads all again")
	}
	var outcomes []View
	j := ac.act.Host - 1
	if j >= 0 {
		outcomes = w.slot(ac.entry.area, j).outcomes()
	}
	for _, v := range outcomes {
		c := w.clone(i)
		a := c.actors[i].m.Polled(v)
		if a.Kind == Poll {
			c.drop(i)
			continue
		}
		c.saw(ac.entry.area, j, v)
		c.took(i, a)
		to(c, i, w.say("polls slot %d: %v", j+1, v))
	}
}

// final reports whether every actor has finished.
func (w *world) final() bool {
	for i := range w.sc.hosts {
		if ac := w.actors[i]; !ac.crashed && (ac.rounds > 0 || ac.act.Kind != 0) {
			return false
		}
	}
	return true
}
