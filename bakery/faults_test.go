package bakery

import "slices"

// settled returns the record with its incarnation as the only one that may be up.
func (h Host) settled() Host {
	h.Unsettled, h.Ended = false, nil
	for inc := h.Incarnation; inc > worldHosts; {
		inc -= worldHosts
		h.Ended = append(h.Ended, inc)
	}
	return h
}

// next returns the record of the incarnation after the one that h shows.
func (h Host) next() Host {
	n := Host{Readable: true, Incarnation: h.Incarnation + worldHosts, Unsettled: true, Ended: h.Ended}
	if h.Gone && !slices.Contains(h.Ended, h.Incarnation) {
		n.Ended = append(slices.Clip(h.Ended), h.Incarnation)
	}
	return n
}

// faultMoves visits the faults of a living host.
func (w *world) faultMoves(i int, to visit) {
	ac := w.actors[i]
	sec := w.own(i)
	if w.crashes > 0 {
		w.death(i, 1, to)
	}
	w.recordMoves(i, to)
	unknown := bit(!ac.m.attached)
	if w.corrupt > 0 && w.losses >= int8(unknown) && !sec.writing && sec.now.Readable {
		c := w.clone(i)
		c.corrupt--
		c.losses -= int8(unknown)
		*c.own(i) = certain(View{})
		to(c, i, "slot goes bad")
	}
}

// death ends a host and subtracts cost from the deaths that are left.
func (w *world) death(i int, cost int8, to visit) {

	sec := w.own(i)
	unknown := int8(bit(!sec.writing && !sec.now.Readable)) // already lost, if the host dies
	if w.losses < unknown {
		return
	}
	c := w.clone(i)
	c.crashes -= cost
	c.losses -= unknown
	n := c.actors[i]
	n.crashed, n.repeating, n.act, n.noted, n.resumed = true, false, Action{}, false, false
	n.table, n.found, n.sampled = nil, 0, false
	n.grants, n.look = Grants{}, look{}
	c.exit(i)
	c.forget(i)
	to(c, i, "dies")
}

// recordMoves visits the changes of a host's record: it goes bad, or another machine claims the
// id.
func (w *world) recordMoves(i int, to visit) {
	ac, h := w.actors[i], w.hosts[i]
	if w.blind > 0 && h.Readable {
		c := w.clone(i)
		c.blind--
		bad := h
		bad.Readable = false
		c.setHost(i, bad)
		to(c, i, "record goes bad")
	}
	if w.joins > 0 && h.Readable && (h.Gone || h.Joining && !w.sc.restive || !ac.crashed && !w.sc.restive && ac.inc == h.Incarnation) {
		c := w.clone(i)
		c.joins--
		h = w.newest(i).next()
		h.Joining = true
		c.setHost(i, h)
		to(c, i, "record is claimed")
		if w.sc.halfClaims() {
			c := w.clone(i)
			c.joins--
			c.hosts = slices.Clone(c.hosts)
			c.hosts[w.sc.hosts+i] = h
			to(c, i, "record is half claimed")
		}
	}
}

// rewriteMoves visits the rewrites of the own slot.
func (w *world) rewriteMoves(i int, to visit) {
	ac := w.actors[i]
	sec := w.own(i)
	quiet := ac.m.attached && ac.act.Kind == 0 || ac.act.Kind == Poll || ac.act.Kind == Granted
	rewrites := ac.rewrites > 0 && !w.calm
	if ac.act.Kind == 0 && !ac.rewriting && !sec.writing && (!ac.m.attached && !sec.now.Readable || rewrites) {
		c := w.clone(i)
		if sec.now.Readable || ac.m.attached {
			c.actors[i].rewrites--
		}
		c.took(i, c.actors[i].m.Attach())
		to(c, i, "attaches")
	}
	if other := 1 - ac.entry.area; w.sc.removes > 0 && ac.act.Kind == 0 && !w.slot(other, i).now.Readable && !w.slot(other, i).writing {
		c := w.clone(i)
		*c.slot(other, i) = certain(View{Readable: true, Slot: Slot{Incarnation: ac.inc, Creation: w.areas[other]}})
		to(c, i, "rewrites its slot of the other entry")
	}
	if quiet && !ac.rewriting && !sec.writing && (!sec.now.Readable || rewrites) {
		c := w.clone(i)
		n := c.actors[i]
		if sec.now.Readable {
			n.rewrites--
		}
		n.rewriting = true
		s := c.own(i)
		s.next, s.writing = View{Slot: n.m.OwnSlot(), Readable: true}, true
		to(c, i, "rewrites its slot")
	}
}

