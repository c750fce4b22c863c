package bakery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/layout"
)

// A world is a disk and the hosts on it, between two events. The explorer takes it through every
// order of events. Each host in it runs the same code that the daemon drives.

const worldHosts = 5

// scenario configures the hosts of a world.
type scenario struct {
	name     string
	hosts    int
	rounds   int
	permits  int
	modes    []layout.Mode // modes of an attempt; each is explored
	clocks   []uint64      // numbers that a wall clock may offer; each is explored
	try      bool          // attempts may also have Try set
	settles  int8          // maximum of settled holds, per host
	cancels  int8          // maximum of cancels, per host
	changes  int8          // maximum of upgrades and downgrades, per host
	removes  int8          // maximum of removals of the lock, in all
	crashes  int8          // maximum of deaths, in all
	rejoin   bool          // a dead host may come back
	unsure   bool          // at first its record does not prove that it is the only incarnation
	corrupt  int8          // maximum of sectors that go bad, in all
	minority int           // members of the lockspace that may be missing: 1 of 3, 2 of 5; 0: it has one
	rewrites int8          // maximum of unchanged rewrites of the own slot, per host
	resumes  int8          // maximum of drivers that end and are followed by another of the same incarnation, in all
	locals   int8          // maximum of local grants after the first of a hold, per host; with one permit
	bound    int           // bound of local grants after the begin of a look
	fails    int8          // maximum of failed reads of a host record, in all
	blind    int8          // maximum of host records that go bad permanently, in all
	abandon  bool          // the host of such a record counts as gone once it has died
	joins    int8          // maximum of claims written over a host record, also that of a living host, in all
	restive  bool          // one claim follows another, so its record is never settled; only of a host that is known to be dead
	whole    bool          // no death loses a slot
	gap      uint64        // gap for renumbering; 0: no renumbering
	mutate   *mutation
	want     string // the fault to look for; empty: any
}

// records reports whether host records may change, or fail to be read.
func (sc *scenario) records() bool {
	return sc.crashes > 0 || sc.fails > 0 || sc.blind > 0 || sc.joins > 0
}

// entry is the directory entry of the world's one name.
type entry struct {
	creation uint64 // 0: no such lock
	area     int    // index of its slots in world.disk
}

const (
	resting uint8 = iota
	trying
	inside
	kept // the hold goes on, and no client has it
)

// actor is one host. Only events of its host change it, and only in one world: the worlds of a
// search share equal actors.
type actor struct {
	m         *Machine
	act       Action
	got       [worldHosts]View // result of the read under way
	early     []View           // mutation: slots read before the claim; never changed in place
	table     []Host           // host table that was read and not yet reported; never changed in place
	mask      uint8            // sectors of got that are done
	found     uint64           // directory entry that was read and not yet reported
	sampled   bool
	entry     entry // the entry that it takes part by
	inc       uint64
	rounds    int
	crashed   bool
	rewriting bool // the own slot is being rewritten unchanged
	split     bool // mutation: the second half of a write is to come
	noted     bool // the note for the next driver: the slot's ticket was granted
	resumed   bool // granted by Resume
	repeating bool // the driver has ended, and its successor completes the write under way

	settles, cancels, changes, rewrites, locals int8

	grants Grants // of the hold
	look   look   // for other hosts

	// The fields below are for the checks.
	where    uint8
	held     layout.Mode
	token    layout.Ticket // of the last grant
	doored   bool          // its doorway is done
	endedMax layout.Ticket

	code code
	id   uint32 // identifies actors that the worlds of a search share
}

type world struct {
	sc     *scenario
	disk   []sector // slots of the first entry, then, if locks are removed, of the second
	hosts  []Host   // host records, then half-written claims of them; never changed in place
	actors [worldHosts]*actor
	rest

	fault   string
	now     uint64 // the number of a sane wall clock; 0: no clock
	telling bool   // moves are formatted for a trace
	calm    bool   // no more faults
	spare   *spares
}

// rest holds the other state of a world.
type rest struct {
	before  [worldHosts]uint8 // whose doorway was done when the host's attempt began
	dir     entry
	lastDir uint64        // highest creation id in the directory
	areas   [2]uint64     // the creation ids of both entries, cleared or not
	granted layout.Ticket // highest token of an exclusive grant
	ended   layout.Ticket // the same, of those that have ended
	// local grants of the present hold since the host's doorway was done
	passed [worldHosts]int8

	removes, crashes, corrupt, fails, blind, joins, resumes int8

	// losses counts the slots that may still become unreadable when no host knows their ticket.
	// Without a clock, tokens survive one such loss. Where hosts may die more than once, a slot
	// that is unreadable for a moment may count as a loss too: there tokens are checked until a
	// second span is granted.
	losses, spans int8
}

// spares holds worlds and actors for reuse: most moves lead to a world that was seen before.
type spares struct {
	worlds []*world
	actors []*actor
}

