package timeline

import (
	"slices"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
)

// State is the state of a host during a span.
type State string

// The states of hosts.
const (
	Live   State = "live"
	AtRisk State = "risk"   // it does not renew its lease
	Down   State = "dead"   // declared dead, or without a lease
	Gone   State = "gone"   // it has left
	Unsure State = "unsure" // it was live before, and its end is not in the journals
	// Unknown is the state before the journals say anything. It has no span.
	Unknown State = ""
)

// Span is a time in which a host had one state.
type Span struct {
	State State  `json:"state"`
	From  Moment `json:"from"`
	Till  Moment `json:"till"`
}

// spanMaker derives the spans of one host from its changes.
type spanMaker struct {
	host  *Host
	state State
	since Moment
	life  text.Hex          // the incarnation that has joined last; 0: not known
	over  map[text.Hex]bool // earlier incarnations, and those that are dead or have left
}

// makeSpans derives the spans of all hosts, up to the end of the journals.
func (t *Timeline) makeSpans() {
	for _, h := range t.Hosts {
		m := &spanMaker{host: h, since: t.watchedSince(h), over: map[text.Hex]bool{}}
		if h.Journal {
			m.state, m.life = Live, h.life
		}
		if len(h.Changes) > 0 && (!h.Journal || h.Changes[0].At <= h.own[0]) {
			m.state, m.life = before(h.Changes[0]), h.Changes[0].Incarnation
		}
		for _, c := range h.Changes {
			m.change(c)
		}
		m.end(t.Until)
	}
}

// before returns the state that a host had before the first change that the journals have.
func before(c *Change) State {
	switch c.Kind {
	case events.Joined, events.Dead: // a host that joins reads verdicts of long ago
		return Unknown
	case events.Seen:
		return AtRisk
	}
	return Live
}

// watchedSince returns since when the journals show a host that was live before its first change:
// from the beginning of its own journal, or of the one that has this change.
func (t *Timeline) watchedSince(h *Host) Moment {
	var seen []Moment
	from := func(h *Host) { seen = append(seen, h.own[:min(1, len(h.own))]...) }
	from(h)
	if len(h.Changes) > 0 {
		seen = append(seen, h.Changes[0].At)
		if by := h.Changes[0].By; by >= 0 {
			from(t.Hosts[by])
		}
	}
	if len(seen) == 0 {
		return Never
	}
	return slices.Min(seen)
}

func (m *spanMaker) change(c *Change) {
	if m.over[c.Incarnation] && c.Incarnation != 0 {
		return // a late report about an earlier incarnation
	}
	if other := c.Incarnation != 0 && m.life != 0 && c.Incarnation != m.life; other {
		if c.Kind == events.Dead && (m.state == Live || m.state == AtRisk) {
			return // a verdict of long ago: the host has joined since
		}
		m.over[m.life] = true
		if c.By < 0 {
			m.unsureBefore(c.At, Never) // no host has reported the end of the earlier one
		}
	}
	if c.Incarnation != 0 {
		m.life = c.Incarnation
	}
	if c.Old {
		m.unsureBefore(c.At, c.before)
	}
	next := m.state
	switch c.Kind {
	case events.Joined, events.Resumed:
		next = Live
	case events.Seen:
		if m.state == AtRisk {
			next = Live
		}
	case events.AtRisk:
		if m.state == Live {
			next = AtRisk
		}
	case events.Left:
		next = Gone
	case events.Dead, events.Lost:
		next = Down
	}
	if c.Kind == events.Left || c.Kind == events.Dead || c.Kind == events.Lost {
		m.over[c.Incarnation] = true
	}
	if next != m.state {
		m.end(c.At)
		m.state, m.since = next, c.At
	}
}

// unsureBefore ends a state in which the host was live with the last event before a moment that
// shows that: its own, or another host's.
func (m *spanMaker) unsureBefore(at, others Moment) {
	if m.state != Live && m.state != AtRisk {
		return
	}
	last := max(m.since, others)
	if i, _ := slices.BinarySearch(m.host.own, at); i > 0 {
		last = max(last, m.host.own[i-1])
	}
	m.end(last)
	m.state, m.since = Unsure, last
}

// end adds the present state until a moment.
func (m *spanMaker) end(at Moment) {
	if m.state != Unknown && m.since < at {
		m.host.Spans = append(m.host.Spans, Span{m.state, m.since, at})
	}
}