// overMoves visits the reports of the lease, which reads the host table on its own, that an
// incarnation is over.
func (w *world) overMoves(i int, to visit) {
	ac := w.actors[i]
	if !w.sc.records() || ac.rewriting || ac.act.Kind == 0 && ac.rounds == 0 {
		return
	}
	for h := range w.sc.hosts {
		now, p := w.hosts[h], ac.m.peers[h]
		newest := uint64(0) // newest incarnation that is over
		for _, inc := range now.Ended {
			newest = max(newest, inc)
		}
		if now.Gone {
			newest = now.Incarnation
		}
		for _, inc := range []uint64{newest, p.live} {
			if mu := w.sc.mutate; mu != nil && mu.liveOnly && inc != p.live {
				continue
			}
			if h == i || inc == 0 || inc > newest || inc == p.over && inc != p.live {
				continue
			}
			c := w.clone(i)
			c.actors[i].m.Over(h+1, inc)
			if ac.act.Kind == Poll {
				c.took(i, c.actors[i].m.Recheck())
			}
			to(c, i, w.say("learns that host %d, incarnation %d is over", h+1, inc))
		}
	}
}

// deadMoves visits the events of a dead host: its last write lands late, not at all, or half; its
// death becomes known; it comes back.
func (w *world) deadMoves(i int, to visit) {
	if s := w.own(i); s.writing {
		for _, end := range append(s.halved(w.sc.minority), certain(s.next), s.unwritten(), certain(View{})) {
			if !end.now.Readable && w.losses == 0 {
				continue
			}
			c := w.clone(i)
			c.losses -= int8(bit(!end.now.Readable))
			*c.own(i) = end
			to(c, i, w.say("last write ends as %v", end.contents()))
		}
	}
	if s := w.own(i); w.corrupt > 0 && w.losses > 0 && !w.calm && !s.writing && s.now.Readable {
		c := w.clone(i)
		c.corrupt--
		c.losses--
		*c.own(i) = certain(View{})
		to(c, i, "slot goes bad")
	}
	h := w.hosts[i]
	if !h.Gone && !h.Joining {
		c := w.clone(i)
		h := h
		h.Gone = true
		c.setHost(i, h)
		to(c, i, "is declared dead")
	}
	if !h.Readable && w.sc.abandon {
		c := w.clone(i)
		c.setHost(i, Host{Readable: true, Incarnation: h.Incarnation, Gone: true, Ended: h.Ended})
		to(c, i, "is abandoned")
	}
	if !w.calm {
		w.recordMoves(i, to)
	}
	if w.sc.rejoin && !w.calm && h.Readable && !w.own(i).writing {
		c := w.clone(i)
		n := c.actors[i]
		n.crashed, n.rewriting, n.split = false, false, false
		if !h.Joining {
			h = w.newest(i).next()
			if !w.sc.unsure {
				h = h.settled()
			}
		}
		h.Joining = false
		c.setHost(i, h)
		n.inc = h.Incarnation
		n.m = c.machine(i)
		if c.dir != n.entry {
			c.lookup(i)
		}
		if mu := w.sc.mutate; mu != nil && mu.joined != nil {
			mu.joined(n.m)
		}
		to(c, i, "comes back")
	}
}
