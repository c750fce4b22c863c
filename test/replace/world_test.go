package replace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// list is the list of members in a superblock. The first two positions may change; the disks at the
// others are in every list. On a disk without a superblock the epoch is 0.
type list struct {
	epoch uint8
	at    [2]uint8 // disk + 1; 0: vacant
}

// disk is one disk, with what each process knows about it.
type disk struct {
	sb          list
	rec         uint8 // copy of the record: version + 1; 0: no reader accepts it
	flying      uint8 // the same, of the owner's copy in flight; 0: none
	earlier     uint8 // the same, of an earlier process of the owner; the next one knows that there is one
	got         uint8 // the same, as the read under way found it; 0: not read
	hosts       uint8 // bits: the host's own record is here
	checked     uint8 // bits: the host has read the superblock again
	acked, read bool  // the owner's write has returned; the replacer has read the disk
}

// The phases of a host, in their order.
const (
	away     uint8 = iota
	claiming       // writes its host record
	checking       // reads the superblocks again
	live
	dead
)

// host is a host of the lockspace, or its next process.
type host struct {
	phase uint8
	using list  // the newest it knows
	shown uint8 // epoch in its host record
}

// The phases of a replacer, in their order.
const (
	idle uint8 = iota
	vacating
	waiting // for all hosts to show the list
	reading
	copying
	filling
	ending // waits again
)

// replacer is a run of the command.
type replacer struct {
	phase    uint8
	using    list
	position uint8
	old, new uint8 // disk + 1; 0: none
	best     uint8 // record to be copied
	seen     uint8 // bits: hosts whose records it has read
}

const (
	writer, reader = 0, 1
	mostDisks      = 7
)

// state is what there is between two steps.
type state struct {
	disks   [mostDisks]disk
	hosts   [2]host
	r       replacer
	version uint8    // of the newest write
	done    uint8    // of the newest write that was done
	floor   uint8    // done when the read under way began; 0: none is under way
	epoch   uint8    // newest one given
	stray   [2]uint8 // disk + 1 and contents of a late copy, of an owner that has left; mutation: of a replacer
	writing bool
	left    budget
}

// world is a state under expansion.
type world struct {
	state
	sc        *scenario
	fault     string      // empty if none
	who, text string      // the step that led here, if sc.telling
	to        func(world) // receives each next world
}

// budget is how often things may happen.
type budget struct{ writes, changes, crashes, deaths, restarts, leaves, bad uint8 }

// scenario is what may happen, and which rule is left out.
type scenario struct {
	name    string
	n       int     // members
	joins   [2]bool // the host claims its id later
	second  bool    // position 2 may change, too
	reuse   bool    // a former member may become the new disk
	steady  bool    // the reader does not restart
	hung    bool    // an earlier process of the owner has a copy of v0 in flight to A
	left    budget
	large   bool   // with -full alone
	rule    rule   // left out
	want    string // fault to look for; empty: any
	telling bool
	key     []byte // of the last world
}

// majority returns f+1.
func (w *world) majority() int { return w.sc.n/2 + 1 }

// all returns the number of disks.
func (w *world) all() int { return w.sc.n + 2 }

// without reports whether a rule is left out.
func (w *world) without(r rule) bool { return w.sc.rule == r }

// changing returns the number of positions that may change.
func (sc *scenario) changing() int {
	if sc.second {
		return 2
	}
	return 1
}

// has reports whether disk d is in the list.
func (w *world) has(l list, d int) bool {
	return d >= 2 && d < w.sc.n || int(l.at[0]) == d+1 || int(l.at[1]) == d+1
}

// count returns the number of members of the list for which is holds.
func (w *world) count(l list, is func(d *disk) bool) (n int) {
	for d := range w.all() {
		if w.has(l, d) && is(&w.disks[d]) {
			n++
		}
	}
	return n
}

// usable reports whether a process that reads some disks may find l to be the newest list, and a
// majority of its members among them (IDENTITY).
func (w *world) usable(l list) bool {
	n := 0
	for d := range w.all() {
		if sb := w.disks[d].sb; w.has(l, d) && sb.epoch > 0 && sb.epoch <= l.epoch && w.has(sb, d) {
			n++
		}
	}
	return n >= w.majority()
}

// found visits the lists that a process may find to be the newest, or every list.
func (w *world) found(every bool, visit func(l list)) {
	for d := range w.all() {
		if l := w.disks[d].sb; l.epoch > 0 && (every || w.usable(l)) {
			visit(l)
		}
	}
}

// step visits the world after change.
func (w *world) step(who string, change func(c *world), format string, args ...any) {
	c := *w
	change(&c)
	c.send()
	c.check()
	if w.sc.telling {
		c.who, c.text = who, fmt.Sprintf(format, args...)
	}
	w.to(c)
}

