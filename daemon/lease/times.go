package lease

import (
	"errors"
	"fmt"
	"time"
)

// MinLease and MaxLease bound the lease of a lockspace.
const (
	MinLease = time.Second
	MaxLease = time.Hour
)

// ErrTimes is returned when a lease is out of bounds.
var ErrTimes = errors.New("lease out of bounds")

// Times is the one number that all times derive from. It comes from the superblock, so that hosts cannot
// disagree on it.
type Times struct {
	Lease time.Duration // for how long a host may go on without a successful renewal
}

// Validate returns an ErrTimes for a lease out of bounds.
func (t Times) Validate() error {
	if t.Lease < MinLease || t.Lease > MaxLease {
		return fmt.Errorf("lease of %v, want from %v to %v: %w", t.Lease, MinLease, MaxLease, ErrTimes)
	}
	return nil
}

// Renew is the time from one renewal to the next.
func (t Times) Renew() time.Duration { return t.Lease / 6 }

// Budget is what one IO may take: d. Nothing is written once less is left of the lease.
func (t Times) Budget() time.Duration { return t.Lease / 20 }

// Grace is what holders get between SIGTERM and the end of the lease: G.
func (t Times) Grace() time.Duration { return t.Lease / 6 }

// Margin covers what clocks may differ by over one lease, and the time that a kill takes.
func (t Times) Margin() time.Duration { return t.Lease / 5 }

// ClaimBudget is what a step of the short claim may take: c.
func (t Times) ClaimBudget() time.Duration { return min(t.Budget(), 100*time.Millisecond) }

// ShortWait is for how long the short claim waits before it looks whether it still stands.
func (t Times) ShortWait() time.Duration { return 3 * t.ClaimBudget() }

// LongWait is for how long the long claim waits: whoever held the id when it was overwritten is over by then.
func (t Times) LongWait() time.Duration { return t.Lease + t.Margin() }

// Alive is within how much time a record that is kept up changes, if IO keeps within its budget.
func (t Times) Alive() time.Duration { return t.Renew() + t.Budget() }

// Dead is for how long a record must stand still for its incarnation to be over, the watchdog apart.
func (t Times) Dead() time.Duration { return t.Lease + t.Margin() }

// Blind is for how long a record must be unreadable for its incarnation to be over, the watchdog apart. A renewal that is
// asked for after the damage may follow a read that was asked for a budget before it (OWN-READABLE).
func (t Times) Blind() time.Duration { return t.Dead() + t.Budget() }

// MaxWatchdog is the longest time-out of a watchdog that a host may arm: others wait for that much longer where they
// cannot read which one it has.
func (t Times) MaxWatchdog() time.Duration { return max(t.Lease, 10*time.Second) }

// FenceWindow is for how long one host tries to fence another before it is the next one's turn.
func (t Times) FenceWindow() time.Duration { return max(t.Lease, 10*time.Second) }

// FenceTime is how much of a window an attempt may use: hosts count their windows from a moment that each saw by a
// read of its own, up to Alive apart.
func (t Times) FenceTime() time.Duration { return t.FenceWindow() - t.Alive() }

// Unseen is for how long a joiner whose look came just before something was written may still go live without having
// seen it: the budget of that step, by any clock.
func (t Times) Unseen() time.Duration { return t.Margin() }

// Stuck is for how long IO of a lock that others wait for may take before it ends the lease. The last renewal began when
// that IO did, or later: so holders have the grace at least.
func (t Times) Stuck() time.Duration { return t.Lease - t.Grace() }

// Retry is the time from a failed IO to the next attempt, and from one look at a record that may change to
// the next.
func (t Times) Retry() time.Duration { return t.Lease / 60 }

// Poll is the time from one look to the next of a host that waits to be covered.
func (t Times) Poll() time.Duration { return min(t.Lease/60, 100*time.Millisecond) }

// Watch is the time from one look at the host table to the next of a host that waits for another: a death is
// found out by no more than that later than by looking all the time.
func (t Times) Watch() time.Duration { return max(t.Lease/30, 50*time.Millisecond) }

// Watchdog is the time-out that a watchdog is asked for, in whole seconds: others wait for that much longer.
func (t Times) Watchdog() time.Duration { return max(time.Second, (t.Lease / 3).Round(time.Second)) }
