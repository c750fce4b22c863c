package standing_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/daemon/standing"
	"github.com/bakeryd/bakeryd/layout"
)

// A world is two hosts that share a disk with two host records and two slots of one exclusive
// lock. Each host runs the machine of the lease, the machine of the lock and the functions of
// this package, as the daemon does. Time is coarse: items that are not stalled take no time, in
// every order; stalled ones take any number of ticks.
const (
	both    = 2
	tick    = 10 * time.Second
	longAgo = 10 // ticks: longer than any wait of a machine
	origin  = 1000 * tick
)

const length = 6 * tick // of the lease

// glue connects the machines of a host. A mutation replaces some of it.
type glue struct {
	hosts    func(known []lease.Host, since time.Duration) []bakery.Host
	learn    func(m *bakery.Machine, own int, known []lease.Host, views []bakery.View, slotsEnded, judged time.Duration) ([]standing.Ended, bool)
	mayWrite func(m *lease.Machine, now time.Duration) bool
	mayGrant func(m *lease.Machine, now time.Duration) bool

	judgesAgain bool // a poll uses the host table that already judged the slots
	oldTable    bool // the host table is not read again after the slots
	fromRequest bool // slots count as read at the time of the request for their read
	lateNote    bool // a grant is noted after its holder was notified
}

func sound(policy layout.Policy) glue {
	return glue{
		hosts: func(known []lease.Host, since time.Duration) []bakery.Host {
			return standing.Hosts(known, policy, since)
		},
		learn: func(m *bakery.Machine, own int, known []lease.Host, views []bakery.View, slotsEnded, judged time.Duration) ([]standing.Ended, bool) {
			return standing.EvaluateHostTable(m, own, known, policy, views, slotsEnded, judged)
		},
		mayWrite: (*lease.Machine).MayWrite,
		mayGrant: standing.MayGrant,
	}
}

// scenario configures the hosts of a world. Faults befall the first host, except stalls and
// damage.
type scenario struct {
	name    string
	rounds  [both]int
	stalls  int           // number of stalls, in all
	items   uint          // items that may stall: a bit for each item of both hosts; 0: all
	crashes int           // number of processes that end at any time
	rejoins int           // number of rejoins of hosts whose lease or process is over
	resumes int           // number of processes that are followed by one with their state file
	torn    int           // number of slots that a crash may leave unreadable
	record  int           // number of host records that become unreadable at any time, for good
	of      uint          // hosts whose record may: a bit for each; 0: both
	looks   int           // number of looks for other hosts, by holders; stalls then begin during a look
	left    bool          // the first host has left, and can only join again
	after   time.Duration // fence-after, with policy fence; 0: policy lease
	glue    func(*glue)
	want    string // the kind of fault that the mutation must cause
}

func (sc *scenario) policy() layout.Policy {
	if sc.after > 0 {
		return layout.PolicyFence
	}
	return layout.PolicyLease
}

// sector is a slot on the disk: a read that overlaps a write returns the old contents, the new
// ones, or garbage.
type sector struct {
	now, next bakery.View
	writing   bool
}

func (s *sector) outcomes() []bakery.View {
	if !s.writing {
		return []bakery.View{s.now}
	}
	return []bakery.View{s.now, s.next, {}}
}

// host is one host: its lease, the IO of that, and its part in the lock.
type host struct {
	lm   *lease.Machine
	made int  // incarnations so far
	down bool // its process is gone

	wake    time.Duration // 0: not requested
	reading bool
	sampled bool
	asked   time.Duration // time of the request for the read
	view    [both]lease.Record
	read    [both]time.Duration // time of the request for the last read of a record that showed it
	writing bool
	landed  bool
	refused bool
	record  layout.HostRecord
	terms   [2]lease.Term // first and present contents of the state file
	left    uint64        // an incarnation that ended cleanly

	bm         *bakery.Machine // nil: not live
	rounds     int
	act        bakery.Action
	begun      bool          // its IO has begun
	looking    bool          // a holder's host reads the slots
	slotsEnded time.Duration // end of the last read of the slots
	hostsAt    time.Duration
	judgedAt   time.Duration
	views      [both]bakery.View
	polls      uint8         // number in this tick
	note       layout.Ticket // contents of the state file
	inside     bool          // a holder was notified, and has not released the lock
	token      layout.Ticket
	until      time.Duration // latest deadline that a holder of a lease that is over knows
	unclaimed  bool          // resumed without a holder: the client may be gone
}

type machines struct {
	lm *lease.Machine
	bm *bakery.Machine
}

