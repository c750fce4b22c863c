// Package timing derives all times of a lease from its length, and suggests a length for a disk. It
// never knows a clock.
package timing

import (
	"time"

	"github.com/bakeryd/bakeryd/layout"
)

// Times holds the numbers from which all times derive. They come from the superblock, so that hosts
// cannot disagree on them.
type Times struct {
	Lease time.Duration // how long a host may continue without a successful renewal

	// FenceAfter is how long a host may be silent before others fence it. 0: until its lease is over.
	// It is at least [layout.MinFenceAfter], so that two renewals, the time for an IO and the pause after it
	// fit in.
	FenceAfter time.Duration
}

// Of returns the times of a lockspace.
func Of(sb layout.Superblock) Times { return Times{Lease: sb.Lease, FenceAfter: sb.FenceAfter} }

// Valid reports whether a superblock with this policy can have these times.
func (t Times) Valid(policy layout.Policy) bool {
	early := policy == layout.PolicyFence && t.FenceAfter >= layout.MinFenceAfter(t.Lease) && t.FenceAfter <= t.Lease
	return t.Lease >= layout.MinLease && policy <= layout.PolicyManual && (t.FenceAfter == 0 || early)
}

// watched returns how long a host may be silent before others act on it.
func (t Times) watched() time.Duration {
	if t.FenceAfter > 0 {
		return t.FenceAfter
	}
	return t.Lease
}

// Renew returns the time from one renewal to the next.
func (t Times) Renew() time.Duration { return min(t.Lease/6, t.watched()/3) }

// Sure returns how long after a renewal began no other host can have declared this one dead, whatever
// the drift of their clocks (SURE in package lease).
func (t Times) Sure() time.Duration {
	if t.FenceAfter > 0 {
		return t.FenceAfter - t.FenceAfter/5
	}
	return t.Lease
}

// Budget returns the maximum duration of one IO: d. No write begins once less is left of the
// lease.
func (t Times) Budget() time.Duration { return t.Lease / 20 }

// Grace returns the time that holders have between SIGTERM and the end of the lease: G.
func (t Times) Grace() time.Duration { return t.Lease / 6 }

// Margin returns the allowance for the drift of clocks over one lease and for the time that a
// kill takes.
func (t Times) Margin() time.Duration { return t.Lease / 5 }

// ClaimBudget returns the maximum duration of a step of the short claim: c.
func (t Times) ClaimBudget() time.Duration { return min(t.Budget(), 100*time.Millisecond) }

// ShortWait returns how long the short claim waits before it looks whether it still stands.
func (t Times) ShortWait() time.Duration { return 3 * t.ClaimBudget() }

// LongWait returns how long the long claim waits: a host that it overwrote is over by then.
func (t Times) LongWait() time.Duration { return t.Lease + t.Margin() }

// Alive returns the time within which the record of a live host changes, if IO stays within its
// budget.
func (t Times) Alive() time.Duration { return t.Renew() + t.Budget() }

// Dead returns how long a record must stand still for its incarnation to be over, without the
// watchdog.
func (t Times) Dead() time.Duration { return t.Lease + t.Margin() }

// Silence returns how long the record of a host with a watchdog must stand still until others declare
// it dead, or fence it. Its lease and its watchdog do not matter once it is fenced.
func (t Times) Silence(watchdog time.Duration) time.Duration {
	if t.FenceAfter > 0 {
		return t.FenceAfter
	}
	return t.Dead() + watchdog
}

// Blind returns how long a record must be unreadable for its incarnation to be over, without the
// watchdog. A renewal that is requested after the damage may follow a read that was requested a
// budget before it (OWN-READABLE).
func (t Times) Blind() time.Duration { return t.Dead() + t.Budget() }

// MaxWatchdog returns the longest time-out of a watchdog that a host may arm. Other hosts wait
// for that much longer if they cannot read which one it has.
func (t Times) MaxWatchdog() time.Duration { return max(t.Lease, 10*time.Second) }

// FenceWindow returns how long one host tries to fence another before the next host's window.
func (t Times) FenceWindow() time.Duration { return max(t.Lease, 10*time.Second) }

// FenceTime returns the part of a window that an attempt may use. Each host counts its windows
// from one of its own reads, and these are up to Alive apart.
func (t Times) FenceTime() time.Duration { return t.FenceWindow() - t.Alive() }

// NextWindow returns when the next window of the host with a rank begins, of those from the kth on. The
// windows of n hosts take turns from a time on. A window whose time for an attempt is over is left out:
// the rest of it lets the attempt end.
func (t Times) NextWindow(from, now time.Duration, k, n, rank int64) time.Duration {
	window := int64(t.FenceWindow())
	if passed := now - from; passed > 0 {
		k = max(k, int64(passed)/window)
		if k == int64(passed)/window && int64(passed)%window >= int64(t.FenceTime()) {
			k++
		}
	}
	k += ((rank-k)%n + n) % n
	return from + time.Duration(k*window)
}

// Unseen returns how long a joiner whose look came just before a write may still go live without
// having seen it: the budget of that step, by any clock.
func (t Times) Unseen() time.Duration { return t.Margin() }

// Stuck returns how long IO of a lock that other hosts wait for may take before it ends the
// lease. The last renewal began when that IO did, or later, so holders have at least the grace, and
// others do not fence this host before.
func (t Times) Stuck() time.Duration {
	if t.FenceAfter > 0 {
		return t.FenceAfter / 2
	}
	return t.Lease - t.Grace()
}

// Retry returns the time from a failed IO to the next attempt, and between reads of a record that
// may change.
func (t Times) Retry() time.Duration { return t.Lease / 60 }

// LockRetry returns the time from a failed IO of a lock to the next attempt. A slot that is damaged is
// read several times, which must take less than Stuck.
func (t Times) LockRetry() time.Duration { return t.watched() / 60 }

// Poll returns the time between reads of a host that waits to be covered.
func (t Times) Poll() time.Duration { return min(t.Lease/60, 100*time.Millisecond) }

// Watch returns the time between reads of the host table by a host that waits for another. It
// bounds the delay with which a death is noticed.
func (t Times) Watch() time.Duration { return max(t.watched()/30, 50*time.Millisecond) }

// Watchdog returns the time-out to request from a watchdog, in whole seconds. Other hosts wait
// for that much longer.
func (t Times) Watchdog() time.Duration { return max(time.Second, (t.Lease / 3).Round(time.Second)) }
