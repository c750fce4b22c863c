package lease

import (
	"errors"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/members"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
	"github.com/bakeryd/bakeryd/layout"
)

// ErrZeroed is the error of a record that was written before, and is all zeroes now.
var ErrZeroed = errors.New("the record is all zeroes, and was not before")

// Host combines the record of a host and the verdicts of others on it.
type Host struct {
	Readable    bool             // in the last read that covered it; if not, the other fields are older
	Incarnation uint64           // 0 for a record never written
	State       layout.HostState // blank also if it was never readable
	Sequence    uint64
	Name        string
	ReadHorizon int
	PRKey       uint64
	Watchdog    time.Duration // how long after its lease its watchdog may take to stop it; 0: not armed
	Gone        bool          // the incarnation left or is declared dead, or there never was one
	Forgotten   bool          // it is declared dead, and its id is free for another machine
	Settled     bool          // every other incarnation of this id is over
	Read        time.Duration // time of the request for the last successful read, which began then or later
	Since       time.Duration // first time at which its present incarnation, state and sequence were seen

	// Ended lists the last incarnations of this id that are known to be over, whatever the record
	// shows now.
	Ended []uint64
	// Abandoned reports that the record was unreadable in every read for so long that no
	// incarnation of this id is live: an owner would have written it, or lost its lease
	// (ABANDONED). It applies to a slot only if Looked is after the read of that slot.
	Abandoned bool
	Looked    time.Duration // time of the request for the last read that covered it, readable or not
	Damaged   time.Duration // if not Readable: time from which on every read found it unreadable

	earlier []uint64 // live incarnations that were overwritten by another and are not known to be over

	base        time.Duration // time of the request for the read from which steps are counted; if Settled, for the last one that showed another record
	steps       int           // number of renewals since
	maxWatchdog time.Duration // greatest Watchdog of any incarnation of this id
	steady      time.Duration // time from which its silence counts, if it is silent since before (STEADY)
	window      time.Duration // with several members: time since which the same majority of copies stands still
	turns       int64         // number of fencing windows that have passed or were reported
}

// DeadAt returns when the host is dead if it stays silent: its lease and its watchdog's time have
// run out since its record was first seen in its present state. If the record is damaged, its
// host may have renewed its lease just before.
func (h Host) DeadAt(t timing.Times) time.Duration {
	if !h.Readable {
		return h.Damaged + t.Blind() + h.maxWatchdog
	}
	return max(h.still(), h.steady) + t.Silence(h.Watchdog)
}

// still returns the time since which the record stands still (PER-MEMBER).
func (h Host) still() time.Duration { return max(h.Since, h.window) }

// Overdue reports whether a live host has been silent, or its record unreadable, for longer than
// any host that keeps its lease without trouble.
func (h Host) Overdue(t timing.Times) bool {
	return h.State == layout.StateLive && !h.Gone && (h.Read-h.Since > t.Alive() || h.damagedFor() > t.Alive())
}

// damagedFor returns the time over which every read has found the record unreadable.
func (h Host) damagedFor() time.Duration {
	if h.Readable {
		return 0
	}
	return h.Looked - h.Damaged
}

// Void reports whether writes of an incarnation no longer count (VOID). It applies to a slot only
// if Read is after the read of that slot.
func (h Host) Void(incarnation uint64) bool {
	if incarnation == h.Incarnation {
		return h.Gone
	}
	return h.Settled
}

// Over reports whether an incarnation of this id is known to be over. Later reads do not change
// that.
func (h Host) Over(incarnation uint64) bool {
	return incarnation == h.Incarnation && h.Gone || slices.Contains(h.Ended, incarnation)
}

// Hosts returns hosts 1..ReadHorizon, in order, according to the reads that returned so far.
// Records beyond were blank when they were last read.
func (m *Machine) Hosts() []Host { return append([]Host(nil), m.found()...) }

