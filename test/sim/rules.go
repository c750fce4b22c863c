package sim

import (
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon"
	"github.com/bakeryd/bakeryd/daemon/locks"
	"github.com/bakeryd/bakeryd/layout"
)

// rules checks the promises of the lockspace from outside: what clients are told, and what hosts
// write to the disk.
type rules struct {
	w      *world
	failed []string // violations, in order

	leases   map[uint64]*term // by incarnation
	current  map[*process]*term
	holds    []*hold
	last     map[string]layout.Ticket // greatest token granted, by lock
	doorways map[[2]int]*doorway      // by lock and host
	copies   map[writer]*copies       // of records on several disks
	values   map[string]*value
	histories
	servedBy    map[*machine]bool
	evictedLive map[uint64]bool // live incarnations that the operator has evicted
	cut         map[uint64]bool // incarnations that were fenced before their lease was over
	ahead       time.Duration   // greatest lead of a clock so far
	apart       bool            // clocks differ so much that a ticket can hide above all readable ones
	hidden      map[layout.Ticket]bool
	wentBack    map[string]bool // locks whose tokens went back because of that
	kept        bool            // hosts must not lose their leases
	wronged     bool            // a live host was declared dead: histories are not checked
}

// hiddenSpan is how far an unreadable ticket may be above all readable ones: bakery/PROTOCOL.md,
// Unreadable slots.
const hiddenSpan = 1 << 24 * 256 * time.Microsecond

// clocksStand notes whether clocks differ by more than hiddenSpan. From then on an unreadable
// ticket of a lost host may be the greatest by far, and later ones may be smaller: a limit that the
// protocol states.
func (r *rules) clocksStand(all []*machine) {
	least, most := time.Duration(0), time.Duration(0)
	for _, m := range all {
		least, most = min(least, m.skew), max(most, m.skew)
	}
	r.apart = r.apart || most-least > hiddenSpan
	r.ahead = max(r.ahead, most)
}

// recordMayBeLost notes a record that becomes unreadable. A slot has the only copy of a ticket and
// of a value. A ticket above all clocks was drawn after an earlier loss: spans add up.
func (r *rules) recordMayBeLost(off int64, record []byte) {
	where := r.w.disk.sectorAt(off)
	if where.kind != slotSector {
		return
	}
	for _, v := range r.values {
		v.token = 0
	}
	s, err := r.w.sb.Space().DecodeSlot(record, where.lock, where.host)
	clock := bakery.ClockNumber(time.Now().Add(r.ahead), r.w.sb.Formatted)
	if t := s.Ticket; err == nil && (r.apart || t.Number() > clock) {
		r.hidden[t-t%layout.MaxGrants] = true
	}
}

// term is the lease of one incarnation, according to its writes on the disk.
type term struct {
	incarnation uint64
	m           *machine
	host        int
	live        bool
	deadline    time.Time
	joined      time.Time

	declaredDead bool // a verdict was published, or may be read in a write in flight
}

// hold is one hold as its holder knows it.
type hold struct {
	c       *client
	m       *machine
	p       *process
	lease   *term
	subject subject
	held    *locks.Hold
	mode    layout.Mode
	said    layout.Mode // as recorded in the history
	token   layout.Ticket
	obeys   bool // stops when asked
	began   time.Time
	open    bool
}

// doorway is a host's current doorway of a lock, as seen on the disk.
type doorway struct {
	inc     uint64
	phase   layout.Phase
	mode    layout.Mode
	began   time.Time // start of the last doorway: when its first write was submitted
	waiting time.Time // end of the last doorway; zero: the host is not waiting
	// the ticket of the host that last served its own clients meanwhile, and how many of them
	ticket layout.Ticket
	passed int
}

func newRules(w *world) *rules {
	return &rules{w: w, leases: map[uint64]*term{}, current: map[*process]*term{}, last: map[string]layout.Ticket{},
		doorways: map[[2]int]*doorway{}, copies: map[writer]*copies{}, values: map[string]*value{}, histories: histories{}, servedBy: map[*machine]bool{},
		evictedLive: map[uint64]bool{}, cut: map[uint64]bool{}, hidden: map[layout.Ticket]bool{}, wentBack: map[string]bool{}}
}

