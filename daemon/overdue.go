package daemon

import (
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
)

// underWay is IO of the lease on the device. That it hangs is found out by the lease's own alarm: a timer for each
// would wake the process once more for every renewal, even one that was stopped in time.
type underWay struct {
	what     string
	since    time.Duration // 0: none is under way
	reported bool          // that it hangs
}

func (mb *member) times() lease.Times { return lease.Times{Lease: mb.sb.Lease} }

// begins notes IO that is about to begin. It is called with mu held.
func (mb *member) begins(u *underWay) { u.since, u.reported = mb.clock.Now(), false }

// returned notes that IO has returned, before the lease learns of it.
func (mb *member) returned(u *underWay) {
	mb.mu.Lock()
	was := *u
	u.since = 0
	mb.mu.Unlock()
	if was.reported {
		took := (mb.clock.Now() - was.since).Round(time.Millisecond)
		mb.io.Go(func() { // a log that blocks must not hold up the lease
			mb.log.Warn("IO that hung has returned", "device", mb.dev.Info().Path, "what", was.what, "took", took)
		})
	}
}

// overdueAt is from when on it takes far longer than a lease has time for; false if that need not be found out.
func (mb *member) overdueAt(u *underWay) (time.Duration, bool) {
	return u.since + 2*mb.times().Budget(), u.since != 0 && !u.reported
}

// ring sets the alarm for when the lease is to be told the time, or for IO that may hang by then, its own
// or that of a lock. It is called with mu held.
func (mb *member) ring(at time.Duration) {
	for _, u := range []*underWay{&mb.reading, &mb.writing} {
		if overdue, ok := mb.overdueAt(u); ok {
			at = min(at, overdue)
		}
	}
	if stuck, ok := mb.stuckAt(); ok {
		at = min(at, stuck)
	}
	_ = mb.alarm.Set(mb.nextTurn(at)) // fails only once closed
}

// hanging returns what IO is found to hang.
func (mb *member) hanging() (hangs []string) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	for _, u := range []*underWay{&mb.reading, &mb.writing} {
		if at, ok := mb.overdueAt(u); ok && mb.clock.Now() >= at {
			u.reported = true
			hangs = append(hangs, u.what)
		}
	}
	return hangs
}
