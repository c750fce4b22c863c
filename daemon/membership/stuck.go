package membership

import (
	"fmt"
	"slices"
	"time"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/daemon/stall"
)

// stuckAt returns the IO of a lock that ends the lease, or becomes suspect, and when. It returns
// false if none is in flight, or if IO of the lease itself fails or hangs: then the lease ends soon
// anyway, and no lock is the cause. Called with mu held.
func (mb *Member) stuckAt() (stall.IO, time.Duration, bool) {
	if mb.trouble.Load() != nil || slices.ContainsFunc([]*underWay{&mb.reading, &mb.writing}, mb.hangs) {
		return stall.IO{}, 0, false
	}
	io, ok := mb.cfg.Stalls.Oldest()
	if io != mb.suspect {
		return io, io.Since + mb.times().Stuck() - mb.times().Retry(), ok
	}
	return io, max(io.Since+mb.times().Stuck(), mb.suspectedAt+mb.times().Retry()), ok
}

// hangs reports whether IO of the lease has taken so long that the device may hang. With fence-after, IO of
// locks is stuck before it is reported that IO of the lease hangs. Called with mu held.
func (mb *Member) hangs(u *underWay) bool {
	early := mb.cfg.SB.FenceAfter > 0 && mb.cfg.Clock.Now()-u.since >= mb.times().Retry()
	return u.since != 0 && (u.reported || early)
}

// loseForStall ends the lease if IO of a lock has blocked other hosts for too long. It puts every
// lock with IO older than a renewal interval into quarantine, because it would end one of the next
// leases.
func (mb *Member) loseForStall() {
	now := mb.cfg.Clock.Now()
	mb.mu.Lock()
	stuck, at, ok := mb.stuckAt()
	ok = ok && stuck == mb.suspect && now >= at && !mb.m.Over()
	mb.mu.Unlock()
	if !ok {
		return
	}
	for _, io := range mb.cfg.Stalls.Before(now - mb.times().Renew()) {
		mb.cfg.Quarantine.Add(now, io.Lock, mb.cfg.SB.Lease, mb.stuck(io, now))
	}
	mb.LoseFor(mb.stuck(stuck, now))
}

// awaitLocks blocks until IO of locks that is older than a renewal interval has returned. It
// returns false if the lease has no time for a write then.
func (mb *Member) awaitLocks() bool {
	before := mb.cfg.Clock.Now() - mb.times().Renew()
	ios := mb.cfg.Stalls.Before(before)
	if len(ios) == 0 {
		return true
	}
	mb.returned(&mb.writing) // no IO of the lease is in flight that could be reported as hanging
	if mb.waits.Allow() {
		attrs := []any{"lock", ios[0].Name, "lock_number", ios[0].Lock, "offset", ios[0].Offset}
		mb.logAside(mb.cfg.Log.Warn, "IO of a lock hangs, the renewal waits for it", append(attrs, mb.notAnswering()...)...)
	}
	for len(mb.cfg.Stalls.Before(before)) > 0 {
		select {
		case <-time.After(mb.times().Retry()):
		case <-mb.over.Done():
			return false
		}
	}
	mb.mu.Lock()
	defer mb.mu.Unlock()
	mb.begins(&mb.writing)
	return mb.m.MayWrite(mb.cfg.Clock.Now())
}

// stuck returns the error that describes the stuck IO.
func (mb *Member) stuck(io stall.IO, now time.Duration) error {
	of := fmt.Sprintf("lock %q", io.Name)
	switch {
	case io.Lock == lockspace.DirectoryLock:
		of = "the lock directory"
	case io.Name == "":
		of = fmt.Sprintf("lock number %d", io.Lock)
	}
	return fmt.Errorf("%w: host %d, %s: IO at byte %d of %s has not succeeded for %v; find the fault with dmesg and bakeryctl check",
		api.ErrStuck, mb.ID(), of, io.Offset, mb.cfg.Dev.Info().Path, (now - io.Since).Round(time.Millisecond))
}