// observe applies a read of the table. It concludes nothing about records that the read did not
// cover.
func (m *Machine) observe(records []Record) {
	for i := range records {
		records[i] = m.merge(i+1, records[i])
	}
	for i, r := range records {
		// A record becomes blank again only by a format, which has another uuid. Here its sector
		// was zeroed. Treating the host as gone would void its locks immediately, although it
		// will rewrite the record. (If it is the own record, the lease ends: see disowned.)
		if h := m.hosts[i]; r.Err == nil && r.Blank() && i+1 != m.id && h.Incarnation != 0 && !h.Gone {
			records[i].Err = ErrZeroed
		}
	}
	m.find(records)
	for i, r := range records {
		h := &m.hosts[i]
		m.damage(h, r.Err)
		if h.Readable {
			written := r.Incarnation != h.Incarnation || r.Sequence != h.Sequence
			m.see(h, r)
			if written && i+1 != m.id {
				m.complaints.Receive(m.id, r.HostRecord)
			}
		}
	}
	for i, r := range records {
		m.applyVerdicts(i+1, r)
	}
}

// merge returns the record that its copies make. A version older than the greatest ever seen changes nothing
// (GREATEST-EVER), but a live host takes its own record as it was read: see disowned.
func (m *Machine) merge(id int, r Record) Record {
	if m.members == nil {
		return r
	}
	own := m.spent
	if m.held {
		own = nil
	}
	c, err := m.members.Read(id, r.Copies, own, m.now, m.readAt, m.t.Lease)
	if err != nil {
		return Record{Err: err, Copies: r.Copies}
	}
	if id != m.id || !m.held {
		c = m.members.Newest(id, c, own)
	}
	m.hosts[id-1].window = m.members.Still(id, r.Copies)
	return Record{HostRecord: c.HostRecord, Copies: r.Copies}
}

// damage records whether a record is unreadable. Only an unbroken span of such reads counts. One
// read may have overlapped a write. Between two that lie far apart the owner may have repaired it
// and renewed its lease. A minority of copies may be a majority for the owner.
func (m *Machine) damage(h *Host, err error) {
	if err == nil {
		h.Damaged = 0
	} else if errors.Is(err, members.ErrMinority) || h.Readable || h.Damaged == 0 || m.readAt-h.Looked > m.t.Alive() {
		h.Damaged = m.now
	}
	h.Readable, h.Looked = err == nil, m.readAt
	h.Abandoned = h.damagedFor() >= m.abandonedAfter(h)
}

// abandonedAfter returns how long a record must be unreadable until its id is abandoned. The
// known watchdog of the id is no bound: another incarnation may have taken the id before the
// damage.
func (m *Machine) abandonedAfter(h *Host) time.Duration {
	return m.t.Blind() + max(m.t.MaxWatchdog(), h.maxWatchdog)
}

// settle records that every other incarnation of the id is over. Those that were live stay over.
// One that was not live may still go live if a late write of its claim lands again: it is void
// only for slots that were read before (VOID).
func (h *Host) settle() {
	h.Settled = true
	for _, x := range h.earlier {
		if x != h.Incarnation {
			h.Ended = members.Remember(h.Ended, x)
		}
	}
	h.earlier = nil
}

