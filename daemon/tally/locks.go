package tally

import (
	"sync"
	"sync/atomic"
	"time"
)

// Names of locks are the clients' choice, and there can be 65,536 at once. So only some have counts of their own: those
// that come first, until they were not used for a while and another one wants the place. Counts only grow, or begin anew
// with those of a lock that has its place again, as after a restart: what reads them has to cope with that anyway.
const (
	// MaxLocks is how many locks have counts of their own.
	MaxLocks = 100

	// idleLock is after how long without use a lock has to give its place to another one.
	idleLock = time.Hour

	// askAgain is how often a lock without a place asks for one.
	askAgain = time.Minute
)

// LockCounts is what is counted of a lock, or of all those together that have no place.
type LockCounts struct {
	Grants   atomic.Uint64
	Handoffs atomic.Uint64
	Waited   atomic.Int64 // ns, for all grants
	Held     atomic.Int64 // ns, in all holds that are over

	used atomic.Int64 // when last, in ns since the epoch of the Locks
	gone atomic.Bool  // it has lost its place
}

// Locks has what is counted of each lock. The zero value is ready for use.
type Locks struct {
	rest LockCounts

	mu     sync.Mutex // guards what follows
	byName map[string]*LockCounts
	epoch  time.Time
}

// Place is what one part of a lock remembers of where it counts. It belongs to whoever uses it: one goroutine at a time.
type Place struct {
	counts *LockCounts // nil: it never asked
	epoch  time.Time
	asked  time.Time
}

// Of returns the counts of a lock that is used now.
func (p *Place) Of(ls *Locks, name string, now time.Time) *LockCounts {
	if p.counts == nil || p.counts.gone.Load() || p.counts == &ls.rest && now.Sub(p.asked) >= askAgain {
		p.counts, p.epoch = ls.place(name, now)
		p.asked = now
	}
	p.counts.used.Store(int64(now.Sub(p.epoch)))
	return p.counts
}

func (ls *Locks) place(name string, now time.Time) (counts *LockCounts, epoch time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byName == nil {
		ls.byName, ls.epoch = map[string]*LockCounts{}, now
	}
	if c := ls.byName[name]; c != nil {
		return c, ls.epoch
	}
	if len(ls.byName) >= MaxLocks && !ls.makeRoom(int64(now.Sub(ls.epoch)-idleLock)) {
		return &ls.rest, ls.epoch
	}
	c := &LockCounts{}
	c.used.Store(int64(now.Sub(ls.epoch)))
	ls.byName[name] = c
	return c, ls.epoch
}

// makeRoom takes the place of the lock that was not used for longest, if that was before a time. It is called with mu held.
func (ls *Locks) makeRoom(before int64) bool {
	name := ""
	for n, c := range ls.byName {
		if used := c.used.Load(); used <= before {
			name, before = n, used
		}
	}
	if name == "" {
		return false
	}
	ls.byName[name].gone.Store(true)
	delete(ls.byName, name)
	return true
}

// All returns the counts by the name of the lock; of all locks without a place by "".
func (ls *Locks) All() map[string]*LockCounts {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := make(map[string]*LockCounts, len(ls.byName)+1)
	for name, c := range ls.byName {
		all[name] = c
	}
	all[""] = &ls.rest
	return all
}