func newWorld(sc *scenario) *world {
	w := &world{sc: sc, spare: &spares{}, rest: rest{dir: entry{creation: 1}, lastDir: 1, areas: [2]uint64{1, 0},
		removes: sc.removes, crashes: sc.crashes, corrupt: sc.corrupt, fails: sc.fails, blind: sc.blind, joins: sc.joins,
		resumes: sc.resumes, losses: int8(1 - bit(sc.whole))}}
	areas := 1
	if sc.removes > 0 {
		areas = 2
	}
	w.disk = make([]sector, areas*sc.hosts)
	for i := range w.disk {
		w.disk[i] = certain(View{Readable: true})
	}
	for i := range sc.hosts {
		w.hosts = append(w.hosts, Host{Readable: true, Incarnation: uint64(i + 1)})
		ac := &actor{inc: uint64(i + 1), rounds: sc.rounds, entry: w.dir,
			settles: sc.settles, cancels: sc.cancels, changes: sc.changes, rewrites: sc.rewrites, locals: sc.locals}
		w.actors[i] = ac
		ac.m = w.machine(i)
		// A first read of a blank lock returns no ticket.
		ac.m.attached = true
		ac.encode(sc)
	}
	if sc.halfClaims() {
		w.hosts = append(w.hosts, make([]Host, sc.hosts)...)
	}
	return w
}

func (w *world) machine(i int) *Machine {
	ac := w.actors[i]
	m := New(Config{Host: i + 1, Incarnation: ac.inc, Creation: ac.entry.creation, Permits: w.sc.permits, Clock: w.now})
	m.grow(w.sc.hosts)
	if !w.sc.records() {
		// A read of the host table would return nothing new.
		for h := range m.peers {
			m.peers[h].live = uint64(h + 1)
		}
	}
	if mu := w.sc.mutate; mu != nil && mu.made != nil {
		mu.made(m)
	}
	return m
}

// slot returns host i's sector among the slots that an entry names.
func (w *world) slot(area, i int) *sector { return &w.disk[area*w.sc.hosts+i] }

// own returns host i's sector by the entry that it takes part by.
func (w *world) own(i int) *sector { return w.slot(w.actors[i].entry.area, i) }

// setHost replaces a host record.
func (w *world) setHost(i int, h Host) {
	w.hosts = slices.Clone(w.hosts)
	if w.sc.halfClaims() && h.Incarnation != w.hosts[i].Incarnation {
		w.hosts[w.sc.hosts+i] = Host{} // the write is greater
	}
	w.hosts[i] = h
}

// clone copies the world for an event of host i.
func (w *world) clone(i int) *world {
	var c *world
	var ac *actor
	if s := w.spare; len(s.worlds) > 0 {
		c, s.worlds = s.worlds[len(s.worlds)-1], s.worlds[:len(s.worlds)-1]
		ac, s.actors = s.actors[len(s.actors)-1], s.actors[:len(s.actors)-1]
	} else {
		c, ac = &world{}, newActor()
	}
	disk := c.disk
	*c = *w
	c.disk = append(disk[:0], w.disk...)
	ac.copy(w.actors[i])
	c.actors[i] = ac
	return c
}

// newActor returns an actor to copy one to. Its parts are adjacent in memory, because a search
// jumps from one to another.
func newActor() *actor {
	all := &struct {
		actor
		Machine
		views [mostHosts]View
		peers [mostHosts]peer
		hosts [mostHosts]Host
	}{}
	all.m = &all.Machine
	all.m.views, all.m.peers, all.m.hosts = all.views[:0], all.peers[:0], all.hosts[:0]
	return &all.actor
}

func (ac *actor) copy(from *actor) {
	m, code, views, peers, hosts := ac.m, ac.code, ac.m.views, ac.m.peers, ac.m.hosts
	*ac = *from
	ac.m, ac.code, ac.id = m, code, 0
	*m = *from.m
	m.views = append(views[:0], from.m.views...)
	m.peers = append(peers[:0], from.m.peers...)
	m.hosts = append(hosts[:0], from.m.hosts...)
}

// drop recycles a clone that was made for host i and is not needed.
func (w *world) drop(i int) {
	w.spare.worlds = append(w.spare.worlds, w)
	w.spare.actors = append(w.spare.actors, w.actors[i])
}

