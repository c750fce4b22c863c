package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/layout"
)

// order says that an event came before another.
type order struct{ before, after *record }

// align puts the clocks right by what must have come before what.
func (c *clocks) align(t *Timeline) {
	var agreed, excess []order
	for _, o := range t.tokenOrder() {
		if o.before.raw <= o.after.raw {
			agreed = append(agreed, o)
		} else {
			excess = append(excess, o)
		}
	}
	c.learn(agreed, 0, true)
	if len(c.all) > 1 {
		c.learn(c.sightings(), noticed, false) // after the tokens, which are the surer ones: what does not fit them was noted late
	}
	// Those that ask least of the clocks first: what a broken lock asks in excess is refused then.
	slices.SortStableFunc(excess, func(a, b order) int {
		return cmp.Compare(a.before.raw-a.after.raw, b.before.raw-b.after.raw)
	})
	for _, o := range excess {
		if !c.require(o.before, o.after, 0) {
			c.failed[[2]*record{o.before, o.after}] = true
		} else {
			c.excused = append(c.excused, excuse{o.before.keeper, o.after.keeper, int64(o.before.raw - o.after.raw)})
		}
	}
	c.solve()
	for _, k := range c.all {
		for _, r := range k.records {
			r.at = r.raw + Moment(c.offset[r.node])
		}
	}
}

// learn learns what comes before what. Of all that two clocks are asked for
// the most says the rest as well, if it can be.
func (c *clocks) learn(all []order, slack int64, mustBe bool) {
	most := map[[2]int]int64{}
	for _, o := range all {
		k, by := [2]int{o.before.node, o.after.node}, int64(o.before.raw-o.after.raw)-slack
		if was, ok := most[k]; !ok || by > was {
			most[k] = by
		}
	}
	done := map[[2]int]bool{}
	for _, o := range all {
		k := [2]int{o.before.node, o.after.node}
		if _, tried := done[k]; !tried && !c.same(o.before, o.after) {
			done[k] = c.add(k[0], k[1], most[k])
		}
		if !done[k] && !c.require(o.before, o.after, slack) && mustBe {
			c.failed[[2]*record{o.before, o.after}] = true
		}
	}
}

// tokenOrder is the order of holds in conflict that their tokens show: each
// ended before the next was granted. Of several permits tokens show none.
func (t *Timeline) tokenOrder() (all []order) {
	for _, holds := range t.holdsByLock() {
		if len(holds) == 0 || t.Locks[t.Attempts[holds[0]].Lock].Permits > 1 {
			continue
		}
		slices.SortFunc(holds, func(x, y int) int {
			a, b := &t.Attempts[x], &t.Attempts[y]
			return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Entered, b.Entered))
		})
		var writer *Attempt
		var readers []*Attempt // since
		for _, i := range holds {
			a := &t.Attempts[i]
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

// orderOf is what two holds one after the other show. A hold that was lost may
// have gone on: only that it began before the other is sure.
func orderOf(a, b *Attempt) []order {
	if a.entered == nil || b.entered == nil {
		return nil
	}
	shared := slices.ContainsFunc(a.Modes, func(m ModeChange) bool { return m.Shared })
	if a.exited != nil && a.Lost == Never && a.Verdict == Never && !a.waking && !(shared && b.Shared) {
		return []order{{a.exited, b.entered}}
	}
	if a.entered.Kind == events.Enter {
		return []order{{a.entered, b.entered}}
	}
	return nil
}

// holdsByLock are the attempts that had each lock.
func (t *Timeline) holdsByLock() [][]int {
	holds := make([][]int, len(t.Locks))
	for i := range t.Attempts {
		if a := &t.Attempts[i]; a.held() {
			holds[a.Lock] = append(holds[a.Lock], i)
		}
	}
	return holds
}

// sightings are what one host saw of another.
func (c *clocks) sightings() (all []order) {
	type ticket struct {
		lock   string
		ticket layout.Ticket
	}
	type joined struct {
		host        int
		incarnation uint64
	}
	tickets, joins, verdicts := map[ticket]*record{}, map[joined]*record{}, map[joined]*record{}
	each := func(see func(r *record)) {
		for _, k := range c.all {
			for _, r := range k.records {
				see(r)
			}
		}
	}
	each(func(r *record) {
		switch {
		case r.Lock != "" && r.Ticket != 0 && (r.Kind == events.Choosing || r.Kind == events.Ticket):
			tickets[ticket{r.Lock, r.Ticket}] = r
		case r.selfJoined():
			joins[joined{r.Host, r.Incarnation}] = r
		case r.Kind == events.Dead && r.ByHost == r.keeper:
			verdicts[joined{r.Host, r.Incarnation}] = r
		}
	})
	see := func(before, after *record) {
		if before != nil && before.keeper != after.keeper {
			all = append(all, order{before, after})
		}
	}
	each(func(r *record) {
		for i := range r.Ahead {
			if p := &r.Ahead[i]; p.Host != r.keeper && p.Ticket != 0 {
				see(tickets[ticket{r.Lock, p.Ticket}], r)
			}
		}
		switch {
		case r.Kind == events.Joined && !r.selfJoined():
			see(joins[joined{r.Host, r.Incarnation}], r)
		case r.Kind == events.Dead && r.ByHost != r.keeper:
			see(verdicts[joined{r.Host, r.Incarnation}], r)
		}
	})
	return all
}

// Clock is what was found out of the clock of one host.
type Clock struct {
	Host    int   // index
	Added   int64 // us that its times are shown later, or earlier, than it said, at the most
	Excused int   // hand-overs of it that come in the wrong order by the clocks alone
	By      int64 // us, the most of these
}

// report tells of each clock that does not go with the others.
func (c *clocks) report(t *Timeline) (all []Clock) {
	added := map[int]int64{} // by id
	for _, k := range c.all {
		for _, r := range k.records {
			if by := c.offset[r.node]; abs(by) > abs(added[r.keeper]) {
				added[r.keeper] = by
			}
		}
	}
	worst := int64(0)
	for i := range t.Hosts {
		k := Clock{Host: i, Added: added[t.Hosts[i].ID]}
		for _, e := range c.excused {
			if e.before == t.Hosts[i].ID || e.after == t.Hosts[i].ID {
				k.Excused++
				k.By = max(k.By, e.by)
				worst = max(worst, e.by)
			}
		}
		if k.Added != 0 || k.Excused > 0 {
			all = append(all, k)
		}
	}
	if len(c.excused) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("the clocks of the hosts disagree by at least %s: by them alone, tokens would go back or two hosts have one lock at once, in %d hand-overs. "+
			"The order of the tokens tells by how much; times are shown as it puts them right", length(worst), len(c.excused)))
	}
	return all
}

// length is a time for people.
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
