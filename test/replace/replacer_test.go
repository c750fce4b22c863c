package replace

import "fmt"

// replacerMoves visits the steps of the command that replaces a disk. Another run begins once one is dead.
func (w *world) replacerMoves() {
	r := w.r
	switch r.phase {
	case idle:
		if w.left.changes > 0 {
			w.found(w.without(anyList), w.begin)
		}
	case vacating:
		w.writeList(func(d int) bool { return w.has(r.using, d) })
		if written := w.written(); written >= w.majority() || w.without(vacatesOne) && written > 0 {
			w.writeList(func(d int) bool { return int(r.old) == d+1 })
			w.endVacate()
		}
	case waiting, ending:
		w.wait()
	case reading:
		w.readMoves()
	case copying:
		x := int(r.new) - 1
		w.step("R", func(c *world) {
			c.disks[x].rec = r.best
			c.disks[x].hosts |= r.seen
			c.endCopy()
		}, "its copy %s lands on %s", record(r.best), w.name(x))
		if w.without(fillsEarly) {
			w.step("R", func(c *world) { c.stray = [2]uint8{r.new, r.best}; c.endCopy() }, "does not wait for its copy on %s", w.name(x))
		}
	case filling:
		x := int(r.new) - 1
		first := w.disks[x].sb != r.using
		w.writeList(func(d int) bool { return d == x || w.has(r.using, d) && !first })
		if w.written() >= w.majority() {
			w.step("R", func(c *world) {
				c.enter(ending)
				if w.without(noEnding) {
					c.end()
				}
			}, "has filled")
		}
	}
	if r.phase != idle && w.left.crashes > 0 {
		w.step("R", func(c *world) {
			c.left.crashes--
			if r.phase == copying && w.without(lateCopy) {
				c.stray = [2]uint8{r.new, r.best}
			}
			c.enter(idle)
		}, "dies")
	}
	if x := int(w.stray[0]) - 1; x >= 0 {
		w.step("disk", func(c *world) { c.disks[x].rec, c.stray = w.stray[1], [2]uint8{} }, "the late copy %s lands on %s", record(w.stray[1]), w.name(x))
	}
}

// record returns a copy of the record as traces show it.
func record(rec uint8) string {
	if rec == 0 {
		return "(unreadable)"
	}
	return fmt.Sprintf("of v%d", rec-1)
}

// enter begins a phase.
func (w *world) enter(phase uint8) {
	w.each(func(k *disk) { k.read = false })
	w.r.phase, w.r.seen = phase, 0
	if phase == idle {
		w.r = replacer{}
	}
}

// nextEpoch returns the epoch of a list that replaces l: a token of lock 0.
func (w *world) nextEpoch(l list) uint8 {
	w.epoch = max(w.epoch, l.epoch) + 1
	if w.without(countsUp) {
		return l.epoch + 1
	}
	return w.epoch
}

// begin visits the beginnings of a run that finds l.
func (w *world) begin(l list) {
	for p := range w.sc.changing() {
		if vacant := l.at[1-p] == 0; vacant {
			continue // that position is first
		}
		vacated := l
		vacated.at[p] = 0
		start := func(phase uint8, using list, x int) func(c *world) {
			return func(c *world) {
				c.enter(phase)
				c.r.position, c.r.old, c.r.using, c.r.new = uint8(p), l.at[p], using, uint8(x+1)
				if phase == vacating {
					c.r.using.epoch = c.nextEpoch(l)
				}
			}
		}
		switch {
		case w.without(noVacate):
			w.news(l, func(x int) { w.step("R", start(reading, l, x), "begins: %s; replaces it by %s", w.say(l), w.name(x)) })
		case w.without(keepsVacant) && vacated == l && w.count(l, func(k *disk) bool { return k.sb == l }) >= w.majority():
			w.step("R", start(waiting, l, -1), "begins: %s, and goes on from there", w.say(l))
		default:
			w.step("R", start(vacating, vacated, -1), "begins: %s; vacates position %d", w.say(l), p+1)
		}
	}
}

// news visits the disks that may become members: blank ones, and those of an earlier run, none of them with a copy of an
// earlier process in flight.
func (w *world) news(l list, visit func(x int)) {
	for x := range w.all() {
		alike := x > w.sc.n && w.disks[x] == w.disks[x-1]
		busy := w.disks[x].earlier > 0 && !w.without(reusesBusy)
		if !w.has(l, x) && (x >= w.sc.n || w.sc.reuse) && !alike && !busy {
			visit(x)
		}
	}
}

