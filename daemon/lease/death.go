package lease

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// never is later than any time.
const never = time.Duration(1 << 62)

// statement is a verdict to publish after a fresh read: after a fence, or for an operator.
type statement struct {
	layout.Verdict
	fresh    bool // the next read to return was requested since
	operator bool
}

// suspect reports whether time may prove an incarnation dead. Time proves nothing about a joining
// one: its claim may take any time, and it goes live at its end (JOINERS).
func (m *Machine) suspect(id int) bool {
	h := &m.hosts[id-1]
	return id != m.id && h.State == layout.StateLive && !h.Gone && !m.sentenced(id, h.Incarnation)
}

// due returns when the table must be read for a verdict or a fencing window.
func (m *Machine) due() time.Duration {
	if m.unpublished || m.raised() {
		return 0
	}
	next := never
	for _, w := range m.statements {
		if !w.operator {
			next = min(next, max(m.roomAt(), m.hosts[w.Host-1].DeadAt(m.t)))
		} else if !w.fresh || !m.unclear(w) {
			next = min(next, m.roomAt())
		}
	}
	if m.cfg.Policy == layout.PolicyManual {
		return next
	}
	var e electorate
	if m.cfg.Policy == layout.PolicyFence {
		e = m.electorate()
	}
	for i := range m.found() {
		switch {
		case !m.suspect(i + 1), !m.hosts[i].Readable: // see damagedAt
		case m.cfg.Policy == layout.PolicyFence:
			next = min(next, m.turnAt(&m.hosts[i], e))
		default:
			next = min(next, max(m.hosts[i].DeadAt(m.t), m.roomAt()))
		}
	}
	return next
}

// damagedAt returns when to read the table because a record is unreadable. Reads are frequent
// until the id is abandoned, for two reasons: the owner's repair must not go unseen, and one
// owner's writes cannot overlap all of them.
func (m *Machine) damagedAt() time.Duration {
	for i, h := range m.found() {
		if i+1 != m.id && h.Damaged != 0 && !h.Abandoned {
			return m.readAt + m.t.Watch()
		}
	}
	return never
}

// judge decides, by a read of the table that shows no foreign claim on this host's id, which
// verdicts to publish on others.
//
// A record that was first seen at Since, and was the same in a read requested at Read, was not
// renewed between them. Any acknowledged write of its host was submitted before Since, so its
// lease ended before Since + L, or it was acknowledged too late to count (FINAL).
//
//	host j                  this host                   record of j
//	renews: submits at t0
//	  lands                                             x.7
//	                        reads: Since                x.7
//	(t0 + L: lease over)
//	                        asks at Read >= Since +
//	                        L + margin + watchdog       x.7
//	                        writes the verdict, reads
//	                        j's slots as void
//	(a renewal lands)                                   x.8: revives nothing
//
// An incarnation whose record is unreadable may have renewed its lease unseen before the damage,
// but not much later (OWN-READABLE):
//
//	host j                  this host                   record of j
//	asks for a read                                     x.7
//	  (samples its record)                              x.7
//	                                                    damaged
//	                        reads: Damaged
//	  (within a budget)
//	renews: submits at t0
//	  lands                                             unreadable
//	(t0 + L: lease over)
//	                        asks at Looked >= Damaged +
//	                        budget + L + margin +
//	                        watchdog                    unreadable
//	                        writes the verdict
func (m *Machine) judge() {
	m.drop()
	if !m.ready { // HEARD: each live host has covered this one since it is ready, or joined later and found it
		return
	}
	m.publishStatements()
	var dead []int
	for i := range m.found() {
		h := &m.hosts[i]
		if m.suspect(i+1) && h.Looked >= h.DeadAt(m.t) {
			dead = append(dead, i+1)
		}
	}
	if len(dead) == 0 {
		return
	}
	e := m.electorate()
	for i := range dead {
		// If there are more than a record has room for, each live host begins with others.
		id := dead[(i+int(e.rank)*len(dead)/int(e.n))%len(dead)]
		switch m.cfg.Policy {
		case layout.PolicyLease:
			m.publish(layout.Verdict{Host: id, Incarnation: m.hosts[id-1].Incarnation})
		case layout.PolicyFence:
			m.turn(id, e)
		}
	}
}

// publishStatements publishes the statements that still apply.
func (m *Machine) publishStatements() {
	var rest []statement
	for _, w := range m.statements {
		h := m.hosts[w.Host-1]
		v := w.Verdict
		if h.unaffected(v) {
			continue
		}
		if w.operator && !h.Gone && m.readAt-h.still() <= m.t.Alive() {
			v.Kind = layout.VerdictWish
		}
		switch {
		case !w.fresh || m.unclear(w) || !w.operator && h.Looked < h.DeadAt(m.t) || !m.publish(v):
			w.fresh = true
			rest = append(rest, w)
		case slices.ContainsFunc(m.verdicts, func(x verdict) bool { return x.Verdict == v && x.durable >= 0 && v.Kind == layout.VerdictWish }):
			m.emit(Wished{Host: v.Host, Incarnation: v.Incarnation, Name: h.Name}) // repeated, because the operator repeated the command
		}
	}
	m.statements = rest
}

// unclear reports whether it is not known yet if a host named by an operator is silent. One
// unreadable read may have overlapped a renewal, and an owner repairs its record by its next
// renewal.
func (m *Machine) unclear(w statement) bool {
	h := m.hosts[w.Host-1]
	return w.operator && !h.Readable && h.damagedFor() <= m.t.Alive()
}

// state queues a verdict for publication after a fresh read.
func (m *Machine) state(v layout.Verdict, operator bool) {
	w := statement{v, !m.reading, operator}
	for i := range m.statements {
		if m.statements[i].Verdict == v {
			m.statements[i] = w
			return
		}
	}
	m.statements = append(m.statements, w)
}
