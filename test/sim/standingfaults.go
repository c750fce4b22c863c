package sim

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// standingFault is a fault that stays.
type standingFault struct {
	name  string
	lock  func(s *standing) time.Duration // added to the bound of a lock: README.md, Faults that stay
	join  func(s *standing) time.Duration // added to the bound of a join
	begin func(s *standing)

	several bool // it is of one of a minority of several disks, which no host may suffer from
}

// unusedID is a host id that no machine has.
const unusedID = 5

var standingFaults = []standingFault{
	{"slow writes", slowed, slowed, func(s *standing) {
		s.victim.paths[0].set(func(p *path) { p.writes = s.slow })
		if s.rng.IntN(2) == 0 { // its claim of an id consists of such writes
			s.victim.powerCut()
			s.w.after(s.rng, 0, 2*s.times.Lease, s.victim.boot)
		}
	}, false},
	{"record of a host that lives", blind, unreadable, func(s *standing) {
		s.w.disk.damage(s.w.sb.Geometry.Host(s.victim.hostID), s.badness())
	}, false},
	{"record of a host that is dead", silence, unreadable, func(s *standing) {
		s.dies()
		if s.w.sleep(s.within(0, 4*s.times.Lease)) {
			s.w.disk.damage(s.w.sb.Geometry.Host(s.victim.hostID), s.badness())
		}
	}, false},
	{"all reset, a record lost", forgotten, unreadable, func(s *standing) { // then no host knows of the victim
		s.dies()
		s.w.disk.damage(s.w.sb.Geometry.Host(s.victim.hostID), s.badness())
		for _, m := range s.w.machines[1:] {
			m.powerCut()
			s.w.after(s.rng, 0, s.times.Lease, m.boot)
		}
	}, false},
	{"record of nobody", none, unreadable, func(s *standing) {
		s.w.disk.damage(s.w.sb.Geometry.Host(unusedID), s.badness())
	}, false},
	{"slot of a host that lives", none, none, func(s *standing) { // repeatedly
		for s.w.sleep(s.within(s.times.Lease/10, s.times.Lease)) {
			s.w.disk.damage(s.w.sb.Geometry.Slot(s.lock(), s.victim.hostID), 0)
		}
	}, false},
	{"slot that stays so", worn, worn, func(s *standing) {
		s.w.disk.damage(s.w.sb.Geometry.Slot(s.lock(), s.victim.hostID), badness(1+s.rng.IntN(2)))
	}, false},
	{"slot of a host that is gone", silence, silence, func(s *standing) {
		if s.rng.IntN(2) == 0 {
			s.dies()
		} else {
			s.victim.leave()
		}
		if s.w.sleep(s.within(0, 4*s.times.Lease)) {
			s.w.disk.damage(s.w.sb.Geometry.Slot(s.lock(), s.victim.hostID), s.badness())
		}
	}, false},
	{"slot of nobody", none, none, func(s *standing) {
		s.w.disk.damage(s.w.sb.Geometry.Slot(s.lock(), unusedID), s.badness())
	}, false},
	{"sector hangs", stuck, stuck, func(s *standing) {
		g, id := s.w.sb.Geometry, 1+s.rng.IntN(unusedID)
		at := g.Host(id)
		switch s.rng.IntN(5) {
		case 0:
			at = g.Entry(1 + s.rng.IntN(4))
		case 1, 2, 3:
			at = g.Slot(s.lock(), id)
		}
		h := []hangs{{reads: true}, {writes: true}, {reads: true, writes: true}}[s.rng.IntN(3)]
		s.victim.paths[0].set(func(p *path) { p.stuck = map[int64]hangs{at: h} })
	}, false},
	{"dies while joining", unreadable, unreadable, func(s *standing) {
		g, m := s.w.sb.Geometry, s.victim
		m.powerCut()
		s.w.after(s.rng, 0, 2*s.times.Lease, m.boot)
		after := time.Duration(s.rng.Int64N(int64(s.times.Lease / 10)))
		for {
			if !s.w.sleep(time.Millisecond) {
				return
			}
			r, err := s.w.sb.Space().DecodeHost(s.w.disk.record(g.Host(m.hostID)), m.hostID)
			if err == nil && r.State == layout.StateJoining {
				break
			}
		}
		if !s.w.sleep(after) {
			return
		}
		s.dies()
		switch s.rng.IntN(3) {
		case 0:
			s.w.disk.damage(g.Host(m.hostID), s.badness())
		case 1:
			s.w.disk.damage(g.Slot(s.lock(), m.hostID), s.badness())
		}
	}, false},
	{"clock rate", none, none, func(s *standing) {
		s.victim.powerCut()
		s.victim.rate = offRate(s.rng)
		s.w.after(s.rng, 0, 2*s.times.Lease, s.victim.boot)
	}, false},
	{"crash loop", silence, silence, func(s *standing) {
		cut := s.rng.IntN(2) == 0
		for s.w.sleep(s.within(0, 3*s.times.Lease)) {
			if cut {
				s.victim.powerCut()
				s.w.after(s.rng, 0, s.times.Lease, s.victim.boot)
			} else {
				s.victim.kill()
				s.w.after(s.rng, 0, s.times.Lease, s.victim.start)
			}
		}
	}, false},
	ofDisks("disk is missing", func(s *standing, p *path) { p.detached = true }),
	ofDisks(hangingDisk, func(s *standing, p *path) { p.hangs = true }),
	ofDisks("disk is slow", func(s *standing, p *path) { p.slow, p.slowness, p.writes = 1, 2*s.times.Lease, s.slow }),
	ofDisks(failingDisk, func(s *standing, p *path) { p.failing = s.rng.Float64() }),
	{"disk is blank", none, none, func(s *standing) {
		d := s.w.disk.members[s.rng.IntN(len(s.w.disk.members))]
		clear(d.bytes)
	}, true},
}

