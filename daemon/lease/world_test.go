package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// unit is the step of time of the explorer: c, the finest budget. d is three units, and all times
// of the lease are whole units.
const unit = 100 * time.Millisecond

var exploreTimes = timing.Times{Lease: 60 * unit}

// node is a host of a world: a machine, and its IO under way. Each record of a read is sampled at
// some moment between the request and the return. A write lands at some moment, possibly after
// its machine has ended.
type node struct {
	m       *Machine
	id      int
	started bool
	wake    time.Duration // 0: not requested

	reading bool
	extent  int // number of records in the read under way
	sampled int // number of its ids that were already sampled
	view    []Record

	got       uint8 // several members: those that were sampled
	strays    bool  // several members: the read may sample any of them
	landedOn  uint8 // several members: those that the write under way has landed on
	writing   bool
	landed    bool
	record    layout.HostRecord
	submitted time.Duration

	proven time.Duration // time of the request for the last acknowledged write
	ended  uint64        // an incarnation whose lease was seen to end

	cfg    *Config
	life   int           // number of earlier machines
	down   bool          // its process is gone
	joined time.Duration // time of the last Joined
	terms  [2]Term       // the first and the last stored term
	holds  []hold        // holders of earlier machines that may still be up
}

// hold is the time until which the holders of an incarnation may be up.
type hold struct {
	id          int
	incarnation uint64
	joined      time.Duration
	until       time.Duration
}

// world is a number of hosts and the host table on a disk that they share.
type world struct {
	now   time.Duration
	disk  []layout.HostRecord
	nodes []node
	ghost []layout.HostRecord // writes of dead hosts that may land once more

	ids     []int  // the host ids that a read samples one by one; the other records stay blank
	stalled uint32 // a bit for each item that may take any time
	stalls  int    // number of items that may still be stalled
	order   int    // sampling order: node n downwards if bit n is set
	calm    bool   // explored until a host is live
	trace   *step
	spare   *spares
	moved   *Machine // the machine that no other world shares

	mortal // further faults; see mortal_test.go
	several
}

type step struct {
	before *step
	node   int
	what   move
	now    time.Duration
}

type move uint8

const (
	doStart move = iota
	doTick
	doSample
	doDeliver
	doLand
	doAck
	doGhost
	doStall
	doRelease
	doCrash
	doResume
	doResumeOld
	doRejoin
	doFail
	doEvict
	doCut
	doSampleOf // of the first of five members; those of the others follow
	_
	_
	_
	_
	doLandOn
	_
	_
	_
	_
	doDelay // of the copy on the first member
	_
	_
	_
	_
	doLandLate
	doStray
	doLeave
)

var moveNames = []string{"start", "tick", "sample", "read returns", "write lands", "write returns", "ghost lands", "stall", "release",
	"crashes", "resumes", "resumes from an old term", "joins again", "write fails", "evicts", "has fenced",
	"samples member 0", "samples member 1", "samples member 2", "samples member 3", "samples member 4", "lands on member 0", "lands on member 1", "lands on member 2", "lands on member 3", "lands on member 4",
	"is late on member 0", "is late on member 1", "is late on member 2", "is late on member 3", "is late on member 4", "late copy lands", "reads other members", "leaves"}

// The items of a node that may be stalled: its process, its read, its write.
const items = 3

func itemOf(n int, mv move) int {
	switch {
	case mv == doSample, mv >= doSampleOf && mv < doLandOn:
		return n*items + 1
	case mv == doLand, mv >= doLandOn && mv < doDelay:
		return n*items + 2
	}
	return n * items
}

func machineID(b byte) [16]byte { return [16]byte{b} }

func newWorld(hosts int, cfgs ...Config) *world {
	w := &world{spare: &spares{}, disk: make([]layout.HostRecord, hosts), nodes: make([]node, len(cfgs))}
	for i := range w.disk {
		w.disk[i].ID = i + 1
	}
	for i, cfg := range cfgs {
		if !slices.Contains(w.ids, cfg.ID) {
			w.ids = append(w.ids, cfg.ID)
		}
		cfg.Hosts = hosts
		if cfg.Times == (timing.Times{}) {
			cfg.Times = exploreTimes
		}
		w.nodes[i] = node{id: i + 1, m: New(cfg), cfg: &cfg}
		w.nodes[i].adopt()
	}
	return w
}

