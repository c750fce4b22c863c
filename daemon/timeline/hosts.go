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
	host := &h.Hosts[h.hostAt[id]]
	host.Changes = append(host.Changes, Change{At: r.at, Kind: r.Kind, By: by, Incarnation: r.Incarnation, Reason: r.Reason})
	if id != r.keeper || by >= 0 && r.Kind != events.Gap {
		return
	}
	switch r.Kind {
	case events.Joined, events.Lost, events.Left: // its holds and waits are over
		for _, i := range h.ended {
			a := &h.Attempts[i]
			a.waking = a.waking || r.Kind == events.Lost && r.at-a.Ended <= wakes
		}
		h.ended = nil
		for _, i := range h.open {
			a := &h.Attempts[i]
			if r.Kind == events.Lost && a.held() {
				if a.Lost == Never {
					a.Lost = r.at
				}
				continue // later events end the hold
			}
			h.unsure(i)
			a.End, a.Ended = Unseen, r.at
			if r.Kind == events.Lost {
				a.End = HostLost
			}
		}
		if r.Kind != events.Lost {
			clear(h.open)
		}
	case events.Resumed, events.Gap: // the journal may lack an end
		for _, i := range h.open {
			h.unsure(i)
		}
	}
}

// wakes bounds how long a stalled host may run again before it notices that its lease is over, in
// us. maxWaking bounds the number of holds that can end in that time.
const (
	wakes     = 1000 * 1000
	maxWaking = 1000
)

// unsure sets the time that an attempt lasted at least, to the last event of its host.
func (h *historian) unsure(i int) {
	a := &h.Attempts[i]
	if a.held() && !a.doubted {
		a.sure, a.doubted = max(a.sure, h.last), true
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
	for i := range h.Hosts {
		all := h.Hosts[i].Changes
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
		h.Hosts[i].Changes = all[:n]
	}
}

// guessEnds ends attempts without an end: by the verdict on the host, where the host restarted,
// or where another host holds the lock.
func (h *historian) guessEnds() {
	next := h.nextGrants()
	for i := range h.Attempts {
		a := &h.Attempts[i]
		verdict := Never
		for _, c := range h.Hosts[a.Host].Changes {
			if c.Kind == events.Dead && c.Incarnation == a.Incarnation && a.Incarnation != 0 {
				verdict = c.At
				break
			}
		}
		if verdict != Never && verdict >= a.begin() && (a.Ended == Never || a.Ended > verdict || a.End == Unseen) {
			a.Verdict = verdict
		}
		if a.held() {
			a.sure = max(a.sure, a.Entered)
		}
		if a.Ended != Never && a.End != Unseen {
			if a.held() {
				a.sure = a.Ended
			}
			continue
		}
		until, end := h.end, Open
		if a.End == Unseen {
			until, end = a.Ended, Unseen
		}
		if a.Verdict != Never && a.Verdict <= until {
			until, end = a.Verdict, DeclaredDead
		}
		if at := next[i]; at != Never && at < until {
			until, end = at, Unseen
			if a.Verdict != Never {
				end = DeclaredDead
			}
		}
		a.End, a.Ended = end, max(until, a.begin())
		if a.held() {
			a.Ended = max(a.Ended, a.sure)
		}
	}
}

// nextGrants returns for each exclusive hold when the lock was granted next, by the tokens.
func (h *historian) nextGrants() []Moment {
	next := make([]Moment, len(h.Attempts))
	byLock := make([][]int, len(h.Locks))
	for i := range h.Attempts {
		next[i] = Never
		if a := &h.Attempts[i]; a.held() && a.Token != 0 && h.Locks[a.Lock].Permits == 1 {
			byLock[a.Lock] = append(byLock[a.Lock], i)
		}
	}
	for _, all := range byLock {
		slices.SortFunc(all, func(x, y int) int { return cmp.Compare(h.Attempts[x].Token, h.Attempts[y].Token) })
		exclusive := Never // the next exclusive grant, downwards
		for k := len(all) - 1; k >= 0; k-- {
			a := &h.Attempts[all[k]]
			next[all[k]] = exclusive
			if !a.Shared {
				if k+1 < len(all) {
					next[all[k]] = h.Attempts[all[k+1]].Entered
				}
				exclusive = a.Entered
			}
		}
	}
	return next
}
