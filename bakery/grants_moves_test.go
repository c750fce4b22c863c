package bakery

import "github.com/bakeryd/bakeryd/layout"

// look is a read of the slots for other hosts while the hold goes on.
type look struct {
	on   bool
	made int              // local grants made when it began
	mask uint8            // sectors that were read
	got  [worldHosts]View // at host id - 1
}

// mutated returns the mutation of the scenario; none leaves all rules.
func (sc *scenario) mutated() *mutation {
	if sc.mutate == nil {
		return &mutation{}
	}
	return sc.mutate
}

// first makes the first grant of a hold. A driver that has resumed a hold does not know how many its
// ticket has served.
func (ac *actor) first(sc *scenario) {
	if !ac.resumed {
		ac.grants = NewGrants(sc.bound, false)
	}
	ac.token = ac.grants.Next(ac.m.Token())
}

// localMoves visits the local grants of an exclusive hold: to the next client when one releases, or
// later, if the host has kept the hold.
func (w *world) localMoves(i int, to visit) {
	ac, mu := w.actors[i], w.sc.mutated()
	if w.sc.locals == 0 || w.sc.permits > 1 || ac.m.Mode() != layout.Exclusive {
		return
	}
	if g := &ac.grants; ac.locals > 0 && g.Open() && (!g.MustLook() || mu.sightless) {
		c := w.clone(i)
		c.actors[i].locals--
		c.grantAgain(i)
		to(c, i, "grants the next client")
	}
	may := ac.m.MayLinger
	if mu.lingers != nil {
		may = func(g *Grants) bool { return mu.lingers(ac.m, g) }
	}
	if ac.where == inside && ac.locals > 0 && may(&ac.grants) {
		c := w.clone(i)
		c.exit(i)
		c.actors[i].where, c.actors[i].noted = kept, false
		to(c, i, "lingers")
	}
	if !ac.look.on && !ac.grants.Closed() && !ac.grants.Wanted() {
		c := w.clone(i)
		c.actors[i].look = look{on: true, made: ac.grants.Made(), mask: 1 << i}
		to(c, i, "begins to look")
	}
	if ac.look.on && ac.look.mask == 1<<w.sc.hosts-1 {
		c := w.clone(i)
		n := c.actors[i]
		exclusive, shared := n.m.Others(n.look.got[:w.sc.hosts])
		made := n.look.made
		if mu.lateMark {
			made = n.grants.Made()
		}
		n.look = look{}
		n.grants.Looked(made, exclusive+shared > 0 && !mu.deaf)
		to(c, i, "has looked")
	}
}

// lookMoves reads one more sector, whatever the driver does meanwhile.
func (w *world) lookMoves(i int, to visit) {
	ac := w.actors[i]
	if !ac.look.on {
		return
	}
	for j := range w.sc.hosts {
		if ac.look.mask&(1<<j) != 0 {
			continue
		}
		for _, v := range w.slot(ac.entry.area, j).outcomes() {
			c := w.clone(i)
			n := c.actors[i]
			n.look.got[j] = v
			n.look.mask |= 1 << j
			c.saw(n.entry.area, j, v)
			to(c, i, w.say("looks at slot %d: %v", j+1, v))
		}
	}
}

// grantAgain grants the hold to the next client, and checks that.
func (w *world) grantAgain(i int) {
	ac := w.actors[i]
	w.exit(i)
	ac.where, ac.held, ac.noted = inside, ac.m.Mode(), true
	w.exclusion(i)
	before := ac.token
	if ac.token = ac.grants.Next(ac.m.Token()); w.sc.mutated().sameToken {
		ac.token = before
	}
	if w.spans < 2 && ac.token <= w.granted {
		w.failf("TOKENS: host %d got %d after %d", i+1, ac.token, w.granted)
	}
	w.granted = max(w.granted, ac.token)
	for j := range w.sc.hosts {
		if o := w.actors[j]; j != i && o.doored && o.where == trying && o.entry == ac.entry {
			if w.passed[j]++; int(w.passed[j]) > w.sc.bound {
				w.failf("BOUND: host %d grants %d clients while host %d waits", i+1, w.passed[j], j+1)
			}
		}
	}
}

// encodeLocals adds the local grants to the actor's code.
func (ac *actor) encodeLocals(sc *scenario) {
	c, l := &ac.code, &ac.look
	c.b = append(c.b, byte(ac.locals))
	if !ac.m.Holding() && !l.on {
		return
	}
	c.b = append(c.b, byte(ac.grants.made), byte(ac.grants.clean), bit(ac.grants.closed)|bit(ac.grants.wanted)<<1, byte(ac.token), bit(l.on), byte(l.made), l.mask)
	for i := range sc.hosts {
		if l.mask&(1<<i) != 0 {
			c.view(&l.got[i])
		}
	}
}