// see applies one record.
//
// An incarnation is settled when it is seen to renew twice within a lease. The second of these
// writes was made with the first acknowledged under a running lease, and any other host needs
// longer than that to take the id. One renewal is not enough: it may have hung and landed late,
// over the record of a next owner. An incarnation is also settled when its record stood still for
// L + margin: by then each incarnation that it overwrote has noticed.
func (m *Machine) see(h *Host, r Record) {
	switch {
	case r.Blank():
		h.Gone, h.Settled = true, true
		if h.Incarnation != 0 { // zeroed after its end: its verdict stays, for hosts that have not read it yet (ErrZeroed)
			h.Read = m.readAt
			return
		}
	case r.Incarnation != h.Incarnation:
		if h.State == layout.StateLive && !h.Gone {
			h.earlier = members.Remember(h.earlier, h.Incarnation)
		}
		h.Gone, h.Forgotten, h.Settled = false, false, false
		h.base, h.steps, h.Since, h.turns = m.readAt, 0, m.now, 0
	case r.Sequence != h.Sequence || r.State != h.State:
		m.stepped(h, r)
		h.Since, h.turns = m.now, 0
	case m.readAt-h.still() >= m.t.Dead()+h.maxWatchdog:
		h.settle()
	}
	h.Incarnation, h.State, h.Sequence = r.Incarnation, r.State, r.Sequence
	h.Name, h.ReadHorizon, h.PRKey, h.Read = r.Name, r.ReadHorizon, r.PRKey, m.readAt
	h.Watchdog = 0
	if r.WatchdogArmed {
		h.Watchdog = time.Duration(r.WatchdogSeconds) * time.Second
	}
	h.maxWatchdog = max(h.maxWatchdog, h.Watchdog)
	if r.State == layout.StateLeft || h.Gone {
		h.Gone = true
		h.Ended = members.Remember(h.Ended, h.Incarnation)
	}
}

// stepped applies a further write of the same incarnation.
func (m *Machine) stepped(h *Host, r Record) {
	switch {
	case r.Sequence < h.Sequence, h.Settled && m.now-h.base >= m.t.Lease: // its lease was over: this may be a write that hung
		h.Settled, h.base, h.steps = false, m.readAt, 0
	case h.State != layout.StateLive, r.State != layout.StateLive, m.now-h.base > m.t.Lease:
		h.base, h.steps = m.readAt, 0
	default:
		if h.steps++; m.members != nil {
			h.steps = m.members.Steps(r.ID, r.Incarnation)
		}
		if h.steps >= 2 {
			h.settle()
		}
	}
	if h.Settled {
		h.base = h.Read
	}
}

// covered reports whether every other host's reads cover this one (COVERED). Each of two joiners
// has written its record before this read began, so one of them sees the other. A host with an id
// beyond this read covers this one because of its higher id. But a record may hide a live host
// that it has overwritten:
//
//   - A joining record hides an earlier host until it is settled or its state changes.
//   - A live or left record, by a host that was live, hides only hosts that came later and found
//     at least the read horizon that it shows: no record becomes blank again. It is believed if
//     it covers this host; otherwise it must be settled.
//   - A left record without a read horizon is by a host that was perhaps never live: it counts as
//     joining.
//
// An unreadable record hides any host with its id, until no lease of that host runs any more: see
// passes.
//
// A live record that stands still until its lease is over need not cover this host, whatever the
// policy says about its holders. Its host takes no more tickets (FINAL), and those that it
// overwrote are over too.
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
		case r.State == layout.StateJoining && !h.Settled:
			return false
		case r.State == layout.StateJoining && m.foundBy(h):
		case r.ReadHorizon >= m.id:
		case h.Settled && (h.Gone || h.State == layout.StateLive && h.Read-h.still() >= m.t.Dead()+h.maxWatchdog):
		default:
			return false
		}
	}
	return true
}

// passes reports whether an unreadable record hides no host that takes tickets without covering
// this one. No host that was live has a lease (OWN-READABLE). One that joins later must first
// read its own record. That read ends within a budget, so it began when the own record already
// stood.
func (m *Machine) passes(h Host) bool {
	return m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen() && h.damagedFor() >= m.t.Blind()
}

// foundBy reports whether a joiner whose record stands still will find this host before it goes
// live, if it ever does. It looks once more, less than a budget before it goes live. That look
// had not ended when this read began, or comes later. By then the own record had stood for longer
// than a budget.
func (m *Machine) foundBy(h Host) bool {
	return h.Read-h.still() >= m.t.Dead() && m.stands >= 0 && m.readAt-m.stands >= m.t.Unseen()
}