// send puts copies of the owner's write in flight to each member that it uses, one at a time (FIFO), also after one of
// an earlier process.
func (w *world) send() {
	h := &w.hosts[writer]
	for d := range w.all() {
		if k := &w.disks[d]; h.phase == live && w.writing && w.has(h.using, d) && w.free(writer, d) && k.flying == 0 && !k.acked {
			k.flying = w.version + 1
		}
	}
}

// free reports whether a host may use a disk: no earlier process of it has a copy in flight there.
func (w *world) free(i, d int) bool {
	return i != writer || w.disks[d].earlier == 0 || w.without(sharesMember) || w.without(sharesNew) && d >= w.sc.n
}

// check finds different disks that two live hosts use at one position: their majorities may have no disk in common.
func (w *world) check() {
	a, b := w.hosts[writer], w.hosts[reader]
	for p := range a.using.at {
		x, y := a.using.at[p], b.using.at[p]
		if a.phase == live && b.phase == live && x != y && x*y != 0 && w.fault == "" {
			w.fault = split
		}
	}
}

// moves visits every next world.
func (w *world) moves() {
	for i := range w.hosts {
		w.hostMoves(i)
	}
	w.writerMoves()
	w.readerMoves()
	w.replacerMoves()
	if w.left.bad > 0 {
		for d := range w.all() {
			if w.disks[d].rec > 0 {
				w.step("disk", func(c *world) { c.disks[d].rec = 0; c.left.bad-- }, "%s: the sector goes bad", w.name(d))
			}
		}
	}
}

// hostMoves visits the steps of a host that open the disks, claim its id and use another list.
func (w *world) hostMoves(i int) {
	h, bit, who := w.hosts[i], uint8(1)<<i, []string{"W", "H"}[i]
	switch h.phase {
	case away:
		w.found(false, func(l list) {
			if w.without(resumesLive) {
				w.step(who, func(c *world) { c.hosts[i].phase, c.hosts[i].using = live, l }, "opens the disks: %s; resumes", w.say(l))
				return
			}
			w.step(who, func(c *world) {
				c.hosts[i] = host{phase: claiming, using: l, shown: l.epoch}
				c.each(func(k *disk) { k.hosts &^= bit })
			}, "opens the disks: %s; claims", w.say(l))
		})
	case claiming:
		w.members(h.using, func(d int, k *disk) {
			if k.hosts&bit == 0 && w.free(i, d) {
				w.step(who, func(c *world) {
					c.disks[d].hosts |= bit
					if c.count(h.using, func(k *disk) bool { return k.hosts&bit != 0 }) < w.majority() {
						return
					}
					c.hosts[i].phase = checking
					if w.without(noBeforeLive) {
						c.hosts[i].phase = live
					}
				}, "claims on %s", w.name(d))
			}
		})
	case checking:
		w.members(h.using, func(d int, k *disk) {
			if k.checked&bit == 0 && w.free(i, d) {
				w.step(who, func(c *world) {
					c.disks[d].checked |= bit
					if k.sb.epoch > h.using.epoch {
						c.hosts[i].phase = away
					} else if c.count(h.using, func(k *disk) bool { return k.checked&bit != 0 }) >= w.majority() {
						c.hosts[i].phase = live
					}
					if c.hosts[i].phase != checking {
						c.each(func(k *disk) { k.checked &^= bit })
					}
				}, "reads the superblock of %s again", w.name(d))
			}
		})
	case live:
		w.liveMoves(i, who)
	}
}

// liveMoves visits the steps of a live host that concern lists.
func (w *world) liveMoves(i int, who string) {
	h := w.hosts[i]
	for d := range w.all() {
		l := w.disks[d].sb
		if l.epoch <= h.using.epoch {
			continue
		}
		w.step(who, func(c *world) {
			c.hosts[i].using = l
			for d := range c.disks {
				if i == writer && !c.has(l, d) && !w.without(oldAcksCount) && !w.without(acksReturn) {
					c.disks[d].acked = false
				}
			}
		}, "follows %s of %s", w.say(l), w.name(d))
		if w.without(showsFirst) && h.shown < l.epoch {
			w.step(who, func(c *world) { c.hosts[i].shown = l.epoch }, "shows %d", l.epoch)
		}
	}
	if h.shown < h.using.epoch {
		w.step(who, func(c *world) { c.hosts[i].shown = h.using.epoch }, "shows %d", h.using.epoch)
	}
	if w.left.restarts > 0 && (i == writer || !w.sc.steady) {
		w.step(who, func(c *world) {
			c.left.restarts--
			c.hosts[i].phase = away
			c.each(func(k *disk) {
				if i == reader {
					k.got, c.floor = 0, 0
				} else {
					k.acked = false
					k.earlier, k.flying = max(k.earlier, k.flying), 0
				}
			})
		}, "restarts")
	}
}

