package stall

import (
	"sync"
	"time"
)

// MaxPause is the longest pause of a lock, in leases.
const MaxPause = 64

// Quarantine holds the locks whose IO has ended a lease of this host. Such a lock is not used for
// a pause, so that one bad sector does not end every lease, and with it the holds of all other
// locks. It is safe for concurrent use.
type Quarantine struct {
	mu    sync.Mutex // guards locks
	locks map[int]pause
}

type pause struct {
	length time.Duration
	until  time.Duration // 0: the pause has not begun
	why    error
}

// Add records that IO of a lock has ended a lease. The pause is one lease, or twice the previous
// pause if that ended less than MaxPause leases ago, up to MaxPause leases. It begins with Start.
func (q *Quarantine) Add(now time.Duration, lock int, lease time.Duration, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.locks == nil {
		q.locks = map[int]pause{}
	}
	p, again := q.locks[lock]
	if again && p.until == 0 { // another IO of the same lock and lease
		return
	}
	length := lease
	if again && now < p.until+MaxPause*lease {
		length = min(2*p.length, MaxPause*lease)
	}
	q.locks[lock] = pause{length: length, why: why}
}

// Start begins the pauses that have not begun: the host has a lease again, or waits for them to
// end.
func (q *Quarantine) Start(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for lock, p := range q.locks {
		if p.until == 0 {
			p.until = now + p.length
			q.locks[lock] = p
		}
	}
}

// Locks returns the locks that must not be used at a time.
func (q *Quarantine) Locks(now time.Duration) (locks []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for lock, p := range q.locks {
		if p.until == 0 || now < p.until {
			locks = append(locks, lock)
		}
	}
	return locks
}

// Of returns the rest of a lock's pause and its reason; 0 if the lock may be used.
func (q *Quarantine) Of(now time.Duration, lock int) (left time.Duration, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok := q.locks[lock]
	switch {
	case !ok || p.until != 0 && now >= p.until:
		return 0, nil
	case p.until == 0:
		return p.length, p.why
	}
	return p.until - now, p.why
}
