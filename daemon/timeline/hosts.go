package timeline

import (
	"cmp"
	"slices"

	"github.com/bakeryd/bakeryd/daemon/events"
	"github.com/bakeryd/bakeryd/daemon/text"
)

func (h *historian) hostEvent(r *record) {
	keeper, by := h.keeperOf(r), -1
	about := keeper
	if r.Kind != events.Gap && r.Host != 0 {
		about = h.host(r.Host, r.HostName, r.Incarnation)
	}
	if r.ByHost != 0 {
		if by = h.host(r.ByHost, r.ByHostName, 0); by == about {
			by = -1
		}
	}
	c := &Change{At: r.at, Kind: r.Kind, By: by, Incarnation: r.Incarnation, Reason: r.Reason, before: h.last, keeper: keeper}
	h.Hosts[about].Changes = append(h.Hosts[about].Changes, c)
	if r.selfJoined() { // what it has read before
		for _, d := range h.dead {
			d.Old = true
		}
	}
	if r.Kind != events.Dead {
		h.dead = nil
	} else if about != keeper {
		h.dead = append(h.dead, c)
	}
	if about != keeper || by >= 0 && r.Kind != events.Gap {
		return
	}
	switch r.Kind {
	case events.Lost: // its waits are over; later events end its holds
		for _, a := range h.open {
			if a.held() {
				a.Lost = cmp.Or(a.Lost, r.at)
			} else {
				a.End, a.Ended, a.Sure = HostLost, r.at, r.at
			}
		}
	case events.Joined, events.Left: // its holds and waits are over
		h.doubtOpen()
		h.cut = r.at
		for _, a := range h.open {
			if a.End == "" {
				a.End, a.Ended, a.cut = Unseen, r.at, r.at
			}
		}
		clear(h.open)
	case events.Resumed: // what it keeps is resumed next; the journal may lack an end
		h.doubtOpen()
		h.cut = r.at
		for _, a := range h.open {
			a.cut = r.at
		}
	case events.Gap: // the journal may lack an end
		h.doubtOpen()
	}
}

// wakes bounds how long a stalled host may run again before it notices that its lease is over, in
// us.
const wakes = 1000 * 1000

// waking reports whether a hold ended just before the host noticed the end of its lease: the host
// may have been stalled.
func (a *Attempt) waking() bool {
	if a.End != Released {
		return false
	}
	all := a.host.Changes // by time
	i, _ := slices.BinarySearchFunc(all, a.Ended, func(c *Change, at Moment) int { return cmp.Compare(c.At, at) })
	for ; i < len(all) && all[i].At-a.Ended <= wakes; i++ {
		if all[i].Kind == events.Lost && all[i].By < 0 {
			return true
		}
	}
	return false
}

// doubtOpen sets the time that each open hold and wait lasted at least, to the last event of its
// host.
func (h *historian) doubtOpen() {
	for _, a := range h.open {
		if !a.doubted && a.cut == Never && a.End == "" {
			a.Sure, a.doubted = max(a.Sure, h.last), true
		}
	}
}

// dropCut ends what a restart of bakeryd did not resume, although the journal continues.
func (h *historian) dropCut() {
	for _, a := range h.open {
		if a.cut != Never && h.last-a.cut > wakes {
			a.End, a.Ended = Unseen, max(a.cut, a.Sure)
		}
	}
}

// sayAlike is the maximum distance of reports by several hosts about one silence.
const sayAlike = 10 * 1000 * 1000

// mergeChanges keeps the first of several hosts' reports about the same change of a host.
func (h *historian) mergeChanges() {
	type key struct {
		kind        events.Kind
		incarnation text.Hex
	}
	for _, host := range h.Hosts {
		slices.SortStableFunc(host.Changes, func(a, b *Change) int { return cmp.Compare(a.At, b.At) })
		latest := map[key]*Change{}
		host.Changes = slices.DeleteFunc(host.Changes, func(c *Change) bool {
			repeats := c.Kind == events.AtRisk || c.Kind == events.Seen
			if !repeats && c.Kind != events.Joined && c.Kind != events.Left && c.Kind != events.Dead {
				return false
			}
			k := key{c.Kind, c.Incarnation}
			first := latest[k]
			if first == nil || first.Old && !c.Old || c.Incarnation == 0 || repeats && (first.By == c.By || c.At-first.At > sayAlike) {
				latest[k] = c
				return false
			}
			if c.keeper != first.keeper && !slices.Contains(first.others, c.keeper) { // else it was read again
				first.others, first.Others = append(first.others, c.keeper), first.Others+1
			}
			if c.By < 0 && first.By >= 0 { // the host's own report is better
				first.By, first.Reason, first.before = c.By, c.Reason, c.before
			}
			return true
		})
	}
}

// guessEnds ends attempts without an end: by the verdict on the host, where the host restarted,
// or where another host holds the lock.
func (h *historian) guessEnds() {
	h.findNext()
	dead := map[life]*Change{} // the first verdict on each
	for i, host := range h.Hosts {
		for _, c := range slices.Backward(host.Changes) {
			if c.Kind == events.Dead && c.Incarnation != 0 {
				dead[life{i, c.Incarnation}] = c
			}
		}
	}
	for _, a := range h.Attempts {
		c := dead[life{a.Host, a.Incarnation}]
		if c != nil && c.At >= a.begin() && (a.Ended == Never || a.Ended > c.At || a.End == Unseen) {
			a.Verdict, a.oldVerdict = c.At, c.Old
		}
		a.Sure = max(a.Sure, a.begin())
		if a.held() {
			a.Sure = max(a.Sure, a.Entered)
		}
		if a.Ended != Never && a.End != Unseen {
			a.Sure = a.Ended
			continue
		}
		until, end := h.Until, Open
		if a.End == Unseen {
			until, end = a.Ended, Unseen
		}
		if a.Verdict != Never && a.Verdict <= until {
			until, end = a.Verdict, DeclaredDead
		}
		for _, next := range []Moment{a.next, a.removed()} {
			if next != Never && next < until {
				if until, end = next, Unseen; a.Verdict != Never {
					end = DeclaredDead
				}
			}
		}
		a.End, a.Ended = end, max(until, a.begin(), a.Sure)
	}
}

// removed returns when the lock of a hold was removed, after the time that the hold lasted at
// least; Never if it was not.
func (a *Attempt) removed() Moment {
	if i, _ := slices.BinarySearch(a.lock.removed, a.Sure); a.held() && i < len(a.lock.removed) {
		return a.lock.removed[i]
	}
	return Never
}

// findNext determines when each hold's lock was granted next.
func (h *historian) findNext() {
	for _, l := range h.Locks {
		exclusive, grant := Never, Never // the next exclusive grant, and the next one, downwards
		for _, a := range slices.Backward(l.holds) {
			if l.Permits > 1 || a.Token == 0 {
				break // there is no order
			}
			a.next = exclusive
			entered := max(a.Entered, a.known) // at the latest
			if !a.Shared {
				a.next, exclusive = grant, entered
			}
			grant = entered
		}
	}
}
