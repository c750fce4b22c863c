package bakery

// faultMoves are what may befall a living host.
func (w *world) faultMoves(i int, to visit) {
	ac := &w.actors[i]
	sec := &w.disk[ac.entry.area][i]
	unknown := bit(!sec.writing && !sec.now.Readable) // already lost, if the host dies
	if w.crashes > 0 && w.losses >= int(unknown) {
		c := w.clone(i)
		c.crashes--
		c.losses -= int(unknown)
		n := &c.actors[i]
		n.crashed, n.act, n.noted, n.resumed = true, Action{}, false, false
		n.table, n.found, n.sampled = [worldHosts]Host{}, 0, false
		c.exit(i)
		c.forget(i)
		to(c, i, "dies")
	}
	unknown = bit(!ac.m.attached)
	if w.corrupt > 0 && w.losses >= int(unknown) && !sec.writing && sec.now.Readable {
		c := w.clone(i)
		c.corrupt--
		c.losses -= int(unknown)
		c.disk[ac.entry.area][i].now = View{}
		to(c, i, "slot goes bad")
	}
}

// healMoves rewrite the own slot.
func (w *world) healMoves(i int, to visit) {
	ac := &w.actors[i]
	sec := &w.disk[ac.entry.area][i]
	quiet := ac.m.attached && ac.act.Kind == 0 || ac.act.Kind == Poll || ac.act.Kind == Granted
	heals := ac.heals > 0 && !w.calm
	if ac.act.Kind == 0 && !ac.healing && !sec.writing && (!ac.m.attached && !sec.now.Readable || heals) {
		c := w.clone(i)
		if sec.now.Readable || ac.m.attached {
			c.actors[i].heals--
		}
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
	if quiet && !ac.healing && !sec.writing && (!sec.now.Readable || heals) {
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

// overMoves: the lease, which reads the host table for itself, tells of an
// incarnation that is over.
func (w *world) overMoves(i int, to visit) {
	ac := &w.actors[i]
	if w.sc.crashes == 0 || ac.healing || ac.act.Kind == 0 && ac.rounds == 0 {
		return
	}
	for h := range w.sc.hosts {
		now, p := w.hosts[h], ac.m.peers[h]
		newest := now.Incarnation // of those that are over
		if !now.Gone {
			newest -= min(newest, worldHosts)
			if now.Unsettled {
				newest = 0
			}
		}
		for _, inc := range []uint64{newest, p.live} {
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

// deadMoves: its last write lands late, or never, or half; its death becomes
// known; it comes back.
func (w *world) deadMoves(i int, to visit) {
	ac := &w.actors[i]
	if s := w.disk[ac.entry.area][i]; s.writing {
		for _, v := range []View{s.next, s.now, {}} {
			if !v.Readable && w.losses == 0 {
				continue
			}
			c := w.clone(i)
			c.losses -= int(bit(!v.Readable))
			c.disk[ac.entry.area][i] = sector{now: v}
			to(c, i, w.say("last write ends as %v", v))
		}
	}
	if s := w.disk[ac.entry.area][i]; w.corrupt > 0 && w.losses > 0 && !w.calm && !s.writing && s.now.Readable {
		c := w.clone(i)
		c.corrupt--
		c.losses--
		c.disk[ac.entry.area][i].now = View{}
		to(c, i, "slot goes bad")
	}
	if !w.hosts[i].Gone {
		c := w.clone(i)
		c.hosts[i].Gone = true
		to(c, i, "is declared dead")
	}
	if w.sc.rejoin && !w.calm && !w.disk[ac.entry.area][i].writing {
		c := w.clone(i)
		n := &c.actors[i]
		n.crashed, n.healing, n.split = false, false, false
		n.inc += worldHosts
		n.m = c.machine(i)
		c.hosts[i] = Host{Readable: true, Incarnation: n.inc, Unsettled: w.sc.unsure}
		if c.dir != n.entry {
			c.lookup(i)
		}
		if mu := w.sc.mutate; mu != nil && mu.joined != nil {
			mu.joined(n.m)
		}
		to(c, i, "comes back")
	}
}
