package membership

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/bakeryd/bakeryd/daemon/lease"
	"github.com/bakeryd/bakeryd/daemon/lease/timing"
)

// underWay is IO of the lease on the device. The lease's own alarm detects that it hangs. A timer
// for each IO would wake the process once more per renewal, even if it were stopped in time.
type underWay struct {
	what     string
	since    time.Duration // 0 if none is in flight
	reported bool          // the hang was reported
}

func (mb *Member) times() timing.Times { return timing.Of(mb.cfg.SB) }

// begins records IO that is about to begin. Called with mu held.
func (mb *Member) begins(u *underWay) { u.since, u.reported = mb.cfg.Clock.Now(), false }

// returned records that IO has returned, before the lease machine gets its result.
func (mb *Member) returned(u *underWay) {
	mb.mu.Lock()
	was := *u
	if mb.hangs(u) && u.since < mb.suspectedAt { // IO of locks that hung with it returns soon
		mb.suspectedAt = mb.cfg.Clock.Now()
	}
	u.since = 0
	mb.mu.Unlock()
	if was.reported {
		took := (mb.cfg.Clock.Now() - was.since).Round(time.Millisecond)
		mb.logAside(mb.cfg.Log.Warn, "IO that hung has returned", "device", mb.cfg.Dev.Info().Path, "what", was.what, "took", took)
	}
}

// overdueAt returns the time from which the IO takes far longer than a lease permits; false if that
// need not be detected.
func (mb *Member) overdueAt(u *underWay) (time.Duration, bool) {
	return u.since + 2*mb.times().Budget(), u.since != 0 && !u.reported
}

// withCause adds to the reason why the lease is over that this process did not run, or IO of the lease
// that hangs. Called with mu held.
func (mb *Member) withCause(reason error) error {
	// No turn follows a pause before the lease ends, so the alarm is that from before it.
	if late := mb.cfg.Clock.Now() - mb.ringsAt; errors.Is(reason, lease.ErrExpired) && late > mb.times().Renew() {
		return fmt.Errorf("%w: this bakeryd did not run for %v", reason, late.Round(time.Millisecond))
	}
	for _, u := range []*underWay{&mb.reading, &mb.writing} {
		if u.since == 0 || !u.reported || !errors.Is(reason, lease.ErrExpired) {
			continue
		}
		device := mb.cfg.Dev.Info().Path
		if mb.set != nil {
			device = cmp.Or(mb.silentDisks(), device)
		}
		return fmt.Errorf("%w: IO hangs: %s, for %v, on %s", reason, u.what, (mb.cfg.Clock.Now() - u.since).Round(time.Millisecond), device)
	}
	return reason
}

// ring sets the alarm for when the machine needs the time, or when IO of the lease or of a lock may
// hang. Called with mu held.
func (mb *Member) ring(at time.Duration) {
	for _, u := range []*underWay{&mb.reading, &mb.writing} {
		if overdue, ok := mb.overdueAt(u); ok {
			at = min(at, overdue)
		}
	}
	if _, stuck, ok := mb.stuckAt(); ok {
		at = min(at, stuck)
	}
	if mb.cfg.Alive != nil {
		at = min(at, mb.turned+mb.cfg.AliveEvery)
	}
	mb.ringsAt = at
	_ = mb.alarm.Set(at) // fails only once closed
}

// beginTurn begins a turn of the loop that drives the lease. It returns the IO of the lease that hangs
// and was not reported yet, and records IO of a lock that is nearly stuck.
func (mb *Member) beginTurn() (hangs []string) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	mb.turned = mb.cfg.Clock.Now()
	for _, u := range []*underWay{&mb.reading, &mb.writing} {
		if at, ok := mb.overdueAt(u); ok && mb.turned >= at {
			u.reported = true
			hangs = append(hangs, u.what)
		}
	}
	// IO of a lock that is nearly stuck ends the lease only if it is still in flight a retry's pause
	// later. After a pause of the whole process, IO that returned long ago may not have been recorded
	// as over yet.
	io, ok := mb.cfg.Stalls.Oldest()
	if ok && io != mb.suspect && mb.turned >= io.Since+mb.times().Stuck()-mb.times().Retry() {
		mb.suspect, mb.suspectedAt = io, mb.turned
	}
	return hangs
}
