package bakery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bakeryd/bakeryd/layout"
)

// A world is a disk and the hosts on it, between two events. The explorer
// takes it through every order of events; each host in it runs the very code
// that the daemon drives.

const worldHosts = 5

// scenario says what the hosts of a world do.
type scenario struct {
	name    string
	hosts   int
	rounds  int
	permits int
	modes   []layout.Mode // what an attempt may ask for; each choice is explored
	clocks  []uint64      // what a wall clock may offer; each choice is explored
	try     bool          // attempts may also be made without waiting
	settles int8          // holds that may be settled, a host
	cancels int8          // cancels that may come, a host
	changes int8          // upgrades and downgrades, a host
	removes int8          // removals of the lock, in all
	crashes int8          // hosts that may die, in all
	rejoin  bool          // a dead host may come back
	unsure  bool          // its record is not believed at first to be the only one
	corrupt int8          // sectors that may go bad, in all
	heals   int8          // rewrites of the own slot as it is, a host
	resumes int8          // drivers that may end and be followed by another of the same incarnation, in all
	fails   int8          // reads of a host record that may fail, in all
	blind   int8          // host records that may go bad, for good, in all
	abandon bool          // the host of such a record counts as gone once it has died
	joins   int8          // claims that may be written over a host record, that of a living host too, in all
	restive bool          // one claim follows another, so its record is never settled; only of a host that is known to be dead
	whole   bool          // no slot is lost by a death
	gap     uint64        // by which numbers are renumbered; 0: not at all
	mutate  *mutation
	want    string // the kind of fault looked for; empty: any
}

// records tells whether host records may change, or fail to be read.
func (sc *scenario) records() bool {
	return sc.crashes > 0 || sc.fails > 0 || sc.blind > 0 || sc.joins > 0
}

// sector is one slot on the disk: a regular register. A read that overlaps a
// write returns the old contents, the new ones, or garbage.
type sector struct {
	now, next View
	writing   bool
	seen      bool // a read has returned the new contents
}

// entry is the directory entry of the world's one name.
type entry struct {
	creation uint64 // 0: no such lock
	area     int    // which slots it names
}

const (
	resting uint8 = iota
	trying
	inside
)

// actor is one host. It changes in events of its host only, and in no other world: the worlds of a
// search share the actors that are equal.
type actor struct {
	m       *Machine
	act     Action
	got     [worldHosts]View // the read under way
	early   []View           // mutation: slots read before the claim; never changed in place
	table   []Host           // host table that was read and not yet reported; never changed in place
	mask    uint8            // which sectors of got are done
	found   uint64           // directory entry that was read and not yet reported
	sampled bool
	entry   entry // by which it takes part
	inc     uint64
	rounds  int
	crashed bool
	healing bool // the own slot is being rewritten as it is
	split   bool // mutation: the second half of a write is to come
	noted   bool // as the driver keeps it for its successor: the slot's ticket was granted
	resumed bool // granted by Resume

	settles, cancels, changes, heals int8

	// What the checks need to remember.
	where    uint8
	held     layout.Mode
	doored   bool // doorway done
	endedMax layout.Ticket

	code code
	id   uint32 // of those that the worlds of a search share
}

type world struct {
	sc     *scenario
	disk   []sector // slots of the first entry, then, if locks are removed, of the second
	hosts  []Host   // host records, as single registers; never changed in place
	actors [worldHosts]*actor
	rest

	fault   string
	now     uint64 // what a sane wall clock offers; 0: there is none
	telling bool   // moves are to be worded
	calm    bool   // nothing goes wrong any more
	spare   *spares
}

// rest is the rest of the state of a world.
type rest struct {
	before  [worldHosts]uint8 // whose doorway was done when the host's attempt began
	dir     entry
	lastDir uint64        // highest creation id in the directory
	areas   [2]uint64     // the creation ids of both entries, cleared or not
	granted layout.Ticket // highest token of an exclusive grant
	ended   layout.Ticket // the same, of those that have ended

	removes, crashes, corrupt, fails, blind, joins, resumes int8

	// Slots that may yet become unreadable with nobody left who knows their
	// ticket. Without a clock, tokens survive one such loss. Where hosts may
	// die more than once, a slot that is unreadable for a moment may count as
	// one too: there tokens are checked until a second span is granted.
	losses, spans int8
}

