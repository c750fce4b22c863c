package bakery

import "github.com/bakeryd/bakeryd/layout"

// grant continues after host i's machine was granted the lock: the driver notes the grant for the
// next driver before it notifies a client.
func (w *world) grant(i int) {
	if w.resumes == 0 && w.unnoted(i) {
		w.note(i)
	}
}

// unnoted reports whether the grant that host i stands at is not noted yet.
func (w *world) unnoted(i int) bool {
	ac := w.actors[i]
	if ac.where == kept {
		return false
	}
	if ac.where == inside {
		asked := !ac.resumed || w.sc.mutate != nil && w.sc.mutate.keepMode
		return asked && ac.m.Mode() != ac.held
	}
	return !ac.noted || ac.where == trying // the note has this ticket, or is believed to have it
}

func (w *world) note(i int) {
	w.actors[i].noted = true
	w.enter(i)
}

// vacant reports whether host i resumed a hold that its client had released.
func (w *world) vacant(i int) bool { return w.actors[i].noted && w.actors[i].where == resting }

// freed reports whether an entry was cleared, as opposed to an entry that is only mistaken for
// the lock's current one.
func (w *world) freed(e entry) bool { return e != w.dir && e.creation == w.areas[e.area] }

// saw records that a read of a write under way returned the new contents. Such a write has
// landed.
func (w *world) saw(area, j int, v View) {
	s := w.slot(area, j)
	if w.resumes > 0 && w.sc.minority == 0 && s.writing && v == s.next && v != s.now && (w.sc.mutate == nil || !w.sc.mutate.flicker) {
		s.seen = true
	}
}

// resumeMoves ends the driver. A write under way has landed, never will, or has left garbage.
// Another driver of the same incarnation takes over.
func (w *world) resumeMoves(i int, to visit) {
	ac := w.actors[i]
	if w.resumes == 0 || ac.act.Kind == 0 && ac.rounds == 0 {
		return
	}
	s := w.own(i)
	if s.writing && w.sc.minority > 0 {
		w.unfinishedMoves(i, to)
		return
	}
	for _, end := range w.endings(s) {
		for _, own := range end.contents() {
			w.restarts(i, end, own, to)
		}
	}
}

// endings returns what may become of a slot when its driver ends.
func (w *world) endings(s *sector) []sector {
	if !s.writing {
		return []sector{*s}
	}
	ends := []sector{s.unwritten(), certain(s.next)}
	if s.seen {
		ends = ends[1:]
	}
	if w.corrupt > 0 && !s.seen {
		ends = append(ends, certain(View{}))
	}
	return ends
}

// restarts visits the successor of host i's driver, which finds its slot like end, reads own from it, and
// the entry as it was or as it is.
func (w *world) restarts(i int, end sector, own View, to visit) {
	ac := w.actors[i]
	entries := []entry{ac.entry}
	if now := (entry{creation: w.areas[ac.entry.area], area: ac.entry.area}); now != ac.entry {
		entries = append(entries, now)
	}
	unknown := bit(!own.Readable && !ac.noted)
	if w.losses < int8(unknown) {
		return
	}
	for _, e := range entries {
		if !own.Readable && e == ac.entry && ac.m.step == stepUnmark {
			continue // the directory shows that it is no longer the lock's
		}
		c := w.clone(i)
		if !ac.repeating {
			c.resumes--
		}
		c.losses -= int8(unknown)
		if w.own(i).writing && !own.Readable {
			c.corrupt--
		}
		*c.own(i) = end
		c.resume(i, e, own)
		to(c, i, w.say("restarts with %v by creation %d", own, e.creation))
	}
}

// resume continues host i's work with a new machine, from the contents of the disk.
func (w *world) resume(i int, e entry, own View) {
	ac := w.actors[i]
	ticket := ac.m.Token()
	if ac.where == kept {
		w.forget(i)
	}
	if own.Readable && own.Slot.Phase == layout.Held && own.Slot.Incarnation == ac.inc {
		ac.noted = true // whatever the handover file says
	}
	ac.grants, ac.look = NewGrants(w.sc.bound, w.sc.mutate == nil || !w.sc.mutate.unused), look{}
	lost := !own.Readable && (!ac.noted || w.dir != e)
	if lost {
		w.exit(i)
		w.forget(i)
		ac.noted = false
	}
	ac.entry, ac.act, ac.rewriting, ac.sampled, ac.resumed = e, Action{}, false, false, true
	ac.table, ac.found, ac.mask, ac.repeating = nil, 0, 0, false
	ac.m = w.machine(i)
	slot := own.Slot
	switch {
	case lost:
		if w.freed(e) {
			w.lookup(i) // no client comes to an entry without a name
		}
		return // to be attached
	case !own.Readable:
		slot = Slot{Incarnation: ac.inc, Creation: e.creation, Ticket: ticket, Phase: layout.Held, Mode: ac.held}
	}
	resume := (*Machine).Resume
	if mu := w.sc.mutate; mu != nil && mu.resume != nil {
		resume = mu.resume
	}
	a := resume(ac.m, slot, ac.noted)
	if ac.m.step == stepLook || ac.m.step == stepWait || ac.m.step == stepNumber {
		w.exit(i) // no client, unless a note was lost
		ac.where, ac.noted = trying, false
	}
	w.took(i, a)
}
