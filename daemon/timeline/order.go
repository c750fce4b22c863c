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
	c.learn(agreed, 0, true)
	if len(c.all) > 1 {
		c.learn(c.sightings(), noticed, false) // after the tokens, which are more reliable: contradicting events were recorded late
	}
	// Orders that need the least correction come first, so that excessive ones of a broken lock
	// are refused later.
	slices.SortStableFunc(excess, func(a, b order) int { return cmp.Compare(a.excess(), b.excess()) })
	for _, o := range excess {
		if !c.require(o, 0) {
			c.failed[o] = true
		} else {
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

// learn applies orders. For two clocks, the order that needs the greatest correction implies the
// others, if it is possible.
func (c *clocks) learn(all []order, slack int64, mustBe bool) {
	most := map[[2]int]int64{}
	for _, o := range all {
		k, by := [2]int{o.before.node, o.after.node}, o.excess()-slack
		if was, ok := most[k]; !ok || by > was {
			most[k] = by
		}
	}
	done := map[[2]int]bool{}
	for _, o := range all {
		k := [2]int{o.before.node, o.after.node}
		if _, tried := done[k]; !tried && o.before.clock != o.after.clock {
			done[k] = c.add(k[0], k[1], most[k])
		}
		if !done[k] && !c.require(o, slack) && mustBe {
			c.failed[o] = true
		}
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
	type ticket struct {
		lock   string
		ticket layout.Ticket
	}
	tickets, joins, verdicts := map[ticket]*record{}, map[life]*record{}, map[life]*record{}
	for _, r := range c.records {
		switch {
		case r.Lock != "" && r.Ticket != 0 && (r.Kind == events.Choosing || r.Kind == events.Ticket):
			tickets[ticket{r.Lock, r.Ticket}] = r
		case r.selfJoined():
			joins[life{r.Host, r.Incarnation}] = r
		case r.Kind == events.Dead && r.ByHost == r.keeper:
			verdicts[life{r.Host, r.Incarnation}] = r
		}
	}
	see := func(before, after *record) {
		if before != nil && before.keeper != after.keeper {
			all = append(all, order{before, after})
		}
	}
	for _, r := range c.records {
		for i := range r.Ahead {
			if p := &r.Ahead[i]; p.Host != r.keeper && p.Ticket != 0 {
				see(tickets[ticket{r.Lock, p.Ticket}], r)
			}
		}
		switch {
		case r.Kind == events.Joined && !r.selfJoined():
			see(joins[life{r.Host, r.Incarnation}], r)
		case r.Kind == events.Dead && r.ByHost != r.keeper:
			see(verdicts[life{r.Host, r.Incarnation}], r)
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
