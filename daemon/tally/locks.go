package tally

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clients choose the names of locks, and there can be 65,536 at a time. Therefore only MaxLocks
// have their own counts. A lock keeps its place until it was idle for idleLock and another lock
// requests it. Counts of a lock only grow, or restart at 0 when it gets a place again. Readers
// must handle that anyway, because a restart of bakeryd does the same.
const (
	// MaxLocks is the number of locks with their own counts.
	MaxLocks = 100

	// idleLock is the time without use after which a lock may lose its place.
	idleLock = time.Hour

	// askAgain is the interval at which a lock without a place requests one.
	askAgain = time.Minute
)

// LockCounts holds the counts of a lock, or of all locks without a place.
type LockCounts struct {
	Grants   atomic.Uint64
	Handoffs atomic.Uint64
	Waited   atomic.Int64 // ns, for all grants
	Held     atomic.Int64 // ns, in all holds that are over

	used atomic.Int64 // last use, in ns since the epoch of the Locks
	gone atomic.Bool  // it has lost its place
}

// Locks holds the counts of each lock. The zero value is ready for use.
type Locks struct {
	rest LockCounts

	mu     sync.Mutex // guards the fields below
	byName map[string]*LockCounts
	epoch  time.Time
}

// Place caches the counts of a lock for one of its users. Only one goroutine at a time may use
// it.
type Place struct {
	counts *LockCounts // nil: not requested yet
	epoch  time.Time
	asked  time.Time
}

// Of returns the counts of a lock that is in use now.
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

// makeRoom takes the place of the lock with the oldest use, if that was before a time. Callers
// hold mu.
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
