package lease

import (
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease/members"
	"github.com/bakeryd/bakeryd/layout"
)

// verdict is one that this host publishes.
type verdict struct {
	layout.Verdict
	durable time.Duration // time since which it is durable; -1: not yet
}

// applyVerdicts applies the verdicts in a record of another host, or of an earlier host with this
// id.
//
// With several members, one that a minority shows may vanish with its author, and the host that it
// names may never read it (CO-SIGN). That host obeys it. A live one publishes it too, and then acts.
func (m *Machine) applyVerdicts(by int, r Record) {
	copies, own := r.Copies, uint64(0)
	if m.members == nil && r.Err == nil && len(r.Verdicts) > 0 {
		copies = []Copy{{HostRecord: r.HostRecord, Read: true}}
	}
	if by == m.id { // own verdicts count when they are durable
		own = m.own.Incarnation
	}
	members.Verdicts(copies, own, func(name string, v layout.Verdict, votes int) {
		switch {
		case v.Host > len(m.hosts):
		case v.Kind.Dead() && (m.condemns(v) || votes >= m.members.Quorum()):
			m.declareDead(v, by)
		case v.Kind.Dead():
			if m.phase == live && m.ready && !m.hosts[v.Host-1].unaffected(v) {
				m.publish(v)
			}
		case v.Host == m.id && v.Incarnation == m.own.Incarnation && m.phase == live:
			m.ask(by, name)
		}
	})
}

// condemns reports whether a verdict is on the incarnation of this machine, or on the one that it
// is to continue.
func (m *Machine) condemns(v layout.Verdict) bool {
	t := m.term
	return v.Host == m.id && v.Incarnation == m.own.Incarnation || t != nil && v.Host == t.ID && v.Incarnation == t.Incarnation
}

// ask asks this host to leave, once.
func (m *Machine) ask(by int, name string) {
	if !m.asked {
		m.asked = true
		m.emit(Asked{By: by, Name: name})
	}
}

// declareDead marks an incarnation as dead, by a published verdict.
func (m *Machine) declareDead(v layout.Verdict, by int) {
	h := &m.hosts[v.Host-1]
	h.Ended = members.Remember(h.Ended, v.Incarnation)
	if h.unaffected(v) {
		return
	}
	if v.Host != m.id {
		m.emit(Declared{Host: v.Host, Incarnation: v.Incarnation, Name: h.Name, Verdict: v.Kind, Again: h.Gone, By: by})
	}
	h.Gone, h.Forgotten = true, v.Kind == layout.VerdictForgotten
}

// unaffected reports whether a verdict on an incarnation of this host changes nothing.
func (h *Host) unaffected(v layout.Verdict) bool {
	return h.Incarnation != v.Incarnation || h.State == layout.StateLeft ||
		h.Gone && (h.Forgotten || v.Kind != layout.VerdictForgotten)
}

// publish puts a verdict into the own record, or strengthens one that is there. It reports
// whether there was room for it. No host may act on it before it is durable (PUBLISHED).
func (m *Machine) publish(v layout.Verdict) bool {
	next := verdict{v, -1}
	i := slices.IndexFunc(m.verdicts, func(x verdict) bool { return x.Host == v.Host && x.Incarnation == v.Incarnation })
	switch {
	case i >= 0 && strength(m.verdicts[i].Kind) >= strength(v.Kind):
		return true
	case i >= 0:
	case len(m.verdicts) < layout.MaxVerdicts:
		m.verdicts = append(m.verdicts, next)
		i = len(m.verdicts) - 1
	default:
		if i = m.oldest(); i < 0 || m.now < m.replaceable(m.verdicts[i]) {
			return false
		}
	}
	m.verdicts[i] = next
	m.unpublished = true
	return true
}

func strength(k layout.VerdictKind) int {
	return slices.Index([]layout.VerdictKind{layout.VerdictWish, layout.VerdictDead, layout.VerdictForgotten}, k)
}

// sentenced reports whether the own record, durable or not, declares an incarnation dead.
func (m *Machine) sentenced(id int, incarnation uint64) bool {
	return slices.ContainsFunc(m.verdicts, func(v verdict) bool {
		return v.Host == id && v.Incarnation == incarnation && v.Kind.Dead()
	})
}

// named reports whether the own record, durable or not, has a verdict on an incarnation.
func (m *Machine) named(id int, incarnation uint64) bool {
	return slices.ContainsFunc(m.verdicts, func(v verdict) bool { return v.Host == id && v.Incarnation == incarnation })
}

// published applies the verdicts of the own record, now that it is durable.
func (m *Machine) published() {
	m.unpublished = false
	for i := range m.verdicts {
		v := &m.verdicts[i]
		first := v.durable < 0
		if first {
			v.durable = m.now
		}
		h := m.hosts[v.Host-1]
		switch {
		case v.Kind.Dead():
			m.declareDead(v.Verdict, m.id)
		case first && h.Incarnation == v.Incarnation:
			m.emit(Wished{Host: v.Host, Incarnation: v.Incarnation, Name: h.Name})
		}
	}
}

// drop removes each verdict whose host shows another incarnation or left, with several members on most (DROP).
func (m *Machine) drop() {
	m.verdicts = slices.DeleteFunc(m.verdicts, func(v verdict) bool {
		h := m.hosts[v.Host-1]
		return h.Readable && (h.Incarnation != v.Incarnation || h.State == layout.StateLeft) && m.members.Most(v.Host, func(s members.Sighting) bool {
			return s.Incarnation == h.Incarnation && (s.State == layout.StateLeft || h.Incarnation != v.Incarnation)
		})
	})
}

// roomAt returns when there will be room for another verdict, unless one is dropped earlier.
func (m *Machine) roomAt() time.Duration {
	if len(m.verdicts) < layout.MaxVerdicts {
		return 0
	}
	if i := m.oldest(); i >= 0 {
		return m.replaceable(m.verdicts[i])
	}
	return never
}

// oldest returns the index of the verdict that is replaceable first, or -1. Verdicts that only an
// operator could repeat are kept.
func (m *Machine) oldest() int {
	oldest := -1
	for i, v := range m.verdicts {
		kept := v.durable < 0 || v.Kind == layout.VerdictForgotten || m.cfg.Policy == layout.PolicyManual
		if !kept && (oldest < 0 || v.durable < m.verdicts[oldest].durable) {
			oldest = i
		}
	}
	return oldest
}

// replaceable returns when another verdict may replace this one. Every host that was live when it
// became durable has read it by then or is over, and later ones time the dead host themselves.
func (m *Machine) replaceable(v verdict) time.Duration { return v.durable + m.t.Dead() }

// inherit continues to publish the verdicts in the record that is claimed or resumed. Wishes are
// kept only when resuming, because they belong to one incarnation and may not have been read yet.
func (m *Machine) inherit(r Record) {
	m.verdicts = nil
	for _, v := range r.Verdicts {
		if v.Host != m.id && v.Host <= len(m.hosts) && (v.Kind.Dead() || v.Kind == layout.VerdictWish && m.takenOver) {
			m.verdicts = append(m.verdicts, verdict{v, -1})
		}
	}
	m.drop()
}