func (r *rules) violate(rule, format string, args ...any) {
	text := rule + ": " + fmt.Sprintf(format, args...)
	r.w.trace.step(0, "VIOLATION "+text)
	r.failed = append(r.failed, fmt.Sprintf("at %.6f: %s", time.Since(r.w.trace.began).Seconds(), text))
	if len(r.failed) == 1 {
		r.w.dump()
	}
	r.w.stop()
}

// runsOut returns until when a hold counts: its holder is stopped by then.
func (h *hold) runsOut() time.Time { return h.lease.deadline }

// counts reports whether the hold excludes others. An operator that declares a silent host dead
// must be right: otherwise other hosts do not wait for its lease.
func (r *rules) counts(h *hold, now time.Time) bool {
	return h.open && now.Before(h.runsOut()) && !r.wrong(h.lease)
}

// wrong reports whether the operator, or a host with fence-after, has declared a live incarnation dead. After
// a fence it counts as long as its machine can write.
func (r *rules) wrong(l *term) bool {
	evicted, cut := r.evictedLive[l.incarnation], r.cut[l.incarnation]
	if !evicted && !cut || !l.declaredDead {
		return false
	}
	r.wronged = true
	return evicted || r.w.disk.refuses(l.m)
}

// enter checks a grant at the moment that its client learns of it.
func (r *rules) enter(c *client, s subject, held *locks.Hold, asked int64) *hold {
	now := time.Now()
	h := &hold{c: c, m: c.m, p: c.p, lease: r.current[c.p], subject: s, held: held, mode: held.Mode(), token: held.Token(),
		began: now, open: true, obeys: c.rng.IntN(2) == 0}
	r.w.trace.step(c.m.n, "enters "+s.name+" "+h.mode.String(), int64(h.token))
	r.w.count("section")
	if h.lease == nil && !c.p.alive { // it ended after it had sent the grant
		h.lease = c.p.last
	}
	if h.lease == nil {
		r.violate("DEADLINE", "m%d was granted %s without a lease", c.m.n, s.name)
		h.lease = &term{m: c.m}
		return h
	}
	if !now.Before(h.lease.deadline) {
		r.violate("DEADLINE", "m%d was granted %s %v after its lease was over", c.m.n, s.name, now.Sub(h.lease.deadline))
	}
	if r.wrong(h.lease) {
		if !r.evictedLive[h.lease.incarnation] {
			r.violate("SURE", "m%d was granted %s after it was fenced and declared dead", c.m.n, s.name)
		}
		return h
	}
	if s.permits == 1 {
		if before := r.last[s.name]; h.mode == layout.Exclusive && h.token <= before && r.hidden[before-before%layout.MaxGrants] {
			r.last[s.name], r.wentBack[s.name] = 0, true // from here on they must grow again
			r.w.count("a ticket was hidden too far above")
		} else if h.mode == layout.Exclusive && h.token <= before {
			r.violate("TOKEN", "m%d was granted %s with token %d after %d", c.m.n, s.name, h.token, r.last[s.name])
		}
		r.last[s.name] = max(r.last[s.name], h.token)
		if uint64(h.token)%layout.MaxGrants == 0 { // otherwise a hand-off within the host
			r.order(h)
			r.verdict(h)
		} else if h.mode == layout.Exclusive {
			r.bound(h)
		}
	}
	r.exclusion(h, now)
	r.granted(h, asked)
	r.holds = append(r.holds, h)
	return h
}

