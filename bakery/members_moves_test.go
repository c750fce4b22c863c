package bakery

import "slices"

// sector is one slot on the disk: a regular register. A read that overlaps a
// write returns the old contents, the new ones, or garbage.
//
// On several members a write whose driver ends may be on fewer than a majority forever. It is then
// neither done nor undone: each read returns the greatest version of the copies of some majority. These
// are the contents of now and newer, and which of them a read returns is open each time, until the owner
// completes a write.
type sector struct {
	now, next View
	newer     [mostMissing]View // greater and greater versions that a majority may show; without any, as now
	writing   bool
	seen      bool // a read has returned the new contents
}

const mostMissing = 2 // members that a majority of 5 does without

// certain returns a sector of which every read returns v.
func certain(v View) sector { return sector{now: v, newer: [mostMissing]View{v, v}} }

// contents returns what reads may return that overlap no write.
func (s *sector) contents() []View {
	out := []View{s.now}
	for _, v := range s.newer {
		if v != out[len(out)-1] {
			out = append(out, v)
		}
	}
	return out
}

// unwritten returns the sector as it is if the write under way has reached no member, and never will.
func (s *sector) unwritten() sector { return sector{now: s.now, newer: s.newer} }

// halved returns what may become of a sector whose write has reached at least one member and no
// majority, and never reaches another.
//
// Of 2f+1 copies, ordered by version, a majority shows the greatest of f+1: one of the f+1 greatest of
// all, which are now and newer. The write replaces up to f copies, with the greatest version of all.
// Of the f+1 greatest before, at least one is still among the f+1 greatest.
func (s *sector) halved(minority int) (all []sector) {
	was := append([]View{s.now}, s.newer[:minority]...)
	for kept := 1; kept < 1<<len(was)-1; kept++ {
		var views []View
		for k, v := range was {
			if kept>>k&1 == 1 {
				views = append(views, v)
			}
		}
		views = append(views, s.next, s.next)
		h := sector{now: views[0], newer: [mostMissing]View(views[1:3])}
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}

// landed returns the sector after its write was acknowledged.
func (w *world) landed(s *sector) sector {
	mu, done := w.sc.mutated(), certain(s.next)
	switch {
	case mu.forgets:
		done.now = s.now
	case mu.unordered && s.newer[0] != s.now:
		done.newer = s.newer
	}
	return done
}

// unfinishedMoves ends host i's driver during a write of the slot. Its successor knows from its note what
// was being written, and writes that again before it does anything else (NOTE-FIRST).
func (w *world) unfinishedMoves(i int, to visit) {
	mu := w.sc.mutated()
	if !mu.writesBack && (mu.unnoted == nil || !mu.unnoted(w.actors[i].m.step)) {
		c := w.clone(i)
		c.resumes--
		c.actors[i].repeating, c.actors[i].look = true, look{}
		to(c, i, "restarts, and writes again what it has noted")
		return
	}
	s := w.own(i)
	for _, end := range append(s.halved(w.sc.minority), s.unwritten(), certain(s.next)) {
		for _, own := range end.contents() {
			if !mu.writesBack {
				w.restarts(i, end, own, to)
				continue
			}
			c := w.clone(i)
			c.resumes--
			c.actors[i].repeating, c.actors[i].look = true, look{}
			end.next, end.writing = own, true
			*c.own(i) = end
			to(c, i, w.say("restarts, and writes again what it reads: %v", own))
		}
	}
}

// repetition visits the events of a driver that completes the write of its predecessor: it lands, or that
// driver ends or its host dies first.
func (w *world) repetition(i int, to visit) {
	next := w.own(i).next
	w.restarts(i, certain(next), next, to)
}

// halfClaims reports whether a claim of a host record may reach a minority. No host is live by it.
func (sc *scenario) halfClaims() bool { return sc.minority > 0 && sc.joins > 0 }

// claim returns the claim of host i's record that reached a minority, if any.
func (w *world) claim(i int) (h Host) {
	if w.sc.halfClaims() {
		h = w.hosts[w.sc.hosts+i]
	}
	return h
}

// newest returns host i's record with the greatest version.
func (w *world) newest(i int) Host {
	if h := w.claim(i); h.Readable {
		return h
	}
	return w.hosts[i]
}

// claimMoves visits the reads of the host table that show a claim that reached a minority.
func (w *world) claimMoves(i int, to visit) {
	for h := range w.sc.hosts {
		if h == i || !w.hosts[h].Readable || !w.claim(h).Readable {
			continue
		}
		c := w.clone(i)
		c.sampleHosts(i)
		c.actors[i].table = slices.Clone(w.hosts[:w.sc.hosts])
		c.actors[i].table[h] = w.claim(h)
		to(c, i, w.say("reads the hosts, and a claim of host %d", h+1))
	}
}