type world struct {
	sc      *scenario
	g       *glue
	now     time.Duration
	micro   time.Duration // number of requests in this tick
	records [both]layout.HostRecord
	bad     [both]bool // the record stays unreadable
	cut     [both]bool // the host was fenced: its writes are refused until it joins again
	slots   [both]sector
	hosts   [both]host

	stalled                                                uint32
	stalls, crashes, rejoins, resumes, torn, damage, looks int

	granted layout.Ticket
	fault   string
	making  *int // number of incarnations of the host that moves
	spare   *spares
	own     [both]machines // those that no other world shares
}

// Items of a host that may be stalled. The others run without a pause: the lease's part in one
// move.
const (
	itemProcess     = iota
	itemReadTable   // before the records are read
	itemKnowTable   // before that read returns
	itemWriteRecord // before the record lands
	itemKnowRecord  // before that write returns
	itemReadSlot
	itemWriteSlot
	items
)

func (w *world) isStalled(i, item int) bool { return w.stalled&(1<<(i*items+item)) != 0 }

func newWorld(sc *scenario) *world {
	g := sound(sc.policy())
	if sc.glue != nil {
		sc.glue(&g)
	}
	w := &world{sc: sc, g: &g, now: origin, spare: &spares{}}
	for i := range w.hosts {
		w.records[i].ID = i + 1
		w.slots[i].now.Readable = true
		w.hosts[i].down = true
	}
	w.making = new(int)
	for i := range w.hosts { // both join, one after the other, without trouble
		w.join(i, nil)
		for !ready(w.hosts[i].lm) {
			w.calmly()
		}
	}
	if sc.left {
		w.tell(0, w.hosts[0].lm.Leave)
	}
	for until := w.now + (longAgo+4)*tick; w.now < until; { // until the time of joining makes no difference
		w.calmly()
	}
	for i := range w.hosts {
		w.hosts[i].rounds = sc.rounds[i]
	}
	w.stalls, w.crashes, w.rejoins, w.resumes = sc.stalls, sc.crashes, sc.rejoins, sc.resumes
	w.torn, w.damage, w.looks = sc.torn, sc.record, sc.looks
	return w
}

// calmly makes the first move that is due, or advances time.
func (w *world) calmly() {
	before, moved := *w, false
	before.expand(func(c *world, _ int, _ string) {
		if !moved {
			moved, *w = true, *c
		}
	})
}

// spares are worlds and machines for reuse: most moves lead to a world that was seen before.
type spares struct {
	worlds []*world
	leases []*lease.Machine
	locks  []*bakery.Machine
}

