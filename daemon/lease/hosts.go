package lease

import (
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// ErrZeroed is the error of a record that was there, and reads as if it had never been written.
var ErrZeroed = errors.New("the record is all zeroes, and was not before")

// Host is what is known of a host from its record and from the verdicts of others.
type Host struct {
	Readable    bool             // by the last read that covered it; if not, the rest is of an earlier one
	Incarnation uint64           // 0 for a record never written
	State       layout.HostState // virgin also if it was never readable
	Sequence    uint64
	Name        string
	Highest     int
	PRKey       uint64
	Watchdog    time.Duration // by how much it may outlive its lease until its watchdog has stopped it; 0: not armed
	Gone        bool          // the incarnation left, or is declared dead; or there never was one
	Forgotten   bool          // it is declared dead, and its id free for another machine
	Settled     bool          // every other incarnation of this id is over
	Read        time.Duration // when the last read of it was asked for: it was begun then or later
	Since       time.Duration // since when its incarnation, state and sequence stand as they do, as far as seen

	// Ended are incarnations of this id that are known to be over, whatever the record shows now: the last few.
	Ended []uint64
	// Abandoned says that the record was unreadable in every read for so long that no incarnation of this id is live:
	// an owner would have written it, or lost its lease (ABANDONED). It speaks of a slot only if Looked is after the read
	// of that slot.
	Abandoned bool
	Looked    time.Duration // when the last read that covered it was asked for, readable or not
	Damaged   time.Duration // if not Readable: since when every read has found it so

	earlier []uint64 // incarnations that were live, are not known to be over, and whose record another has overwritten

	base  time.Duration // when the read was asked for that the steps are counted from
	steps int           // how often it renewed since
	dog   time.Duration // the greatest Watchdog seen of this id, of whatever incarnation
	turns int64         // how many windows for fencing it have passed or were told
}

// DeadAt returns when the host is dead if it stays silent: its lease, and what its watchdog takes, have run out since
// its record was first seen as it stands. If the record is damaged, its host may have renewed its lease just before.
func (h Host) DeadAt(t Times) time.Duration {
	if !h.Readable {
		return h.Damaged + t.Blind() + h.dog
	}
	return h.Since + t.Dead() + h.Watchdog
}

// Overdue reports whether a live host is silent, or its record unreadable, for longer than that of any host that keeps
// its lease without trouble.
func (h Host) Overdue(t Times) bool {
	return h.State == layout.StateLive && !h.Gone && (h.Read-h.Since > t.Alive() || h.damagedFor() > t.Alive())
}

// damagedFor returns for how long every read has found the record unreadable.
func (h Host) damagedFor() time.Duration {
	if h.Readable {
		return 0
	}
	return h.Looked - h.Damaged
}

// Void says whether what an incarnation wrote counts for nothing any more (VOID). It speaks of a slot only if Read
// is after the read of that slot.
func (h Host) Void(incarnation uint64) bool {
	if incarnation == h.Incarnation {
		return h.Gone
	}
	return h.Settled
}

// Over reports whether an incarnation of this id is known to be over. It stays so, whatever is read later.
func (h Host) Over(incarnation uint64) bool {
	return incarnation == h.Incarnation && h.Gone || slices.Contains(h.Ended, incarnation)
}

// Hosts returns what is known of hosts 1..Highest, in order, from the reads that returned so far. Those beyond were
// virgin when they were last read.
func (m *Machine) Hosts() []Host { return append([]Host(nil), m.found()...) }

// Host returns what is known of a host.
func (m *Machine) Host(id int) Host { return m.hosts[id-1] }

// observe takes in a read of the table. Of records that it did not cover nothing is concluded.
func (m *Machine) observe(records []Record) {
	for i, r := range records {
		// No record becomes virgin again but by a format, which has another uuid: its sector was zeroed. To believe it would
		// void at once what its host holds, which writes it anew. (The own one ends the lease: see disowned.)
		if h := m.hosts[i]; r.Err == nil && r.Blank() && i+1 != m.id && h.Incarnation != 0 && !h.Gone {
			records[i].Err = ErrZeroed
		}
	}
	m.find(records)
	for i, r := range records {
		h := &m.hosts[i]
		m.damage(h, r.Err != nil)
		if h.Readable {
			written := r.Incarnation != h.Incarnation || r.Sequence != h.Sequence
			m.see(h, r)
			if written && i+1 != m.id {
				m.overhear(r)
			}
		}
	}
	for i, r := range records {
		if r.Err == nil && !(i+1 == m.id && r.Incarnation == m.own.Incarnation) { // the own ones count when durable
			m.hear(i+1, r)
		}
	}
	if m.mutation == assumed {
		for i := len(records); i < len(m.hosts); i++ {
			m.hosts[i].Readable, m.hosts[i].Read, m.hosts[i].Looked = true, m.readAt, m.readAt
		}
	}
}

// damage takes in whether a record is unreadable. Only an unbroken span of such reads counts: one read may have met a
// write, and between two that lie far apart the owner may have repaired it and renewed its lease.
func (m *Machine) damage(h *Host, unreadable bool) {
	if unreadable && (h.Readable || h.Damaged == 0 || m.readAt-h.Looked > m.t.Alive() && m.mutation != sparse) {
		h.Damaged = m.now
	}
	if !unreadable {
		h.Damaged = 0
	}
	h.Readable, h.Looked = !unreadable, m.readAt
	h.Abandoned = h.damagedFor() >= m.abandonedAfter(h)
}

// abandonedAfter returns for how long a record must be unreadable until its id is abandoned. What is known of the id's
// watchdog is no bound: another incarnation may have taken the id before the record was damaged.
func (m *Machine) abandonedAfter(h *Host) time.Duration {
	switch m.mutation {
	case abandonedEarly:
		return m.t.Dead() / 2
	case noWatchdog:
		return m.t.Blind()
	}
	return m.t.Blind() + max(m.t.MaxWatchdog(), h.dog)
}

// end notes that an incarnation is over.
func (h *Host) end(incarnation uint64) { h.Ended = remember(h.Ended, incarnation) }

// remembered is how many incarnations of an id are remembered.
const remembered = 8

// remember returns a list with one more incarnation, without changing the list: the callers of Hosts have it too.
func remember(list []uint64, incarnation uint64) []uint64 {
	if incarnation == 0 || slices.Contains(list, incarnation) {
		return list
	}
	return append(slices.Clone(list[max(0, len(list)+1-remembered):]), incarnation)
}

// settle notes that every other incarnation of the id is over. Those that were live stay so. One that was not live may
// go live yet, if a late write of its claim lands again: it is void only as far as slots were read before (VOID).
func (h *Host) settle() {
	h.Settled = true
	for _, x := range h.earlier {
		if x != h.Incarnation {
			h.end(x)
		}
	}
	h.earlier = nil
}

// see takes in one record.
//
// An incarnation is settled when it is seen to renew twice within a lease: the second of these writes was made with
// the first acknowledged under a lease that ran, and whoever else might have the id needs longer than that to
// take it. One renewal is not enough: it may have hung and landed late, on top of a successor. Or when
// its record stood still for L + margin: whoever was overwritten by it has found out by then.
func (m *Machine) see(h *Host, r Record) {
	switch {
	case r.Blank():
		h.Gone, h.Settled = true, true
		if h.Incarnation != 0 { // zeroed after its end: the verdict on it stays, for who has yet to hear of that (ErrZeroed)
			h.Read = m.readAt
			return
		}
	case r.Incarnation != h.Incarnation:
		if h.State == layout.StateLive && !h.Gone || m.mutation == endedJoiner {
			h.earlier = remember(h.earlier, h.Incarnation)
		}
		h.Gone, h.Forgotten, h.Settled = false, false, false
		h.base, h.steps, h.Since, h.turns = m.readAt, 0, m.now, 0
	case r.Sequence != h.Sequence || r.State != h.State:
		m.stepped(h, r)
		h.Since, h.turns = m.now, 0
	case m.readAt-h.Since >= m.t.Dead()+h.dog:
		h.settle()
	}
	if m.mutation == sinceAsked && h.Since == m.now {
		h.Since = m.readAt
	}
	h.Incarnation, h.State, h.Sequence = r.Incarnation, r.State, r.Sequence
	h.Name, h.Highest, h.PRKey, h.Read = r.Name, r.ReadHorizon, r.PRKey, m.readAt
	h.Watchdog = 0
	if r.WatchdogArmed && m.mutation != noWatchdog {
		h.Watchdog = time.Duration(r.WatchdogSeconds) * time.Second
	}
	h.dog = max(h.dog, h.Watchdog)
	if r.State == layout.StateLeft || h.Gone {
		h.Gone = true
		h.end(h.Incarnation)
	}
}

// stepped takes in that an incarnation wrote its record again.
func (m *Machine) stepped(h *Host, r Record) {
	late := m.now-h.Since >= m.t.Lease // its lease was over: perhaps a write that hung
	switch {
	case late || r.Sequence < h.Sequence:
		h.Settled, h.base, h.steps = false, m.readAt, 0
	case h.State != layout.StateLive || r.State != layout.StateLive:
		h.base, h.steps = m.readAt, 0
	case m.now-h.base > m.t.Lease:
		h.base, h.steps = m.readAt, 0
	default:
		h.steps++
		if h.steps >= 2 {
			h.settle()
		}
	}
}

// covered says whether every other host's reads cover this one (COVERED). Each of two joiners has written its
// record before this read began, so one of them sees the other. Who has an id beyond what was read covers this one by
// having that. But a record may hide a live host that it has overwritten:
//
//   - One that says joining hides whoever was there before, until it is settled or says more.
//   - One that says live or left, by a host that was live, hides only who came after it and found at least as much
//     as it shows: no record becomes virgin again. So it is believed if it covers this host, and if it does not,
//     when it is settled.
//   - One that says left and shows no highest is by a host that was perhaps never live: it counts as joining.
//
// One that is unreadable hides whoever has the id, until no lease of it runs any more: see passes.
//
// One that says live and stands still until its lease is over need not cover this host, whatever the policy makes of its
// holders: it takes no tickets any more (FINAL), and whom it had overwritten is over too.
func (m *Machine) covered(records []Record) bool {
	for i, r := range records {
		h := m.hosts[i]
		switch {
		case i+1 == m.id:
		case r.Err != nil:
			if !m.passes(h) {
				return false
			}
		case r.Blank():
		case m.mutation == hidden:
			if !h.Gone && r.ReadHorizon < m.id {
				return false
			}
		case r.State == layout.StateJoining && m.mutation == coverSoon:
		case r.State == layout.StateJoining && !h.Settled:
			return false
		case r.State == layout.StateJoining && m.foundBy(h):
		case r.ReadHorizon < m.id && !(h.Settled && (h.Gone || h.State == layout.StateLive && m.still(h))):
			return false
		}
	}
	return true
}

// still says whether a host was seen to stand still for as long as a lease can run.
func (m *Machine) still(h Host) bool { return h.Read-h.Since >= m.t.Dead()+h.dog }

// passes reports whether an unreadable record hides no host that takes tickets and does not cover this one. None that was
// live has a lease (OWN-READABLE). One that joins later must read its own record first. That read is over within a
// budget, so that it began when the own record stood already.
func (m *Machine) passes(h Host) bool {
	found := m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen() || m.mutation == foundAlways
	return m.mutation == coverDamaged || found && h.damagedFor() >= m.t.Blind()
}

// foundBy says whether a joiner whose record stands still finds this host before it goes live, if it ever does: it
// looks once more for that, less than a budget before. Its look was not yet over when this read began, or came later;
// by then the own record had stood for longer than that.
func (m *Machine) foundBy(h Host) bool {
	still := h.Read-h.Since >= m.t.Dead()
	return still && m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen()
}