// writeList visits the writes of the list to disks that do not have it.
func (w *world) writeList(to func(d int) bool) {
	for d := range w.all() {
		if l := w.r.using; to(d) && w.disks[d].sb != l {
			w.step("R", func(c *world) { c.disks[d].sb = l }, "writes %s to %s", w.say(l), w.name(d))
		}
	}
}

// written returns the number of members that have the list.
func (w *world) written() int {
	return w.count(w.r.using, func(k *disk) bool { return k.sb == w.r.using })
}

// endVacate visits the ends of VACATE.
func (w *world) endVacate() {
	if !w.without(noWait) && !w.without(copiesFirst) {
		w.step("R", func(c *world) { c.enter(waiting) }, "has vacated")
		return
	}
	w.news(w.r.using, func(x int) {
		w.step("R", func(c *world) { c.enter(reading); c.r.new = uint8(x + 1) }, "has vacated; will copy to %s", w.name(x))
	})
}

// wait visits the steps of a replacer that reads the host records until all show its list.
func (w *world) wait() {
	r := w.r
	n := w.count(r.using, func(k *disk) bool { return k.read })
	if n < w.majority() && (n == 0 || !w.without(readsOneTable)) {
		w.members(r.using, func(d int, k *disk) {
			if k.read {
				return
			}
			w.step("R", func(c *world) {
				c.disks[d].read = true
				for i, h := range w.hosts {
					if h.phase == live || !w.without(ignoresJoining) {
						c.r.seen |= k.hosts & (1 << i)
					}
				}
			}, "reads the hosts on %s", w.name(d))
		})
		return
	}
	for i, h := range w.hosts {
		if r.seen>>i&1 == 1 && h.phase != dead && h.shown != r.using.epoch {
			w.step("R", func(c *world) { c.enter(r.phase) }, "reads the hosts once more")
			return
		}
	}
	switch {
	case r.phase == ending:
		w.step("R", (*world).end, "ends: all hosts show %d", r.using.epoch)
	case w.without(copiesFirst):
		w.step("R", (*world).fill, "all hosts show %d", r.using.epoch)
	default:
		w.news(r.using, func(x int) {
			w.step("R", func(c *world) { c.enter(reading); c.r.new = uint8(x + 1) }, "all hosts show %d; will copy to %s", r.using.epoch, w.name(x))
		})
	}
}

// readMoves visits the reads of the record that is to be copied, until a majority was read.
func (w *world) readMoves() {
	r := w.r
	bad := w.count(r.using, func(k *disk) bool { return !k.read && k.rec == 0 })
	if members := w.count(r.using, func(*disk) bool { return true }); members-bad < w.majority() {
		w.step("R", func(c *world) {
			c.r.phase = copying
			switch {
			case w.without(copiesZeroes):
				c.r.best = 1
			case !w.without(copiesNewest):
				c.r.best = 0
			}
		}, "finds the record unreadable")
	}
	w.members(r.using, func(d int, k *disk) {
		if k.read || k.rec == 0 {
			return
		}
		w.step("R", func(c *world) {
			c.disks[d].read = true
			c.r.best, c.r.seen = max(r.best, k.rec), r.seen|k.hosts
			if c.count(r.using, func(k *disk) bool { return k.read }) >= w.majority() || w.without(readsOneCopy) {
				c.r.phase = copying
			}
		}, "reads v%d on %s", k.rec-1, w.name(d))
	})
}

// endCopy ends COPY.
func (w *world) endCopy() {
	if w.without(copiesFirst) {
		w.enter(waiting)
		return
	}
	w.fill()
}

// fill begins to write the list with the new disk.
func (w *world) fill() {
	w.enter(filling)
	if k := &w.disks[w.r.new-1]; k.earlier > 0 { // the disk has a new uuid, by which no host knows of that copy
		w.stray, k.earlier = [2]uint8{w.r.new, k.earlier}, 0
	}
	w.r.using.at[w.r.position] = w.r.new
	w.r.using.epoch = w.nextEpoch(w.r.using)
}

// end ends the run: the disk is replaced.
func (w *world) end() {
	w.enter(idle)
	w.left.changes--
}
