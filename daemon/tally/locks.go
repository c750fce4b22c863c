package tally

import (
	"maps"
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

	// askAgain is the interval at which a place is looked for if all are in use.
	askAgain = time.Minute
)

// LockCounts holds the counts of a lock.
type LockCounts struct {
	Grants   atomic.Uint64
	Handoffs atomic.Uint64
	Waited   atomic.Int64 // ns, for all grants
	Held     atomic.Int64 // ns, in all holds that are over

	used time.Time // last; guarded by the mutex of the Locks
}

// Locks holds the counts of each lock. The zero value is ready for use.
type Locks struct {
	rest LockCounts // of all locks without a place; not read, because the Tally counts all locks

	mu     sync.Mutex // guards the fields below, and used of all locks
	byName map[string]*LockCounts
	full   time.Time // when no lock could lose its place
}

// Of returns the counts of a lock that is in use now.
func (ls *Locks) Of(name string, now time.Time) *LockCounts {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	c := ls.byName[name]
	if c == nil {
		if len(ls.byName) >= MaxLocks && !ls.makeRoom(now) {
			return &ls.rest
		}
		if ls.byName == nil {
			ls.byName = map[string]*LockCounts{}
		}
		c = &LockCounts{}
		ls.byName[name] = c
	}
	c.used = now
	return c
}

// makeRoom takes the place of the lock with the oldest use, if it was idle for idleLock. Callers
// hold mu.
func (ls *Locks) makeRoom(now time.Time) bool {
	if now.Sub(ls.full) < askAgain {
		return false
	}
	name, before := "", now.Add(-idleLock)
	for n, c := range ls.byName {
		if !c.used.After(before) {
			name, before = n, c.used
		}
	}
	if name == "" {
		ls.full = now
		return false
	}
	delete(ls.byName, name)
	return true
}

// All returns the counts of the locks that have a place, by name.
func (ls *Locks) All() map[string]*LockCounts {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return maps.Clone(ls.byName)
}