// exclusion checks a hold against all others of the lock.
func (r *rules) exclusion(h *hold, now time.Time) {
	writers, readers := 0, 0
	count := func(o *hold) {
		if o.mode == layout.Exclusive {
			writers++
		} else {
			readers++
		}
	}
	count(h)
	for _, o := range r.holds {
		if o != h && o.subject.name == h.subject.name && r.counts(o, now) {
			count(o)
		}
	}
	if writers > h.subject.permits || writers > 0 && readers > 0 {
		r.violate("EXCLUSION", "m%d is inside %s (%v, token %d) with %v", h.m.n, h.subject.name, h.mode, h.token, r.others(h, now))
	}
	for _, o := range r.holds {
		conflicts := o != h && h.subject.permits == 1 && (o.mode == layout.Exclusive || h.mode == layout.Exclusive)
		if o.open && o.subject.name == h.subject.name && conflicts && !now.Before(o.runsOut()) && o.m.up && !o.m.paused && o.p.alive &&
			o.held.Err() == nil {
			r.violate("WORD", "m%d still thinks that it holds %s (token %d), which m%d was granted", o.m.n, o.subject.name, o.token, h.m.n)
		}
	}
}

func (r *rules) others(h *hold, now time.Time) (list []string) {
	for _, o := range r.holds {
		if o != h && o.subject.name == h.subject.name && r.counts(o, now) {
			list = append(list, fmt.Sprintf("m%d (%v, token %d, inside for %v, lease for %v)", o.m.n, o.mode, o.token,
				now.Sub(o.began), o.runsOut().Sub(now)))
		}
	}
	return list
}

// order checks that this host did not overtake one that finished its doorway before this one began.
func (r *rules) order(h *hold) {
	now, host := time.Now(), h.lease.host
	e, ok := r.lockOf(h)
	lock := e.Lock
	if !ok {
		return
	}
	mine := r.doorways[[2]int{lock, host}]
	if mine == nil {
		return
	}
	for id := 1; id <= r.w.sb.Geometry.Hosts; id++ {
		o := r.doorways[[2]int{lock, id}]
		if id == host || o == nil || o.waiting.IsZero() || !o.waiting.Before(mine.began) || o.mode == layout.Shared && h.mode == layout.Shared {
			continue
		}
		l := r.leases[o.inc]
		if l == nil || !l.live || !now.Before(l.deadline) || !r.waits(l) || l.declaredDead {
			continue
		}
		r.violate("ORDER", "m%d has %s (%v), whose doorway began %v after the end of that of host %d (%v)", h.m.n, h.subject.name, h.mode,
			mine.began.Sub(o.waiting), id, o.mode)
	}
}

// bound checks that a host does not serve one of its clients after another from one ticket while
// another host waits. A client may have been granted the lock before that, and learn of it after.
func (r *rules) bound(h *hold) {
	const most = 8 + 1 // as daemon.Config.Handoff is by default
	r.w.count("local grant")
	e, ok := r.lockOf(h)
	for id := 1; ok && id <= r.w.sb.Geometry.Hosts; id++ {
		o := r.doorways[[2]int{e.Lock, id}]
		if id == h.lease.host || o == nil || o.waiting.IsZero() {
			continue
		}
		if l := r.leases[o.inc]; l == nil || !l.live || !time.Now().Before(l.deadline) || !r.waits(l) || l.declaredDead {
			continue
		}
		if ticket := h.token - h.token%layout.MaxGrants; ticket != o.ticket {
			o.ticket, o.passed = ticket, 0
		}
		if o.passed++; o.passed > most {
			r.violate("BOUND", "m%d serves %d of its clients (%s, token %d) while host %d waits", h.m.n, o.passed, h.subject.name, h.token, id)
		}
	}
}