func (w *world) failf(format string, args ...any) {
	if w.fault == "" && strings.HasPrefix(format, w.sc.want) {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// took continues after host i's machine has returned its next action.
func (w *world) took(i int, a Action) {
	ac := w.actors[i]
	ac.act = a
	if !ac.m.Holding() {
		ac.grants = Grants{}
		if !w.sc.mutated().oldLook {
			ac.look = look{}
		}
	}
	if a.Kind == Write && ac.m.step == stepUpgrade {
		ac.grants.Close()
	}
	ac.resumed = ac.resumed && a.Kind == Granted
	switch a.Kind {
	case Write:
		if ac.m.step == stepClaim {
			w.begin(i)
		}
		if ac.m.step == stepDowngrade {
			ac.held = layout.Shared // from here on a reader may come in
			w.exclusion(i)
		}
		w.write(i, a.Slot)
	case Read:
		ac.got, ac.mask = [worldHosts]View{}, 0
		if own := w.own(i).contents(); len(own) == 1 {
			ac.got[i], ac.mask = own[0], 1<<i
		}
		if mu := w.sc.mutate; mu != nil && mu.staleHosts {
			ac.table = w.hosts[:w.sc.hosts]
		}
		if ac.m.step == stepWait {
			ac.doored = true
		}
	case Granted:
		w.grant(i)
	case Done:
		w.leave(i)
		ac.act = Action{}
		ac.noted = ac.noted && w.sc.mutate != nil && w.sc.mutate.keepNote
		if a.Outcome == Superseded || a.Outcome == Removed || w.freed(ac.entry) {
			w.lookup(i)
		}
	}
}

func (w *world) write(i int, s Slot) {
	ac := w.actors[i]
	sec := w.own(i)
	if sec.writing {
		w.failf("host %d writes into its own write", i+1)
	}
	sec.next, sec.writing = View{Slot: s, Readable: true}, true
	if w.sc.mutate != nil && w.sc.mutate.earlyLook && ac.m.step == stepClaim {
		ac.early = nil
		for j := range w.sc.hosts {
			ac.early = append(ac.early, w.slot(ac.entry.area, j).now)
		}
	}
	if w.sc.mutate != nil && w.sc.mutate.splitWrite {
		// The flag is cleared in one write, the ticket follows in another.
		if s.Phase == layout.Waiting && !ac.split {
			ac.split = true
			sec.next.Slot.Phase, sec.next.Slot.Ticket = layout.Idle, sec.now.Slot.Ticket
		} else {
			ac.split = false
		}
	}
	if !ac.m.Holding() {
		w.leave(i)
	}
}

// begin records whose doorway was done when host i began its own.
func (w *world) begin(i int) {
	ac := w.actors[i]
	ac.where, ac.doored, ac.endedMax = trying, false, w.ended
	w.before[i], w.passed[i] = 0, 0
	for j := range w.sc.hosts {
		if j != i && w.actors[j].doored && w.actors[j].where == trying {
			w.before[i] |= 1 << j
		}
	}
}

// leave ends host i's hold. Its attempt ends when the write that says so begins.
func (w *world) leave(i int) {
	ac := w.actors[i]
	w.exit(i)
	switch ac.m.step {
	case stepWithdraw, stepRelease, stepUnmark, stepIdle, stepRemoved:
		w.forget(i)
	}
}

func (w *world) exit(i int) {
	ac := w.actors[i]
	if ac.where == inside {
		if ac.held == layout.Exclusive {
			w.ended = max(w.ended, ac.token)
		}
		ac.where, ac.held = trying, 0
	}
}

func (w *world) forget(i int) {
	ac := w.actors[i]
	ac.where, ac.doored, ac.endedMax = resting, false, 0
	w.before[i], w.passed[i] = 0, 0
	for j := range w.sc.hosts {
		w.before[j] &^= 1 << i
	}
}

// enter checks the grant that host i was just given.
func (w *world) enter(i int) {
	ac := w.actors[i]
	mode := ac.m.Mode()
	first := ac.where != inside
	if first {
		ac.first(w.sc)
		w.passed = [worldHosts]int8{}
	}
	token := ac.token
	if !first && mode == ac.held {
		return // settled, or an upgrade refused
	}
	ac.where, ac.held = inside, mode
	sum := w.exclusion(i)
	for j := range w.sc.hosts {
		if o := w.actors[j]; first && o.where == trying && w.before[i]&(1<<j) != 0 {
			sum.add(o.m.Mode())
		}
	}
	if first && !sum.admits(mode, w.sc.permits) {
		w.failf("ORDER: host %d enters %v before one that was there first", i+1, mode)
	}
	if mode == layout.Exclusive {
		floor := ac.endedMax
		if w.sc.permits == 1 {
			floor = w.granted
		}
		// After a downgrade and an upgrade it is the same hold, with the same token.
		if w.spans < 2 && (token < floor || token == floor && first) {
			w.failf("TOKENS: host %d got %d after %d", i+1, token, floor)
		}
		w.granted = max(w.granted, token)
	}
	w.before[i], ac.doored = 0, true
}

// exclusion checks that host i may be inside together with the other holders.
func (w *world) exclusion(i int) tally {
	ac := w.actors[i]
	var holders tally
	for j := range w.sc.hosts {
		if o := w.actors[j]; j != i && o.where == inside {
			holders.add(o.held)
		}
	}
	if !holders.admits(ac.held, w.sc.permits) {
		w.failf("EXCLUSION: host %d is inside, %v, with %d exclusive and %d shared holders",
			i+1, ac.held, holders.exclusive, holders.shared)
	}
	return holders
}

// lookup finds the name's entry, or creates it again with other slots than the last one had. This
// happens under lock 0, therefore in one event.
func (w *world) lookup(i int) {
	ac := w.actors[i]
	if w.dir.creation == 0 {
		w.lastDir++
		w.dir = entry{creation: w.lastDir, area: 1 - w.dir.area}
		w.areas[w.dir.area] = w.lastDir
	}
	ac.entry = w.dir
	ac.m = w.machine(i)
	// The machine reads the slot that it finds there, as in the daemon.
}