// adopt gives the node's machine its own incarnations.
func (n *node) adopt() {
	m, first := n.m, n.id*100+n.life*20+1
	m.cfg.Incarnation = func() uint64 { return uint64(first + len(m.spent)) }
}

func (w *world) mutate(mu mutation) {
	for i := range w.nodes {
		w.nodes[i].m.mutate(mu)
	}
}

// spares are worlds and machines for reuse: most moves lead to a world that was seen before.
type spares struct {
	worlds   []*world
	machines []*Machine
}

// clone returns a copy in which the given nodes may move; the machines of the others are shared.
func (w *world) clone(moving ...int) *world {
	c := take(&w.spare.worlds)
	disk, nodes := c.disk, c.nodes
	*c = *w
	c.disk, c.nodes = append(disk[:0], w.disk...), append(nodes[:0], w.nodes...)
	c.copies = cloneCopies(w.copies)
	c.moved = nil
	for _, i := range moving {
		n := &c.nodes[i]
		n.m = copyTo(take(&w.spare.machines), n.m)
		n.view = slices.Clone(n.view)
		for j := range n.view {
			n.view[j].Copies = slices.Clone(n.view[j].Copies)
		}
		n.adopt()
		c.moved = n.m
	}
	return c
}

func take[T any](from *[]*T) *T {
	last := len(*from) - 1
	if last < 0 {
		return new(T)
	}
	v := (*from)[last]
	*from = (*from)[:last]
	return v
}

func copyTo(c, m *Machine) *Machine {
	spent, tried, hosts, verdicts, words := c.spent, c.tried, c.hosts, c.verdicts, c.statements
	*c = *m
	c.spent, c.tried, c.hosts = append(spent[:0], m.spent...), append(tried[:0], m.tried...), append(hosts[:0], m.hosts...)
	c.verdicts, c.statements = append(verdicts[:0], m.verdicts...), append(words[:0], m.statements...)
	c.members = m.members.Clone()
	return c
}

// drop recycles a clone that is not needed, with the machine that moved.
func (w *world) drop() {
	if w.moved != nil {
		w.spare.machines = append(w.spare.machines, w.moved)
	}
	w.spare.worlds = append(w.spare.worlds, w)
}

// enabled returns the moves of a node, apart from stalls.
func (w *world) enabled(i int) []move {
	n := &w.nodes[i]
	var moves []move
	if n.down {
		return nil
	}
	if !n.started {
		return append(moves, doStart)
	}
	if n.wake != 0 && w.now >= n.wake {
		moves = append(moves, doTick)
	}
	if w.copies != nil {
		return append(moves, w.enabledOn(n)...)
	}
	if n.reading {
		if n.sampled < w.toSample(n) {
			moves = append(moves, doSample)
		} else {
			moves = append(moves, doDeliver)
		}
	}
	if n.writing {
		if n.landed {
			moves = append(moves, doAck)
		} else {
			moves = append(moves, doLand)
		}
	}
	return moves
}