// verdict checks that a host was declared dead, in a record, before another host passed its slot.
func (r *rules) verdict(h *hold) {
	e, ok := r.lockOf(h)
	lock := e.Lock
	if !ok {
		return
	}
	g, space := r.w.sb.Geometry, r.w.sb.Space()
	for id := 1; id <= g.Hosts; id++ {
		s, err := space.DecodeSlot(r.w.disk.record(g.Slot(lock, id)), lock, id)
		ahead := err == nil && (s.Phase == layout.Waiting || s.Phase == layout.Held) && s.Creation == e.Creation && s.Ticket < h.token &&
			(s.Mode == layout.Exclusive || h.mode == layout.Exclusive)
		rec, err := space.DecodeHost(r.w.disk.record(g.Host(id)), id)
		under := r.w.disk.seemsWritten(g.Slot(lock, id)) || r.w.disk.seemsWritten(g.Host(id))
		if !ahead || under || id == h.lease.host || err != nil || rec.Incarnation != s.Incarnation || rec.State == layout.StateLeft {
			continue
		}
		if l := r.leases[s.Incarnation]; l != nil && !l.declaredDead {
			r.violate("VERDICT", "m%d went past host %d, which has a %v slot in %s: no verdict on it is published", h.m.n, id, s.Phase, h.subject.name)
		}
	}
}

// runs reports whether a bakeryd with a lease is alive.
func (r *rules) runs(l *term) bool {
	for p, x := range r.current {
		if x == l && p.alive {
			return true
		}
	}
	return false
}

// waits reports whether its clients wait: not once it has lost the lease, for example by a verdict.
func (r *rules) waits(l *term) bool {
	for p, x := range r.current {
		if x == l && p.alive && !lost(p) {
			return true
		}
	}
	return false
}

// lockOf returns the slots in which a ticket was drawn: the name may have had others.
func (r *rules) lockOf(h *hold) (layout.Entry, bool) {
	for lock := 1; lock <= r.w.sb.Geometry.Locks; lock++ {
		if d := r.doorways[[2]int{lock, h.lease.host}]; d != nil && d.inc == h.lease.incarnation && d.phase != layout.Idle {
			e, err := r.w.sb.Space().DecodeEntry(r.w.disk.record(r.w.sb.Geometry.Entry(lock)), lock)
			if err == nil && e.Name == h.subject.name {
				return e, true
			}
		}
	}
	return layout.Entry{}, false
}

// mode records a change of a hold's mode.
func (r *rules) mode(h *hold, mode layout.Mode) {
	h.mode = mode
	r.w.trace.step(h.m.n, "changes to "+mode.String()+" "+h.subject.name)
	if mode == layout.Exclusive && h.open {
		if !time.Now().Before(h.runsOut()) {
			return
		}
		r.exclusion(h, time.Now())
	}
	r.changed(h, mode)
}

// leave records that a holder has stopped by itself.
func (r *rules) leave(h *hold) { r.close(h, "leaves ") }

func (r *rules) close(h *hold, how string) {
	if !h.open {
		return
	}
	h.open = false
	r.w.trace.step(h.m.n, how+h.subject.name, int64(h.token))
	r.released(h)
	kept := r.holds[:0]
	for _, o := range r.holds {
		if o != h {
			kept = append(kept, o)
		}
	}
	r.holds = kept
}

// joined records the start of a term.
func (r *rules) joined(p *process, d *daemon.Host) {
	for _, l := range r.leases {
		if l.m == p.m && l.live && l.host == d.HostID() && (r.current[p] == nil || l.joined.After(r.current[p].joined)) {
			r.current[p] = l
		}
	}
	if r.current[p] == nil {
		r.violate("DEADLINE", "m%d has joined, but no record says so", p.m.n)
	}
}

// died records the end of a process and of its mortal clients.
func (r *rules) died(p *process) {
	for _, h := range append([]*hold(nil), r.holds...) {
		if h.p == p && h.c.mortal {
			r.close(h, "dies inside ")
		}
	}
}

// off records the end of a machine and of all its clients.
func (r *rules) off(m *machine) {
	for _, h := range append([]*hold(nil), r.holds...) {
		if h.m == m {
			r.close(h, "dies inside ")
		}
	}
}

// ended records that the service has returned.
func (r *rules) ended(p *process) {
	p.last = r.current[p]
	delete(r.current, p)
}

// served records that a host has had every lock after the faults.
func (r *rules) served(m *machine) {
	r.w.trace.step(m.n, "was served")
	r.servedBy[m] = true
}