// writerMoves visits the steps of the owner of the record. Its copies land in any order, also after its death. After it
// has left, the next owner does not know of those.
func (w *world) writerMoves() {
	h := w.hosts[writer]
	for d := range w.all() {
		if k := w.disks[d]; k.earlier > 0 {
			w.step("W", func(c *world) { c.disks[d].rec, c.disks[d].earlier = k.earlier, 0 },
				"the copy of v%d of its earlier process lands on %s", k.earlier-1, w.name(d))
		}
		if k := w.disks[d]; k.flying > 0 {
			w.step("W", func(c *world) {
				c.disks[d].rec, c.disks[d].flying = k.flying, 0
				c.disks[d].acked = w.writing && k.flying == w.version+1 && h.phase == live &&
					(w.has(h.using, d) || w.without(oldAcksCount) || w.without(acksReturn))
			}, "its copy of v%d lands on %s", k.flying-1, w.name(d))
		}
	}
	if h.phase != live {
		return
	}
	acked := 0
	for d := range w.all() {
		if w.disks[d].acked && (w.has(h.using, d) || w.without(oldAcksCount)) {
			acked++
		}
	}
	if w.writing {
		if acked >= w.majority() {
			w.step("W", func(c *world) {
				c.writing, c.done = false, w.version
				c.each(func(k *disk) { k.acked = false })
			}, "v%d is done", w.version)
		}
	} else if w.left.writes > 0 {
		w.step("W", func(c *world) {
			c.left.writes--
			c.version++
			c.writing = true
		}, "begins to write v%d", w.version+1)
	}
	if w.left.deaths > 0 {
		w.step("W", func(c *world) { c.left.deaths--; c.hosts[writer].phase = dead }, "dies")
	}
	if w.left.leaves > 0 && !w.writing && !w.mayLand(h.using) {
		w.step("W", func(c *world) {
			c.left.leaves--
			c.hosts[writer].phase = away
			for d, k := range w.disks {
				if late := max(k.flying, k.earlier); late > 0 {
					c.stray, c.disks[d].flying, c.disks[d].earlier = [2]uint8{uint8(d + 1), late}, 0, 0
				}
			}
		}, "leaves; another host takes its id")
	}
}

// mayLand reports whether a copy may land on a member of any host, by what the owner knows (LEFT): that of a list whose
// position is vacant may be one for another host.
func (w *world) mayLand(l list) bool {
	vacant := slices.Contains(l.at[:w.sc.changing()], 0)
	for d, k := range w.disks {
		in := w.has(l, d)
		if k.flying > 0 && (in || vacant && !w.without(leavesEarly)) ||
			k.earlier > 0 && !w.without(leavesEarlier) && (in || vacant && !w.without(vacantForgets)) {
			return true
		}
	}
	return false
}

// readerMoves visits the steps of reads. One that began before any write was done cannot be stale.
func (w *world) readerMoves() {
	h := w.hosts[reader]
	switch {
	case h.phase != live:
	case w.floor == 0 && w.done > 0:
		w.step("H", func(c *world) { c.floor = w.done }, "begins to read; v%d is done", w.done)
	case w.floor > 0:
		w.members(h.using, func(d int, k *disk) {
			if k.got == 0 && k.rec > 0 {
				w.step("H", func(c *world) {
					c.disks[d].got = k.rec
					c.endRead()
				}, "reads v%d on %s", k.rec-1, w.name(d))
			}
		})
	}
}

// endRead ends the read if it has a majority.
func (w *world) endRead() {
	n, best := 0, uint8(0)
	for _, k := range w.disks {
		if k.got > 0 {
			n++
			best = max(best, k.got)
		}
	}
	if n < w.majority() {
		return
	}
	if best <= w.floor {
		w.fault = stale
	}
	w.floor = 0
	w.each(func(k *disk) { k.got = 0 })
}

// each calls do for each disk.
func (w *world) each(do func(k *disk)) {
	for d := range w.all() {
		do(&w.disks[d])
	}
}

// members visits the disks of a list.
func (w *world) members(l list, visit func(d int, k *disk)) {
	for d := range w.all() {
		if w.has(l, d) {
			visit(d, &w.disks[d])
		}
	}
}

// name returns the name of disk d.
func (w *world) name(d int) string { return ("ABCDE"[:w.sc.n] + "NM")[d : d+1] }

// say returns a list as traces show it, if there is one.
func (w *world) say(l list) string {
	if !w.sc.telling {
		return ""
	}
	var s []string
	for p := range w.sc.n {
		switch {
		case p >= 2:
			s = append(s, w.name(p))
		case l.at[p] == 0:
			s = append(s, "-")
		default:
			s = append(s, w.name(int(l.at[p])-1))
		}
	}
	return fmt.Sprintf("%d={%s}", l.epoch, strings.Join(s, ","))
}

// key returns what distinguishes the world from others, until the next call. Disks whose position never changes are alike.
func (w *world) key() []byte {
	s := w.state
	slices.SortFunc(s.disks[w.sc.changing():w.sc.n], func(x, y disk) int { return bytes.Compare(contents(&x), contents(&y)) })
	w.sc.key = append(append(w.sc.key[:0], contents(&s)...), byte(len(w.fault)))
	return w.sc.key
}

// contents returns the bytes of a value that has no pointers and no padding.
func contents[T state | disk](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