// clone returns a copy in which some hosts may move; the machines of the others are shared.
func (w *world) clone(moving ...int) *world {
	c := take(&w.spare.worlds)
	*c = *w
	c.own = [both]machines{}
	for _, i := range moving {
		h, own := &c.hosts[i], &c.own[i]
		if h.lm != nil {
			own.lm = take(&w.spare.leases)
			copyLease(own.lm, h.lm)
			h.lm = own.lm
		}
		if h.bm != nil {
			own.bm = take(&w.spare.locks)
			copyBakery(own.bm, h.bm)
			h.bm = own.bm
		}
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

// drop recycles a clone that is not needed, with the machines that moved unless other worlds
// share them.
func (w *world) drop(shared bool) {
	for _, own := range w.own {
		if own.lm != nil && !shared {
			w.spare.leases = append(w.spare.leases, own.lm)
		}
		if own.bm != nil && !shared {
			w.spare.locks = append(w.spare.locks, own.bm)
		}
	}
	w.spare.worlds = append(w.spare.worlds, w)
}

// stamp returns a time in this tick that is later than those before.
func (w *world) stamp() time.Duration {
	w.micro++
	return w.now + w.micro
}

func (w *world) failf(format string, args ...any) {
	if w.fault == "" && strings.HasPrefix(format, w.sc.want) {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// join starts a lease's machine.
func (w *world) join(i int, resume *lease.Term) {
	h := &w.hosts[i]
	making := w.making
	cfg := lease.Config{
		ID: i + 1, Hosts: both, Times: timing.Times{Lease: length, FenceAfter: w.sc.after}, Policy: w.sc.policy(), Resume: resume,
		Self:        layout.HostRecord{MachineID: [16]byte{byte(i + 1)}},
		Incarnation: func() uint64 { *making++; return uint64(*making) },
	}
	if h.left != 0 {
		cfg.Left = []uint64{h.left}
	}
	lm := lease.New(cfg)
	w.cut[i] = false
	h.lm, h.down, h.reading, h.sampled, h.read = lm, false, false, false, [both]time.Duration{}
	w.tell(i, lm.Start)
}

// tell gives an event to a host's lease, and carries out its actions.
func (w *world) tell(i int, event func(now time.Duration) []lease.Action) {
	h := &w.hosts[i]
	*w.making = 20*i + h.made
	actions := event(w.now)
	h.made = *w.making - 20*i
	h.wake = 0
	var fenced *lease.Fence
	for _, a := range actions {
		switch a := a.(type) {
		case lease.ReadTable:
			h.reading, h.sampled, h.asked = true, false, w.stamp()
		case lease.Write:
			h.writing, h.landed, h.refused, h.record = true, false, false, a.Record
		case lease.Wait:
			h.wake = a.Until
		case lease.Fence:
			fenced = &a
		case lease.Joined:
			w.joined(i, a.Resumed)
		case lease.Lost:
			h.left = a.Incarnation
			w.ended(i)
		case lease.Left:
			h.left = a.Incarnation
			w.ended(i)
		case lease.Refused:
			w.ended(i)
		}
	}
	if term, ok := h.lm.Term(); ok {
		if h.terms[0].Incarnation != term.Incarnation {
			h.terms[0] = term
		}
		h.terms[1] = term
	}
	if h.bm != nil {
		w.goOn(i)
	}
	if fenced != nil {
		w.fence(i, *fenced)
	}
}

// fence cuts a host off, with what it is writing, and confirms that.
func (w *world) fence(by int, f lease.Fence) {
	i := f.Host - 1
	if w.hosts[i].lm.Incarnation() == f.Incarnation {
		w.cut[i] = true
		w.slots[i].next, w.slots[i].writing = bakery.View{}, false
	}
	w.tell(by, func(now time.Duration) []lease.Action { return w.hosts[by].lm.Fenced(now, f.Host, f.Incarnation) })
}

// joined starts the lock's machine of a live host.
func (w *world) joined(i int, resumed bool) {
	h := &w.hosts[i]
	h.bm = bakery.New(bakery.Config{Host: i + 1, Incarnation: h.lm.Incarnation(), Creation: 1, Permits: 1})
	h.act, h.begun, h.views, h.unclaimed = bakery.Action{}, false, [both]bakery.View{}, false
	h.slotsEnded, h.hostsAt, h.judgedAt = 0, 0, 0
	w.checkVoid(1 - i)
	own := w.slots[i].now
	slot := own.Slot
	note := h.note
	h.note = 0
	if !resumed {
		return
	}
	entered := note != 0 && note == slot.Ticket
	switch {
	case !own.Readable && note == 0:
		return
	case !own.Readable:
		slot = bakery.Slot{Incarnation: h.lm.Incarnation(), Creation: 1, Ticket: note, Phase: layout.Held}
		entered = true
	case slot.Incarnation != h.lm.Incarnation() || slot.Phase == layout.Idle:
		return
	}
	if entered {
		h.note = slot.Ticket
	}
	h.unclaimed = !h.inside || !entered
	w.took(i, h.bm.Resume(slot, entered))
}

// ended ends a host's part in the lock. Its holder may be up until the deadline that it knows.
func (w *world) ended(i int) {
	h := &w.hosts[i]
	if h.inside {
		h.until = max(h.until, h.lm.Deadline())
	}
	h.bm, h.act, h.begun, h.looking, h.unclaimed = nil, bakery.Action{}, false, false, false
}

// may returns until when a holder of the host may be up; 0: there is none.
func (h *host) may() time.Duration {
	if !h.inside {
		return 0
	}
	if h.bm != nil && h.act.Kind == bakery.Granted {
		return max(h.until, h.lm.Deadline())
	}
	return h.until
}

// took continues after a host's lock machine has returned its next action.
func (w *world) took(i int, a bakery.Action) {
	h := &w.hosts[i]
	h.act, h.begun = a, false
	switch a.Kind {
	case bakery.ReadHosts:
		h.hostsAt = w.stamp()
		if w.g.oldTable {
			h.hostsAt = 1
		}
		w.tell(i, h.lm.Refresh)
	case bakery.ReadDirectory:
		w.took(i, h.bm.DirectoryRead(1))
	case bakery.Done:
		h.act, h.note, h.unclaimed = bakery.Action{}, 0, false
	default:
		w.goOn(i)
	}
}

// goOn begins the IO of a host's lock machine, if its lease allows that.
func (w *world) goOn(i int) {
	h := &w.hosts[i]
	if h.begun || h.act.Kind != bakery.Write && h.act.Kind != bakery.Read || !w.g.mayWrite(h.lm, w.now) {
		return
	}
	h.begun = true
	if h.act.Kind == bakery.Read {
		h.views, h.slotsEnded = [both]bakery.View{}, 0 // until it ends
		w.beginRead(i)
		return
	}
	if !h.lm.Live(w.now) {
		w.failf("LAST-CALL: host %d writes its slot after its lease", i+1)
	}
	if w.cut[i] {
		return // it is refused
	}
	s := &w.slots[i]
	s.next, s.writing = bakery.View{Slot: h.act.Slot, Readable: true}, true
}

// known returns a host's view of the hosts, with the times at which reads were requested.
func (h *host) known() []lease.Host {
	known := h.lm.Hosts()
	for j := range known {
		known[j].Read = h.read[j]
	}
	return known
}

// final reports whether every host that is up has finished.
func (w *world) final() bool {
	for i := range w.hosts {
		h := &w.hosts[i]
		over := h.down || h.lm.Over() && w.rejoins == 0
		if !over && !w.bad[i] && (h.rounds > 0 || h.act.Kind != 0 || h.bm == nil) {
			return false
		}
	}
	return true
}

func (w *world) advance() {
	w.now += tick
	w.micro = 0
	for i := range w.hosts {
		h := &w.hosts[i]
		h.polls = 0
		if h.inside && h.may() <= w.now && !(h.bm != nil && h.lm.Live(w.now)) {
			h.inside, h.until = false, 0
		}
	}
}

// key appends everything that the world's future depends on.
func (w *world) key(k *keyer) {
	*k = keyer{now: w.now, b: k.b[:0]}
	for i := range w.hosts {
		h := &w.hosts[i]
		k.knows(w.records[i])
		k.knows(*leaseOwn(h.lm))
		if h.writing {
			k.knows(h.record)
		}
	}
	for i := range w.hosts {
		appendRecord(k, unsafe.Pointer(&w.records[i]))
		s := &w.slots[i]
		appendView(k, unsafe.Pointer(&s.now))
		k.bits(w.bad[i], w.cut[i], s.writing)
		if s.writing {
			appendView(k, unsafe.Pointer(&s.next))
		}
		w.hosts[i].key(k)
	}
	k.b = append(k.b, byte(w.stalled), byte(w.stalled>>8), byte(w.stalls), byte(w.crashes), byte(w.rejoins), byte(w.resumes),
		byte(w.torn), byte(w.damage), byte(w.looks), bit(w.fault != ""), byte(w.granted.Host()))
	k.b = binary.AppendUvarint(k.b, w.granted.Number())
}

func (h *host) key(k *keyer) {
	over := h.lm.Over() || h.down
	k.bits(h.down, h.lm.Over(), h.reading, h.sampled, h.writing, h.landed, h.bm != nil, h.begun)
	k.bits(h.inside, h.unclaimed, h.looking, h.writing && h.refused)
	k.b = append(k.b, byte(h.made), byte(h.rounds), byte(h.act.Kind), byte(h.act.Host), h.polls, byte(h.left),
		byte(h.note.Host()), byte(h.token.Host()))
	k.b = binary.AppendUvarint(binary.AppendUvarint(k.b, h.note.Number()), h.token.Number())
	k.moment(h.wake)
	k.moment(h.until)
	if h.writing {
		appendRecord(k, unsafe.Pointer(&h.record))
	}
	appendTerm(k, unsafe.Pointer(&h.terms[0]))
	appendTerm(k, unsafe.Pointer(&h.terms[1]))
	if over {
		return
	}
	k.keyLease(h.lm, h.reading)
	if h.sampled {
		for j := range h.view {
			appendRecord(k, unsafe.Pointer(&h.view[j].HostRecord))
			k.bits(h.view[j].Err != nil)
		}
	}
	if h.bm == nil {
		return
	}
	k.keyBakery(h)
}

func (k *keyer) keyBakery(h *host) {
	appendBakery(k, unsafe.Pointer(h.bm))
	// Views and times of the last read of the slots count until the next one.
	judges := h.act.Kind == bakery.Poll || h.act.Kind == bakery.ReadHosts
	if judges || h.rounds > 0 {
		for j := range h.views {
			appendView(k, unsafe.Pointer(&h.views[j]))
		}
	}
	// Of the times at which reads were requested, only the order counts.
	asked := h.asked
	if !h.reading {
		asked = 0
	}
	for _, at := range []time.Duration{h.read[0], h.read[1], asked} {
		k.bits(at > h.slotsEnded && (judges || h.rounds > 0 || h.looking), at > h.judgedAt && h.act.Kind == bakery.Poll,
			at >= h.hostsAt && h.act.Kind == bakery.ReadHosts)
	}
}