const (
	hangingDisk = "disk hangs"
	failingDisk = "disk fails at times"
)

// ofDisks returns a fault of the paths to as many disks as each host can do without: the same for all hosts,
// or others for each. No lock is created or removed if each host lacks others, or if a disk hangs: README.md.
func ofDisks(name string, change func(s *standing, p *path)) standingFault {
	return standingFault{name, none, none, func(s *standing) {
		for _, m := range s.w.machines {
			for k := range s.w.disk.spare() {
				p := m.paths[(k+s.shift*m.n)%len(m.paths)]
				p.set(func(p *path) { change(s, p) })
			}
		}
	}, true}
}

// none is the bound if others need not notice the fault.
func none(*standing) time.Duration { return 0 }

// silence is the bound if a host ends: until the others have seen its record stand still.
func silence(s *standing) time.Duration {
	d := s.times.Dead() + 2*s.times.Alive()
	if s.victim.watchdog != nil {
		d += s.times.Watchdog()
	}
	return d
}

// slowed is the bound if a host that others wait for writes slowly, and may lose its lease by that.
func slowed(s *standing) time.Duration { return silence(s) + 4*s.slow }

// blind is the bound if the record of a known host becomes unreadable.
func blind(s *standing) time.Duration { return silence(s) + s.times.Budget() }

// unreadable is the bound if others continue once a record was unreadable for longer than any owner
// may live with that.
func unreadable(s *standing) time.Duration { return s.times.Blind() + s.times.MaxWatchdog() }

// forgotten is the bound if all hosts join again, each of which may wait for another one, too.
func forgotten(s *standing) time.Duration { return unreadable(s) + silence(s) }

// stuck is the bound if the victim has to give way.
func stuck(s *standing) time.Duration { return s.times.Stuck() + s.times.Alive() + silence(s) }

// worn is the bound if the victim gives up its lease after other hosts have requested a repair.
func worn(s *standing) time.Duration { return stuck(s) + 2*s.times.Alive() }

// dies ends the victim permanently.
func (s *standing) dies() {
	s.victim.gone = true
	if s.rng.IntN(2) == 0 {
		s.victim.kill()
	} else {
		s.victim.powerCut()
	}
}

// badness draws how a sector is unreadable; 0: until its owner writes it.
func (s *standing) badness() badness { return badness(s.rng.IntN(3)) }

// lock draws a lock in use, or that of the directory.
func (s *standing) lock() int { return s.rng.IntN(1 + len(subjects)) }
