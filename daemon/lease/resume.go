package lease

import (
	"cmp"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Term is the part of a lease that a driver keeps outside of its process, so that the next process can
// continue it on the same boot. It may be of any earlier acknowledgement. The driver must store it again when
// Clean becomes false, with several members before each write. It is void if Term returns none.
type Term struct {
	ID          int
	Incarnation uint64
	T0          time.Duration // start of the lease
	Ready       bool          // tickets may be taken
	Clean       bool          // no write of the record has failed, or is under way
	ReadHorizon int           // with several members: the highest that any write has shown (NOTE-FIRST)
	Epoch       uint64        // and the newest epoch of their list
}

// Term returns the present lease, and whether it runs.
func (m *Machine) Term() (Term, bool) {
	if !m.leased() || m.members != nil && m.own.State == layout.StateLeft { // LEFT-FIRST
		return Term{}, false
	}
	t := Term{ID: m.id, Incarnation: m.own.Incarnation, T0: m.t0, Ready: m.ready, Clean: m.clean && !m.writing}
	if m.members != nil {
		t.ReadHorizon, t.Epoch = m.own.ReadHorizon, m.own.Epoch
	}
	return t, true
}

// resumeTerm continues the incarnation of [Config.Resume], if its record and its lease still
// stand (RESUMED). It reports whether it has handled the read. If the lease cannot be continued,
// its id is not free earlier than for any other process of this machine: the lease may have been
// renewed after the Term was stored.
func (m *Machine) resumeTerm(records []Record) bool {
	if m.term == nil {
		return false
	}
	t := *m.term
	if t.ID < 1 || t.ID > m.cfg.Hosts || m.now < t.T0 || m.now+m.t.Budget() >= t.T0+m.t.Lease {
		m.term = nil
		return false
	}
	r := records[t.ID-1]
	if r.Err != nil {
		m.timer = m.now + m.t.Retry()
		return true
	}
	if m.awaitList(max(t.Epoch, r.Epoch)) {
		return true
	}
	m.term = nil
	if r.Incarnation != t.Incarnation || r.State != layout.StateLive || m.hosts[t.ID-1].Gone {
		return false
	}
	m.resume(t, r, records)
	return true
}

// resume makes the machine live, as the previous process was.
func (m *Machine) resume(t Term, r Record, records []Record) {
	m.id, m.t0, m.phase, m.held, m.clean, m.takenOver = t.ID, t.T0, live, true, t.Clean, true
	own := m.cfg.Self
	own.ID, own.Incarnation, own.State, own.Sequence = r.ID, r.Incarnation, r.State, r.Sequence+m.leap(t)
	if !own.WatchdogArmed {
		own.WatchdogArmed, own.WatchdogSeconds = r.WatchdogArmed, r.WatchdogSeconds
	}
	own.ReadHorizon, own.Generation, own.PRKey = r.ReadHorizon, r.Generation, cmp.Or(own.PRKey, r.PRKey)
	m.own, m.acked, m.stands = own, r.Sequence, m.now
	if m.members != nil {
		m.acked = 0 // r may be on a minority, and the next read an older one
		m.cover(t.ReadHorizon)
	}
	m.spent = append(m.spent, r.Incarnation)
	m.readHorizon, m.proven, m.shown = max(m.readHorizon, r.ReadHorizon), max(m.proven, r.ReadHorizon), r.ReadHorizon
	m.inherit(r)
	m.unpublished = len(m.verdicts) > 0 || own.PRKey != r.PRKey || own.Epoch != r.Epoch ||
		own.WatchdogArmed != r.WatchdogArmed || own.WatchdogSeconds != r.WatchdogSeconds
	m.ready = t.Ready || m.covered(records)
	m.emit(Joined{ID: m.id, Incarnation: m.own.Incarnation, Deadline: m.Deadline(), Generation: r.Generation, Resumed: true})
	m.pace()
	if m.ready {
		m.emit(Ready{})
	}
	for i, r := range records { // wishes for this host, which had no id before
		if i+1 != m.id {
			m.applyVerdicts(i+1, r)
		}
	}
}

// leap returns the growth of the sequence when a lease is resumed. Failed writes of the previous
// process may still land, and no two records of an incarnation may be the same. A host that reads
// rarely would mistake the second for the first, and its host for one that stood still. No host
// writes more than once a millisecond.
//
//	host j                        its next process        observer            record of j
//	writes x.9: fails                                                         x.8
//	(ends)                        writes x.9                                  x.9
//	                                                      reads x.9: Since
//	                              writes x.10 to x.13                         x.13
//	(the x.9 that failed lands)                                               x.9
//	                              (reads hang)            reads x.9: still
func (m *Machine) leap(t Term) uint64 { return uint64((m.now - t.T0) / time.Millisecond) }
