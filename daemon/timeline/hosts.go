package timeline

import (
	"cmp"
	"slices"

	"github.com/bakeryd/bakeryd/daemon/events"
)

func (h *historian) hostEvent(r *record) {
	by := -1
	if r.ByHost != 0 && r.ByHost != r.Host {
		by = h.hostAt[r.ByHost]
	}
	id := cmp.Or(r.Host, r.keeper)
	if r.Kind == events.Gap {
		id = r.keeper
	}
	host := h.Hosts[h.hostAt[id]]
	host.Changes = append(host.Changes, Change{At: r.at, Kind: r.Kind, By: by, Incarnation: r.Incarnation, Reason: r.Reason})
	if id != r.keeper || by >= 0 && r.Kind != events.Gap {
		return
	}
	switch r.Kind {
	case events.Lost: // its waits are over; later events end its holds
		for _, a := range h.ended {
			a.waking = a.waking || r.at-a.Ended <= wakes
		}
		h.ended = nil
		for _, a := range h.open {
			if a.held() {
				a.Lost = cmp.Or(a.Lost, r.at)
			} else {
				a.End, a.Ended = HostLost, r.at
			}
		}
	case events.Joined, events.Left: // its holds and waits are over
		h.ended = nil
		h.doubtOpen()
		for _, a := range h.open {
			a.End, a.Ended = Unseen, r.at
		}
		clear(h.open)
	case events.Resumed, events.Gap: // the journal may lack an end
		h.doubtOpen()
	}
}

// wakes bounds how long a stalled host may run again before it notices that its lease is over, in
// us. maxWaking bounds the number of holds that can end in that time.
const (
	wakes     = 1000 * 1000
	maxWaking = 1000
)

// doubtOpen sets the time that each open hold lasted at least, to the last event of its host.
func (h *historian) doubtOpen() {
	for _, a := range h.open {
		if a.held() && !a.doubted {
			a.Sure, a.doubted = max(a.Sure, h.last), true
		}
	}
}

// sayAlike is the maximum distance of reports by several hosts about one silence.
const sayAlike = 10 * 1000 * 1000

// mergeChanges keeps the first of several hosts' reports about the same change of a host.
func (h *historian) mergeChanges() {
	type key struct {
		kind        events.Kind
		incarnation uint64
	}
	for _, host := range h.Hosts {
		all := host.Changes
		slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
		once := map[key]int{}
		n := 0
		for _, c := range all {
			switch c.Kind {
			case events.Joined, events.Left, events.Dead, events.AtRisk, events.Seen:
				k := key{c.Kind, c.Incarnation}
				at, ok := once[k]
				again := ok && (c.Kind == events.AtRisk || c.Kind == events.Seen) && (all[at].By == c.By || c.At-all[at].At > sayAlike)
				if ok && !again && c.Incarnation != 0 {
					first := &all[at]
					first.Others++
					if c.By < 0 && first.By >= 0 { // the host's own report is better
						first.By, first.Reason = c.By, c.Reason
					}
					continue
				}
				once[k] = n
			}
			all[n] = c
			n++
		}
		host.Changes = all[:n]
	}
}

// guessEnds ends attempts without an end: by the verdict on the host, where the host restarted,
// or where another host holds the lock.
func (h *historian) guessEnds() {
	h.findNext()
	for _, a := range h.Attempts {
		if a.Incarnation != 0 {
			changes := h.Hosts[a.Host].Changes
			if i := slices.IndexFunc(changes, func(c Change) bool { return c.Kind == events.Dead && c.Incarnation == a.Incarnation }); i >= 0 {
				at := changes[i].At
				if at >= a.begin() && (a.Ended == Never || a.Ended > at || a.End == Unseen) {
					a.Verdict = at
				}
			}
		}
		if a.held() {
			a.Sure = max(a.Sure, a.Entered)
		}
		if a.Ended != Never && a.End != Unseen {
			if a.held() {
				a.Sure = a.Ended
			}
			continue
		}
		until, end := h.Until, Open
		if a.End == Unseen {
			until, end = a.Ended, Unseen
		}
		if a.Verdict != Never && a.Verdict <= until {
			until, end = a.Verdict, DeclaredDead
		}
		if a.next != Never && a.next < until {
			until, end = a.next, Unseen
			if a.Verdict != Never {
				end = DeclaredDead
			}
		}
		a.End, a.Ended = end, max(until, a.begin(), a.Sure)
	}
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
			if !a.Shared {
				a.next, exclusive = grant, a.Entered
			}
			grant = a.Entered
		}
	}
}
