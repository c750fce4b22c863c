package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// align corrects the clocks by events that must be in order.
func (c *clocks) align(t *Timeline) {
	var agreed, excess []order
	for _, o := range t.tokenOrder() {
		if o.excess() <= 0 {
			agreed = append(agreed, o)
		} else {
			excess = append(excess, o)
		}
	}
	// Of two clocks, the order that needs the greatest correction implies the others.
	greatest := func(a, b order) int { return cmp.Compare(b.excess(), a.excess()) }
	slices.SortStableFunc(agreed, greatest)
	for _, o := range agreed {
		c.failed[o] = !c.require(o, 0)
	}
	if len(c.all) > 1 { // after the tokens, which are more reliable: contradicting events were recorded late
		for _, o := range slices.SortedStableFunc(slices.Values(c.sightings()), greatest) {
			c.require(o, noticed)
		}
	}
	// Orders that need the least correction come first, so that excessive ones of a broken lock
	// are refused later.
	slices.SortStableFunc(excess, func(a, b order) int { return cmp.Compare(a.excess(), b.excess()) })
	for _, o := range excess {
		if c.failed[o] = !c.require(o, 0); !c.failed[o] {
			c.excused = append(c.excused, o.excess())
		}
	}
	if len(c.excused) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("the clocks of the hosts disagree by at least %s: by the clocks alone, tokens would go back or two hosts hold one lock at the same time, in %d hand-overs. "+
			"Times are corrected by the order of the tokens", length(slices.Max(c.excused)), len(c.excused)))
	}
	c.solve()
	for _, r := range c.records {
		r.at = r.raw + Moment(c.offset[r.node])
	}
}

// tokenOrder returns the order of conflicting holds by their tokens: each ended before the next
// was granted. With several permits tokens show no order.
func (t *Timeline) tokenOrder() (all []order) {
	for _, l := range t.Locks {
		if l.Permits > 1 {
			continue
		}
		var writer *Attempt
		var readers []*Attempt // since the last exclusive hold
		for _, a := range l.holds {
			if writer != nil && writer.Token != a.Token {
				all = append(all, orderOf(writer, a)...)
			}
			if a.Shared {
				readers = append(readers, a)
				continue
			}
			for _, r := range readers {
				if !slices.ContainsFunc(r.Modes, func(m ModeChange) bool { return !m.Shared }) {
					all = append(all, orderOf(r, a)...)
				}
			}
			writer, readers = a, nil
		}
	}
	return all
}

// orderOf returns what two successive holds show. A lost hold may have continued: it is only
// certain that it began before the other.
func orderOf(a, b *Attempt) []order {
	if a.entered == nil || b.entered == nil {
		return nil
	}
	shared := slices.ContainsFunc(a.Modes, func(m ModeChange) bool { return m.Shared })
	switch {
	case a.exited != nil && a.Lost == Never && a.Verdict == Never && !a.waking() && !(shared && b.Shared):
		return []order{{a.exited, b.entered}}
	case a.entered.Kind == events.Enter:
		return []order{{a.entered, b.entered}}
	}
	return nil
}

// sightings returns the orders in which one host saw another.
func (c *clocks) sightings() (all []order) {
	type sight struct { // a ticket at a lock, or an incarnation that joined or is dead
		kind events.Kind
		lock string
		host int
		of   uint64
	}
	ticket := func(lock string, of layout.Ticket) sight { return sight{events.Ticket, lock, 0, uint64(of)} }
	seen := map[sight]*record{}
	for _, r := range c.records {
		switch {
		case r.Lock != "" && r.Ticket != 0 && (r.Kind == events.Choosing || r.Kind == events.Ticket):
			seen[ticket(r.Lock, r.Ticket)] = r
		case r.selfJoined(), r.Kind == events.Dead && r.ByHost == r.keeper:
			seen[sight{r.Kind, "", r.Host, r.Incarnation}] = r
		}
	}
	see := func(what sight, r *record) {
		if before := seen[what]; before != nil && before.keeper != r.keeper {
			all = append(all, order{before, r})
		}
	}
	for _, r := range c.records {
		for i := range r.Ahead {
			if p := &r.Ahead[i]; p.Host != r.keeper && p.Ticket != 0 {
				see(ticket(r.Lock, p.Ticket), r)
			}
		}
		if r.Kind == events.Joined && !r.selfJoined() || r.Kind == events.Dead && r.ByHost != r.keeper {
			see(sight{r.Kind, "", r.Host, r.Incarnation}, r)
		}
	}
	return all
}

// length formats a duration for people.
func length(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d < time.Millisecond:
		return d.String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
