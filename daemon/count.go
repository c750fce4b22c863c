package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// What is counted (package tally) of locks and hosts. Requests to the device are by timed.go, what is refused by refused.go.

// counts tells whether a lock is one of clients: bakeryd has one for itself.
func (lk *lock) counts() bool { return lk.entry.Lock != lockspace.DirectoryLock }

// countQueued has the lock counted by its name, if there is room for that, as soon as somebody wants it. It is called with
// mu held.
func (lk *lock) countQueued(w *waiter) {
	if lk.counts() {
		lk.place.Of(&lk.d.cfg.Tally.Locks, lk.entry.Name, w.since)
	}
}

// countEnter is called with mu held.
func (lk *lock) countEnter(h *Hold, w *waiter) {
	if !lk.counts() {
		return
	}
	t, waited := lk.d.cfg.Tally, h.since.Sub(w.since)
	t.Waits.Add(waited)
	c := lk.place.Of(&t.Locks, lk.entry.Name, h.since)
	c.Grants.Add(1)
	c.Waited.Add(int64(waited))
	// Whose ticket has had a grant before passes on what another client had.
	if lk.tenure != nil && lk.tenure.grants > 0 {
		t.Handoffs.Add(1)
		c.Handoffs.Add(1)
	}
}

// countExit is called with mu held.
func (lk *lock) countExit(h *Hold, now time.Time) {
	if !lk.counts() || h.joined {
		return
	}
	t, held := lk.d.cfg.Tally, now.Sub(h.since)
	t.Holds.Add(held)
	lk.place.Of(&t.Locks, lk.entry.Name, now).Held.Add(int64(held))
}

// countGone counts that a host is over which stood before this one by its slot as it was last read.
func (lk *lock) countGone(h lease.Host, v bakery.View, incarnation uint64) {
	if h.State != layout.StateLeft && (!v.Readable || v.Slot.Phase != layout.Idle && v.Slot.Incarnation == incarnation) {
		lk.d.cfg.Tally.Recoveries.Add(1)
	}
}

// count counts what the lease tells. Renewals are where their time is known.
func (mb *member) count(a lease.Action) {
	switch a := a.(type) {
	case lease.Joined:
		mb.tally.Joins.Add(1)
		if a.Resumed {
			mb.tally.Resumed.Add(1)
		}
	case lease.Lost:
		mb.tally.LeasesLost.Add(1)
	case lease.Declared:
		switch {
		case !mb.live(mb.clock.Now()): // it reads for the first time what may be long past
		case !mb.firstWord(a):
		case a.By == mb.id():
			mb.tally.DeathsDeclared.Add(1)
		default:
			mb.tally.DeathsLearned.Add(1)
		}
	}
}

// firstWord tells whether that a host is dead is said for the first time. It may be said again that its id is free.
func (mb *member) firstWord(a lease.Declared) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.buried[a.Host] == a.Incarnation {
		return false
	}
	mb.buried[a.Host] = a.Incarnation
	return true
}