// do makes one move of a node.
func (w *world) do(i int, mv move) {
	w.trace = &step{before: w.trace, node: i, what: mv, now: w.now}
	if mv == doLandLate {
		w.landLate(i)
		return
	}
	if mv == doGhost {
		if !slices.Contains(w.cut, w.ghost[i].Incarnation) {
			w.disk[w.ghost[i].ID-1] = w.ghost[i]
		}
		w.ghost = slices.Delete(slices.Clone(w.ghost), i, i+1)
		return
	}
	n := &w.nodes[i]
	switch mv {
	case doStart:
		n.started = true
		w.carry(n, n.m.Start(w.now))
	case doTick:
		n.wake = 0
		w.carry(n, n.m.Tick(w.now))
	case doSample:
		for once := true; once || w.whole && n.sampled < w.toSample(n); once = false {
			at := w.sampleAt(i, n.sampled)
			n.view[at] = Record{HostRecord: w.disk[at]}
			n.sampled++
		}
	case doDeliver:
		n.reading, n.got, n.strays = false, 0, false
		w.carry(n, n.m.TableRead(w.now, n.view))
		if !n.reading {
			n.view, n.sampled = nil, 0
		}
	case doLand:
		if slices.Contains(w.cut, n.record.Incarnation) {
			w.refuse(n)
			break
		}
		if w.copies != nil {
			w.landAll(n)
			break
		}
		w.disk[n.record.ID-1] = n.record
		n.landed = true
	case doAck:
		n.writing = false
		n.proven = n.submitted
		if w.copies != nil {
			w.acknowledge(n)
			break
		}
		w.carry(n, n.m.Written(w.now))
	default:
		if mv >= doSampleOf && mv < doLeave {
			w.doOn(n, mv)
			break
		}
		w.doMortal(n, mv)
	}
	n.keep()
}

// sampleAt returns the record that a node's read samples as its kth.
func (w *world) sampleAt(i, k int) int {
	if w.order>>i&1 == 1 {
		k = w.toSample(&w.nodes[i]) - 1 - k
	}
	return w.ids[k] - 1
}

// toSample returns the number of ids that a node's read covers.
func (w *world) toSample(n *node) (k int) {
	for _, id := range w.ids {
		if id <= n.extent {
			k++
		}
	}
	return k
}

// checkReach checks that a live host reads the records of all hosts that may hold locks or
// publish verdicts (HEARD).
func (w *world) checkReach(n *node) {
	for i := range w.nodes {
		o := &w.nodes[i]
		speaks := slices.ContainsFunc(w.shown(o.m.ID()), func(r layout.HostRecord) bool {
			return len(r.Verdicts) > 0 && r.Incarnation == o.m.own.Incarnation
		})
		if n.m.phase == live && (o.m.Ready() || speaks) && o.m.Live(w.now) && o.m.ID() > n.extent {
			w.broken = "HEARD"
		}
	}
}

// carry starts the actions of a machine.
func (w *world) carry(n *node, actions []Action) {
	n.wake = 0
	for _, a := range actions {
		switch a := a.(type) {
		case ReadTable:
			if n.reading {
				panic("two reads under way")
			}
			n.reading, n.extent, n.sampled, n.view = true, a.Hosts, 0, make([]Record, a.Hosts)
			n.got, n.strays = 0, false
			for j := range n.view {
				n.view[j].Copies = make([]Copy, len(w.copies))
			}
			w.checkReach(n)
		case Write:
			if n.writing {
				panic("ONE-WRITE: two writes under way")
			}
			n.writing, n.landed, n.record, n.submitted = true, false, a.Record, w.now
			n.landedOn = 0
		case Wait:
			n.wake = a.Until
		default:
			w.told(n, a)
		}
	}
}

// wrong returns the name of the broken invariant, or "".
func (w *world) wrong() string {
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.m.held {
			continue
		}
		if n.m.Live(w.now) {
			if n.m.own.Incarnation == n.ended {
				return "FINAL"
			}
			if n.m.Deadline() > n.proven+n.m.t.Lease {
				return "T0-FIRST"
			}
			for j := range i {
				if o := &w.nodes[j]; o.m.Live(w.now) && o.m.ID() == n.m.ID() {
					return "SINGLE"
				}
			}
		} else if !n.down {
			n.ended = n.m.own.Incarnation
		}
		if n.m.Ready() && n.m.Live(w.now) {
			for j := range i {
				o := &w.nodes[j]
				if o.m.Ready() && o.m.Live(w.now) && (o.m.ReadHorizon() < n.m.ID() || n.m.ReadHorizon() < o.m.ID()) {
					return "COVERED"
				}
			}
		}
	}
	return w.wrongDeath()
}

func (w *world) story() string {
	var lines []string
	for s := w.trace; s != nil; s = s.before {
		lines = append(lines, fmt.Sprintf("%8v  host %d: %s", s.now, s.node+1, moveNames[s.what]))
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
