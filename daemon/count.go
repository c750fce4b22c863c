package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/bakery"
	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
)

// Counters (package tally) of locks and hosts. metered.go counts requests to the device, refused.go
// refusals.

// counts reports whether a lock belongs to clients. The directory's lock is bakeryd's own.
func (lk *lock) counts() bool { return lk.entry.Lock != lockspace.DirectoryLock }

// countQueued begins to count the lock by its name when a client first requests it, if there is
// room for the name. Called with mu held.
func (lk *lock) countQueued(w *waiter) {
	if lk.counts() {
		lk.place.Of(&lk.d.cfg.Tally.Locks, lk.entry.Name, w.since)
	}
}

// countEnter counts a grant. Called with mu held.
func (lk *lock) countEnter(h *Hold, w *waiter) {
	if !lk.counts() {
		return
	}
	t, waited := lk.d.cfg.Tally, h.since.Sub(w.since)
	t.Waits.Add(waited)
	c := lk.place.Of(&t.Locks, lk.entry.Name, h.since)
	c.Grants.Add(1)
	c.Waited.Add(int64(waited))
	// After the first grant of a ticket, each further one is a handoff from another local client.
	if lk.acquisition != nil && lk.acquisition.grants > 0 {
		t.Handoffs.Add(1)
		c.Handoffs.Add(1)
	}
}

// countExit counts a release. Called with mu held.
func (lk *lock) countExit(h *Hold, now time.Time) {
	if !lk.counts() || h.joined {
		return
	}
	t, held := lk.d.cfg.Tally, now.Sub(h.since)
	t.Holds.Add(held)
	lk.place.Of(&t.Locks, lk.entry.Name, now).Held.Add(int64(held))
}

// countGone counts a recovery if a host that is over took part in the lock by its slot as last
// read.
func (lk *lock) countGone(h lease.Host, v bakery.View, incarnation uint64) {
	if h.State != layout.StateLeft && (!v.Readable || v.Slot.Phase != layout.Idle && v.Slot.Incarnation == incarnation) {
		lk.d.cfg.Tally.Recoveries.Add(1)
	}
}