// spares are worlds and actors for reuse: most moves lead to a world that was seen before.
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
		w.disk[i].now.Readable = true
	}
	for i := range sc.hosts {
		w.hosts = append(w.hosts, Host{Readable: true, Incarnation: uint64(i + 1)})
		ac := &actor{inc: uint64(i + 1), rounds: sc.rounds, entry: w.dir,
			settles: sc.settles, cancels: sc.cancels, changes: sc.changes, heals: sc.heals}
		w.actors[i] = ac
		ac.m = w.machine(i)
		// A first read of a virgin lock tells nothing.
		ac.m.attached = true
		ac.encode(sc)
	}
	return w
}

func (w *world) machine(i int) *Machine {
	ac := w.actors[i]
	m := New(Config{Host: i + 1, Incarnation: ac.inc, Creation: ac.entry.creation, Permits: w.sc.permits, Clock: w.now})
	m.grow(w.sc.hosts)
	if !w.sc.records() {
		// A read of the host table would tell nothing.
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

// newActor returns an actor to copy one to. All of it lies together: a search jumps from one to another.
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

// drop takes back a clone made for host i that nobody keeps.
func (w *world) drop(i int) {
	w.spare.worlds = append(w.spare.worlds, w)
	w.spare.actors = append(w.spare.actors, w.actors[i])
}

func (w *world) failf(format string, args ...any) {
	if w.fault == "" && strings.HasPrefix(format, w.sc.want) {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// took carries on after host i's machine has given its next action.
func (w *world) took(i int, a Action) {
	ac := w.actors[i]
	ac.act = a
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
		ac.mask = 1 << i
		ac.got = [worldHosts]View{}
		ac.got[i] = w.own(i).now
		if mu := w.sc.mutate; mu != nil && mu.staleHosts {
			ac.table = w.hosts
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

// begin notes whose doorway was done when host i began its own.
func (w *world) begin(i int) {
	ac := w.actors[i]
	ac.where, ac.doored, ac.endedMax = trying, false, w.ended
	w.before[i] = 0
	for j := range w.sc.hosts {
		if j != i && w.actors[j].doored && w.actors[j].where == trying {
			w.before[i] |= 1 << j
		}
	}
}

// leave ends host i's hold; its attempt, when the write that says so begins.
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
			w.ended = max(w.ended, ac.m.Token())
		}
		ac.where, ac.held = trying, 0
	}
}

func (w *world) forget(i int) {
	ac := w.actors[i]
	ac.where, ac.doored, ac.endedMax = resting, false, 0
	w.before[i] = 0
	for j := range w.sc.hosts {
		w.before[j] &^= 1 << i
	}
}

// enter checks the grant that host i was just given.
func (w *world) enter(i int) {
	ac := w.actors[i]
	mode, token := ac.m.Mode(), ac.m.Token()
	first := ac.where != inside
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
		// Downgraded and upgraded again it is the same hold, of the same token.
		if w.spans < 2 && (token < floor || token == floor && first) {
			w.failf("TOKENS: host %d got %d after %d", i+1, token, floor)
		}
		w.granted = max(w.granted, token)
	}
	w.before[i], ac.doored = 0, true
}

// exclusion checks whether host i may be inside with the others who are.
func (w *world) exclusion(i int) tally {
	ac := w.actors[i]
	var holders tally
	for j := range w.sc.hosts {
		if o := w.actors[j]; j != i && o.where == inside {
			holders.add(o.held)
		}
	}
	if !holders.admits(ac.held, w.sc.permits) {
		w.failf("EXCLUSION: host %d is inside, %v, beside %d exclusive and %d shared holders",
			i+1, ac.held, holders.exclusive, holders.shared)
	}
	return holders
}

// lookup finds the name's entry, or makes it anew, with other slots than the
// last had: under lock 0, so in one event.
func (w *world) lookup(i int) {
	ac := w.actors[i]
	if w.dir.creation == 0 {
		w.lastDir++
		w.dir = entry{creation: w.lastDir, area: 1 - w.dir.area}
		w.areas[w.dir.area] = w.lastDir
	}
	ac.entry = w.dir
	ac.m = w.machine(i)
	// The machine learns the slot that it finds there, as a daemon's would.
}
